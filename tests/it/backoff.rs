//! Backoff: laws, refusals, borders, and the counter of a reconnect loop.

use std::time::Duration;

use proptest::prelude::*;
use tower_retry_layer::backoff::{
    Backoff, ExponentialBackoffMaker, Jitter, MakeBackoff, MakeRng, Rng, Schedule, Seeds,
    backoff_fn,
};

use crate::support::{Fixed, JUST_BELOW_ONE, ms};

type Maker = ExponentialBackoffMaker<Seeds>;

fn maker(min: u64, max: u64, jitter: impl Into<Jitter>) -> Maker {
    Maker::new(ms(min), ms(max), jitter, Seeds::random()).unwrap()
}

fn at(unit: f64, min: u64, max: u64, jitter: Jitter) -> impl Backoff {
    ExponentialBackoffMaker::new(ms(min), ms(max), jitter, move || Fixed(unit))
        .unwrap()
        .make_backoff()
}

fn first(mut backoff: impl Backoff, count: usize) -> Vec<Duration> {
    (0..count).map(|_| backoff.next_delay()).collect()
}

fn nanos(millis: f64) -> Duration {
    Duration::from_nanos((millis * 1e6).round() as u64)
}

fn reason(result: Result<impl Sized, impl std::fmt::Display>) -> String {
    match result {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.to_string(),
    }
}

// === the seven experiments ===

#[test]
fn without_jitter_it_doubles_up_to_the_cap() {
    let delays = first(maker(100, 1000, Jitter::None).make_backoff(), 6);
    assert_eq!(delays, [100, 200, 400, 800, 1000, 1000].map(ms));
}

#[test]
fn additive_jitter_adds_up_to_the_whole_and_stays_below_the_cap() {
    let delays = first(at(JUST_BELOW_ONE, 100, 1000, Jitter::Additive(1.0)), 8);
    assert_eq!(delays[..3], [199.999999, 399.999999, 799.999999].map(nanos));
    assert!(
        delays[3..]
            .iter()
            .all(|delay| *delay <= ms(1000) && *delay >= nanos(999.999999))
    );
}

// B1, T6, W1.
#[test]
fn two_backoffs_of_one_maker_differ() {
    let maker = maker(100, 60_000, 0.5);
    assert_ne!(
        first(maker.make_backoff(), 5),
        first(maker.make_backoff(), 5)
    );
    assert_ne!(
        first(maker.clone().make_backoff(), 5),
        first(maker.make_backoff(), 5)
    );
}

// B7: tower's documentation promises a reset that its code does not do.
#[test]
fn a_clone_starts_over_with_a_stream_of_its_own() {
    let mut backoff = maker(100, 60_000, Jitter::FromMin).make_backoff();
    let taken = first(&mut backoff, 3);
    let mut clone = backoff.clone();
    assert_eq!((backoff.attempt(), clone.attempt()), (3, 0));
    assert_eq!(
        clone.next_delay(),
        ms(100),
        "the first delay of `FromMin` is the minimum"
    );
    assert_ne!(first(&mut clone, 2), taken[1..]);
}

// B3: tower loses all above 4.29 times the base.
#[test]
fn large_ratios_are_not_cut() {
    let [delay] = first(at(JUST_BELOW_ONE, 1900, 60_000, Jitter::Additive(10.0)), 1)[..] else {
        unreachable!()
    };
    assert!(
        delay < ms(20_900) && delay >= ms(20_900) - Duration::from_micros(1),
        "{delay:?}"
    );
}

// B10.
#[test]
fn a_minimum_of_zero_is_refused() {
    let refused = Maker::new(Duration::ZERO, ms(1), 0.0, Seeds::random());
    assert_eq!(reason(refused), "invalid backoff: minimum must be non-zero");
}

