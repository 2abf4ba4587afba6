//! The storm lab's models: what strategies and budgets do to a server, on the virtual clock.
//!
//! All runs have fixed seeds. What is random in them has six sigma or more of room, so that another
//! seed, or another order of draws, passes too.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tower_retry_layer::budget::TokenBudget;

use crate::support::ms;

#[allow(dead_code, reason = "the example shows more than the tests look at")]
#[path = "../../examples/storm/model/mod.rs"]
mod model;

use model::{
    amplify::{CAPACITY, Guard, RATIO, Stream},
    contention,
    fleet::{Fleet, Seeding},
    herd::{Herd, Outcome, PROCESS},
    law::{CLIENTS, Law},
    strategy::{PATIENCE, Strategy},
};

const CALLERS: u32 = 1_000;

/// A thousand callers and a server that serves them all in two seconds.
fn herd() -> Herd {
    Herd {
        callers: CALLERS,
        per_second: Herd::capacity_for(CALLERS),
        outage: ms(1_000),
        seed: 7,
    }
}

fn run(herd: Herd, strategy: Strategy) -> Outcome {
    herd.run(strategy, false, None)
}

/// The delays that a herd of a thousand draws.
fn delays(strategy: Strategy) -> Vec<Duration> {
    let delays = Arc::new(Mutex::new(Vec::new()));
    let drawn = delays.clone();
    let note = Arc::new(move |delay| drawn.lock().unwrap().push(delay));
    herd().run(strategy, false, Some(note));
    std::mem::take(&mut *delays.lock().unwrap())
}

const JITTERED: [Strategy; 3] = [Strategy::Full, Strategy::Equal, Strategy::Decorrelated];

// === herd ===

#[test]
fn full_jitter_gets_through_a_loaded_server_with_fewer_calls_and_a_lower_peak_than_no_jitter() {
    let full = run(herd(), Strategy::Full);
    let exponential = run(herd(), Strategy::Exponential);
    assert_eq!((full.lost, exponential.lost), (0, 0));
    assert!(full.arrivals.total() < exponential.arrivals.total());
    assert!(full.worst_instant() < exponential.worst_instant());
    assert!(full.last_success < exponential.last_success);
    assert_eq!(exponential.arrivals.worst(1, 1), u64::from(CALLERS));
}

#[test]
fn full_jitter_gets_through_with_fewer_calls_and_a_lower_peak_than_immediate_retries() {
    // A server so strong that even those who never let go of it get through.
    let herd = Herd {
        per_second: 20 * CALLERS,
        outage: ms(300),
        ..herd()
    };
    let full = run(herd, Strategy::Full);
    let immediate = run(herd, Strategy::Immediate);
    assert_eq!((full.lost, immediate.lost), (0, 0));
    assert!(full.arrivals.total() < immediate.arrivals.total());
    assert!(full.worst_instant() < immediate.worst_instant());
}

#[test]
fn immediate_retries_keep_a_server_down_until_they_give_up() {
    let outcome = run(herd(), Strategy::Immediate);
    assert_eq!(outcome.lost, u64::from(CALLERS));
    assert_eq!(outcome.last_success, None);
    let last_call = ms(20) * (PATIENCE - 1);
    assert!(outcome.up_at >= last_call + herd().outage);
}

#[test]
fn three_attempts_lose_every_caller_in_an_outage_longer_than_their_waits() {
    let outcome = run(herd(), Strategy::Default);
    assert_eq!(outcome.lost, u64::from(CALLERS));
    assert_eq!(outcome.arrivals.total(), u64::from(3 * CALLERS));
}

#[test]
fn a_server_recovers_in_the_time_that_refusals_leave_it() {
    let herd = Herd {
        callers: 10,
        per_second: 1_000,
        ..herd()
    };
    let outcome = run(herd, Strategy::Default);
    // Thirty calls are refused, each in a tenth of the millisecond that serving it takes.
    assert_eq!(outcome.lost, 10);
    assert_eq!(outcome.up_at, herd.outage + ms(3));
}

