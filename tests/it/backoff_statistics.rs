//! Backoff: that delays are spread as their law says, and sessions independent of each other.
//!
//! Each check is one of many seeds' would-be outcomes; with six sigma and more a false alarm is
//! rarer than one in 10^8 runs.

use std::time::Duration;

use tower_retry_layer::backoff::{Backoff, ExponentialBackoffMaker, Jitter, MakeBackoff, Seeds};

use crate::support::ms;

const DRAWS: usize = 20_000;

/// `sqrt(n)` times the Kolmogorov-Smirnov distance exceeds this once in about 10^9 samples: its
/// tail is `2 exp(-2 x^2)`.
const KS_LIMIT: f64 = 3.3;

/// One delay from each of many sessions: the one before which `steps` were taken.
fn sample(min: Duration, max: Duration, jitter: Jitter, steps: u32) -> Vec<f64> {
    let maker = ExponentialBackoffMaker::new(min, max, jitter, Seeds::random()).unwrap();
    (0..DRAWS)
        .map(|_| {
            let mut backoff = maker.make_backoff();
            for _ in 0..steps {
                backoff.next_delay();
            }
            backoff.next_delay().as_nanos() as f64
        })
        .collect()
}

/// Fails unless the sample could come from the uniform law between the two.
fn assert_uniform(mut sample: Vec<f64>, low: f64, high: f64, what: &str) {
    sample.sort_by(f64::total_cmp);
    assert!(
        low <= sample[0] && sample[DRAWS - 1] <= high,
        "{what}: out of {low}..={high}"
    );
    let count = DRAWS as f64;
    let distance = sample
        .iter()
        .enumerate()
        .fold(0.0_f64, |worst, (rank, value)| {
            let law = (value - low) / (high - low);
            worst
                .max(law - rank as f64 / count)
                .max((rank + 1) as f64 / count - law)
        });
    let score = distance * count.sqrt();
    assert!(score < KS_LIMIT, "{what}: Kolmogorov-Smirnov score {score}");
}

// B2, W2, T5: tower's jitter of whole seconds is whole seconds.
#[test]
fn every_jitter_follows_its_law_at_a_second_at_odd_nanoseconds_and_at_the_cap() {
    let odd = Duration::new(1, 234_567_891);
    for (min, max, steps) in [
        (ms(1_000), ms(60_000), 0),
        (ms(1_000), ms(60_000), 2),
        (odd, ms(60_000), 0),
        (odd, ms(60_000), 1),
        (ms(1_000), ms(10_000), 10),
        (odd, ms(1_500), 30),
    ] {
        let nanos = |duration: Duration| duration.as_nanos() as f64;
        let (low, cap) = (nanos(min), nanos(max));
        let grown = (low * 2_f64.powi(steps as i32)).min(cap);
        let scaled = |ratio: f64, lower: f64| {
            let high = (grown * (1.0 + ratio)).min(cap);
            (high * lower / (1.0 + ratio), high)
        };
        for (jitter, (from, to)) in [
            (Jitter::Full, (0.0, grown)),
            (Jitter::Equal, (grown / 2.0, grown)),
            (Jitter::FromMin, (low, grown)),
            (Jitter::Additive(0.5), scaled(0.5, 1.0)),
            (Jitter::Additive(0.99), scaled(0.99, 1.0)),
            (Jitter::Proportional(0.2), scaled(0.2, 0.8)),
        ] {
            if from == to {
                continue; // `FromMin` at its first step
            }
            let what = format!("{jitter:?} from {min:?} to {max:?} after {steps}");
            // A nanosecond of slack for what is cut off.
            assert_uniform(sample(min, max, jitter, steps), from - 1.0, to + 1.0, &what);
        }
        // Only the first step of the chain has a simple law.
        let what = format!("Decorrelated from {min:?} to {max:?}");
        let high = (3.0 * low).min(cap);
        assert_uniform(sample(min, max, Jitter::Decorrelated, 0), low, high, &what);
    }
}