#[test]
fn bad_settings_are_refused_with_their_reason() {
    let new =
        |min, max, jitter: Jitter| reason(Maker::new(ms(min), ms(max), jitter, Seeds::random()));
    assert_eq!(
        new(2, 1, 0.0.into()),
        "invalid backoff: maximum must not be less than minimum"
    );
    assert_eq!(
        new(0, 0, 0.0.into()),
        "invalid backoff: maximum must be non-zero"
    );
    for (ratio, text) in [
        (-0.1, "jitter must not be negative"),
        (f64::NEG_INFINITY, "jitter must not be negative"),
        (100.1, "jitter must not be greater than 100"),
        (f64::INFINITY, "jitter must not be greater than 100"),
        (f64::NAN, "jitter must not be NaN"),
    ] {
        assert_eq!(
            new(1, 2, Jitter::Additive(ratio)),
            format!("invalid backoff: {text}")
        );
    }
    for (ratio, text) in [
        (-0.1, "jitter must not be negative"),
        (1.1, "jitter must not be greater than 1"),
        (f64::NAN, "jitter must not be NaN"),
    ] {
        assert_eq!(
            new(1, 2, Jitter::Proportional(ratio)),
            format!("invalid backoff: {text}")
        );
    }
    for ratio in [0.0, -0.0, 100.0] {
        assert_eq!(new(1, 2, Jitter::Additive(ratio)), "accepted");
    }
    for factor in [0.999, 0.0, -2.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let refused = maker(1, 2, Jitter::Full).with_factor(factor);
        assert_eq!(
            reason(refused),
            "invalid backoff: factor must be finite and at least 1"
        );
    }
    assert_eq!(
        reason(Schedule::new([])),
        "invalid backoff: schedule must not be empty"
    );
}

// B15.
#[test]
fn refusals_can_be_compared() {
    let refuse = || Maker::new(ms(2), ms(1), 0.0, Seeds::random()).unwrap_err();
    assert_eq!(refuse(), refuse().clone());
}

// === the laws of each jitter ===

#[test]
fn each_jitter_gives_its_law_at_known_random_numbers() {
    use Jitter::{Additive, Equal, FromMin, Full, Proportional};
    // The third retry of 100 ms to 10 s: a grown delay of 400 ms.
    for (jitter, unit, expected) in [
        (Full, 0.0, 1e-6),
        (Full, 0.5, 200.0),
        (Full, JUST_BELOW_ONE, 400.0),
        (Equal, 0.0, 200.0),
        (Equal, 0.5, 300.0),
        (FromMin, 0.0, 100.0),
        (FromMin, 0.5, 250.0),
        (Additive(0.5), 0.0, 400.0),
        (Additive(0.5), 0.5, 500.0),
        (Proportional(0.2), 0.0, 320.0),
        (Proportional(0.2), 0.5, 400.0),
        (Proportional(1.0), 0.0, 1e-6),
    ] {
        let delay = first(at(unit, 100, 10_000, jitter), 3)[2];
        assert_eq!(delay, nanos(expected), "{jitter:?} at {unit}");
    }
}

#[test]
fn decorrelated_draws_from_the_minimum_to_three_times_the_delay_before() {
    let top = first(at(JUST_BELOW_ONE, 100, 5_000, Jitter::Decorrelated), 5);
    let expected = [
        299.999999,
        899.999996,
        2699.999987,
        4999.999999,
        4999.999999,
    ]
    .map(nanos);
    assert_eq!(top, expected);
    let bottom = first(at(0.0, 100, 5_000, Jitter::Decorrelated), 3);
    assert_eq!(bottom, [100, 100, 100].map(ms));
}

#[test]
fn a_reset_starts_the_chain_of_decorrelated_delays_over() {
    let maker = ExponentialBackoffMaker::new(ms(100), ms(5_000), Jitter::Decorrelated, || {
        Fixed(JUST_BELOW_ONE)
    });
    let mut backoff = maker.unwrap().make_backoff();
    let start = first(&mut backoff, 3);
    backoff.reset();
    assert_eq!(first(&mut backoff, 3), start);
}

