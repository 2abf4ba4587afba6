//! The README's table of ratios, as markdown:
//!
//! `cargo bench --all-features --bench ratios`
//!
//! Everything that is compared runs in this one process, by turns of some milliseconds. The fastest
//! turn of each counts: what else the machine does in the meantime makes turns slower, never
//! faster. Requests over a socket are another matter, as two threads may meet luckily, too: there
//! each turn is compared with its neighbour, and the median of the ratios counts. Part of a group's
//! name picks some of them: `-- success`.

use std::{collections::HashMap, time::Duration};

#[path = "../cases/mod.rs"]
mod cases;
mod memory;

use cases::{Case, Group};

/// Rounds and the length of a turn. What takes long, as a request over a socket, gets longer turns.
const SHORT: (usize, Duration) = (150, Duration::from_millis(3));
const LONG: (usize, Duration) = (40, Duration::from_millis(100));
const TAKES_LONG: Duration = Duration::from_micros(5);

/// A row of the table.
struct Row {
    group: &'static str,
    ours: &'static str,
    theirs: &'static str,
    target: Target,
}

#[derive(Clone, Copy)]
enum Target {
    /// At most so many times what is compared with.
    Ratio(f64),
    /// At most so many nanoseconds more than what is compared with.
    More(f64),
    None,
}

use Target::{More, Ratio};

const ROWS: &[Row] = &[
    row("success", "ours", "tower", Ratio(1.5)),
    row("success", "ours", "tower, TpsBudget", Ratio(0.2)),
    row("success", "ours", "tower-resilience", Target::None),
    row(
        "success",
        "ours, TpsBudget",
        "tower, TpsBudget",
        Target::None,
    ),
    row("success", "ours, observed", "tower", Target::None),
    row("success of a client", "ours", "bare", Target::None),
    row("success of a client", "ours", "tower", Ratio(1.5)),
    row(
        "success of a client",
        "ours",
        "tower, TpsBudget",
        Ratio(0.2),
    ),
    row(
        "success of a client",
        "ours",
        "tower-resilience",
        Target::None,
    ),
    row("retry at once", "ours, no budget", "tower", Target::None),
    row("retry at once", "ours", "tower, TpsBudget", Target::None),
    row(
        "retry at once",
        "ours, TpsBudget",
        "tower, TpsBudget",
        Target::None,
    ),
    row("deposit when full", "token/1", "empty loop/1", More(2.0)),
    row("deposit when full", "token/2", "token/1", Ratio(1.1)),
    row("deposit when full", "token/8", "empty loop/8", Target::None),
    row("deposit", "token/1", "tower's tps/1", Target::None),
    row("deposit", "tps/1", "tower's tps/1", Ratio(1.0)),
    row("deposit", "tps/2", "tower's tps/2", Ratio(0.5)),
    row("deposit", "tps/8", "tower's tps/8", Target::None),
    row("withdraw", "token/1", "tower's tps/1", Target::None),
    row("withdraw", "tps/1", "tower's tps/1", Target::None),
    row(
        "refused withdrawal",
        "token/2",
        "tower's tps/2",
        Target::None,
    ),
    row("refused withdrawal", "tps/1", "tower's tps/1", Ratio(1.0)),
    row("refused withdrawal", "tps/2", "tower's tps/2", Ratio(0.5)),
    row("refused withdrawal", "tps/8", "tower's tps/8", Target::None),
    row(FIRST, "ours with timer", "tower's with timer", Ratio(0.5)),
    row(FIRST, "ours, additive jitter", "backon's", Target::None),
    row(FIRST, "ours, full jitter", "backon's", Target::None),
    row(STEPS, "ours with timer", "tower's with timer", Target::None),
    row(STEPS, "ours, additive jitter", "backon's", Target::None),
    row("request with 12 headers", "ours", "bare", Target::None),
    row("request with 12 headers", "ours", "tower", Target::None),
    row("hyper on loopback", "tower", "bare", Target::None),
    row("hyper on loopback", "ours", "bare", Ratio(1.01)),
    row("reqwest on loopback", "ours", "bare", Ratio(1.01)),
    row("reqwest on loopback", "reqwest-retry", "bare", Target::None),
];

