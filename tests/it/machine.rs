//! The state machine: its ten invariants, and what `tower::retry` gets wrong (F1 to F14).

use std::{
    cell::RefCell,
    future::{Future, Ready, ready},
    pin::pin,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    task::{Context, Poll, Waker},
};

use tokio::time::{Instant, Sleep, sleep};
use tokio_test::{assert_pending, assert_ready, task::spawn};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimitLayer};
use tower_retry_layer::{End, Policy, Retry, RetryLayer};

use crate::support::{Scripted, ms};

/// Retries errors as often as it says, and notes what it was asked.
#[derive(Clone, Debug)]
struct Told {
    retries: u32,
    copies: bool,
    delay: u64,
    log: Arc<Mutex<Vec<String>>>,
}

impl Told {
    fn new(retries: u32) -> Self {
        Self {
            retries,
            copies: true,
            delay: 0,
            log: Arc::default(),
        }
    }

    fn note(&self, what: impl Into<String>) {
        self.log.lock().unwrap().push(what.into());
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

impl<Res, E> Policy<u32, Res, E> for Told {
    type Future = Sleep;

    fn retry(&mut self, request: &mut u32, result: &mut Result<Res, E>) -> Option<Sleep> {
        self.note(format!(
            "retry {request} {}",
            if result.is_ok() { "ok" } else { "err" }
        ));
        if result.is_ok() {
            return None;
        }
        self.retries = self.retries.checked_sub(1)?;
        Some(sleep(ms(self.delay)))
    }

    fn clone_request(&mut self, request: &u32) -> Option<u32> {
        self.note(format!("clone {request}"));
        self.copies.then_some(*request)
    }

    fn prepare(&mut self, request: &mut u32) {
        *request += 1;
        self.note(format!("prepare {request}"));
    }

    fn end(&mut self, result: &mut Result<Res, E>, why: End) {
        let outcome = if result.is_ok() { "ok" } else { "err" };
        self.note(format!("end {outcome} {why:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn every_attempt_is_prepared_then_copied_then_sent() {
    let service = Scripted::new(|call, _: &u32| if call < 3 { Err("down") } else { Ok(call) });
    let seen = service.handle();
    let policy = Told::new(5);
    let answer = RetryLayer::new(policy.clone())
        .layer(service)
        .oneshot(0)
        .await;
    assert_eq!(answer, Ok(3));
    assert_eq!(
        seen.requests(),
        [1, 2, 3],
        "the copy of what was sent is prepared again"
    );
    assert_eq!(
        policy.log(),
        [
            "prepare 1",
            "clone 1",
            "retry 1 err",
            "prepare 2",
            "clone 2",
            "retry 2 err",
            "prepare 3",
            "clone 3",
            "retry 3 ok",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_copy_there_is_no_retry_and_the_policy_sees_the_end() {
    for outcome in [Ok(1), Err("down")] {
        let service = Scripted::new(move |_, _: &u32| outcome);
        let seen = service.handle();
        let policy = Told {
            copies: false,
            ..Told::new(5)
        };
        let answer = RetryLayer::new(policy.clone())
            .layer(service)
            .oneshot(0)
            .await;
        assert_eq!(answer, outcome);
        assert_eq!((seen.calls(), seen.clones()), (1, 0));
        let word = if outcome.is_ok() { "ok" } else { "err" };
        assert_eq!(
            policy.log(),
            ["prepare 1", "clone 1", &format!("end {word} NoCopy")]
        );
    }
}

// F2: tower returned this error too, but told the policy nothing.
#[tokio::test(start_paused = true)]
async fn a_service_that_is_gone_before_the_retry_ends_the_session() {
    let service = Scripted::new(|_, _: &u32| Err::<u32, _>("real cause")).readiness([
        Poll::Ready(Ok(())),
        Poll::Pending,
        Poll::Ready(Err("gone")),
    ]);
    let seen = service.handle();
    let policy = Told::new(5);
    let answer = RetryLayer::new(policy.clone())
        .layer(service)
        .oneshot(0)
        .await;
    assert_eq!(answer, Err("gone"));
    assert_eq!(seen.calls(), 1);
    assert_eq!(policy.log().last().unwrap(), "end err NotReady");
}

#[tokio::test(start_paused = true)]
async fn a_first_readiness_error_reaches_the_caller_untouched() {
    let service = Scripted::new(|_, _: &u32| Ok(1)).readiness([Poll::Ready(Err("gone"))]);
    let policy = Told::new(5);
    let mut service = RetryLayer::new(policy.clone()).layer(service);
    assert_eq!(
        ServiceExt::<u32>::ready(&mut service).await.err(),
        Some("gone")
    );
    assert!(policy.log().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_for_a_service_that_is_not_ready_yet() {
    let service = Scripted::new(|call, _: &u32| if call == 1 { Err("down") } else { Ok(call) })
        .readiness([Poll::Ready(Ok(())), Poll::Pending, Poll::Pending]);
    let answer = RetryLayer::new(Told::new(1))
        .layer(service)
        .oneshot(0)
        .await;
    assert_eq!(answer, Ok(2));
}

// F3: tower copied requests with the prototype, and its state leaked into later sessions.
#[tokio::test(start_paused = true)]
async fn what_a_session_changes_in_its_policy_ends_with_it() {
    /// Copies, and so retries, as often as it says.
    #[derive(Clone)]
    struct Copies(u32);

    impl Policy<u32, u32, &'static str> for Copies {
        type Future = Ready<()>;

        fn retry(&mut self, _: &mut u32, _: &mut Result<u32, &'static str>) -> Option<Ready<()>> {
            Some(ready(()))
        }

        fn clone_request(&mut self, request: &u32) -> Option<u32> {
            self.0 = self.0.checked_sub(1)?;
            Some(*request)
        }
    }

    let service = Scripted::new(|_, _: &u32| Err("down"));
    let seen = service.handle();
    let mut service = RetryLayer::new(Copies(3)).layer(service);
    for session in 1..=5 {
        assert_eq!(service.ready().await.unwrap().call(0).await, Err("down"));
        assert_eq!(seen.calls(), session * 4);
    }
}

// F6: tower cloned service and policy for every call.
#[tokio::test(start_paused = true)]
async fn the_service_is_cloned_once_and_only_if_a_copy_was_kept() {
    let service = Scripted::new(|call, _: &u32| if call % 2 == 1 { Err("down") } else { Ok(call) });
    let seen = service.handle();
    let mut service = RetryLayer::new(Told::new(5)).layer(service);
    for request in 0..10 {
        service.ready().await.unwrap().call(request).await.unwrap();
    }
    assert_eq!((seen.calls(), seen.clones()), (20, 10));
}

// Invariants 1 and 5.
#[tokio::test(start_paused = true)]
async fn attempt_and_outcome_are_gone_before_the_wait() {
    struct Held(Arc<AtomicBool>);

    impl Drop for Held {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    let dropped = Arc::new(AtomicBool::new(false));
    let held = dropped.clone();
    let service = Scripted::new(move |_, _: &u32| Err::<u32, _>(Held(held.clone())));
    let seen = service.handle();
    let policy = Told {
        delay: 10_000,
        ..Told::new(1)
    };
    let mut future = spawn(RetryLayer::new(policy).layer(service).oneshot(0));
    assert!(future.poll().is_pending());
    assert!(
        dropped.load(Ordering::SeqCst),
        "the rejected outcome lives through the wait"
    );
    assert_eq!(
        seen.in_flight(),
        0,
        "the rejected attempt lives through the wait"
    );
}

#[tokio::test(start_paused = true)]
async fn a_permit_below_is_free_during_the_wait() {
    let service = Scripted::new(|call, _: &u32| if call == 1 { Err("down") } else { Ok(call) });
    let policy = Told {
        delay: 10_000,
        ..Told::new(1)
    };
    let mut service = RetryLayer::new(policy).layer(ConcurrencyLimitLayer::new(1).layer(service));
    let mut waiting = spawn(service.ready().await.unwrap().call(0));
    assert_pending!(waiting.poll());
    assert_eq!(service.ready().await.unwrap().call(1).await, Ok(2));
    assert_eq!(waiting.await, Ok(3));
}

// F4: nothing inside a retry layer can mend this; the README says how to stack instead.
#[tokio::test(start_paused = true)]
async fn a_place_reserved_ahead_is_one_that_a_retry_waits_for() {
    let service = Scripted::new(|call, _: &u32| if call == 1 { Err("down") } else { Ok(call) });
    let mut service = RetryLayer::new(Told {
        delay: 10,
        ..Told::new(1)
    })
    .layer(ConcurrencyLimitLayer::new(1).layer(service));
    let mut future = spawn(service.ready().await.unwrap().call(0));
    assert_pending!(future.poll());
    service.ready().await.unwrap();
    tokio::time::advance(ms(20)).await;
    assert_pending!(future.poll(), "the reserved place is the only one");
    drop(service);
    assert_eq!(future.await, Ok(2));
}

// F1, invariant 8: tower sent two million attempts in one poll.
#[tokio::test(start_paused = true)]
async fn a_poll_that_finds_everything_ready_yields_all_the_same() {
    let attempts = Arc::new(AtomicU32::new(0));
    let service = Endless(attempts.clone());
    let mut future = pin!(RetryLayer::new(Always).layer(service).oneshot(0));
    let mut polls = 0;
    std::future::poll_fn(|cx| {
        polls += 1;
        let before = attempts.load(Ordering::Relaxed);
        assert!(future.as_mut().poll(cx).is_pending());
        let sent = attempts.load(Ordering::Relaxed) - before;
        assert!((1..=130).contains(&sent), "{sent} attempts in one poll");
        if polls == 10 {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

#[test]
fn a_poll_yields_outside_of_a_runtime_too() {
    let attempts = Arc::new(AtomicU32::new(0));
    let mut future = pin!(
        RetryLayer::new(Always)
            .layer(Endless(attempts.clone()))
            .oneshot(0)
    );
    let mut cx = Context::from_waker(Waker::noop());
    for polls in 1..=10 {
        assert!(future.as_mut().poll(&mut cx).is_pending());
        assert!(attempts.load(Ordering::Relaxed) <= polls * 130);
    }
}

#[tokio::test]
async fn a_timeout_above_an_endless_policy_fires() {
    let service = RetryLayer::new(Always).layer(Endless(Arc::default()));
    assert!(
        tokio::time::timeout(ms(5), service.oneshot(0))
            .await
            .is_err()
    );
}

// F12.
#[tokio::test(start_paused = true)]
async fn a_poll_after_the_end_panics_and_asks_nobody() {
    for answer in [Ok(1), Err("down")] {
        let service = Scripted::new(move |_, _: &u32| answer);
        let policy = Told::new(0);
        let mut service = RetryLayer::new(policy.clone()).layer(service);
        let mut future = spawn(service.ready().await.unwrap().call(0));
        assert_eq!(assert_ready!(future.poll()), answer);
        let asked = policy.log();
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| future.poll()));
        let text = panic.unwrap_err();
        assert_eq!(
            text.downcast_ref(),
            Some(&"`ResponseFuture` polled after completion")
        );
        assert_eq!(policy.log(), asked);
    }
}

// A replayed body is recorded for as long as its copy lives.
#[tokio::test(start_paused = true)]
async fn the_copy_is_gone_when_the_outcome_is_given_away() {
    #[derive(Clone)]
    struct Copies;
    impl Policy<Arc<()>, (), ()> for Copies {
        type Future = Ready<()>;
        fn retry(&mut self, _: &mut Arc<()>, _: &mut Result<(), ()>) -> Option<Ready<()>> {
            None
        }
        fn clone_request(&mut self, request: &Arc<()>) -> Option<Arc<()>> {
            Some(request.clone())
        }
    }
    let request = Arc::new(());
    let service = tower::service_fn(|_: Arc<()>| ready(Ok::<_, ()>(())));
    let mut future = spawn(RetryLayer::new(Copies).layer(service).call(request.clone()));
    assert_ready!(future.poll()).unwrap();
    assert_eq!(Arc::strong_count(&request), 1, "the future keeps a copy");
}

// Invariant 8, its first half: what a retry takes from the budget, others of the task do not get.
#[tokio::test]
async fn every_retry_takes_from_the_tasks_cooperative_budget() {
    let attempts = Arc::new(AtomicU32::new(0));
    let service = Fails(attempts.clone(), 100);
    let left = tokio::spawn(async move {
        let mut future = pin!(RetryLayer::new(Always).layer(service).oneshot(0));
        let mut left = 0;
        std::future::poll_fn(|cx| {
            assert!(future.as_mut().poll(cx).is_pending());
            while let Poll::Ready(spent) = tokio::task::coop::poll_proceed(cx) {
                spent.made_progress();
                left += 1;
            }
            Poll::Ready(())
        })
        .await;
        left
    });
    let left = left.await.unwrap();
    assert_eq!(attempts.load(Ordering::Relaxed), 101);
    assert!(left <= 28, "{left} of 128 left after 100 retries");
}

// Invariant 7, in each state.
#[tokio::test(start_paused = true)]
async fn a_dropped_future_sends_nothing_more() {
    // In flight.
    let service = Scripted::timed(|_, _: &u32| (ms(100), Err::<u32, _>("down")));
    let seen = service.handle();
    let mut future = spawn(RetryLayer::new(Told::new(5)).layer(service).oneshot(0));
    assert_pending!(future.poll());
    assert_eq!(seen.in_flight(), 1);
    drop(future);
    assert_eq!(seen.in_flight(), 0);

    // Waiting.
    let service = Scripted::new(|_, _: &u32| Err::<u32, _>("down"));
    let seen = service.handle();
    let policy = Told {
        delay: 100,
        ..Told::new(5)
    };
    let mut future = spawn(RetryLayer::new(policy).layer(service).oneshot(0));
    assert_pending!(future.poll());
    drop(future);
    tokio::time::advance(ms(1_000)).await;
    assert_eq!(seen.calls(), 1);

    // Not ready again yet.
    let service = Scripted::new(|_, _: &u32| Err::<u32, _>("down"))
        .readiness([Poll::Ready(Ok(())), Poll::Pending]);
    let seen = service.handle();
    let mut service = RetryLayer::new(Told::new(5)).layer(service);
    let mut future = spawn(service.ready().await.unwrap().call(0));
    assert_pending!(future.poll());
    assert!(format!("{:?}", &*future).contains("Readying"));
    drop(future);
    assert_eq!(seen.calls(), 1);
}

// Invariant 4, and F13: nothing is asked of the error or the response.
#[tokio::test(start_paused = true)]
async fn errors_and_responses_need_be_nothing_but_values() {
    let place = RefCell::new(Rc::new("not Send, not 'static"));
    let service = tower::service_fn(|_: u32| ready(Err::<Rc<u8>, _>(&place)));
    let answer = RetryLayer::new(Told::new(1))
        .layer(service)
        .oneshot(0)
        .await;
    assert!(std::ptr::eq(answer.unwrap_err(), &place));
}

#[tokio::test(start_paused = true)]
async fn waits_are_as_long_as_the_policy_says() {
    let service = Scripted::new(|call, _: &u32| if call < 4 { Err("down") } else { Ok(call) });
    let seen = service.handle();
    let start = Instant::now();
    let policy = Told {
        delay: 250,
        ..Told::new(5)
    };
    RetryLayer::new(policy)
        .layer(service)
        .oneshot(0)
        .await
        .unwrap();
    assert_eq!(seen.times(start), [ms(0), ms(250), ms(500), ms(750)]);
}

// F14.
#[test]
fn policy_and_service_are_within_reach() {
    let layer = RetryLayer::new(Told::new(7));
    assert_eq!(layer.policy().retries, 7);
    let mut service: Retry<Told, u8> = layer.clone().layer(3);
    assert_eq!((service.policy().retries, *service.get_ref()), (7, 3));
    *service.get_mut() = 4;
    assert_eq!(service.into_inner(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_future_shows_its_state() {
    let service = Scripted::new(|_, _: &u32| Err::<u32, _>("down"));
    let policy = Told {
        delay: 100,
        ..Told::new(5)
    };
    let mut service = RetryLayer::new(policy).layer(service);
    let mut future = spawn(service.ready().await.unwrap().call(0));
    assert!(format!("{:?}", &*future).contains("Calling"));
    assert_pending!(future.poll());
    assert!(format!("{:?}", &*future).contains("Waiting"));
}

/// Fails at once, and counts.
#[derive(Clone)]
struct Endless(Arc<AtomicU32>);

impl Service<u32> for Endless {
    type Response = u32;
    type Error = ();
    type Future = Ready<Result<u32, ()>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: u32) -> Self::Future {
        self.0.fetch_add(1, Ordering::Relaxed);
        ready(Err(()))
    }
}

/// Fails at once as often as it says, then never answers.
#[derive(Clone)]
struct Fails(Arc<AtomicU32>, u32);

impl Service<u32> for Fails {
    type Response = u32;
    type Error = ();
    type Future =
        futures_util::future::Either<Ready<Result<u32, ()>>, std::future::Pending<Result<u32, ()>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: u32) -> Self::Future {
        if self.0.fetch_add(1, Ordering::Relaxed) < self.1 {
            futures_util::future::Either::Left(ready(Err(())))
        } else {
            futures_util::future::Either::Right(std::future::pending())
        }
    }
}

/// Retries at once, for ever.
#[derive(Clone)]
struct Always;

impl<Res, E> Policy<u32, Res, E> for Always {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut u32, _: &mut Result<Res, E>) -> Option<Ready<()>> {
        Some(ready(()))
    }

    fn clone_request(&mut self, request: &u32) -> Option<u32> {
        Some(*request)
    }
}