// B5, W3, ferd/backoff#8: clamping to the cap makes all long waits equal.
#[test]
fn every_jitter_still_spreads_at_the_cap() {
    use Jitter::{Additive, Decorrelated, Equal, FromMin, Full, Proportional};
    for (jitter, low, high) in [
        (Full, 1e-6, 1000.0),
        (Equal, 500.0, 999.999999),
        (FromMin, 10.0, 999.999999),
        (Decorrelated, 10.0, 999.999999),
        (Additive(0.25), 800.0, 999.999999),
        (Proportional(0.2), 666.666666, 999.999999),
    ] {
        let reach = |unit| at(unit, 10, 1000, jitter);
        let last = |unit| first(reach(unit), 40)[39];
        if jitter != Decorrelated {
            assert_eq!(last(0.0), nanos(low), "{jitter:?}");
        }
        assert_eq!(last(JUST_BELOW_ONE), nanos(high), "{jitter:?}");
    }
}

// G25, below the cap; at it the contract says "never above max", and A6 has up to 1200 ms.
#[test]
fn g25_proportional_jitter_is_that_of_grpc_below_the_cap() {
    for (unit, expected) in [
        (0.0, [80.0, 160.0, 320.0]),
        (0.5, [100.0, 200.0, 400.0]),
        (JUST_BELOW_ONE, [119.999999, 239.999999, 479.999999]),
    ] {
        let delays = first(at(unit, 100, 1000, Jitter::Proportional(0.2)), 3);
        assert_eq!(delays, expected.map(nanos));
    }
}

#[test]
fn g22_a_hundred_seconds_grow_to_seven_hundred() {
    let delays = first(maker(100_000, 700_000, Jitter::None).make_backoff(), 5);
    assert_eq!(delays, [100, 200, 400, 700, 700].map(Duration::from_secs));
}

#[test]
fn g26_connection_backoff_without_jitter() {
    let maker = maker(1_000, 120_000, Jitter::None)
        .with_factor(1.6)
        .unwrap();
    let seconds = [1.0, 1.6, 2.56, 4.096, 6.5536];
    for (retry, expected) in seconds.into_iter().enumerate() {
        assert_eq!(maker.base_delay(retry as u32), nanos(expected * 1e3));
    }
    assert!(maker.base_delay(10) < Duration::from_secs(120));
    assert_eq!(maker.base_delay(11), Duration::from_secs(120));
}

#[test]
fn a1_a24_a28_the_delays_of_aws_at_the_largest_random_number() {
    for (min, max, expected) in [
        (50, 20_000, [50, 100, 200, 400]),
        (50, 200, [50, 100, 200, 200]),
        (1_000, 20_000, [1_000, 2_000, 4_000, 8_000]),
        (1_000, 3_000, [1_000, 2_000, 3_000, 3_000]),
        (30, 20_000, [30, 60, 120, 240]),
    ] {
        assert_eq!(
            first(at(JUST_BELOW_ONE, min, max, Jitter::Full), 4),
            expected.map(ms)
        );
    }
}

#[test]
fn a38_full_jitter_in_the_middle() {
    assert_eq!(first(at(0.5, 1_000, 20_000, Jitter::Full), 3)[2], ms(2_000));
}

#[test]
fn e1_to_e5_c7_f16_r19_tables_of_others_without_jitter() {
    let base = |min, max| move |retry| maker(min, max, Jitter::None).base_delay(retry);
    assert_eq!(
        [0, 1, 2, 3].map(base(1_000, 4_000)),
        [1_000, 2_000, 4_000, 4_000].map(ms)
    );
    assert_eq!([0, 1, 2, 3, 4].map(base(2, 15)), [2, 4, 8, 15, 15].map(ms));
    let seconds = [0, 1, 2, 3, 63, 128].map(base(1_000, 300_000));
    assert_eq!(seconds, [1, 2, 4, 8, 300, 300].map(Duration::from_secs));
    assert_eq!(
        [0, 1, 2, 3, 4].map(base(25, 250)),
        [25, 50, 100, 200, 250].map(ms)
    );
}

