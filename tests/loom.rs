//! The budgets' algorithms under every interleaving that a few threads can have.
//!
//! The algorithms are compiled in here, as files, against loom's atomics and mutex in place of
//! std's (`src/budget/sync.rs`). So the library needs no `--cfg` and no dependency for it, and this
//! runs with all the other tests. Time is an argument of the algorithms, which loom needs.

#![allow(dead_code, reason = "what only the budgets around the algorithms use")]

#[path = "../src/budget/bucket.rs"]
mod bucket;
#[path = "../src/budget/drip.rs"]
mod drip;
#[path = "../src/budget/window.rs"]
mod window;

mod sync {
    use loom::sync::atomic::AtomicU64 as Inner;
    use loom::sync::atomic::Ordering;
    pub(crate) use loom::sync::{
        Mutex, MutexGuard,
        atomic::Ordering::{Acquire, Relaxed, Release},
    };

    /// loom's atomic, with every access announced.
    ///
    /// loom 0.7 looks for an order to try in place of the present one only where an access conflicts
    /// with the *last* one. A thread that loads and then swaps hides from it that another thread's
    /// load came before, and it skips orders in which these two change places. Announcements all
    /// conflict, so it tries their every order; being relaxed, they publish nothing, and loads may
    /// still see old values.
    pub(crate) struct AtomicU64 {
        announced: Inner,
        value: Inner,
    }

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> Self {
            Self {
                announced: Inner::new(0),
                value: Inner::new(value),
            }
        }

        pub(crate) fn load(&self, order: Ordering) -> u64 {
            self.announce().load(order)
        }

        pub(crate) fn store(&self, value: u64, order: Ordering) {
            self.announce().store(value, order);
        }

        pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
            self.announce().fetch_add(value, order)
        }

        pub(crate) fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
            self.announce().fetch_sub(value, order)
        }

        pub(crate) fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
            self.announce().fetch_max(value, order)
        }

        pub(crate) fn compare_exchange_weak(
            &self,
            old: u64,
            new: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            self.announce()
                .compare_exchange_weak(old, new, success, failure)
        }

        fn announce(&self) -> &Inner {
            self.announced.fetch_add(0, Relaxed);
            &self.value
        }
    }
}

use loom::{
    sync::Arc,
    thread::{JoinHandle, spawn},
};

use self::{bucket::Bucket, drip::Drip, window::Window};

/// What a window counts as one retry.
const RETRY: u64 = window::RETRY as u64;

// === Bucket: TokenBudget and RetryThrottle ===

#[test]
fn a_bucket_grants_its_last_token_once() {
    model(|| {
        let bucket = Arc::new(Bucket::new(1, 1));
        let others = [(); 2].map(|()| run(&bucket, |bucket| bucket.take(1)));
        let granted = u64::from(bucket.take(1)) + granted(others);
        assert_eq!(granted, 1);
        assert_eq!(bucket.amount(), 0);
    });
}

#[test]
fn a_bucket_loses_no_deposit_to_a_withdrawal() {
    model(|| {
        let bucket = Arc::new(Bucket::new(10, 2));
        let adds = [(); 2].map(|()| run(&bucket, |bucket| bucket.add(1)));
        let taken = u64::from(bucket.take(3));
        join(adds);
        assert_eq!(bucket.amount(), 4 - 3 * taken);
    });
}

#[test]
fn a_bucket_never_holds_more_than_its_capacity() {
    model(|| {
        let bucket = Arc::new(Bucket::new(3, 2));
        let adds = [(); 2].map(|()| run(&bucket, |bucket| bucket.add(2)));
        assert!(bucket.amount() <= 3);
        let taken = u64::from(bucket.take(1));
        assert!(bucket.amount() <= 3);
        join(adds);
        // Either the last thing was an add that filled it, or the withdrawal from a full one.
        assert_eq!(taken, 1);
        assert!((2..=3).contains(&bucket.amount()));
    });
}