#[test]
fn the_stateless_delay_follows_the_same_law() {
    for jitter in [Jitter::Full, Jitter::Decorrelated] {
        let maker = ExponentialBackoffMaker::new(ms(1_000), ms(2_900), jitter, Seeds::random());
        let maker = maker.unwrap();
        let sample = (0..DRAWS)
            .map(|_| maker.delay_for(0).as_nanos() as f64)
            .collect();
        let (low, high) = match jitter {
            Jitter::Full => (0.0, 1e9),
            _ => (1e9, 2.9e9),
        };
        assert_uniform(sample, low, high, &format!("{jitter:?}"));
    }
}

// Polly#530: the blog's decorrelated jitter puts every fourth draw on the cap itself.
#[test]
fn nothing_piles_up_on_the_cap() {
    for jitter in [
        Jitter::Full,
        Jitter::Equal,
        Jitter::Decorrelated,
        Jitter::FromMin,
        0.5.into(),
    ] {
        let draws = sample(ms(5), ms(2_000), jitter, 20);
        let at_cap = draws.iter().filter(|delay| **delay >= 2e9 - 1.0).count();
        assert!(
            at_cap < 5,
            "{jitter:?}: {at_cap} of {DRAWS} exactly at the cap"
        );
    }
}

// The last delays of a chain are where the stateless form has to arrive, too.
#[test]
fn a_decorrelated_chain_has_the_same_mean_stepped_and_stateless() {
    let mean = |sample: &[f64]| sample.iter().sum::<f64>() / DRAWS as f64;
    let maker = |seed| {
        let seeds = Seeds::from_seed(seed);
        ExponentialBackoffMaker::new(ms(5), ms(2_000), Jitter::Decorrelated, seeds).unwrap()
    };
    let stepped = sample(ms(5), ms(2_000), Jitter::Decorrelated, 12);
    let maker = maker(3);
    let stateless: Vec<f64> = (0..DRAWS)
        .map(|_| maker.delay_for(12).as_nanos() as f64)
        .collect();
    let mid = mean(&stepped);
    let variance = stepped.iter().map(|x| (x - mid).powi(2)).sum::<f64>() / DRAWS as f64;
    let sigma = (2.0 * variance / DRAWS as f64).sqrt();
    assert!((mid - mean(&stateless)).abs() < 6.0 * sigma);
}

// B1: in tower this correlation is 1.
#[test]
fn sessions_are_independent_of_each_other() {
    for seeds in [Seeds::random(), Seeds::from_seed(1), Seeds::from_seed(0)] {
        let maker =
            ExponentialBackoffMaker::new(ms(1_000), ms(1_000), Jitter::Full, seeds).unwrap();
        let pairs: Vec<[f64; 2]> = (0..DRAWS)
            .map(|_| {
                let mut sessions = [maker.make_backoff(), maker.make_backoff()];
                sessions
                    .each_mut()
                    .map(|session| session.next_delay().as_secs_f64())
            })
            .collect();
        // Uniform on (0, 1]: mean 1/2, variance 1/12.
        let covariance = pairs
            .iter()
            .map(|[a, b]| (a - 0.5) * (b - 0.5))
            .sum::<f64>()
            / DRAWS as f64;
        let correlation = covariance * 12.0;
        assert!(
            correlation.abs() < 6.5 / (DRAWS as f64).sqrt(),
            "correlation {correlation}"
        );
    }
}

#[test]
fn the_delays_of_one_session_are_independent_of_each_other() {
    let maker = ExponentialBackoffMaker::new(ms(1_000), ms(1_000), Jitter::Full, Seeds::random());
    let mut session = maker.unwrap().make_backoff();
    let mut previous = session.next_delay().as_secs_f64();
    let mut covariance = 0.0;
    for _ in 0..DRAWS {
        let next = session.next_delay().as_secs_f64();
        covariance += (previous - 0.5) * (next - 0.5);
        previous = next;
    }
    let correlation = covariance * 12.0 / DRAWS as f64;
    assert!(
        correlation.abs() < 6.5 / (DRAWS as f64).sqrt(),
        "correlation {correlation}"
    );
}

#[test]
fn threads_have_streams_of_their_own() {
    let maker = ExponentialBackoffMaker::default();
    let delays: Vec<Vec<Duration>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| (0..100).map(|_| maker.delay_for(9)).collect()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut all: Vec<Duration> = delays.concat();
    all.sort();
    all.dedup();
    // Two of 800 out of 2 * 10^10 nanoseconds are equal once in 60 000 runs, three pairs never.
    assert!(all.len() >= 797);
}