// === borders ===

const BORDER_RETRIES: [u32; 16] = [
    0,
    1,
    31,
    32,
    33,
    62,
    63,
    64,
    65,
    66,
    67,
    100,
    1023,
    1024,
    1025,
    u32::MAX,
];

#[test]
fn no_retry_number_and_no_duration_panics_wraps_or_leaves_the_range() {
    let one = Duration::from_nanos(1);
    let jitters = [
        Jitter::None,
        Jitter::Full,
        Jitter::Equal,
        Jitter::Decorrelated,
        Jitter::FromMin,
        Jitter::Additive(100.0),
        Jitter::Proportional(1.0),
    ];
    let units = [
        0.0,
        -0.0,
        0.5,
        JUST_BELOW_ONE,
        1.0,
        1e300,
        -1.0,
        f64::NAN,
        f64::INFINITY,
    ];
    for (min, max) in [
        (one, one),
        (one, ms(60_000)),
        (one, Duration::MAX),
        (ms(1), Duration::from_secs(u64::MAX)),
        (Duration::new(u64::MAX / 2, 999_999_999), Duration::MAX),
        (Duration::MAX, Duration::MAX),
    ] {
        for jitter in jitters {
            for factor in [1.0, 1.0000001, 2.0, 1e300, f64::MAX] {
                for unit in units {
                    let maker = ExponentialBackoffMaker::new(min, max, jitter, || Fixed(unit))
                        .and_then(|maker| maker.with_factor(factor))
                        .unwrap();
                    let mut backoff = maker.make_backoff();
                    for retry in BORDER_RETRIES {
                        for delay in [maker.delay_for(retry), backoff.next_delay()] {
                            assert!(!delay.is_zero() && delay <= max, "{maker:?} {delay:?}");
                        }
                        let base = maker.base_delay(retry);
                        assert!(min <= base && base <= max, "{maker:?} {base:?}");
                    }
                }
            }
        }
    }
}

// B9: tower sticks at 4.29 s.
#[test]
fn a_tiny_minimum_reaches_the_maximum() {
    let maker = Maker::new(Duration::from_nanos(1), ms(60_000), 0.0, Seeds::random()).unwrap();
    assert_eq!(maker.base_delay(36), ms(60_000));
    assert_eq!(maker.base_delay(35), Duration::from_nanos(1 << 35));
}

// B11: tower's default cap is half a billion years.
#[test]
fn the_default_is_capped_at_twenty_seconds() {
    let maker = ExponentialBackoffMaker::default();
    assert_eq!(maker.base_delay(0), ms(50));
    assert_eq!(maker.base_delay(u32::MAX), ms(20_000));
    assert!((0..100).all(|retry| maker.delay_for(retry) <= ms(20_000)));
}

#[test]
fn full_precision_is_kept_where_an_f64_would_lose_it() {
    let min = Duration::new(10_000_000, 1);
    let maker = Maker::new(min, Duration::MAX, Jitter::None, Seeds::random()).unwrap();
    assert_eq!(maker.base_delay(3), Duration::new(80_000_000, 8));
}

// B13: tower needs a runtime to tell a delay.
#[test]
fn centuries_are_exact_too() {
    let odd = Duration::new(u64::MAX / 3, 123_456_789);
    let same = Maker::new(odd, odd, Jitter::None, Seeds::random()).unwrap();
    assert_eq!(same.make_backoff().next_delay(), odd);

    let min = Duration::from_nanos(123_456_789);
    let tripled = Maker::new(min, Duration::MAX, Jitter::None, Seeds::random()).unwrap();
    let exact = 123_456_789 * 3_u128.pow(25);
    let delay = tripled.with_factor(3.0).unwrap().base_delay(25);
    assert_eq!(delay.as_nanos(), exact);

    let max = Duration::MAX;
    let full = ExponentialBackoffMaker::new(max, max, Jitter::Full, || Fixed(JUST_BELOW_ONE));
    let nearly = (max.as_nanos() as f64 * JUST_BELOW_ONE) as u128;
    assert_eq!(full.unwrap().make_backoff().next_delay().as_nanos(), nearly);
}

