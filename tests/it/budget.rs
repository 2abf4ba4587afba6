//! What holds for every budget: pointers, settings' errors, helpers for the tests of each kind.

use std::{
    sync::{Arc, Barrier},
    thread,
};

use tower_retry_layer::budget::{Budget, InvalidBudget, TokenBudget, Unlimited};

/// More threads than the machine has cores.
pub(crate) const THREADS: usize = 8;

#[test]
fn pointers_to_a_budget_are_that_budget() {
    fn spend(budget: impl Budget) -> usize {
        drain(&budget)
    }
    let budget = Arc::new(TokenBudget::new(7, 1.0).unwrap());
    let shared: Arc<dyn Budget> = budget.clone();

    assert_eq!(spend(&*budget), 7);
    budget.deposit();
    assert_eq!(spend(&budget), 1);
    shared.deposit();
    assert_eq!(spend(shared.clone()), 1);
    shared.refund();
    assert_eq!(spend(Box::new(shared) as Box<dyn Budget>), 1);
}

#[test]
fn unlimited_always_lends() {
    // F1, the infinite half.
    for _ in 0..1_000 {
        assert!(Unlimited.withdraw());
    }
}

#[test]
fn an_error_names_the_setting_and_the_reason() {
    fn is_error<E: std::error::Error + Clone + Send + Sync + 'static>(_: &E) {}
    let error: InvalidBudget = TokenBudget::new(1, f32::NAN).unwrap_err();
    is_error(&error);
    assert_eq!(error.to_string(), "invalid budget: ratio must not be NaN");
    assert_eq!(error, TokenBudget::new(2, f32::NAN).unwrap_err());
}

/// Withdraws until refused and counts.
pub(crate) fn drain(budget: &(impl Budget + ?Sized)) -> usize {
    (0..).take_while(|_| budget.withdraw()).count()
}

/// Runs `work` on [`THREADS`] threads that start together, and adds up what they return.
pub(crate) fn on_threads(work: impl Fn() -> usize + Sync) -> usize {
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    work()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    })
}

/// Deposits so many times.
pub(crate) fn deposit(budget: &impl Budget, times: usize) {
    for _ in 0..times {
        budget.deposit();
    }
}

/// Runs `test` on a runtime whose clock stands still.
pub(crate) fn paused<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(test)
}
