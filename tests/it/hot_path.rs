//! What a request that succeeds at once pays: no allocation, no clock, no clone that is not needed.

use std::{
    future::{Ready, ready},
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tower::{Layer, Service};
use tower_retry_layer::{
    Policy, RetryLayer, StandardPolicy,
    budget::{TokenBudget, TpsBudget},
    observe::{on_finish, on_retry},
    on_error,
};

use crate::support::delays;

/// Answers at once.
#[derive(Clone)]
struct Echo;

impl Service<u64> for Echo {
    type Response = u64;
    type Error = ();
    type Future = Ready<Result<u64, ()>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Self::Future {
        ready(Ok(request))
    }
}

/// Allocations of a thousand requests that succeed at once.
fn allocations<P: Policy<u64, u64, ()> + Clone>(policy: P) -> u64 {
    allocations_of(RetryLayer::new(policy).layer(Echo))
}

fn allocations_of(mut service: impl Service<u64, Response = u64, Error = ()>) -> u64 {
    let mut cx = Context::from_waker(Waker::noop());
    let counted = allocation_counter::measure(|| {
        for request in 0..1_000 {
            assert!(service.poll_ready(&mut cx).is_ready());
            let future = pin!(service.call(request));
            assert_eq!(future.poll(&mut cx), Poll::Ready(Ok(request)));
        }
    });
    counted.count_total
}

/// Allocations of one request whose first attempt fails, from the call to the second answer.
fn allocations_of_a_retry(mut policy: impl Policy<u64, (), ()>) -> u64 {
    let counted = allocation_counter::measure(|| {
        policy.prepare(&mut 1);
        assert!(policy.retry(&mut 1, &mut Err(())).is_some());
        policy.prepare(&mut 1);
        assert!(policy.retry(&mut 1, &mut Ok(())).is_none());
    });
    counted.count_total
}

// Invariant 10.
#[test]
fn a_success_at_once_allocates_nothing() {
    let policy = || StandardPolicy::new(on_error());
    assert_eq!(allocations(policy()), 0);
    assert_eq!(
        allocations(policy().budget(TokenBudget::new(10, 0.1).unwrap())),
        0
    );
    assert_eq!(allocations(policy().budget(TpsBudget::default())), 0);
    assert_eq!(allocations(policy().without_budget()), 0);
    assert_eq!(
        allocations(policy().observe(on_finish(|event| assert_eq!(event.attempts, 1)))),
        0
    );
    assert_eq!(
        allocations(policy().total_timeout(Duration::from_secs(1))),
        0
    );
}

#[cfg(feature = "tower")]
#[test]
fn a_success_at_once_allocates_nothing_under_towers_layer_either() {
    let layer = tower::retry::RetryLayer::new(StandardPolicy::new(on_error()));
    assert_eq!(allocations_of(layer.layer(Echo)), 0);
}

// No field is computed and no event constructed.
#[cfg(feature = "tracing")]
#[test]
fn tracing_that_nobody_listens_to_allocates_nothing() {
    use tower_retry_layer::observe::Tracing;
    let policy = || StandardPolicy::new(on_error()).backoff(delays(&[0]));
    let none = tracing::subscriber::NoSubscriber::default();
    tracing::subscriber::with_default(none, || {
        assert_eq!(allocations(policy().observe(Tracing)), 0);
        assert_eq!(
            allocations_of_a_retry(policy().observe(Tracing)),
            allocations_of_a_retry(policy())
        );
    });
}

#[test]
fn an_observer_that_keeps_nothing_adds_no_allocation_to_a_retry() {
    let policy = || StandardPolicy::new(on_error()).backoff(delays(&[0]));
    let watched = policy()
        .observe(on_retry(|event| assert_eq!(event.attempt, 1)))
        .observe(on_finish(|event| assert_eq!(event.attempts, 2)));
    let bare = allocations_of_a_retry(policy());
    assert_eq!(allocations_of_a_retry(watched), bare);
    assert!(bare > 0, "the wait is boxed");
}

#[test]
fn the_counter_of_allocations_counts() {
    assert_eq!(
        allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1)))).count_total,
        1
    );
}
