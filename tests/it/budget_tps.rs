//! `TpsBudget`: exact amounts, the edges of the window, bounds under threads, a reference model.

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::{Instant, advance};
use tower_retry_layer::budget::{Budget, TpsBudget};

use crate::budget::{THREADS, deposit, drain, on_threads, paused};

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3_600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

// === amounts ===

#[test]
fn the_default_lends_a_hundred_and_then_a_fifth_of_the_successes() {
    let budget = TpsBudget::default();
    assert_eq!(budget.balance(), 100);
    assert_eq!(drain(&budget), 100);
    assert_eq!(budget.balance(), 0);
    deposit(&budget, 100);
    assert_eq!(drain(&budget), 20);
}

#[test]
fn ten_successes_fund_their_exact_share() {
    // D 49 (tower#857), tower T2, W6.
    for (percent, retries) in [(0.2, 2), (0.3, 3), (0.4, 4), (0.6, 6), (2.0, 20)] {
        let budget = without_reserve(10 * SECOND, percent);
        deposit(&budget, 10);
        assert_eq!(drain(&budget), retries, "percent {percent}");
    }
}

#[test]
fn a_thousand_successes_fund_their_exact_share() {
    // tower T2.
    for (percent, retries) in [
        (0.05, 50),
        (0.1, 100),
        (0.15, 150),
        (0.2, 200),
        (0.25, 250),
        (0.3, 300),
        (0.333, 333),
        (0.35, 350),
        (0.4, 400),
        (0.45, 450),
        (0.5, 500),
        (0.6, 600),
        (0.7, 700),
        (0.8, 800),
        (0.9, 900),
        (0.99, 990),
        (1.0, 1_000),
        (2.0, 2_000),
        (600.0, 600_000),
        (1_000.0, 1_000_000),
    ] {
        let budget = without_reserve(DAY, percent);
        deposit(&budget, 1_000);
        assert_eq!(drain(&budget), retries, "percent {percent}");
    }
}

#[test]
fn retries_are_the_share_and_the_reserve() {
    // F4.
    for (percent, share) in [
        (0.1, 1_000),
        (0.5, 5_000),
        (0.25, 2_500),
        (0.75, 7_500),
        (0.99, 9_900),
        (0.999, 9_990),
        (0.9999, 9_999),
        (0.01, 100),
        (0.001, 10),
        (0.0001, 1),
    ] {
        for min_per_sec in [0, 3] {
            let budget = TpsBudget::new(DAY, min_per_sec, percent).unwrap();
            let retries = (0..10_000)
                .filter(|_| {
                    budget.deposit();
                    budget.withdraw()
                })
                .count();
            let left = usize::try_from(budget.balance()).unwrap();
            let reserve = usize::try_from(min_per_sec).unwrap() * 86_400;
            assert_eq!(retries + left, share + reserve, "percent {percent}");
            assert_eq!(retries, if min_per_sec == 0 { share } else { 10_000 });
        }
    }
}

#[test]
fn ten_thousand_successes_at_two_fund_twenty_thousand() {
    // F5.
    let budget = without_reserve(DAY, 2.0);
    deposit(&budget, 10_000);
    assert_eq!(budget.balance(), 20_000);
    assert_eq!(drain(&budget), 20_000);
}

#[test]
fn successes_add_to_the_reserve() {
    // F7.
    let budget = TpsBudget::new(10 * SECOND, 10, 0.1).unwrap();
    assert_eq!(budget.balance(), 100);
    deposit(&budget, 10);
    assert_eq!(budget.balance(), 101);
}

#[test]
fn nothing_in_is_nothing_out() {
    // F1, the empty half, and F3.
    let budget = without_reserve(SECOND, 0.0);
    deposit(&budget, 1_000);
    assert_eq!(budget.balance(), 0);
    assert!(!budget.withdraw());
}

