//! The budgets beside tower's, on one thread and on more: the time for one call of one thread.
//!
//! Every run checks what came out of it.

use std::{
    hint::black_box,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use tower::retry::budget as theirs;
use tower_retry_layer::budget::{Budget, RetryThrottle, TokenBudget, TpsBudget};

use super::Group;

const THREADS: [usize; 4] = [1, 2, 4, 8];

/// One tick is then longer than any run.
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// The longest window that tower allows.
const MINUTE: Duration = Duration::from_secs(60);

pub(super) fn groups() -> Vec<Group> {
    vec![
        deposit_when_full(),
        deposit(),
        withdraw(),
        pair(),
        refusal(),
    ]
}

/// Healthy traffic: nothing to add.
fn deposit_when_full() -> Group {
    let mut group = Group::new("deposit when full");
    compare(&mut group, "empty loop", || (), |()| black_box(()), |()| ());
    compare(
        &mut group,
        "token",
        TokenBudget::default,
        <TokenBudget as Budget>::deposit,
        |budget| assert_eq!(budget.balance(), 100),
    );
    compare(
        &mut group,
        "throttle",
        || RetryThrottle::new(1_000, 0.1).unwrap(),
        <RetryThrottle as Budget>::deposit,
        |throttle| assert_eq!(throttle.tokens(), 1_000.0),
    );
    group
}

fn deposit() -> Group {
    let mut group = Group::new("deposit");
    compare(
        &mut group,
        "token",
        || emptied(1_000_000, 1e-6),
        <TokenBudget as Budget>::deposit,
        // A deposit is a millionth of a retry, so this bucket does not fill up in any run.
        |budget| assert!(budget.balance() < 1_000_000),
    );
    compare(
        &mut group,
        "tps",
        || TpsBudget::new(DAY, 0, 0.2).unwrap(),
        <TpsBudget as Budget>::deposit,
        |budget| {
            (0..5).for_each(|_| budget.deposit());
            assert!(budget.balance() > 0);
        },
    );
    compare(
        &mut group,
        "tower's tps",
        || Theirs(theirs::TpsBudget::new(MINUTE, 0, 0.2)),
        |budget| budget.deposit(),
        |budget| {
            (0..5).for_each(|_| budget.deposit());
            assert!(budget.withdraw());
        },
    );
    group
}

/// Retries that are granted.
fn withdraw() -> Group {
    let mut group = Group::new("withdraw");
    compare(
        &mut group,
        "token",
        || TokenBudget::new(u32::MAX, 0.2).unwrap(),
        |budget| assert!(budget.withdraw()),
        |budget| assert!(budget.balance() < u64::from(u32::MAX)),
    );
    compare(
        &mut group,
        "tps",
        || TpsBudget::new(DAY, 1_000_000, 0.2).unwrap(),
        |budget| assert!(budget.withdraw()),
        |budget| assert!(budget.balance() < 86_400_000_000),
    );
    compare(
        &mut group,
        "tower's tps",
        || Theirs(theirs::TpsBudget::new(MINUTE, 100_000_000, 0.2)),
        |budget| assert!(budget.withdraw()),
        |budget| assert!(budget.withdraw()),
    );
    group
}

/// A success and a retry by turns, as in a client that limps.
fn pair() -> Group {
    let mut group = Group::new("deposit and withdraw");
    compare(
        &mut group,
        "token",
        || emptied(1_000, 1.0),
        |budget| {
            budget.deposit();
            assert!(budget.withdraw());
        },
        |budget| assert_eq!(budget.balance(), 0),
    );
    compare(
        &mut group,
        "tps",
        || TpsBudget::new(MINUTE, 10, 1.0).unwrap(),
        |budget| {
            budget.deposit();
            assert!(budget.withdraw());
        },
        |budget| assert_eq!(budget.balance(), 600),
    );
    compare(
        &mut group,
        "tower's tps",
        || Theirs(theirs::TpsBudget::new(MINUTE, 10, 1.0)),
        |budget| {
            budget.deposit();
            assert!(budget.withdraw());
        },
        |budget| assert!(budget.withdraw()),
    );
    group
}

/// An outage: nothing is left and nothing comes in.
fn refusal() -> Group {
    let mut group = Group::new("refused withdrawal");
    compare(
        &mut group,
        "token",
        || emptied(100, 0.2),
        |budget| assert!(!budget.withdraw()),
        |budget| assert_eq!(budget.balance(), 0),
    );
    compare(
        &mut group,
        "tps",
        || {
            let budget = TpsBudget::new(DAY, 0, 0.2).unwrap();
            budget.deposit();
            budget
        },
        |budget| assert!(!budget.withdraw()),
        |budget| assert_eq!(budget.balance(), 0),
    );
    compare(
        &mut group,
        "tower's tps",
        || {
            let budget = Theirs(theirs::TpsBudget::new(MINUTE, 0, 0.2));
            budget.deposit();
            budget
        },
        |budget| assert!(!budget.withdraw()),
        |budget| assert!(!budget.withdraw()),
    );
    group
}

/// tower's budget under this crate's trait, so that no method has two meanings.
struct Theirs(theirs::TpsBudget);

impl Budget for Theirs {
    fn deposit(&self) {
        theirs::Budget::deposit(&self.0);
    }

    fn withdraw(&self) -> bool {
        theirs::Budget::withdraw(&self.0)
    }
}

/// Runs `call` so many times on each of some threads, on one budget; then `check`.
fn compare<B: Sync>(
    group: &mut Group,
    name: &str,
    make: impl Fn() -> B + Copy + 'static,
    call: impl Fn(&B) + Copy + Sync + 'static,
    check: impl Fn(&B) + Copy + 'static,
) {
    for threads in THREADS {
        group.timed(format!("{name}/{threads}"), move |calls| {
            let budget = make();
            let took = on_threads(threads, || {
                for _ in 0..calls {
                    call(black_box(&budget));
                }
            });
            check(&budget);
            took
        });
    }
}

/// The time from the first start to the last end: threads that take turns on a core take longer.
fn on_threads(threads: usize, work: impl Fn() + Sync) -> Duration {
    if threads == 1 {
        let start = Instant::now();
        work();
        return start.elapsed();
    }
    let barrier = Barrier::new(threads);
    let run = || {
        barrier.wait();
        let start = Instant::now();
        work();
        (start, Instant::now())
    };
    thread::scope(|scope| {
        let runs: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let (starts, ends): (Vec<_>, Vec<_>) =
            runs.into_iter().map(|run| run.join().unwrap()).unzip();
        let (start, end) = (starts.iter().min(), ends.iter().max());
        end.zip(start)
            .map_or(Duration::ZERO, |(end, start)| *end - *start)
    })
}

fn emptied(capacity: u32, ratio: f32) -> TokenBudget {
    let budget = TokenBudget::new(capacity, ratio).unwrap();
    while budget.withdraw() {}
    budget
}