#[test]
fn a_thousand_callers_that_fail_together_do_not_come_back_together() {
    for strategy in JITTERED {
        let outcome = run(herd(), strategy);
        // Equal jitter has the narrowest first wait: 25 ms, so 40 callers in each millisecond. For
        // 40 that are drawn independently six sigma are 38; some of the others are in their second.
        let together = outcome.arrivals.worst(1, 1);
        assert!(
            together < 100,
            "{strategy:?}: {together} in one millisecond"
        );
    }
}

#[test]
fn jittered_delays_are_no_comb_of_whole_milliseconds() {
    for strategy in JITTERED {
        let mut parts: Vec<f64> = delays(strategy)
            .iter()
            .map(|delay| f64::from(delay.subsec_nanos() % 1_000_000) / 1e6)
            .collect();
        assert!(parts.len() > 3_000, "{strategy:?}: {} delays", parts.len());
        parts.sort_by(f64::total_cmp);
        // Kolmogorov and Smirnov: a distance of 3.3 / sqrt(n) is rarer than one in 10^9.
        let count = parts.len() as f64;
        let distance = parts
            .iter()
            .enumerate()
            .fold(0.0_f64, |worst, (rank, part)| {
                worst
                    .max((part - rank as f64 / count).abs())
                    .max((part - (rank + 1) as f64 / count).abs())
            });
        assert!(
            distance * count.sqrt() < 3.3,
            "{strategy:?}: {distance} for {count} delays"
        );
    }
}

#[test]
fn jittered_delays_are_no_comb_of_whole_seconds() {
    for strategy in JITTERED {
        let long: Vec<Duration> = delays(strategy)
            .into_iter()
            .filter(|delay| *delay > ms(900))
            .collect();
        assert!(long.len() > 200, "{strategy:?}: {} delays", long.len());
        let whole = |delay: &&Duration| {
            let part = delay.subsec_millis();
            part == 0 || part == 999
        };
        // Two milliseconds around one second, and one below two, of draws that spread over half a
        // second or more.
        let expected = long.len() as f64 * 0.006;
        let combed = long.iter().filter(whole).count() as f64;
        assert!(
            combed <= expected + 6.0 * expected.sqrt() + 1.0,
            "{strategy:?}: {combed} of {}",
            long.len()
        );
    }
}

#[test]
fn a_delay_is_drawn_once() {
    for strategy in JITTERED {
        let mut seen = HashMap::new();
        for delay in delays(strategy) {
            *seen.entry(delay).or_insert(0) += 1;
        }
        // Of 10 000 draws from tens of millions of nanoseconds some two may be equal; from one stream
        // of random numbers for all sessions a thousand would be.
        let most = seen.values().max().copied().unwrap_or(0);
        assert!(most < 4, "{strategy:?}: {most} times the same delay");
    }
}

#[test]
fn budgets_bound_what_a_herd_sends() {
    let bound = bound(CALLERS.into(), CALLERS.into(), CALLERS / PROCESS * CAPACITY);
    for strategy in Strategy::ALL {
        let outcome = herd().run(strategy, true, None);
        assert!(outcome.arrivals.total() <= bound, "{strategy:?}");
    }
    let unbounded = run(herd(), Strategy::Immediate);
    assert!(unbounded.arrivals.total() > bound);
}

#[test]
fn equal_seeds_give_equal_runs_and_others_do_not() {
    let other = Herd { seed: 8, ..herd() };
    assert_eq!(run(herd(), Strategy::Full), run(herd(), Strategy::Full));
    assert_ne!(run(herd(), Strategy::Full), run(other, Strategy::Full));
}

// === fleet ===

#[test]
fn processes_with_equal_seeds_come_back_together_and_others_do_not() {
    let fleet = Fleet {
        processes: 500,
        calls: 1,
        outage: ms(1_000),
        seed: 7,
    };
    let equal = fleet.run(Seeding::Equal);
    let apart = fleet.run(Seeding::Apart);
    assert_eq!(equal.arrivals.worst(1, 1), 500);
    // Ten first retries in each of 50 milliseconds, and fewer of the second: six sigma above
    // 15 are 39.
    assert!(apart.arrivals.worst(1, 1) < 50);
    assert_eq!(apart.lost, 0);
    assert!(apart.arrivals.total() < equal.arrivals.total());
}

// === amplify ===

