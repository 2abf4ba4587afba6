//! Backoffs: making one with its first delay, and its steps.
//!
//! tower gives out timers only, so there are cases with a timer, and one of a timer alone.

use std::{hint::black_box, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use tower::retry::backoff as theirs;
use tower_retry_layer::backoff::{Backoff, ExponentialBackoffMaker, Jitter, MakeBackoff, Seeds};

use super::Group;

const MIN: Duration = Duration::from_millis(50);
const MAX: Duration = Duration::from_secs(20);
const STEPS: usize = 10;

pub(super) fn groups() -> Vec<Group> {
    vec![first(), steps()]
}

fn first() -> Group {
    let mut group = Group::new("backoff, made and asked once");
    for (name, jitter) in JITTERS {
        let maker = ours(jitter);
        group.case(format!("ours, {name}"), move || {
            within(black_box(&maker).make_backoff().next_delay());
        });
    }
    let maker = ours(Jitter::Additive(0.5));
    group.case("ours with timer", move || {
        drop(black_box(black_box(&maker).make_backoff().next_backoff()));
    });
    let mut maker = tower_s();
    group.case("tower's with timer", move || {
        use theirs::{Backoff, MakeBackoff};
        drop(black_box(
            black_box(&mut maker).make_backoff().next_backoff(),
        ));
    });
    group.case("timer", || {
        drop(black_box(tokio::time::sleep(black_box(MIN))));
    });
    group.case("backon's", || {
        within(black_box(backons()).build().next().unwrap());
    });
    group
}

fn steps() -> Group {
    let mut group = Group::new("backoff, made and asked ten times");
    for (name, jitter) in JITTERS {
        let maker = ours(jitter);
        group.case(format!("ours, {name}"), move || {
            let mut backoff = black_box(&maker).make_backoff();
            (0..STEPS).for_each(|_| within(backoff.next_delay()));
        });
    }
    let maker = ours(Jitter::Additive(0.5));
    group.case("ours with timer", move || {
        let mut backoff = black_box(&maker).make_backoff();
        (0..STEPS).for_each(|_| drop(black_box(backoff.next_backoff())));
    });
    let mut maker = tower_s();
    group.case("tower's with timer", move || {
        use theirs::{Backoff, MakeBackoff};
        let mut backoff = black_box(&mut maker).make_backoff();
        (0..STEPS).for_each(|_| drop(black_box(backoff.next_backoff())));
    });
    group.case("timer", || {
        (0..STEPS).for_each(|_| drop(black_box(tokio::time::sleep(black_box(MIN)))));
    });
    group.case("backon's", || {
        let backoff = black_box(backons()).build();
        backoff.take(STEPS).for_each(within);
    });
    group
}

const JITTERS: [(&str, Jitter); 3] = [
    ("no jitter", Jitter::None),
    ("full jitter", Jitter::Full),
    ("additive jitter", Jitter::Additive(0.5)),
];

fn ours(jitter: Jitter) -> ExponentialBackoffMaker {
    ExponentialBackoffMaker::new(MIN, MAX, jitter, Seeds::random()).unwrap()
}

fn tower_s() -> theirs::ExponentialBackoffMaker {
    let rng = tower::util::rng::HasherRng::new();
    theirs::ExponentialBackoffMaker::new(MIN, MAX, 0.5, rng).unwrap()
}

fn backons() -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(MIN)
        .with_max_delay(MAX)
        .without_max_times()
        .with_jitter()
}

/// backon puts its jitter on top of the cap.
fn within(delay: Duration) {
    assert!(!delay.is_zero() && delay <= MAX * 2);
}
