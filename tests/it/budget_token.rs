//! `TokenBudget`: exact amounts, bounds under threads, refill on a paused clock.

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::advance;
use tower_retry_layer::budget::{Budget, TokenBudget};

use crate::budget::{THREADS, deposit, drain, on_threads, paused};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

#[test]
fn starts_full_and_lends_its_capacity() {
    let budget = TokenBudget::default();
    assert_eq!(budget.balance(), 100);
    assert_eq!(drain(&budget), 100);
    assert_eq!(budget.balance(), 0);
}

#[test]
fn successes_fund_their_exact_share() {
    // tower T2, W6: 1000 deposits at each ratio.
    for (ratio, retries) in [
        (0.05, 50),
        (0.15, 150),
        (0.2, 200),
        (0.3, 300),
        (0.333, 333),
        (0.35, 350),
        (0.4, 400),
        (0.45, 450),
        (0.6, 600),
        (0.7, 700),
        (0.8, 800),
        (0.9, 900),
        (0.99, 990),
        (1.0, 1_000),
        (2.0, 2_000),
        (600.0, 600_000),
    ] {
        let budget = emptied(1_000_000, ratio);
        deposit(&budget, 1_000);
        assert_eq!(drain(&budget), retries, "ratio {ratio}");
    }
}

#[test]
fn ten_successes_at_six_tenths_fund_six_retries() {
    // D 49 (tower#857).
    let budget = emptied(100, 0.6);
    deposit(&budget, 10);
    assert_eq!(drain(&budget), 6);
}

#[test]
fn plain_successes_fill_an_empty_bucket_up_to_its_capacity() {
    // D 52: no retry has to come first.
    let budget = emptied(3, 0.5);
    deposit(&budget, 1_000);
    assert_eq!(budget.balance(), 3);
    assert_eq!(drain(&budget), 3);
}

#[test]
fn a_refund_adds_one_retry_below_the_capacity_only() {
    let budget = TokenBudget::new(2, 0.0).unwrap();
    budget.refund();
    assert_eq!(drain(&budget), 2);
    budget.refund();
    assert_eq!(drain(&budget), 1);
}

#[test]
fn a_capacity_of_zero_never_lends() {
    // F1, the empty half; F3.
    for ratio in [0.0, 0.5, f32::MAX] {
        let budget = TokenBudget::new(0, ratio).unwrap();
        deposit(&budget, 100);
        budget.refund();
        assert!(!budget.withdraw());
        assert_eq!(budget.balance(), 0);
    }
}

#[test]
fn what_comes_in_goes_out_and_no_more_is_kept_than_fits() {
    // F13.
    let budget = emptied(10, 1.0);
    let take = |times| (0..times).all(|_| budget.withdraw());
    deposit(&budget, 5);
    assert!(take(3));
    assert_eq!(budget.balance(), 2);
    deposit(&budget, 6);
    assert_eq!(budget.balance(), 8);
    assert!(take(2));
    assert_eq!(budget.balance(), 6);
    assert!(take(5));
    assert_eq!(budget.balance(), 1);
    assert!(!take(6));
    deposit(&budget, 15);
    assert_eq!(budget.balance(), 10);
}

#[test]
fn a_failing_upstream_costs_the_capacity_and_no_more() {
    // B T2: 2000 requests that fail, none succeeds, so nothing is deposited.
    let budget = TokenBudget::new(1, 0.2).unwrap();
    let retries = (0..2_000).filter(|_| budget.withdraw()).count();
    assert_eq!(retries, 1);
}

#[test]
fn the_largest_settings_neither_wrap_nor_panic() {
    // B T3.
    let budget = TokenBudget::new(u32::MAX, f32::MAX).unwrap();
    deposit(&budget, 3);
    assert_eq!(budget.balance(), u64::from(u32::MAX));
    assert!(budget.withdraw());
    assert_eq!(budget.balance(), u64::from(u32::MAX) - 1);
    budget.deposit();
    budget.refund();
    assert_eq!(budget.balance(), u64::from(u32::MAX));
}

#[test]
fn bad_settings_are_refused_with_a_reason() {
    let ratio = |ratio| TokenBudget::new(1, ratio).unwrap_err().to_string();
    assert_eq!(ratio(f32::NAN), "invalid budget: ratio must not be NaN");
    assert_eq!(ratio(f32::INFINITY), "invalid budget: ratio must be finite");
    for negative in [f32::NEG_INFINITY, -0.1, -f32::MIN_POSITIVE] {
        assert_eq!(
            ratio(negative),
            "invalid budget: ratio must not be negative"
        );
    }
    for small in [4e-7, f32::MIN_POSITIVE] {
        assert_eq!(
            ratio(small),
            "invalid budget: ratio is so small that it rounds to zero",
        );
    }
    assert!(TokenBudget::new(1, -0.0).is_ok());
    assert!(TokenBudget::new(1, 6e-7).is_ok());

    let refill = TokenBudget::default().with_refill_per_second(-1.0);
    assert_eq!(
        refill.unwrap_err().to_string(),
        "invalid budget: refill per second must not be negative",
    );
}

#[test]
fn debug_prints_the_balance_of_the_moment() {
    let budget = TokenBudget::new(3, 0.25).unwrap();
    assert!(budget.withdraw());
    budget.deposit();
    assert_eq!(
        format!("{budget:?}"),
        "TokenBudget { balance: 2.25, capacity: 3, ratio: 0.25, refill_per_second: 0.0 }",
    );
}