/// Ten seconds up, five or more down, and the rest up again.
fn stream() -> Stream {
    Stream {
        rate: 200,
        lasts: ms(30_000),
        down_at: ms(10_000),
        outage: ms(5_000),
        faults: 0.05,
        seed: 7,
    }
}

/// What a token budget allows to be sent for so many requests, so many of which succeed.
fn bound(requests: u64, successes: u64, capacity: u32) -> u64 {
    // A hundredth for the ratio's own rounding, as `f32`, is more than it needs.
    let lent = (successes as f64 * f64::from(RATIO) + 0.01).floor();
    requests + lent as u64 + u64::from(capacity)
}

/// The first millisecond until which more was sent than a token budget of the defaults allows.
fn exceeds(stream: Stream, guard: Guard) -> Option<usize> {
    let load = stream.run(guard);
    let end = stream.lasts.as_millis() as usize + 60_000;
    let (mut offered, mut sent) = (0, 0);
    (0..end).find(|at| {
        offered += load.offered.between(*at, at + 1);
        sent += load.sent.between(*at, at + 1);
        sent > bound(offered, offered, CAPACITY)
    })
}

#[test]
fn the_token_budget_of_the_lab_is_the_default() {
    let budget = TokenBudget::new(CAPACITY, RATIO).unwrap();
    assert_eq!(
        format!("{budget:?}"),
        format!("{:?}", TokenBudget::default())
    );
}

#[test]
fn a_token_budget_bounds_what_is_sent_through_outage_and_recovery() {
    assert_eq!(exceeds(stream(), Guard::Token), None);
    let unguarded = exceeds(stream(), Guard::Attempts);
    assert!(unguarded.is_some_and(|at| at > 10_000 && at < 20_000));
}

#[test]
fn a_token_budget_costs_nothing_in_ordinary_trouble() {
    let before = |guard| {
        let load = stream().run(guard);
        (load.sent.between(0, 10_000), load.lost.between(0, 9_000))
    };
    assert_eq!(before(Guard::Token), before(Guard::Attempts));
}

#[test]
fn retries_without_a_budget_make_the_outage_longer() {
    let up_at = |guard| stream().run(guard).up_at;
    let unguarded = up_at(Guard::Attempts);
    for guard in [Guard::Token, Guard::Tps, Guard::Throttle] {
        assert!(up_at(guard) < unguarded, "{guard:?}");
    }
}

#[test]
fn three_layers_of_three_attempts_send_27_and_3_where_they_see_each_other() {
    let layers = stream().run(Guard::Layers);
    assert_eq!(layers.worst_request, 27);
    assert!(layers.up_at > stream().lasts, "up while requests came");
    let nested = stream().run(Guard::NestedLayers);
    assert_eq!(nested.worst_request, 3);
    assert!(nested.up_at < ms(20_000));
}

// === contention ===

#[test]
fn contention_agrees_with_the_published_means() {
    const RUNS: u32 = 300;
    for law in Law::ALL.into_iter().filter(|law| law.comparable()) {
        let published = law.published().unwrap();
        for (clients, (time, calls)) in CLIENTS.into_iter().zip(published).take(3) {
            let mean = contention::mean(law, clients, RUNS, 7);
            // The published means are of as many runs, so they err as much.
            let sigmas = |value: f64, published: f64, error: f64| {
                (value - published).abs() / (error * std::f64::consts::SQRT_2)
            };
            let time = sigmas(mean.time, time, mean.time_error);
            let calls = sigmas(mean.calls, calls, mean.calls_error);
            assert!(
                time < 6.0 && calls < 6.0,
                "{law:?} of {clients}: {time:.1} and {calls:.1} sigma, {mean:?}"
            );
            // The means are sharp enough for this to mean something.
            assert!(mean.time_error < 0.03 * mean.time && mean.calls_error < 0.01 * mean.calls);
        }
    }
}

#[test]
fn full_jitter_contends_with_fewer_calls_than_any_other_law() {
    let calls = |law| contention::mean(law, 50, 50, 7).calls;
    let full = calls(Law::Full);
    for law in [
        Law::None,
        Law::Exponential,
        Law::Decorrelated,
        Law::Proportional,
    ] {
        assert!(full < calls(law), "{law:?}");
    }
}
