//! `storm amplify`: what a stream of requests becomes in an outage.

use std::time::Duration;

use clap::Args;

use crate::{
    Failed,
    axis::Axis,
    chart::{COLOURS, Chart, Key, Mark, Panel},
    model::amplify::{Guard, Load, Stream},
    output::{Output, duration, seed},
    table::{Cell, Table, grouped},
    workers,
};

#[derive(Args)]
pub(crate) struct Amplify {
    /// Requests in a second.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    #[arg(allow_negative_numbers = true)]
    rate: u32,
    /// How long they come.
    #[arg(long, default_value = "60s", value_parser = duration, allow_hyphen_values = true)]
    lasts: Duration,
    /// When the server goes down.
    #[arg(long, default_value = "10s", value_parser = duration, allow_hyphen_values = true)]
    down_at: Duration,
    /// What the server's recovery takes when nobody calls.
    #[arg(long, default_value = "15s", value_parser = duration, allow_hyphen_values = true)]
    outage: Duration,
    /// Equal seeds give equal runs.
    #[arg(long, default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

/// The share of attempts that fail while the server is up.
const FAULTS: f64 = 0.05;

impl Amplify {
    pub(crate) fn run(&self) -> Result<String, Failed> {
        if self.down_at >= self.lasts {
            return Err("the server must go down while requests come".into());
        }
        let files = self.output.open()?;
        let stream = Stream {
            rate: self.rate,
            lasts: self.lasts,
            down_at: self.down_at,
            outage: self.outage,
            faults: FAULTS,
            seed: self.seed,
        };
        let loads = workers::each(&Guard::ALL, |guard| stream.run(*guard));
        let table = self.table(&loads);
        files.write(&table, || self.chart(&loads))?;
        Ok(format!(
            "{} requests a second for {:?}; one attempt in 20 fails. At {:?} the server, which could serve\n\
             half as many again, goes down and needs {:?} of idle time to recover.\n\
             before, outage, after: sent ÷ offered. one request: the most attempts that one became.\n\n\
             {table}",
            grouped(self.rate.into()),
            self.lasts,
            self.down_at,
            self.outage,
        ))
    }

    /// Before, while and after the server was down, in milliseconds.
    fn phases(&self, load: &Load) -> [(usize, usize); 3] {
        let end = self.lasts.as_millis() as usize;
        let down = self.down_at.as_millis() as usize;
        let up = (load.up_at.as_millis() as usize).min(end);
        [(0, down), (down, up), (up, end)]
    }

    fn table(&self, loads: &[Load]) -> Table {
        let mut table = Table::new(&[
            "guard",
            ">before",
            ">outage",
            ">worst s",
            ">after",
            ">down for, s",
            ">lost, up",
            ">lost, down",
            ">one request",
        ]);
        for (guard, load) in Guard::ALL.iter().zip(loads) {
            let phases = self.phases(load);
            let ratio = |(from, to): (usize, usize)| {
                let offered = load.offered.between(from, to);
                (offered > 0).then(|| load.sent.between(from, to) as f64 / offered as f64)
            };
            let worst = load.sent.worst(0, 1_000) as f64 / f64::from(self.rate);
            let lost = |(from, to): (usize, usize)| load.lost.between(from, to);
            let down_for = (load.up_at.min(self.lasts) - self.down_at).as_secs_f64();
            table.row([
                Cell::text(guard.name()),
                Cell::maybe(ratio(phases[0]), 2),
                Cell::maybe(ratio(phases[1]), 2),
                Cell::decimal(worst, 2),
                Cell::maybe(ratio(phases[2]), 2),
                match load.up_at < self.lasts {
                    true => Cell::decimal(down_for, 1),
                    false => Cell::text(format!("> {down_for:.1}")),
                },
                Cell::count(lost(phases[0]) + lost(phases[2])),
                Cell::count(lost(phases[1])),
                Cell::count(load.worst_request.into()),
            ]);
        }
        table
    }

    fn chart(&self, loads: &[Load]) -> Chart {
        const BIN: usize = 500;
        let end = self.lasts.as_millis() as usize;
        let to = self.lasts.as_secs_f64();
        let panels = Guard::ALL.iter().zip(loads).map(|(guard, load)| {
            let sent = load.sent.histogram(BIN, end);
            let per_bin = f64::from(self.rate) * BIN as f64 / 1e3;
            let line = sent.iter().enumerate().map(|(bin, sent)| {
                let middle = (bin as f64 + 0.5) * BIN as f64 / 1e3;
                (middle, *sent as f64 / per_bin)
            });
            let up = load.up_at.as_secs_f64();
            Panel {
                title: guard.name().into(),
                x: Axis::linear("seconds", (0..=4).map(|tick| to * f64::from(tick) / 4.0)),
                y: Axis::log("sent ÷ offered", [1.0, 3.0, 9.0, 27.0]).between(0.7, 40.0),
                down: Some((self.down_at.as_secs_f64(), up)),
                series: vec![(0, line.collect())],
            }
        });
        Chart {
            title: "What one request becomes when the server goes down".into(),
            subtitle: format!(
                "{} requests in a second; the server recovers in the time that refusing calls leaves it.",
                grouped(self.rate.into())
            ),
            columns: 3,
            panel: (300, 200),
            legend: vec![
                Key {
                    name: "attempts sent for each request offered",
                    mark: Mark::Line(COLOURS[0]),
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