#[test]
fn delays_need_no_runtime() {
    assert_eq!(maker(5, 5, Jitter::None).make_backoff().next_delay(), ms(5));
}

#[tokio::test(start_paused = true)]
async fn the_timer_is_as_long_as_the_delay() {
    let mut backoff = maker(100, 1_000, Jitter::None).make_backoff();
    for expected in [100, 200, 400] {
        let start = tokio::time::Instant::now();
        backoff.next_backoff().await;
        assert_eq!(start.elapsed(), ms(expected));
    }
}

// === seeds ===

#[test]
fn a_seed_makes_a_run_reproducible_session_by_session() {
    let run = |seed| {
        let maker = Maker::new(ms(10), ms(1_000), Jitter::Full, Seeds::from_seed(seed)).unwrap();
        let clone = maker.clone();
        [
            maker.make_backoff(),
            clone.make_backoff(),
            maker.make_backoff(),
        ]
        .map(|b| first(b, 4))
    };
    let [a, b, c] = run(7);
    assert_eq!(run(7), [a.clone(), b.clone(), c.clone()]);
    assert!(a != b && b != c && a != c);
    assert_ne!(run(8)[0], a);
}

// The five numbers are those by which implementations of SplitMix64 are checked.
#[test]
fn the_seeds_are_those_of_splitmix64() {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let seeds = Seeds::from_seed(1_234_567 + GOLDEN);
    for seed in [
        6_457_827_717_110_365_317,
        3_203_168_211_198_807_973,
        9_817_491_932_198_370_423,
        4_593_380_528_125_082_431,
        16_408_922_859_458_223_821,
    ] {
        let mut known = fastrand::Rng::with_seed(seed);
        assert_eq!(seeds.make_rng().next_u64(), known.u64(..));
    }
}

// A seed drawn for every session would shift the others'.
#[test]
fn a_session_that_never_waits_draws_no_seed() {
    let maker = |seeds| Maker::new(ms(10), ms(1_000), Jitter::Full, seeds).unwrap();
    let (one, other) = (maker(Seeds::from_seed(7)), maker(Seeds::from_seed(7)));
    for _ in 0..10 {
        drop(one.make_backoff());
    }
    assert_eq!(first(one.make_backoff(), 3), first(other.make_backoff(), 3));
}

#[test]
fn without_jitter_no_generator_is_made() {
    let rng = || -> Fixed { panic!("nothing is drawn") };
    let maker = ExponentialBackoffMaker::new(ms(1), ms(4), Jitter::None, rng).unwrap();
    assert_eq!(first(maker.make_backoff(), 4), [1, 2, 4, 4].map(ms));
}

#[test]
fn a_number_beyond_the_range_is_read_as_the_nearest_inside() {
    for (min, max) in [(50, 100), (1, u64::MAX / 4)] {
        for jitter in [Jitter::FromMin, Jitter::Equal, Jitter::Additive(2.0)] {
            let delays = |unit| first(at(unit, min, max, jitter), 70);
            for beyond in [1.0, 2.0, f64::INFINITY] {
                assert_eq!(delays(beyond), delays(JUST_BELOW_ONE));
            }
            for below in [-0.1, f64::NEG_INFINITY, f64::NAN] {
                assert_eq!(delays(below), delays(0.0));
            }
        }
    }
}

