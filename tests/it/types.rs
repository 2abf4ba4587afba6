//! Facts about types.

use std::{cell::Cell, future::Ready, marker::PhantomPinned, sync::Arc, time::Duration};

use tower_retry_layer::{
    Attempt, OnError, Policy, Protocol, Retry, RetryLayer, StandardPolicy, Verdict, Wait,
    backoff::{
        Backoff, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff, MakeRng, Rng, Schedule,
        Seeds,
    },
    budget::{Budget, TokenBudget, TpsBudget, Unlimited},
    classify_fn,
    future::ResponseFuture,
    observe::Observe,
    on_error,
};

fn send<T: Send>() {}
fn sync<T: Sync>() {}
fn unpin<T: Unpin>() {}
fn owned<T: 'static>() {}

type Standard = StandardPolicy<OnError>;
type Echo = tower::util::BoxCloneSyncService<u32, u32, std::io::Error>;

#[test]
fn what_goes_into_a_client_can_be_sent_and_shared() {
    send::<RetryLayer<Standard>>();
    sync::<RetryLayer<Standard>>();
    send::<Retry<Standard, Echo>>();
    sync::<Retry<Standard, Echo>>();
    send::<ResponseFuture<Standard, Echo, u32>>();
    owned::<ResponseFuture<Standard, Echo, u32>>();
    send::<ExponentialBackoffMaker>();
    sync::<ExponentialBackoffMaker>();
    send::<ExponentialBackoff>();
    send::<Schedule>();
    sync::<Seeds>();
    send::<Wait>();
    sync::<TokenBudget>();
    sync::<TpsBudget>();
    sync::<Unlimited>();
}

#[test]
fn a_service_is_unpin_and_its_future_is_where_the_attempt_is() {
    unpin::<Retry<Standard, Echo>>();
    unpin::<RetryLayer<Standard>>();
    // The delay is boxed, so a policy that waits on a timer leaves the future as it was.
    unpin::<ResponseFuture<Standard, Echo, u32>>();
    fn _not_asked(service: Retry<PhantomPinned, PhantomPinned>) -> impl Sized {
        service
    }
}

#[test]
fn structs_and_constructors_ask_for_nothing() {
    struct Anything;
    let mut service = Retry::new(Anything, Anything);
    let _ = (service.policy(), service.get_ref());
    let _ = service.get_mut();
    let _ = RetryLayer::new(Anything).policy();
    let _ = StandardPolicy::new(Anything).max_attempts(2).clone();
}

#[test]
fn what_users_implement_can_be_an_object() {
    fn _policy(_: Box<dyn Policy<(), (), (), Future = Ready<()>>>) {}
    fn _protocol(_: Arc<dyn Protocol<(), (), ()>>) {}
    fn _budget(_: Arc<dyn Budget>) {}
    fn _observe(_: Box<dyn Observe>) {}
    fn _backoff(_: Box<dyn Backoff>) {}
    fn _make_backoff(_: &dyn MakeBackoff<Backoff = Box<dyn Backoff>>) {}
    fn _rng(_: Box<dyn Rng>) {}
    fn _make_rng(_: Arc<dyn MakeRng<Rng = Box<dyn Rng>>>) {}
}

#[test]
fn pointers_to_what_users_implement_are_as_good() {
    fn policy<P: Policy<u32, u32, ()>>() {}
    fn protocol<P: Protocol<u32, u32, ()>>() {}
    fn budget<B: Budget>() {}
    fn observe<O: Observe>() {}
    fn make_backoff<M: MakeBackoff>() {}
    fn backoff<B: Backoff>() {}

    policy::<Standard>();
    policy::<Box<Standard>>();
    policy::<&mut Standard>();
    policy::<Box<dyn Policy<u32, u32, (), Future = Wait>>>();
    protocol::<&OnError>();
    protocol::<Box<dyn Protocol<u32, u32, ()>>>();
    protocol::<Arc<dyn Protocol<u32, u32, ()>>>();
    budget::<&TokenBudget>();
    budget::<Box<TpsBudget>>();
    budget::<Arc<TokenBudget>>();
    budget::<Arc<dyn Budget>>();
    observe::<Arc<dyn Observe>>();
    observe::<&dyn Observe>();
    observe::<Box<dyn Observe>>();
    make_backoff::<&ExponentialBackoffMaker>();
    make_backoff::<Arc<Schedule>>();
    make_backoff::<Box<ExponentialBackoffMaker>>();
    backoff::<&mut ExponentialBackoff>();
    backoff::<Box<dyn Backoff>>();
}