#[test]
fn one_token_is_granted_once_however_many_ask() {
    // tower T3, W4, D 55.
    let budget = TokenBudget::new(1, 1.0).unwrap();
    for _ in 0..2_000 {
        assert_eq!(on_threads(|| usize::from(budget.withdraw())), 1);
        budget.deposit();
    }
}

#[test]
fn threads_get_the_capacity_and_their_share_of_successes() {
    const DEPOSITS: usize = 10_000;
    let budget = TokenBudget::default();
    let granted = on_threads(|| {
        (0..DEPOSITS)
            .map(|_| {
                budget.deposit();
                usize::from(budget.withdraw()) + usize::from(budget.withdraw())
            })
            .sum()
    });
    let bound = 100 + THREADS * DEPOSITS / 5;
    assert!(granted + drain(&budget) <= bound);
}

#[test]
fn no_success_is_lost_among_threads() {
    const DEPOSITS: usize = 10_000;
    // Far below its capacity nothing is clamped, so every part of a retry must come out again.
    let budget = emptied(u32::try_from(THREADS * DEPOSITS).unwrap(), 0.2);
    let granted = on_threads(|| {
        (0..DEPOSITS)
            .map(|_| {
                budget.deposit();
                usize::from(budget.withdraw())
            })
            .sum()
    });
    assert_eq!(granted + drain(&budget), THREADS * DEPOSITS / 5);
}

#[tokio::test(start_paused = true)]
async fn a_refill_adds_its_retries_over_time() {
    let budget = emptied(100, 0.0).with_refill_per_second(0.5).unwrap();
    advance(Duration::from_millis(1_999)).await;
    assert!(!budget.withdraw());
    advance(Duration::from_millis(1)).await;
    assert_eq!(drain(&budget), 1);
    advance(Duration::from_secs(7)).await;
    assert_eq!(budget.balance(), 3);
}

#[tokio::test(start_paused = true)]
async fn asking_often_loses_no_fraction_of_the_refill() {
    // Three in ten seconds, asked for every 7 milliseconds: no step is worth whole units.
    let budget = emptied(100, 0.0).with_refill_per_second(0.3).unwrap();
    let mut granted = 0;
    for _ in 0..10_000 {
        advance(Duration::from_millis(7)).await;
        granted += drain(&budget);
    }
    // 70 s × 0.3, and the last of them is due at the last step.
    assert_eq!(granted, 21);
}

#[tokio::test(start_paused = true)]
async fn a_refill_stops_at_the_capacity_after_any_idle_time() {
    for per_second in [1e-6, 1.0, f32::MAX] {
        let budget = emptied(5, 0.0).with_refill_per_second(per_second).unwrap();
        for _ in 0..2 {
            advance(YEAR).await;
            assert_eq!(budget.balance(), 5, "{per_second} a second");
            assert_eq!(drain(&budget), 5);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refill_of_zero_is_none() {
    let budget = emptied(5, 0.0).with_refill_per_second(0.0).unwrap();
    advance(YEAR).await;
    assert!(!budget.withdraw());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Advance(u64),
    Deposit,
    Withdraw,
    Refund,
}

proptest! {
    #[test]
    fn agrees_with_plain_arithmetic(
        capacity in 0_u32..20,
        ratio in 0_u32..3_000_000,
        refill in 0_u32..2_000_000,
        steps in prop::collection::vec(step(), 0..200),
    ) {
        paused(async move {
            let part = |units: u32| units as f32 / 1e6;
            let rounded = |value: f32| (f64::from(value) * 1e6).round() as u128;
            let budget = TokenBudget::new(capacity, part(ratio)).unwrap();
            let budget = budget.with_refill_per_second(part(refill)).unwrap();
            // In millionths of a retry times nanoseconds in a second: no fraction is rounded off.
            let retry = 1_000_000 * 1_000_000_000_u128;
            let full = u128::from(capacity) * retry;
            let (ratio, refill) = (rounded(part(ratio)), rounded(part(refill)));
            let (mut model, mut due) = (full, 0);
            for step in steps {
                match step {
                    Step::Advance(millis) => {
                        advance(Duration::from_millis(millis)).await;
                        due += u128::from(millis) * 1_000_000 * refill;
                    }
                    Step::Deposit => {
                        budget.deposit();
                        model = full.min(model + (ratio * 1_000_000_000).min(full));
                    }
                    Step::Refund => {
                        budget.refund();
                        model = full.min(model + retry);
                    }
                    Step::Withdraw => {
                        // Whole units flow; the rest stays due.
                        model = full.min(model + due / 1_000_000_000 * 1_000_000_000);
                        due %= 1_000_000_000;
                        let expected = model >= retry;
                        prop_assert_eq!(budget.withdraw(), expected);
                        model -= if expected { retry } else { 0 };
                    }
                }
            }
            Ok(())
        })?;
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u64..5_000).prop_map(Step::Advance),
        Just(Step::Deposit),
        Just(Step::Withdraw),
        Just(Step::Refund),
    ]
}

fn emptied(capacity: u32, ratio: f32) -> TokenBudget {
    let budget = TokenBudget::new(capacity, ratio).unwrap();
    while budget.withdraw() {}
    budget
}
