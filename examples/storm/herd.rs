//! `storm herd`: thousands of callers fail together, and what comes back.

use std::time::Duration;

use clap::Args;

use crate::{
    Failed,
    axis::Axis,
    chart::{COLOURS, Chart, Key, Mark, Panel, steps},
    model::{
        self,
        herd::{Outcome, PROCESS},
        strategy::{BASE, CAP, PATIENCE, Strategy},
    },
    output::{Output, duration, seed},
    table::{Cell, Table, grouped},
    workers,
};

/// What the bars and the chart show of the time, in milliseconds.
const SHOWN: usize = 4_000;

/// Bars of the table.
const BARS: usize = 16;

#[derive(Args)]
pub(crate) struct Herd {
    /// Callers, each with one request.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    #[arg(allow_negative_numbers = true)]
    callers: u32,
    /// What the server's recovery takes when nobody calls.
    #[arg(long, default_value = "1s", value_parser = duration, allow_hyphen_values = true)]
    outage: Duration,
    /// Equal seeds give equal runs.
    #[arg(long, default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

impl Herd {
    pub(crate) fn run(&self) -> Result<String, Failed> {
        let files = self.output.open()?;
        let herd = self.model();
        let jobs: Vec<(Strategy, bool)> = Strategy::ALL
            .into_iter()
            .flat_map(|strategy| [(strategy, false), (strategy, true)])
            .collect();
        let outcomes = workers::each(&jobs, |(strategy, budget)| {
            herd.run(*strategy, *budget, None)
        });
        let table = self.table(&jobs, &outcomes);

        files.write(&table, || self.chart(&outcomes))?;
        Ok(format!(
            "{} callers in processes of {PROCESS} fail together at 0 s. The server serves {} calls a second\n\
             and needs {:?} of idle time to recover; refusing takes a tenth of serving. {PATIENCE} attempts (default\n\
             policy: 3); immediate 20 ms, fixed 200 ms, the others from {BASE:?} to {CAP:?}. The budget is the\n\
             default, one for each process.\n\n\
             {table}",
            grouped(herd.callers.into()),
            grouped(herd.per_second.into()),
            herd.outage,
        ))
    }

    fn model(&self) -> model::herd::Herd {
        model::herd::Herd {
            callers: self.callers,
            per_second: model::herd::Herd::capacity_for(self.callers),
            outage: self.outage,
            seed: self.seed,
        }
    }

    fn table(&self, jobs: &[(Strategy, bool)], outcomes: &[Outcome]) -> Table {
        let mut table = Table::new(&[
            "strategy",
            "budget",
            ">attempts",
            ">each",
            ">worst 10 ms",
            ">up, s",
            ">last, s",
            "all through|lost",
            "arrivals, 0-4 s|arrivals in each 250 ms",
        ]);
        for ((strategy, budget), outcome) in jobs.iter().zip(outcomes) {
            let attempts = outcome.arrivals.total();
            let histogram = outcome.arrivals.histogram(SHOWN / BARS, SHOWN);
            table.row([
                Cell::text(strategy.name()),
                Cell::text(if *budget { "yes" } else { "no" }),
                Cell::count(attempts),
                Cell::decimal(attempts as f64 / f64::from(self.callers), 1),
                Cell::count(outcome.worst_instant()),
                Cell::decimal(outcome.up_at.as_secs_f64(), 1),
                Cell::maybe(outcome.last_success.map(|at| at.as_secs_f64()), 1),
                Cell::through(outcome.lost),
                Cell::bars(&histogram, self.callers.into()),
            ]);
        }
        table
    }

    fn chart(&self, outcomes: &[Outcome]) -> Chart {
        const BIN: usize = 20;
        let y = Axis::up_to("calls in 20 ms", self.callers.into());
        let histogram = |outcome: &Outcome| {
            let counts = outcome.arrivals.histogram(BIN, SHOWN);
            steps(
                counts.into_iter().map(|count| count as f64),
                BIN as f64 / 1e3,
            )
        };
        let panels = Strategy::ALL
            .iter()
            .zip(outcomes.chunks(2))
            .map(|(strategy, pair)| {
                let up = pair[0].up_at.as_secs_f64();
                let each = pair[0].arrivals.total() as f64 / f64::from(self.callers);
                let lost = match pair[0].lost {
                    0 => "all through".to_owned(),
                    lost => format!("{} LOST", grouped(lost)),
                };
                Panel {
                    title: format!("{}: {each:.1} calls each, {lost}", strategy.name()),
                    x: Axis::linear("seconds", (0..=4).map(f64::from)),
                    y: y.clone(),
                    down: Some((0.0, up)),
                    series: vec![(0, histogram(&pair[0])), (1, histogram(&pair[1]))],
                }
            });
        let callers = grouped(self.callers.into());
        Chart {
            title: format!("{callers} callers fail together: what arrives at the server"),
            subtitle: "The server recovers in the time that refusing calls leaves it. \
                       Numbers and shade are without a budget."
                .into(),
            columns: 3,
            panel: (300, 200),
            legend: vec![
                Key {
                    name: "arrivals without a budget",
                    mark: Mark::Area(COLOURS[1]),
                },
                Key {
                    name: "of these with the default budget",
                    mark: Mark::Area(COLOURS[0]),
                },
                Key {
                    name: "server down without a budget",
                    mark: Mark::Down,
                },
            ],
            panels: panels.collect(),
        }
    }
}