#[test]
fn withdrawals_end_exactly_where_deposits_do() {
    // F10.
    let budget = without_reserve(DAY, 1.0);
    deposit(&budget, 100);
    assert_eq!(take(&budget, 50), 50);
    assert_eq!(take(&budget, 49), 49);
    assert!(budget.withdraw());
    assert!(!budget.withdraw());
}

#[test]
fn fractions_of_a_second_count_in_the_reserve() {
    // tower T8.
    for (millis, reserve) in [(1_500, 15), (1_999, 19), (100, 1), (60_900, 609)] {
        let budget = TpsBudget::new(millis * MILLI, 10, 0.0).unwrap();
        assert_eq!(drain(&budget), reserve, "{millis} ms");
    }
}

#[test]
fn fractions_of_the_reserve_and_of_a_success_make_a_whole() {
    // Half a retry of the reserve, and five successes at 0.1, on one and the same tick of an hour.
    let budget = TpsBudget::new(36_000 * SECOND + 500 * MILLI, 1, 0.1).unwrap();
    assert_eq!(drain(&budget), 36_000);
    deposit(&budget, 4);
    assert!(!budget.withdraw());
    deposit(&budget, 1);
    assert!(budget.withdraw());
    assert_eq!(budget.balance(), 0);
}

#[test]
fn the_largest_settings_neither_wrap_nor_panic() {
    // tower T11.
    let budget = TpsBudget::new(DAY, u32::MAX, 1_000.0).unwrap();
    let reserve = u64::from(u32::MAX) * 86_400;
    assert_eq!(budget.balance(), reserve);
    assert!(budget.withdraw());
    assert_eq!(budget.balance(), reserve - 1);
    deposit(&budget, 3);
    assert_eq!(budget.balance(), reserve + 2_999);
    budget.refund();
    assert_eq!(budget.balance(), reserve + 3_000);
}

#[test]
fn bad_settings_are_refused_with_a_reason() {
    // tower T10, F2; a ttl of 61 s is fine here.
    let reason = |ttl, percent| TpsBudget::new(ttl, 1, percent).unwrap_err().to_string();
    let percent = |percent| reason(SECOND, percent);
    for short in [Duration::ZERO, 10 * MILLI - Duration::from_nanos(1)] {
        assert_eq!(
            reason(short, 0.2),
            "invalid budget: ttl must not be less than 10 ms",
        );
    }
    for long in [DAY + Duration::from_nanos(1), Duration::MAX] {
        assert_eq!(
            reason(long, 0.2),
            "invalid budget: ttl must not be greater than a day",
        );
    }
    assert_eq!(
        percent(f32::NAN),
        "invalid budget: retry percent must not be NaN"
    );
    assert_eq!(
        percent(f32::INFINITY),
        "invalid budget: retry percent must be finite"
    );
    for negative in [-1.0, -0.1, f32::NEG_INFINITY] {
        assert_eq!(
            percent(negative),
            "invalid budget: retry percent must not be negative",
        );
    }
    for large in [1_000.1, f32::MAX] {
        assert_eq!(
            percent(large),
            "invalid budget: retry percent must not be greater than 1000",
        );
    }
    for small in [1e-17, 4e-5] {
        assert_eq!(
            percent(small),
            "invalid budget: retry percent is so small that it rounds to zero",
        );
    }
    for ttl in [10 * MILLI, 999 * MILLI, 61 * SECOND, DAY] {
        assert!(TpsBudget::new(ttl, 0, 1_000.0).is_ok());
    }
}

// === the window ===

