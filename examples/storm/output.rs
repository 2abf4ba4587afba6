//! What every command takes and gives alike: files, durations, and the line at the end.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::Args;

use crate::{Failed, chart::Chart, table::Table};

/// Where the results go besides the screen.
#[derive(Args)]
pub(crate) struct Output {
    /// Draw a chart into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the rows into this file.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

impl Output {
    /// Writes the files that were asked for.
    pub(crate) fn write(&self, rows: &Table, chart: impl FnOnce() -> Chart) -> Result<(), Failed> {
        if let Some(file) = &self.csv {
            fs::write(file, rows.csv())?;
        }
        if let Some(file) = &self.svg {
            fs::write(file, chart().svg()?)?;
        }
        Ok(())
    }
}

/// Reads `700ms` or `1.5s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => match text.strip_suffix('s') {
            Some(number) => (number, 1.0),
            None => return Err("needs a unit, as in 700ms or 1.5s".into()),
        },
    };
    let number: f64 = number.parse().map_err(|_| "needs a number, as in 700ms")?;
    let duration = Duration::try_from_secs_f64(number * unit).map_err(|error| error.to_string())?;
    // Models count milliseconds of it; an hour of them is plenty.
    match duration <= Duration::from_secs(3_600) {
        true => Ok(duration),
        false => Err("must not be longer than an hour".into()),
    }
}

/// The last line: what the command took.
pub(crate) fn cost(begun: Instant) -> String {
    let (time, memory) = (begun.elapsed(), peak_memory());
    format!("{time:.1?}, {memory} of memory at the most")
}

/// The most memory that this process has held, where the system tells it.
fn peak_memory() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|value| value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    match kib {
        Some(kib) => format!("{} MiB", kib.div_ceil(1024)),
        None => "unknown".into(),
    }
}