const FIRST: &str = "backoff, made and asked once";
const STEPS: &str = "backoff, made and asked ten times";

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let picked = |name: &str| filter.as_deref().is_none_or(|part| name.contains(part));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    if let Some(who) = std::env::var_os(memory::CHILD) {
        return memory::measure(who == "ours");
    }
    if picked("memory") {
        memory::print();
    }
    println!("| what | ours | against | ratio | target |");
    println!("|---|---|---|---|---|");
    for group in cases::groups() {
        if picked(group.name) {
            print(group);
        }
    }
}

const fn row(group: &'static str, ours: &'static str, theirs: &'static str, target: Target) -> Row {
    Row {
        group,
        ours,
        theirs,
        target,
    }
}

fn print(mut group: Group) {
    let name = group.name;
    let long = one(&mut group.cases[0]) > TAKES_LONG;
    let turns = measure(&mut group, if long { LONG } else { SHORT });
    for row in ROWS.iter().filter(|row| row.group == name) {
        let (ours, theirs) = (&turns[row.ours], &turns[row.theirs]);
        let pairs = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs);
        let pairs = median(pairs.collect());
        let (ours, theirs) = if long {
            (median(ours.clone()), median(theirs.clone()))
        } else {
            (fastest(ours), fastest(theirs))
        };
        let ratio = if long { pairs } else { ours / theirs };
        let (kept, target) = match row.target {
            Ratio(most) => (ratio <= most, format!("≤ {most}")),
            More(most) => (ours - theirs <= most, format!("≤ {most} ns more")),
            Target::None => (true, String::new()),
        };
        println!(
            "| {name} | {} {} | {} {} | {ratio:.2} | {target}{} |",
            row.ours,
            time(ours),
            row.theirs,
            time(theirs),
            if kept { "" } else { " **missed**" },
        );
    }
}

/// The turns of each case, in nanoseconds for one time.
fn measure(group: &mut Group, (rounds, turn): (usize, Duration)) -> HashMap<String, Vec<f64>> {
    let cases = &mut group.cases;
    let count = |case| turn.as_nanos().div_ceil(one(case).as_nanos().max(1)) as u64;
    let counts: Vec<u64> = cases.iter_mut().map(count).collect();
    let mut turns = vec![Vec::new(); counts.len()];
    for round in 0..rounds {
        for at in 0..counts.len() {
            // Forth and back, so that each is as often after the other as before it.
            let at = if round % 2 == 0 {
                at
            } else {
                counts.len() - 1 - at
            };
            let took = cases[at].run(counts[at]);
            turns[at].push(took.as_nanos() as f64 / counts[at] as f64);
        }
    }
    let names = cases.iter().map(|case| case.name.clone());
    names.zip(turns).collect()
}

fn fastest(turns: &[f64]) -> f64 {
    turns.iter().copied().fold(f64::INFINITY, f64::min)
}

fn median(mut turns: Vec<f64>) -> f64 {
    turns.sort_by(f64::total_cmp);
    turns[turns.len() / 2]
}

/// About how long one time takes.
fn one(case: &mut Case) -> Duration {
    let mut count = 1;
    loop {
        // The first run may meet anything.
        let took = (0..3).map(|_| case.run(count)).min().unwrap();
        if took > Duration::from_millis(1) {
            return took / u32::try_from(count).unwrap_or(u32::MAX);
        }
        count *= 2;
    }
}

fn time(nanos: f64) -> String {
    match nanos {
        long if long >= 1_000.0 => format!("{:.1} µs, {:.0}/s", long / 1e3, 1e9 / long),
        short => format!("{short:.1} ns"),
    }
}