#[tokio::test(start_paused = true)]
async fn a_success_lives_for_nine_to_ten_tenths_of_the_ttl() {
    // tower T1.
    for ttl in [SECOND, 10 * MILLI, Duration::from_nanos(1_000_700_003)] {
        for offset in 0..200 {
            let budget = without_reserve(ttl, 1.0);
            advance(ttl * offset / 1_000).await;
            budget.deposit();
            let nine_tenths = ttl * 9 / 10;
            advance(nine_tenths).await;
            assert_eq!(budget.balance(), 1, "{ttl:?}, offset {offset}");
            advance(ttl - nine_tenths).await;
            assert_eq!(budget.balance(), 0, "{ttl:?}, offset {offset}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_is_gone_at_the_ttl_and_not_before() {
    // T2 of the public vectors: tower keeps it for the instant of the ttl itself.
    let budget = without_reserve(SECOND, 1.0);
    budget.deposit();
    advance(SECOND - Duration::from_nanos(1)).await;
    assert!(probe(&budget));
    advance(Duration::from_nanos(1)).await;
    assert!(!probe(&budget));
}

#[tokio::test(start_paused = true)]
async fn how_often_somebody_asks_does_not_move_the_window() {
    // tower T1: the steps, and when the deposit made at the start was last seen.
    let micros = Duration::from_micros;
    for (step, last_seen) in [
        (micros(1_000_100) / 1_000, 9_999_u64 * 1_000_100),
        (micros(700_000), 9_800_000_000),
        (micros(1_500_000), 9_000_000_000),
        (micros(9_500_000), 9_500_000_000),
        (micros(10_000_000), 0),
    ] {
        let budget = without_reserve(10 * SECOND, 1.0);
        let start = Instant::now();
        budget.deposit();
        let mut seen = Duration::ZERO;
        while start.elapsed() < 21 * SECOND {
            if probe(&budget) {
                seen = start.elapsed();
            }
            advance(step).await;
        }
        assert_eq!(seen, Duration::from_nanos(last_seen), "step {step:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn constant_failure_spends_the_reserve_once_in_a_ttl() {
    // tower T1: 160 there.
    let budget = TpsBudget::new(2 * SECOND, 10, 0.2).unwrap();
    let start = Instant::now();
    let mut retries = 0;
    while start.elapsed() < 10 * SECOND {
        retries += usize::from(budget.withdraw());
        advance(Duration::from_nanos(1_000_100)).await;
    }
    assert_eq!(retries, 100);
}

#[tokio::test(start_paused = true)]
async fn what_was_spent_of_the_reserve_is_back_after_the_ttl() {
    // Asked for every half second; the first success is at exactly +10 s.
    let budget = TpsBudget::default();
    let start = Instant::now();
    assert_eq!(drain(&budget), 100);
    while !budget.withdraw() {
        advance(500 * MILLI).await;
    }
    assert_eq!(start.elapsed(), 10 * SECOND);
    assert_eq!(drain(&budget), 99);

    // In one jump.
    advance(10_000 * MILLI).await;
    assert_eq!(drain(&budget), 100);
}

#[tokio::test(start_paused = true)]
async fn the_reserve_may_be_spent_at_once_but_not_twice() {
    // tower T9, and T3 of the public vectors: back after 1000 ms, not 1100.
    let budget = TpsBudget::new(2 * SECOND, 10, 0.2).unwrap();
    assert_eq!(drain(&budget), 20);
    let budget = TpsBudget::new(SECOND, 10, 0.0).unwrap();
    assert_eq!(drain(&budget), 10);
    advance(999 * MILLI).await;
    assert_eq!(drain(&budget), 0);
    advance(MILLI).await;
    assert_eq!(drain(&budget), 10);
}

#[tokio::test(start_paused = true)]
async fn the_reserve_comes_back_as_it_was_spent() {
    let budget = TpsBudget::new(SECOND, 10, 0.0).unwrap();
    assert_eq!(take(&budget, 4), 4);
    advance(550 * MILLI).await;
    assert_eq!(drain(&budget), 6);
    advance(450 * MILLI).await;
    assert_eq!(drain(&budget), 4);
    advance(500 * MILLI).await;
    // Spent at 550 ms in the tick that began at 500 ms: within nine to ten tenths of the ttl.
    assert_eq!(drain(&budget), 6);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_leaves_no_debt_behind() {
    // tower T5: the balance was −10 from 10 s to 14.5 s.
    let budget = TpsBudget::new(10 * SECOND, 1, 1.0).unwrap();
    deposit(&budget, 10);
    advance(4_500 * MILLI).await;
    assert_eq!(take(&budget, 10), 10);
    for _ in 0..20 {
        assert_eq!(budget.balance(), 10, "the reserve is untouched");
        advance(500 * MILLI).await;
    }
    budget.deposit();
    assert_eq!(drain(&budget), 11);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_leaks_is_empty_after_the_ttl() {
    // F9, T4 of the public vectors.
    let budget = without_reserve(3 * SECOND, 1.0);
    deposit(&budget, 100);
    assert!(budget.withdraw());
    advance(3 * SECOND).await;
    assert!(!budget.withdraw());
}

#[tokio::test(start_paused = true)]
async fn a_spent_reserve_lends_again_from_successes_and_after_the_ttl() {
    // F11, with a ttl of 4 s: what is spent comes back at the ttl itself, not a tick later.
    let budget = TpsBudget::new(4 * SECOND, 25, 1.0).unwrap();
    assert_eq!(take(&budget, 50), 50);
    assert_eq!(take(&budget, 50), 50);
    assert!(!budget.withdraw());
    budget.deposit();
    assert!(budget.withdraw());
    // F12.
    for _ in 0..3 {
        advance(SECOND).await;
        assert!(!budget.withdraw());
    }
    advance(SECOND).await;
    assert_eq!(take(&budget, 50), 50);
}

#[tokio::test(start_paused = true)]
async fn the_window_adds_up_what_is_in_it() {
    // F14.
    let budget = without_reserve(3 * SECOND, 1.0);
    budget.deposit();
    assert_eq!(budget.balance(), 1);
    advance(SECOND).await;
    deposit(&budget, 2);
    for balance in [3, 3, 2, 0] {
        assert_eq!(budget.balance(), balance);
        advance(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_window_skips_what_nobody_looked_at() {
    // F15.
    let budget = without_reserve(3 * SECOND, 1.0);
    for (deposits, balance, then) in [(1, 1, 1), (2, 3, 1), (1, 4, 2), (0, 1, 100), (0, 0, 0)] {
        deposit(&budget, deposits);
        assert_eq!(budget.balance(), balance);
        advance(then * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn any_idle_time_is_one_step() {
    // tower T7, W5. With a loop over the windows this would not end.
    let budget = TpsBudget::new(10 * MILLI, 100, 1.0).unwrap();
    for years in [1, 1, 10, 100, 1_000] {
        budget.deposit();
        assert_eq!(drain(&budget), 2, "{years} years");
        advance(YEAR * years).await;
    }
}

#[tokio::test(start_paused = true)]
async fn debug_prints_the_balance_of_the_moment() {
    // tower T12.
    let budget = TpsBudget::new(SECOND, 2, 0.25).unwrap();
    budget.deposit();
    assert_eq!(
        format!("{budget:?}"),
        "TpsBudget { balance: 2.25, ttl: 1s, reserve: 2.0, retry_percent: 0.25 }",
    );
    advance(SECOND).await;
    assert!(format!("{budget:?}").starts_with("TpsBudget { balance: 2.0,"));
}

// === tower's own tests ===

#[test]
fn tower_tps_empty() {
    assert!(!without_reserve(SECOND, 1.0).withdraw());
}

#[tokio::test(start_paused = true)]
async fn tower_tps_leaky() {
    let budget = without_reserve(SECOND, 1.0);
    budget.deposit();
    advance(3 * SECOND).await;
    assert!(!budget.withdraw());
}

#[tokio::test(start_paused = true)]
async fn tower_tps_slots() {
    let budget = without_reserve(SECOND, 0.5);
    deposit(&budget, 2);
    advance(901 * MILLI).await;
    assert!(budget.withdraw());

    advance(2_001 * MILLI).await;
    budget.deposit();
    advance(301 * MILLI).await;
    budget.deposit();
    advance(801 * MILLI).await;
    budget.deposit();
    assert!(budget.withdraw());
    // The first deposit had expired, so that was all.
    assert!(!budget.withdraw());
}

#[test]
fn tower_tps_reserve() {
    let budget = TpsBudget::new(SECOND, 5, 1.0).unwrap();
    for _ in 0..5 {
        assert!(budget.withdraw());
    }
    assert!(!budget.withdraw());
}

// === refunds ===

#[tokio::test(start_paused = true)]
async fn a_refund_makes_a_dry_budget_lend_again() {
    for (min_per_sec, deposits) in [(1, 0), (0, 2), (1, 1)] {
        let budget = TpsBudget::new(SECOND, min_per_sec, 0.5).unwrap();
        deposit(&budget, deposits);
        for _ in 0..3 {
            assert_eq!(drain(&budget), 1);
            assert!(!budget.withdraw());
            budget.refund();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refund_without_a_withdrawal_gives_nothing() {
    let budget = TpsBudget::new(SECOND, 1, 1.0).unwrap();
    budget.refund();
    assert_eq!(drain(&budget), 1);
    advance(SECOND).await;
    budget.refund();
    assert_eq!(drain(&budget), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refund_goes_to_the_oldest_success_in_the_window() {
    let budget = without_reserve(SECOND, 1.0);
    budget.deposit();
    advance(500 * MILLI).await;
    budget.deposit();
    assert_eq!(drain(&budget), 2);
    budget.refund();
    // What was given back expires with the first success, not with the second.
    advance(500 * MILLI).await;
    assert_eq!(budget.balance(), 0);
    budget.refund();
    assert_eq!(drain(&budget), 1);
}

// === threads ===

#[test]
fn one_retry_is_granted_once_however_many_ask() {
    // tower T3, W4, D 55.
    let budget = without_reserve(DAY, 1.0);
    for _ in 0..2_000 {
        budget.deposit();
        assert_eq!(on_threads(|| usize::from(budget.withdraw())), 1);
    }
}

#[test]
fn no_success_is_lost_among_threads() {
    const DEPOSITS: usize = 10_000;
    let budget = TpsBudget::new(DAY, 0, 0.2).unwrap();
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

#[test]
fn a_tick_stops_counting_instead_of_wrapping() {
    let budget = without_reserve(DAY, 1.0);
    on_threads(|| {
        deposit(&budget, (1 << 25) / THREADS + 1);
        0
    });
    let full = budget.balance();
    // Threads that had checked the limit and not yet added may pass it by one each.
    assert!((1 << 25..(1 << 25) + THREADS as u64).contains(&full));
    deposit(&budget, 1_000);
    assert_eq!(budget.balance(), full);
}

#[test]
fn refunds_among_threads_neither_make_nor_lose_a_retry() {
    let budget = TpsBudget::new(DAY, 0, 1.0).unwrap();
    deposit(&budget, 3);
    on_threads(|| {
        for _ in 0..10_000 {
            if budget.withdraw() {
                budget.refund();
            }
        }
        0
    });
    assert_eq!(drain(&budget), 3);
}

#[test]
fn a_short_window_lends_no_more_to_threads_than_the_model_allows() {
    // On the real clock ticks pass while threads race. All deposits and every reserve that could
    // have come back bound what is granted.
    const DEPOSITS: usize = 20_000;
    let ttl = 10 * MILLI;
    let start = std::time::Instant::now();
    let budget = TpsBudget::new(ttl, 1_000, 0.5).unwrap();
    let granted = on_threads(|| {
        (0..DEPOSITS)
            .map(|_| {
                budget.deposit();
                usize::from(budget.withdraw())
            })
            .sum()
    });
    // 10 retries in nine tenths of 10 ms, as fast as they come back.
    let reserves = usize::try_from(start.elapsed().as_millis() / 9).unwrap() + 2;
    assert!(granted <= THREADS * DEPOSITS / 2 + 10 * reserves);
}

// === the reference model ===

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Hundredths of the ttl.
    Advance(u32),
    Deposit,
    Withdraw,
    Refund,
}

/// Every deposit and every loan from the reserve on a list of its own.
struct Model {
    reserve: u64,
    /// Tick, worth, lent against it.
    deposits: Vec<(u64, u64, u64)>,
    /// Tick, amount.
    spent: Vec<(u64, u64)>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn agrees_with_a_model_that_keeps_lists(
        ttl in prop_oneof![Just(10_u64), Just(1_000), 10..5_000_u64],
        min_per_sec in prop_oneof![Just(0_u32), 0..8_u32],
        percent in 0_u32..30_000,
        steps in prop::collection::vec(step(), 0..300),
    ) {
        paused(async move {
            let length = Duration::from_millis(ttl);
            let budget = TpsBudget::new(length, min_per_sec, percent as f32 / 1e4).unwrap();
            let start = Instant::now();
            let mut model = Model {
                reserve: u64::from(min_per_sec) * ttl * 10,
                deposits: Vec::new(),
                spent: Vec::new(),
            };
            for step in steps {
                let tick = start.elapsed().as_nanos() * 10 / length.as_nanos();
                let tick = u64::try_from(tick).unwrap();
                model.expire(tick);
                match step {
                    Step::Advance(part) => advance(length * part / 100).await,
                    Step::Deposit => {
                        budget.deposit();
                        model.deposits.push((tick, u64::from(percent), 0));
                    }
                    Step::Withdraw => prop_assert_eq!(budget.withdraw(), model.withdraw(tick)),
                    Step::Refund => {
                        budget.refund();
                        model.refund();
                    }
                }
                if !matches!(step, Step::Advance(_)) {
                    prop_assert_eq!(budget.balance(), model.balance() / 10_000);
                }
            }
            Ok(())
        })?;
    }
}

impl Model {
    fn expire(&mut self, now: u64) {
        self.deposits.retain(|&(tick, ..)| now < tick + 10);
        self.spent.retain(|&(tick, _)| now < tick + 10);
    }

    fn balance(&self) -> u64 {
        let deposits: u64 = self
            .deposits
            .iter()
            .map(|(_, worth, lent)| worth - lent)
            .sum();
        let spent: u64 = self.spent.iter().map(|(_, amount)| amount).sum();
        deposits + self.reserve - spent
    }

    fn withdraw(&mut self, now: u64) -> bool {
        if self.balance() < 10_000 {
            return false;
        }
        let mut left = 10_000;
        for (_, worth, lent) in &mut self.deposits {
            let part = left.min(*worth - *lent);
            *lent += part;
            left -= part;
        }
        self.spent.push((now, left));
        true
    }

    fn refund(&mut self) {
        let mut left = 10_000;
        let lent = self.deposits.iter_mut().map(|(_, _, lent)| lent);
        for amount in lent.chain(self.spent.iter_mut().map(|(_, amount)| amount)) {
            let part = left.min(*amount);
            *amount -= part;
            left -= part;
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop_oneof![Just(10), Just(100), 0_u32..30, 0..1_500_u32].prop_map(Step::Advance),
        4 => Just(Step::Deposit),
        4 => Just(Step::Withdraw),
        1 => Just(Step::Refund),
    ]
}

fn without_reserve(ttl: Duration, percent: f32) -> TpsBudget {
    TpsBudget::new(ttl, 0, percent).unwrap()
}

/// Whether a retry could be sent. Puts it back where it was.
fn probe(budget: &TpsBudget) -> bool {
    let lends = budget.withdraw();
    if lends {
        budget.refund();
    }
    lends
}

fn take(budget: &TpsBudget, times: usize) -> usize {
    (0..times).filter(|_| budget.withdraw()).count()
}
