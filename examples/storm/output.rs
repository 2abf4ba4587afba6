//! What every command takes and gives alike: files, durations, and the line at the end.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
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

/// The files that were asked for, open.
pub(crate) struct Files {
    svg: Option<Open>,
    csv: Option<Open>,
}

/// A file that can be written; what it held is there until it is.
struct Open {
    path: PathBuf,
    file: File,
}

// === impl Output ===

impl Output {
    /// Opens the files that were asked for: before the run, which may take minutes.
    pub(crate) fn open(&self) -> Result<Files, Failed> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(Open::new).transpose();
        Ok(Files {
            svg: open(&self.svg)?,
            csv: open(&self.csv)?,
        })
    }
}

// === impl Files ===

impl Files {
    pub(crate) fn write(self, rows: &Table, chart: impl FnOnce() -> Chart) -> Result<(), Failed> {
        if let Some(file) = self.csv {
            file.write(&rows.csv())?;
        }
        if let Some(file) = self.svg {
            file.write(&chart().svg()?)?;
        }
        Ok(())
    }
}

// === impl Open ===

impl Open {
    fn new(path: &Path) -> Result<Self, Failed> {
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).open(path);
        Ok(Self {
            path: path.to_owned(),
            file: file.map_err(|error| named(path, &error))?,
        })
    }

    fn write(mut self, text: &str) -> Result<(), Failed> {
        // What is no file, such as a terminal, has no length.
        let _ = self.file.set_len(0);
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| named(&self.path, &error))
    }
}

fn named(path: &Path, error: &io::Error) -> Failed {
    format!("{}: {error}", path.display()).into()
}

/// Reads a seed, any number of 64 bits.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    let range = |_| format!("must be a whole number from 0 to {}", u64::MAX);
    text.parse().map_err(range)
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
    if number < 0.0 {
        return Err("must not be negative".into());
    }
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
