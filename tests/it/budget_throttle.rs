//! `RetryThrottle`: the public vectors of gRPC's A6.

use tower_retry_layer::budget::{Budget, RetryThrottle};

use crate::budget::{THREADS, on_threads};

#[test]
fn retries_stop_at_half_and_come_back_above_it() {
    // G2.
    let throttle = RetryThrottle::new(4, 0.8).unwrap();
    assert_eq!(throttle.tokens(), 4.0);
    for (tokens, lends) in [
        (3.0, true),
        (2.0, false),
        (1.0, false),
        (0.0, false),
        (0.0, false),
    ] {
        throttle.failure();
        assert_eq!((throttle.tokens(), throttle.withdraw()), (tokens, lends));
    }
    for (tokens, lends) in [
        (0.8, false),
        (1.6, false),
        (2.4, true),
        (3.2, true),
        (4.0, true),
    ] {
        throttle.deposit();
        assert_eq!((throttle.tokens(), throttle.withdraw()), (tokens, lends));
    }
    throttle.deposit();
    assert_eq!(throttle.tokens(), 4.0);
}

#[test]
fn new_settings_start_as_full_as_the_old_ones_were() {
    // G3.
    let old = RetryThrottle::new(4, 1.0).unwrap();
    old.failure();
    let new = RetryThrottle::new(10, 3.0).unwrap().with_fraction_of(&old);
    assert_eq!(new.tokens(), 7.5);
    for (tokens, lends) in [(6.5, true), (5.5, true), (4.5, false), (3.5, false)] {
        new.failure();
        assert_eq!((new.tokens(), new.withdraw()), (tokens, lends));
    }
    new.deposit();
    assert_eq!(new.tokens(), 6.5);
    for (tokens, lends) in [(5.5, true), (4.5, false)] {
        new.failure();
        assert_eq!((new.tokens(), new.withdraw()), (tokens, lends));
    }
    assert_eq!(old.tokens(), 3.0);
}

#[test]
fn asking_and_refunding_leave_the_tokens_alone() {
    // G4, G5: a failure that is not retryable reaches no budget; one with a pushback that forbids
    // the retry reaches `failure` alone.
    let throttle = RetryThrottle::new(10, 0.5).unwrap();
    for _ in 0..100 {
        assert!(throttle.withdraw());
    }
    assert_eq!(throttle.tokens(), 10.0);
    throttle.failure();
    throttle.refund();
    assert_eq!(throttle.tokens(), 9.0);
}

#[test]
fn twelve_calls_end_as_in_the_public_vector() {
    // G6: four attempts a call; the server answers these attempts well and fails all others.
    let good = [0, 3, 6, 10, 11, 12, 13, 14, 16, 18];
    let throttle = RetryThrottle::new(10, 0.5).unwrap();
    let mut next = 0;
    let mut call = || {
        for number in 1..=4 {
            let attempt = next;
            next += 1;
            if good.contains(&attempt) {
                throttle.deposit();
                return (true, attempt, throttle.tokens());
            }
            throttle.failure();
            if number == 4 || !throttle.withdraw() {
                return (false, attempt, throttle.tokens());
            }
        }
        unreachable!("the fourth attempt is the last")
    };
    for expected in [
        (true, 0, 10.0),
        (true, 3, 8.5),
        (true, 6, 7.0),
        (false, 8, 5.0),
        (false, 9, 4.0),
        (true, 10, 4.5),
        (true, 11, 5.0),
        (true, 12, 5.5),
        (true, 13, 6.0),
        (true, 14, 6.5),
        (true, 16, 6.0),
        (false, 17, 5.0),
    ] {
        assert_eq!(call(), expected);
    }
}

#[test]
fn the_ratio_is_cut_after_the_third_decimal_as_written() {
    // G7.
    for (ratio, tokens) in [
        (0.5466, 0.546),
        (0.5469999, 0.546),
        (0.8, 0.8),
        (0.7, 0.7),
        (0.1, 0.1),
        (0.001, 0.001),
        (0.0019, 0.001),
        (1.001, 1.001),
        (2.999, 2.999),
        (3.0, 3.0),
        (999.999, 999.999),
        (1_001.5, 1_000.0),
        (f32::MAX, 1_000.0),
    ] {
        assert_eq!(after_a_success(1_000, ratio), tokens, "ratio {ratio}");
    }
}

#[test]
fn every_ratio_of_three_decimals_is_exact() {
    for thousandths in 1..=100_000_u32 {
        let ratio: f32 = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000)
            .parse()
            .unwrap();
        assert_eq!(
            after_a_success(1_000, ratio),
            f64::from(thousandths) / 1_000.0
        );
    }
}

#[test]
fn bad_settings_are_refused_with_a_reason() {
    // G7. A negative number of tokens does not compile.
    let reason = |tokens, ratio| RetryThrottle::new(tokens, ratio).unwrap_err().to_string();
    assert_eq!(
        reason(0, 0.1),
        "invalid budget: max tokens must be non-zero"
    );
    for tokens in [1_001, u32::MAX] {
        assert_eq!(
            reason(tokens, 0.1),
            "invalid budget: max tokens must not be greater than 1000",
        );
    }
    assert_eq!(
        reason(10, f32::NAN),
        "invalid budget: token ratio must not be NaN"
    );
    assert_eq!(
        reason(10, f32::INFINITY),
        "invalid budget: token ratio must be finite"
    );
    for small in [
        0.0,
        -0.0,
        -1.0,
        f32::NEG_INFINITY,
        0.000_9,
        f32::MIN_POSITIVE,
    ] {
        assert_eq!(
            reason(10, small),
            "invalid budget: token ratio must not be less than 0.001",
        );
    }
    for tokens in [1, 1_000] {
        assert!(RetryThrottle::new(tokens, 0.001).is_ok());
    }
}

#[test]
fn one_token_lends_until_its_first_failure() {
    let throttle = RetryThrottle::new(1, 0.5).unwrap();
    assert!(throttle.withdraw());
    throttle.failure();
    throttle.deposit();
    assert!(!throttle.withdraw(), "exactly half");
    throttle.deposit();
    assert!(throttle.withdraw());
}

#[test]
fn no_failure_and_no_success_is_lost_among_threads() {
    let throttle = RetryThrottle::new(1_000, 0.5).unwrap();
    let times = 1_000 / THREADS;
    on_threads(|| {
        for _ in 0..times {
            throttle.failure();
        }
        0
    });
    assert_eq!(throttle.tokens(), 0.0);
    on_threads(|| {
        for _ in 0..times {
            throttle.deposit();
        }
        0
    });
    assert_eq!(throttle.tokens(), 500.0);
}

#[test]
fn debug_prints_the_tokens_of_the_moment() {
    let throttle = RetryThrottle::new(3, 0.25).unwrap();
    throttle.failure();
    assert_eq!(
        format!("{throttle:?}"),
        "RetryThrottle { tokens: 2.0, max_tokens: 3.0, token_ratio: 0.25 }",
    );
}

/// The tokens of an empty throttle after one success.
fn after_a_success(max_tokens: u32, ratio: f32) -> f64 {
    let throttle = RetryThrottle::new(max_tokens, ratio).unwrap();
    for _ in 0..max_tokens {
        throttle.failure();
    }
    throttle.deposit();
    throttle.tokens()
}
