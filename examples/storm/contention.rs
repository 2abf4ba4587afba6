//! `storm contention`: the simulation that full jitter comes from, beside its published table.

use clap::Args;

use crate::{
    Failed,
    axis::Axis,
    chart::{COLOURS, Chart, Key, Mark, Panel},
    model::{
        contention::{self, Mean},
        law::{CLIENTS, Law, Published},
    },
    output::{Output, seed},
    table::{Cell, Table},
    workers,
};

/// The laws of the chart; more lines than this nobody tells apart.
const DRAWN: [(&str, Law); 6] = [
    ("none", Law::None),
    ("exponential", Law::Exponential),
    ("full", Law::Full),
    ("equal", Law::Equal),
    ("decorrelated", Law::Decorrelated),
    ("±20 %", Law::Proportional),
];

#[derive(Args)]
pub(crate) struct Contention {
    /// Runs of each cell, of which the table has the mean.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    #[arg(allow_negative_numbers = true)]
    repetitions: u32,
    /// Equal seeds give equal runs.
    #[arg(long, default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

/// The means of one law, in the order of [`CLIENTS`].
type Row<'a> = &'a [Mean];

impl Contention {
    pub(crate) fn run(&self) -> Result<String, Failed> {
        let files = self.output.open()?;
        let jobs: Vec<(Law, u32)> = Law::ALL
            .into_iter()
            .flat_map(|law| CLIENTS.map(|clients| (law, clients)))
            .collect();
        let means = workers::each(&jobs, |(law, clients)| {
            contention::mean(*law, *clients, self.repetitions, self.seed)
        });
        let rows: &[Row<'_>] = &means.chunks(CLIENTS.len()).collect::<Vec<_>>();
        files.write(&cells(rows), || self.chart(rows))?;
        Ok(format!(
            "N clients update one row with a version: milliseconds until the last has written / writes\n\
             attempted, the mean of {} runs, above the published mean of 300.\n\n\
             {}\n\
             A6, gRPC's ±20 %, may exceed its cap by a fifth. The crate's never exceeds it: a cap a fifth\n\
             higher gives it the same delays. At the same cap it waits less and calls hardly more.\n\
             tower's loses its jitter at its cap and cuts it to whole seconds, so its rows differ.\n",
            self.repetitions,
            shown(rows),
        ))
    }

    fn chart(&self, rows: &[Row<'_>]) -> Chart {
        let panel = |title: &str, y, of: fn(&Mean) -> f64, published: fn(&Published) -> f64| {
            let mut series = Vec::new();
            for (key, (_, law)) in DRAWN.iter().enumerate() {
                let place = Law::ALL.iter().position(|other| other == law).unwrap_or(0);
                let line = CLIENTS.iter().zip(rows[place]);
                let line = line.map(|(clients, mean)| (f64::from(*clients), of(mean)));
                series.push((key, line.collect()));
                if let Some(row) = law.published() {
                    let dots = CLIENTS.iter().zip(&row);
                    let dots = dots.map(|(clients, mean)| (f64::from(*clients), published(mean)));
                    series.push((DRAWN.len(), dots.collect()));
                }
            }
            Panel {
                title: title.into(),
                x: Axis::linear("clients", [0.0, 50.0, 100.0, 150.0, 200.0]),
                y,
                down: None,
                series,
            }
        };
        let mut legend: Vec<Key> = DRAWN
            .iter()
            .zip(COLOURS)
            .map(|((name, _), colour)| Key {
                name,
                mark: Mark::Line(colour),
            })
            .collect();
        legend.push(Key {
            name: "published",
            mark: Mark::Dots(BLACK),
        });
        Chart {
            title: "Clients update one row with a version".into(),
            subtitle: format!(
                "Means of {} runs. Without any wait it is done soonest, at several times the calls.",
                self.repetitions
            ),
            columns: 2,
            panel: (450, 300),
            legend,
            panels: vec![
                panel(
                    "calls: writes attempted",
                    Axis::log("calls", [30.0, 100.0, 300.0, 1e3, 3e3, 10e3]),
                    |mean| mean.calls,
                    |published| published.1,
                ),
                panel(
                    "time until the last client has written",
                    Axis::log("seconds", [0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0]),
                    |mean| mean.time / 1e3,
                    |published| published.0 / 1e3,
                ),
            ],
        }
    }
}

const BLACK: plotters::style::RGBColor = plotters::style::BLACK;

/// The table for people: a cell is time / calls.
fn shown(rows: &[Row<'_>]) -> Table {
    let mut table = Table::new(&[
        "backoff", "", ">N = 10", ">20", ">50", ">100", ">190", ">worst",
    ]);
    let cell = |time: f64, calls: f64| match calls < 1e3 {
        true => Cell::text(format!("{time:.0}/{calls:.1}")),
        false => Cell::text(format!("{time:.0}/{calls:.0}")),
    };
    for (law, row) in Law::ALL.iter().zip(rows) {
        let worst = law.published().map(|published| deviation(row, &published));
        let worst = match worst {
            Some(worst) if law.comparable() => Cell::text(format!("{worst:+.1} %")),
            Some(worst) => Cell::text(format!("({worst:+.0} %)")),
            None => Cell::none(),
        };
        let head = [Cell::text(law.name()), Cell::text("here")];
        let means = row.iter().map(|mean| cell(mean.time, mean.calls));
        table.row(head.into_iter().chain(means).chain([worst]));
        if let Some(published) = law.published() {
            let head = [Cell::text(""), Cell::text("publ.")];
            let means = published.iter().map(|(time, calls)| cell(*time, *calls));
            table.row(head.into_iter().chain(means).chain([Cell::text("")]));
        }
    }
    table
}

/// The farthest that a row is from what is published, in percent.
fn deviation(row: Row<'_>, published: &[Published]) -> f64 {
    let both = row.iter().zip(published).flat_map(|(mean, published)| {
        [
            mean.time / published.0 - 1.0,
            mean.calls / published.1 - 1.0,
        ]
    });
    both.map(|part| part * 100.0)
        .max_by(|a, b| a.abs().total_cmp(&b.abs()))
        .unwrap_or(0.0)
}

/// The rows for programs: one for each law and number of clients.
fn cells(rows: &[Row<'_>]) -> Table {
    let mut table = Table::new(&[
        "backoff",
        "clients",
        "time, ms",
        "standard error of time",
        "calls",
        "standard error of calls",
        "published time, ms",
        "published calls",
    ]);
    for (law, row) in Law::ALL.iter().zip(rows) {
        for (index, (clients, mean)) in CLIENTS.iter().zip(*row).enumerate() {
            let published = law.published().map(|published| published[index]);
            table.row([
                Cell::text(law.name()),
                Cell::count((*clients).into()),
                Cell::decimal(mean.time, 2),
                Cell::decimal(mean.time_error, 2),
                Cell::decimal(mean.calls, 2),
                Cell::decimal(mean.calls_error, 2),
                Cell::maybe(published.map(|(time, _)| time), 0),
                Cell::maybe(published.map(|(_, calls)| calls), 1),
            ]);
        }
    }
    table
}