#[test]
fn a_throttle_loses_no_failure_and_stops_at_zero() {
    model(|| {
        let bucket = Arc::new(Bucket::new(10, 3));
        let drains = [(); 2].map(|()| run(&bucket, |bucket| bucket.drain(2)));
        bucket.add(4);
        join(drains);
        // 3 + 4 − 2 − 2, or 3 − 2 − 1 + 4 where the second failure met an almost empty bucket.
        assert!((3..=4).contains(&bucket.amount()));
    });
}

#[test]
fn time_is_handed_out_once() {
    model(|| {
        const SECOND: u64 = 1_000_000_000;
        // A third of a unit for each step, so every stretch has a fraction.
        let drip = Arc::new(Drip::new(1));
        let others =
            [SECOND * 4 / 3, SECOND * 8 / 3].map(|now| run(&drip, move |drip| drip.collect(now)));
        let mine = drip.collect(SECOND * 2);
        let collected: u64 = others.map(|other| other.join().unwrap()).iter().sum();
        assert_eq!(mine + collected, 2);
        assert_eq!(drip.collect(SECOND * 3), 1);
    });
}

// === Window: TpsBudget ===

#[test]
fn a_window_grants_its_last_retry_once() {
    model(|| {
        for (reserve, deposits) in [(RETRY, 0), (0, 1), (RETRY / 2, 1)] {
            let window = Arc::new(Window::new(RETRY - reserve, reserve));
            (0..deposits).for_each(|_| window.deposit(0));
            let other = run(&window, |window| window.withdraw(0));
            let granted = u64::from(window.withdraw(0)) + granted([other]);
            assert_eq!(granted, 1);
            assert_eq!(window.balance(0), 0);
        }
    });
}

#[test]
fn a_window_loses_no_deposit_to_another() {
    model(|| {
        let window = Arc::new(Window::new(RETRY, 0));
        let others = [(); 2].map(|()| run(&window, |window| window.deposit(5)));
        window.deposit(5);
        join(others);
        assert_eq!(window.balance(5), 3 * RETRY);
    });
}

#[test]
fn a_refusal_does_not_hide_a_deposit_that_races_with_it() {
    model(|| {
        let window = Arc::new(Window::new(RETRY, 0));
        let other = run(&window, |window| window.deposit(0));
        let early = window.withdraw(0);
        other.join().unwrap();
        assert_eq!(window.withdraw(0), !early);
        assert!(!window.withdraw(0));
    });
}

#[test]
fn a_refusal_does_not_hide_a_late_deposit_of_an_earlier_tick() {
    model(|| {
        let window = Arc::new(Window::new(RETRY, 0));
        let other = run(&window, |window| window.deposit(4));
        let early = window.withdraw(6);
        other.join().unwrap();
        assert_eq!(window.withdraw(6), !early);
        assert!(!window.withdraw(6));
    });
}

#[test]
fn a_refusal_does_not_hide_a_refund_that_races_with_it() {
    model(|| {
        let window = Arc::new(Window::new(0, RETRY));
        assert!(window.withdraw(0));
        let other = run(&window, |window| window.refund(0));
        let early = window.withdraw(0);
        other.join().unwrap();
        assert_eq!(window.withdraw(0), !early);
        assert!(!window.withdraw(0));
    });
}

#[test]
fn a_spent_reserve_comes_back_once_when_the_tick_changes_meanwhile() {
    model(|| {
        let window = Arc::new(Window::new(0, RETRY));
        assert!(window.withdraw(0));
        let other = run(&window, |window| window.withdraw(9));
        let granted = u64::from(window.withdraw(10)) + granted([other]);
        assert_eq!(granted, 1);
        assert_eq!(window.balance(10), 0);
    });
}

#[test]
fn a_late_deposit_takes_none_from_the_slots_new_tick() {
    model(|| {
        let window = Arc::new(Window::new(RETRY, 0));
        window.deposit(3);
        let late = run(&window, |window| window.deposit(3));
        window.deposit(13);
        late.join().unwrap();
        // The late one came before the tick changed, or counts as one of the new tick.
        let balance = window.balance(13);
        assert!(balance == RETRY || balance == 2 * RETRY);
    });
}

