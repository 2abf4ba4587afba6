//! `storm fleet`: processes with seeds of their own, and with equal ones by mistake.

use std::time::Duration;

use clap::Args;

use crate::{
    Failed,
    axis::Axis,
    chart::{COLOURS, Chart, Key, Mark, Panel, steps},
    model::{self, fleet::Seeding, herd::Outcome},
    output::{Output, duration, seed},
    table::{Cell, Table, grouped},
    workers,
};

/// What the bars and the chart show of the time, in milliseconds.
const SHOWN: usize = 4_000;

/// Bars of the table.
const BARS: usize = 16;

#[derive(Args)]
pub(crate) struct Fleet {
    /// Processes, each with a policy and a budget of its own.
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    #[arg(allow_negative_numbers = true)]
    processes: u32,
    /// Calls of each process.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=10))]
    #[arg(allow_negative_numbers = true)]
    calls: u32,
    /// What the server's recovery takes when nobody calls.
    #[arg(long, default_value = "1s", value_parser = duration, allow_hyphen_values = true)]
    outage: Duration,
    /// Equal seeds give equal runs.
    #[arg(long, default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

impl Fleet {
    pub(crate) fn run(&self) -> Result<String, Failed> {
        let files = self.output.open()?;
        let fleet = model::fleet::Fleet {
            processes: self.processes,
            calls: self.calls,
            outage: self.outage,
            seed: self.seed,
        };
        let outcomes = workers::each(&Seeding::ALL, |seeding| fleet.run(*seeding));
        let table = self.table(&outcomes);
        files.write(&table, || self.chart(&outcomes))?;
        Ok(format!(
            "{} processes fail together at 0 s, each with {} calls, a policy and the default budget of its\n\
             own. The server serves all their calls in two seconds and needs {:?} of idle time to recover.\n\n\
             {table}",
            grouped(self.processes.into()),
            self.calls,
            self.outage,
        ))
    }

    fn table(&self, outcomes: &[Outcome]) -> Table {
        let mut table = Table::new(&[
            "jitter",
            ">attempts",
            ">worst 10 ms",
            ">worst 1 ms",
            ">up, s",
            ">last, s",
            "all through|lost",
            "arrivals, 0-4 s|arrivals in each 250 ms",
        ]);
        for (seeding, outcome) in Seeding::ALL.iter().zip(outcomes) {
            let histogram = outcome.arrivals.histogram(SHOWN / BARS, SHOWN);
            table.row([
                Cell::text(seeding.name()),
                Cell::count(outcome.arrivals.total()),
                Cell::count(outcome.worst_instant()),
                Cell::count(outcome.arrivals.worst(1, 1)),
                Cell::decimal(outcome.up_at.as_secs_f64(), 1),
                Cell::maybe(outcome.last_success.map(|at| at.as_secs_f64()), 1),
                Cell::through(outcome.lost),
                Cell::bars(&histogram, u64::from(self.processes * self.calls)),
            ]);
        }
        table
    }

    fn chart(&self, outcomes: &[Outcome]) -> Chart {
        const BIN: usize = 20;
        let highest = outcomes
            .iter()
            .map(|outcome| outcome.arrivals.worst(1, BIN))
            .max()
            .unwrap_or(0);
        let y = Axis::up_to("calls in 20 ms", highest);
        let panels = Seeding::ALL.iter().zip(outcomes).map(|(seeding, outcome)| {
            let counts = outcome.arrivals.histogram(BIN, SHOWN);
            let counts = counts.into_iter().map(|count| count as f64);
            Panel {
                title: format!("jitter: {}", seeding.name()),
                x: Axis::linear("seconds", (0..=4).map(f64::from)),
                y: y.clone(),
                down: Some((0.0, outcome.up_at.as_secs_f64())),
                series: vec![(0, steps(counts, BIN as f64 / 1e3))],
            }
        });
        Chart {
            title: format!(
                "{} processes with {} calls each fail together: what arrives",
                grouped(self.processes.into()),
                self.calls,
            ),
            subtitle:
                "Equal seeds draw equal delays, so that a fleet returns as if it had no jitter."
                    .into(),
            columns: 3,
            panel: (300, 200),
            legend: vec![
                Key {
                    name: "arrivals",
                    mark: Mark::Area(COLOURS[0]),
                },
                Key {
                    name: "server down",
                    mark: Mark::Down,
                },
            ],
            panels: panels.collect(),
        }
    }
}