#[test]
fn a_named_delay_is_spread_by_a_tenth_at_most_from_the_sessions_stream() {
    let spread = |seed| {
        let maker = Maker::new(ms(10), ms(1_000), Jitter::Full, Seeds::from_seed(seed)).unwrap();
        maker.make_backoff().spread(ms(1_000))
    };
    assert_eq!(spread(1), spread(1));
    assert_ne!(spread(1), spread(2));
    assert_eq!(
        at(0.0, 1, 1, Jitter::None).spread(ms(1_000)),
        Duration::from_nanos(1)
    );
    assert_eq!(
        at(JUST_BELOW_ONE, 1, 1, Jitter::None).spread(ms(1_000)),
        ms(100)
    );
    let own = backoff_fn(|_| ms(1)).make_backoff().spread(ms(1_000));
    assert!(!own.is_zero() && own <= ms(100));
    assert!(at(JUST_BELOW_ONE, 1, 1, Jitter::None).spread(Duration::MAX) < Duration::MAX);
}

// === the counter of a reconnect loop: jpillora/backoff's tests ===

#[test]
fn jpillora_test_1_and_reset() {
    let mut backoff = maker(100, 10_000, Jitter::None).make_backoff();
    assert_eq!(first(&mut backoff, 3), [100, 200, 400].map(ms));
    backoff.reset();
    assert_eq!(backoff.next_delay(), ms(100));
}

#[test]
fn jpillora_for_attempt_is_stateless() {
    let maker = maker(100, 10_000, Jitter::None);
    for _ in 0..2 {
        assert_eq!(
            [0, 1, 2].map(|retry| maker.delay_for(retry)),
            [100, 200, 400].map(ms)
        );
    }
}

#[test]
fn jpillora_test_2_and_3_other_factors() {
    let half = maker(100, 10_000, Jitter::None).with_factor(1.5).unwrap();
    let mut backoff = half.make_backoff();
    assert_eq!(first(&mut backoff, 3), [100, 150, 225].map(ms));
    backoff.reset();
    assert_eq!(backoff.next_delay(), ms(100));
    let tiny = Maker::new(
        Duration::from_nanos(100),
        ms(10_000),
        Jitter::None,
        Seeds::random(),
    );
    let delays = first(tiny.unwrap().with_factor(1.75).unwrap().make_backoff(), 3);
    assert_eq!(delays, [100, 175, 306].map(Duration::from_nanos));
}

// jpillora gives the maximum; a bad setting is an error here.
#[test]
fn jpillora_test_4_a_minimum_above_the_maximum_is_refused() {
    let refused = Maker::new(ms(500_000), ms(100_000), Jitter::None, Seeds::random());
    assert_eq!(
        reason(refused),
        "invalid backoff: maximum must not be less than minimum"
    );
}

#[test]
fn jpillora_get_attempt_counts_and_reset_clears() {
    let mut backoff = maker(100, 10_000, Jitter::None).make_backoff();
    for (attempt, delay) in [100, 200, 400].into_iter().enumerate() {
        assert_eq!(backoff.attempt(), attempt as u32);
        assert_eq!(backoff.next_delay(), ms(delay));
    }
    assert_eq!(backoff.attempt(), 3);
    backoff.reset();
    assert_eq!(backoff.attempt(), 0);
    assert_eq!(backoff.next_delay(), ms(100));
    assert_eq!(backoff.attempt(), 1);
}

#[test]
fn jpillora_jitter_lies_between_minimum_and_grown_delay() {
    let mut backoff = maker(100, 10_000, Jitter::FromMin).make_backoff();
    for _ in 0..2 {
        assert_eq!(backoff.next_delay(), ms(100));
        assert!((ms(100)..=ms(200)).contains(&backoff.next_delay()));
        assert!((ms(100)..=ms(400)).contains(&backoff.next_delay()));
        backoff.reset();
    }
}

#[test]
fn jpillora_known_random_numbers_give_its_printed_delays() {
    for (retry, unit, millis) in [
        (1, 0.06600049, 106.600049),
        (2, 0.60409385, 281.228155),
        (1, 0.04381845, 104.381845),
        (2, 0.38319330, 214.957989),
    ] {
        let delay = first(at(unit, 100, 10_000, Jitter::FromMin), retry + 1)[retry];
        // The numbers were printed with eight digits, which leaves a few nanoseconds open.
        let open = Duration::from_nanos(3);
        let printed = nanos(millis);
        assert!(
            delay + open >= printed && delay <= printed + open,
            "{delay:?} {printed:?}"
        );
    }
}