#[test]
fn a_deposit_is_lent_once_while_its_slot_changes_hands() {
    model(|| {
        let window = Arc::new(Window::new(RETRY, 0));
        window.deposit(3);
        assert!(window.withdraw(3));
        let later = run(&window, |window| window.deposit(13));
        let early = window.withdraw(12);
        later.join().unwrap();
        assert!(!early);
        assert!(window.withdraw(13));
        assert!(!window.withdraw(13));
    });
}

#[test]
fn a_slot_that_is_taken_over_leaves_no_negative_balance() {
    model(|| {
        let window = Arc::new(Window::new(RETRY, RETRY));
        window.deposit(3);
        assert!(window.withdraw(3));
        let later = run(&window, |window| window.deposit(13));
        // The ledger still stands at tick 12, where slot 3 has a loan.
        let granted = u64::from(window.withdraw(12)) + u64::from(window.withdraw(12));
        later.join().unwrap();
        assert_eq!(granted, 1);
        assert_eq!(window.balance(13), RETRY);
    });
}

// === one thread, ticks that no test can wait for ===

#[test]
fn a_deposit_that_comes_too_late_counts_in_the_tick_that_has_begun() {
    model(|| {
        let window = Window::new(RETRY, 0);
        window.deposit(25);
        window.deposit(15);
        window.deposit(5);
        for tick in [25, 34] {
            assert_eq!(window.balance(tick), 3 * RETRY);
        }
        assert_eq!(window.balance(35), 0);
    });
}

#[test]
fn an_idle_time_of_years_leaves_no_trace() {
    model(|| {
        // A year of the shortest ticks, over and over: the ticks of the words wrap in the ninth.
        const YEAR: u64 = 365 * 24 * 3_600 * 1_000;
        let window = Window::new(RETRY, 0);
        let mut tick = 0;
        for year in 1..=40 {
            for _ in 0..2 {
                window.deposit(tick);
                assert_eq!(window.balance(tick), RETRY);
                assert!(window.withdraw(tick));
                assert!(!window.withdraw(tick));
                window.deposit(tick + 9);
                assert_eq!(window.balance(tick + 9), RETRY);
                assert_eq!(window.balance(tick + 19), 0);
                tick += 20;
            }
            // An odd number of ticks, so that each slot has its turn.
            tick += YEAR * (1 + year % 8) + year;
        }
    });
}

#[test]
fn ticks_wrap_around_without_a_trace() {
    model(|| {
        const LAP: u64 = 1 << 38;
        let window = Window::new(RETRY, 0);
        for tick in LAP - (1 << 21)..LAP - (1 << 21) + 10 {
            window.deposit(tick);
        }
        window.deposit(LAP - 5);
        window.deposit(LAP + 4);
        assert_eq!(window.balance(LAP + 4), 2 * RETRY);
        assert_eq!(window.balance(LAP + 5), RETRY);
        assert!(window.withdraw(LAP + 5));
        assert!(!window.withdraw(LAP + 5));
        window.deposit(LAP + 14);
        assert_eq!(window.balance(LAP + 14), RETRY);
    });
}

/// Checks every interleaving with up to two preemptions, unless `LOOM_MAX_PREEMPTIONS` says more.
fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(2);
    // For the long runs on one thread.
    builder.max_branches = 50_000;
    builder.check(check);
}

fn run<T: Send + Sync + 'static, R: 'static>(
    shared: &Arc<T>,
    work: impl FnOnce(&T) -> R + 'static,
) -> JoinHandle<R> {
    let shared = shared.clone();
    spawn(move || work(&shared))
}

fn join<const N: usize>(others: [JoinHandle<()>; N]) {
    for other in others {
        other.join().unwrap();
    }
}

fn granted<const N: usize>(others: [JoinHandle<bool>; N]) -> u64 {
    others
        .map(|other| u64::from(other.join().unwrap()))
        .iter()
        .sum()
}