// P2: in tower `Box<dyn Policy>` is of no use.
#[test]
fn a_policy_behind_a_pointer_can_be_cloned_by_a_trait_of_the_users() {
    trait AnyPolicy: Policy<u32, u32, (), Future = Wait> + Send {
        fn boxed(&self) -> Box<dyn AnyPolicy>;
    }
    impl<P: Policy<u32, u32, (), Future = Wait> + Clone + Send + 'static> AnyPolicy for P {
        fn boxed(&self) -> Box<dyn AnyPolicy> {
            Box::new(self.clone())
        }
    }
    impl Clone for Box<dyn AnyPolicy> {
        fn clone(&self) -> Self {
            (**self).boxed()
        }
    }
    let policy: Box<dyn AnyPolicy> = Box::new(StandardPolicy::new(on_error()));
    let service = tower::service_fn(async |n: u32| Ok::<_, ()>(n));
    let _ = tower::Layer::layer(&RetryLayer::new(policy), service);
}

#[test]
fn nothing_is_asked_of_responses_and_errors() {
    /// Neither `Clone` nor `Send`, and borrowed.
    struct Bare<'a>(#[expect(dead_code, reason = "is not `Send`")] &'a Cell<u8>);
    fn policy<'a, P: Policy<u32, Bare<'a>, Bare<'a>>>(_: &'a Cell<u8>, _: &P) {}
    fn check<'a>(cell: &'a Cell<u8>) {
        policy(cell, &StandardPolicy::new(on_error()));
        policy(
            cell,
            &StandardPolicy::new(classify_fn(|_: &Attempt<'_, u32, Bare<'a>, Bare<'a>>| {
                Verdict::Stop
            })),
        );
    }
    check(&Cell::new(1));
}

#[test]
fn a_closure_that_looks_into_nothing_needs_no_types() {
    let policy = StandardPolicy::new(classify_fn(|attempt| match attempt.outcome() {
        Ok(_) => Verdict::Success,
        Err(_) => Verdict::Retry,
    }));
    let mut service = tower::Layer::layer(
        &RetryLayer::new(policy),
        tower::service_fn(async |n: u32| Ok::<_, ()>(n)),
    );
    drop(tower::Service::call(&mut service, 1));
}

#[test]
fn what_is_shown_tells_what_is_set() {
    let policy = StandardPolicy::new(on_error())
        .max_attempts(4)
        .total_timeout(Duration::from_secs(3))
        .name("checkout");
    let shown = format!("{:?}", RetryLayer::new(policy));
    for word in ["RetryLayer", "max_attempts: 4", "3s", "checkout"] {
        assert!(shown.contains(word), "{shown}");
    }
    let maker = ExponentialBackoffMaker::default();
    let shown = format!("{:?}", maker.make_backoff());
    for word in [
        "attempt: 0",
        "min: 50ms",
        "max: 20s",
        "factor: 2.0",
        "jitter: Full",
    ] {
        assert!(shown.contains(word), "{shown}");
    }
}

#[test]
fn a_waiting_session_fits_into_four_hundred_bytes() {
    // The future, and behind pointers the timer and what a failure adds.
    let future = size_of::<ResponseFuture<Standard, Echo, u32>>();
    let waits = size_of::<ExponentialBackoff>() + 32;
    assert!(future + size_of::<Wait>() + waits < 400, "{future}");
}