#[test]
fn jpillora_copy_starts_over() {
    let mut backoff = maker(100, 10_000, Jitter::None).make_backoff();
    first(&mut backoff, 5);
    assert_eq!(backoff.clone().next_delay(), ms(100));
}

#[test]
fn jpillora_concurrent_many_threads_share_one_maker() {
    let maker = maker(100, 10_000, Jitter::None);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let maker = &maker;
                scope.spawn(move || {
                    (0..1_000).all(|_| maker.delay_for(thread) == ms(100 << thread).min(ms(10_000)))
                })
            })
            .collect();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    });
}

// === what users bring ===

#[test]
fn a_closure_and_a_list_are_backoffs() {
    let linear = backoff_fn(|retry| ms(7 + 10 * u64::from(retry)));
    assert_eq!(first(linear.make_backoff(), 5), [7, 17, 27, 37, 47].map(ms));
    let mut used = linear.make_backoff();
    first(&mut used, 3);
    assert_eq!(used.clone().next_delay(), ms(7));

    let schedule = Schedule::new([1, 1, 1, 2, 3, 7].map(ms)).unwrap();
    assert_eq!(
        first(schedule.make_backoff(), 8),
        [1, 1, 1, 2, 3, 7, 7, 7].map(ms)
    );
    let mut used = schedule.make_backoff();
    first(&mut used, 4);
    assert_eq!(first(used.clone(), 2), [1, 1].map(ms));
}

#[test]
fn the_default_f64_of_a_generator_is_in_its_range() {
    struct Bits(u64);
    impl Rng for Bits {
        fn next_u64(&mut self) -> u64 {
            self.0
        }
    }
    assert_eq!(Bits(0).next_f64(), 0.0);
    assert_eq!(Bits(u64::MAX).next_f64(), JUST_BELOW_ONE);
    assert_eq!(Bits(1 << 63).next_f64(), 0.5);
    let make: &dyn MakeRng<Rng = Bits> = &|| Bits(1 << 62);
    assert_eq!(make.make_rng().next_f64(), 0.25);
}

proptest! {
    // Tower's `backoff_base_first`, `backoff_base` and `backoff_jitter`, the last of which is
    // false there at whole seconds (B2).
    #[test]
    fn for_any_setting_the_grown_delay_starts_at_the_minimum_and_stays_in_range(
        min in 1_u64..u64::MAX, more in 0_u64.., factor in 1.0..10.0_f64, retry: u32,
    ) {
        let (min, max) = (Duration::from_nanos(min), Duration::from_nanos(min.saturating_add(more)));
        let maker = Maker::new(min, max, Jitter::None, Seeds::random())
            .and_then(|maker| maker.with_factor(factor))
            .unwrap();
        prop_assert_eq!(maker.base_delay(0), min);
        let base = maker.base_delay(retry);
        prop_assert!(min <= base && base <= max);
        prop_assert!(maker.base_delay(retry.saturating_add(1)) >= base);
    }

    #[test]
    fn for_any_ratio_the_jitter_lies_between_the_base_and_its_share(
        base in 1_u64..1 << 50, ratio in 0.0..100.0_f64, unit in 0.0..1.0_f64,
    ) {
        let base = Duration::from_nanos(base);
        let maker = ExponentialBackoffMaker::new(base, Duration::MAX, ratio, || Fixed(unit));
        let delay = maker.unwrap().make_backoff().next_delay();
        prop_assert!(delay >= base);
        let most = base.as_nanos() as f64 * (1.0 + ratio);
        prop_assert!(delay.as_nanos() as f64 <= most);
    }
}
