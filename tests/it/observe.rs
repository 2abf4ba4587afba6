//! Observing: each end is told once, and what is told is what happened.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, panic_any},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    task::Poll,
    time::Duration,
};

use tokio::time::Instant;
use tokio_test::{assert_pending, task::spawn};
use tower::{Layer, Service, ServiceExt};
use tower_retry_layer::{
    Attempt, Protocol, RetryLayer, StandardPolicy, Verdict,
    backoff::Schedule,
    budget::{Budget, RetryThrottle, TokenBudget, TpsBudget, Unlimited},
    observe::{
        DelaySource, Finished, Level, Observe, RetrySummary, Retrying, StopReason, on_finish,
        on_retry,
    },
    on_error,
};

use crate::{
    support::{Counts, Ledger, Scripted, delays, ms},
    support_observe::{
        EVERY_REASON, Log, Reply, Request, Told, busy, end_by, fine, outcome, policy, reply,
        script, send,
    },
};

fn retrying(attempt: u32, resend: u32, millis: u64) -> Told {
    Told::Retrying {
        attempt,
        resend,
        error_type: "503",
        delay: ms(100),
        source: DelaySource::Backoff,
        elapsed: ms(millis),
    }
}

fn finished(
    attempts: u32,
    millis: u64,
    reason: StopReason,
    error_type: Option<&'static str>,
) -> Told {
    Told::Finished {
        attempts,
        transparent: 0,
        total_delay: ms(millis),
        elapsed: ms(millis),
        reason,
        error_type,
        nested: reason == StopReason::Nested,
    }
}

fn summary(attempts: u32, millis: u64, reason: StopReason) -> RetrySummary {
    let mut summary = RetrySummary::new(attempts, reason);
    summary.total_delay = ms(millis);
    summary
}

// === events ===

#[tokio::test(start_paused = true)]
async fn every_end_is_told_once_with_what_failed() {
    for reason in EVERY_REASON {
        let log = Log::default();
        end_by(reason, policy(log.clone())).await;
        let (retries, last) = match reason {
            StopReason::Success => (1, finished(2, 100, reason, None)),
            StopReason::NotRetryable => (1, finished(2, 100, reason, Some("400"))),
            StopReason::AttemptsExhausted => (2, finished(3, 200, reason, Some("503"))),
            StopReason::NotReplayable | StopReason::Nested => {
                (0, finished(1, 0, reason, Some("503")))
            }
            StopReason::NotReady => (1, finished(1, 100, reason, Some("gone"))),
            StopReason::Cancelled => (
                1,
                Told::Finished {
                    attempts: 1,
                    transparent: 0,
                    total_delay: ms(100),
                    elapsed: ms(0),
                    reason,
                    error_type: None,
                    nested: false,
                },
            ),
            _ => (1, finished(2, 100, reason, Some("503"))),
        };
        let mut expected: Vec<_> = [retrying(1, 1, 0), retrying(2, 2, 100)][..retries].to_vec();
        expected.push(last);
        assert_eq!(log.take(), expected, "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_told_is_what_the_clock_measured() {
    let (log, start) = (Log::default(), Instant::now());
    let took = |call: u32| ms(7 * u64::from(call));
    let service: Scripted<Request, Reply, Reply> =
        Scripted::timed(move |call, _| (took(call), outcome(busy())));
    let seen = service.handle();
    let policy = policy(log.clone())
        .max_attempts(5)
        .backoff(delays(&[100, 30, 0, 250]));
    send(policy, service, Request::default()).await.unwrap();

    let times = seen.times(start);
    let ended = start.elapsed();
    let mut told = log.take().into_iter();
    for (call, pair) in (1..).zip(times.windows(2)) {
        let failed = pair[0] + took(call);
        let expected = Told::Retrying {
            attempt: call,
            resend: call,
            error_type: "503",
            delay: pair[1] - failed,
            source: DelaySource::Backoff,
            elapsed: failed,
        };
        assert_eq!(told.next(), Some(expected));
    }
    let expected = Told::Finished {
        attempts: 5,
        transparent: 0,
        total_delay: ended - (1..=5).map(took).sum::<Duration>(),
        elapsed: ended,
        reason: StopReason::AttemptsExhausted,
        error_type: Some("503"),
        nested: false,
    };
    assert_eq!((times.len(), told.collect()), (5, vec![expected]));
}

#[tokio::test(start_paused = true)]
async fn a_clamped_hint_is_visible_as_such() {
    let log = Log::default();
    let hint = |millis| reply(Verdict::Pushback(ms(millis)), "429");
    let policy = policy(log.clone())
        .max_attempts(4)
        .max_server_delay(ms(500));
    let service = script(vec![hint(501), hint(500), busy(), fine()]);
    send(policy, service, Request::default()).await.unwrap();
    let told: Vec<_> = log
        .take()
        .into_iter()
        .filter_map(|told| match told {
            Told::Retrying { delay, source, .. } => Some((delay, source, source.as_str())),
            Told::Finished { .. } => None,
        })
        .collect();
    let server = |clamped| DelaySource::Server { clamped };
    assert_eq!(
        told,
        [
            (ms(500), server(true), "server_clamped"),
            (ms(500), server(false), "server"),
            (ms(100), DelaySource::Backoff, "backoff"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_transparent_retry_is_a_resend_and_no_attempt() {
    let log = Log::default();
    let refused = || reply(Verdict::Unprocessed, "refused");
    let service = script(vec![refused(), busy(), fine()]);
    let answer = send(policy(log.clone()), service, Request::default()).await;
    let transparent = Told::Retrying {
        attempt: 1,
        resend: 1,
        error_type: "refused",
        delay: ms(0),
        source: DelaySource::Transparent,
        elapsed: ms(0),
    };
    let last = Told::Finished {
        attempts: 2,
        transparent: 1,
        total_delay: ms(100),
        elapsed: ms(100),
        reason: StopReason::Success,
        error_type: None,
        nested: false,
    };
    assert_eq!(log.take(), [transparent, retrying(1, 2, 0), last]);
    let mut expected = summary(2, 100, StopReason::Success);
    expected.transparent = 1;
    assert_eq!(answer.unwrap().summary, Some(expected));
}

#[tokio::test(start_paused = true)]
async fn a_transparent_retry_that_is_not_sent_is_none() {
    let log = Log::default();
    let refused = || reply(Verdict::Unprocessed, "refused");
    let gone = reply(Verdict::Stop, "gone");
    let ready = Poll::Ready(Ok(()));

    let service =
        script(vec![refused()]).readiness([ready.clone(), Poll::Ready(Err(gone.clone()))]);
    let answer = send(policy(log.clone()), service, Request::default()).await;
    assert_eq!(answer, Err(gone));
    let last = finished(1, 0, StopReason::NotReady, Some("gone"));
    assert_eq!(log.take()[1..], [last]);

    let service = script(vec![refused()]).readiness([ready, Poll::Pending]);
    let service = RetryLayer::new(policy(log.clone())).layer(service);
    let mut future = spawn(service.oneshot(Request::default()));
    assert_pending!(future.poll());
    drop(future);
    let last = finished(1, 0, StopReason::Cancelled, None);
    assert_eq!(log.take()[1..], [last]);
}

#[tokio::test(start_paused = true)]
async fn a_nested_success_is_visible_as_nested() {
    let log = Log::default();
    let mut request = Request::default();
    request.limits.nested = true;
    send(policy(log.clone()), script(vec![fine()]), request)
        .await
        .unwrap();
    let [
        Told::Finished {
            reason: StopReason::Success,
            nested: true,
            ..
        },
    ] = log.take()[..]
    else {
        panic!("not told as nested")
    };
}

#[tokio::test(start_paused = true)]
async fn what_failed_is_asked_for_observers_only() {
    struct Counted(Arc<AtomicU32>);
    impl Protocol<u32, (), ()> for Counted {
        fn classify(&self, _: &Attempt<'_, u32, (), ()>) -> Verdict {
            Verdict::Retry
        }

        fn clone_request(&self, request: &u32) -> Option<u32> {
            Some(*request)
        }

        fn error_type(&self, _: &Result<(), ()>) -> &'static str {
            self.0.fetch_add(1, Ordering::Relaxed);
            "counted"
        }
    }
    let asked = Arc::new(AtomicU32::new(0));
    let policy = StandardPolicy::new(Counted(asked.clone())).backoff(delays(&[0]));
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = log.clone();
    let watched = policy
        .clone()
        .observe(on_retry(|_| {}))
        .observe(on_finish(move |event| {
            seen.lock().unwrap().push(event.error_type);
        }));
    for (policy, times) in [(policy, 0), (watched, 3)] {
        let service = tower::service_fn(async |_: u32| Err::<(), _>(()));
        RetryLayer::new(policy)
            .layer(service)
            .oneshot(0)
            .await
            .unwrap_err();
        assert_eq!(asked.load(Ordering::Relaxed), times, "once for each event");
    }
    assert_eq!(*log.lock().unwrap(), [Some("counted")]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_the_protocol_does_not_name_is_other() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (retries, ends) = (told.clone(), told.clone());
    let policy = StandardPolicy::new(on_error())
        .max_attempts(2)
        .backoff(delays(&[0]))
        .observe(on_retry(move |event| {
            retries.lock().unwrap().push(Some(event.error_type))
        }))
        .observe(on_finish(move |event| {
            ends.lock().unwrap().push(event.error_type);
        }));
    let service = tower::service_fn(async |_: u32| Err::<(), _>(()));
    RetryLayer::new(policy)
        .layer(service)
        .oneshot(0)
        .await
        .unwrap_err();
    assert_eq!(*told.lock().unwrap(), [Some("_OTHER"); 2]);
}

// === budgets ===

#[tokio::test(start_paused = true)]
async fn events_tell_what_the_budget_holds() {
    let levels = Arc::new(Mutex::new(Vec::new()));
    let (retries, ends) = (levels.clone(), levels.clone());
    let policy = policy(Log::default())
        .budget(TokenBudget::new(5, 0.5).unwrap())
        .observe(on_retry(move |event| {
            retries.lock().unwrap().push(event.budget.get())
        }))
        .observe(on_finish(move |event| {
            ends.lock().unwrap().push(event.budget.get())
        }));
    end_by(StopReason::AttemptsExhausted, policy.clone()).await;
    send(policy.clone(), script(vec![fine()]), Request::default())
        .await
        .unwrap();
    end_by(StopReason::NotReady, policy.clone()).await;
    end_by(StopReason::Success, policy.without_budget()).await;
    let told = [4.0, 3.0, 3.0, 3.5, 2.5, 3.5].map(Some);
    let expected: Vec<_> = told.into_iter().chain([None, None]).collect();
    assert_eq!(*levels.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_budgets_level_has_its_fraction() {
    let token = TokenBudget::new(2, 0.25).unwrap();
    assert!(token.withdraw());
    token.deposit();
    assert_eq!((token.level(), token.balance()), (Some(1.25), 1));

    let tps = TpsBudget::new(ms(10_000), 1, 0.25).unwrap();
    assert!(tps.withdraw());
    tps.deposit();
    assert_eq!((tps.level(), tps.balance()), (Some(9.25), 9));

    let throttle = RetryThrottle::new(4, 0.8).unwrap();
    throttle.failure();
    assert_eq!(throttle.level(), Some(3.0));

    assert_eq!(Unlimited.level(), None);
    let shared: Arc<dyn Budget> = Arc::new(token);
    assert_eq!(shared.level(), Some(1.25));
}

#[test]
fn a_pointer_to_an_observer_hands_both_events_on() {
    fn check(observer: impl Observe, log: &Log) {
        observer.retrying(&Retrying::new("checkout", 1));
        observer.finished(&Finished::new("checkout", 2, StopReason::Success));
        let told = log.take();
        assert!(matches!(
            told[..],
            [Told::Retrying { .. }, Told::Finished { .. }]
        ));
    }
    let log = Log::default();
    check(&log, &log);
    check(Box::new(log.clone()), &log);
    check(Arc::new(log.clone()), &log);
}

// === summaries ===

#[tokio::test(start_paused = true)]
async fn a_response_says_what_its_session_came_to() {
    for (reason, expected) in [
        (StopReason::Success, Some((2, 100))),
        (StopReason::NotRetryable, Some((2, 100))),
        (StopReason::AttemptsExhausted, Some((3, 200))),
        (StopReason::BudgetExhausted, Some((1, 0))),
        (StopReason::DeadlineExceeded, Some((1, 0))),
        (StopReason::ServerRefused, Some((1, 0))),
        (StopReason::NotReplayable, Some((1, 0))),
        // The layer above sums up.
        (StopReason::Nested, None),
    ] {
        let mut request = Request {
            single: reason == StopReason::NotReplayable,
            ..Request::default()
        };
        request.limits.nested = reason == StopReason::Nested;
        let hopeless = || reply(Verdict::Stop, "400");
        let (policy, replies) = match reason {
            StopReason::Success => (policy(Log::default()), vec![busy(), fine()]),
            StopReason::NotRetryable => (policy(Log::default()), vec![busy(), hopeless()]),
            StopReason::BudgetExhausted => {
                (policy(Log::default()).budget(Ledger::new(0)), vec![busy()])
            }
            StopReason::DeadlineExceeded => {
                (policy(Log::default()).total_timeout(ms(50)), vec![busy()])
            }
            StopReason::ServerRefused => (
                policy(Log::default()),
                vec![reply(Verdict::ServerRefused, "503")],
            ),
            _ => (policy(Log::default()), vec![busy(); 3]),
        };
        let answer = send(policy, script(replies), request).await.unwrap();
        let expected = expected.map(|(attempts, millis)| summary(attempts, millis, reason));
        assert_eq!(answer.summary, expected, "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_at_once_and_an_error_carry_nothing() {
    let answer = send(
        policy(Log::default()),
        script(vec![fine()]),
        Request::default(),
    );
    assert_eq!(answer.await, Ok(fine()));
    let broken = || reply(Verdict::Retry, "reset");
    let service = script(vec![broken(), broken(), broken()]);
    let answer = send(policy(Log::default()), service, Request::default()).await;
    assert_eq!(answer, Err(broken()));
}

#[tokio::test(start_paused = true)]
async fn no_observer_is_needed_for_a_summary() {
    let policy = StandardPolicy::new(crate::support_observe::Names).backoff(delays(&[100]));
    let answer = send(policy, script(vec![busy(), fine()]), Request::default()).await;
    let expected = summary(2, 100, StopReason::Success);
    assert_eq!(answer.unwrap().summary, Some(expected));
}

// === panics ===

/// Throws what throws again whenever it is dropped.
struct Panics;

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic_any(Bomb);
    }
}

impl Observe for Panics {
    fn retrying(&self, _: &Retrying<'_>) {
        panic_any(Bomb);
    }

    fn finished(&self, _: &Finished<'_>) {
        panic_any(Bomb);
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_observer_harms_no_end_and_no_budget() {
    for reason in EVERY_REASON {
        let mut told = Vec::new();
        for panics in [false, true] {
            let (log, ledger) = (Log::default(), Ledger::new(10));
            let mut policy = StandardPolicy::new(crate::support_observe::Names)
                .name("checkout")
                .backoff(delays(&[100]))
                .budget(ledger.clone());
            if panics {
                policy = policy.observe(Panics);
            }
            end_by(reason, policy.observe(log.clone())).await;
            told.push((log.take(), ledger.counts()));
        }
        assert_eq!(told[0], told[1], "{reason}");
        assert!(!told[0].0.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_observer_does_not_abort_an_unwinding_drop() {
    let (log, ledger) = (Log::default(), Ledger::new(10));
    let policy = policy(Panics).budget(ledger.clone()).observe(log.clone());
    let mut service = RetryLayer::new(policy).layer(script(vec![busy()]));
    let future = service.ready().await.unwrap().call(Request::default());
    let mut future = spawn(future);
    assert_pending!(future.poll());
    let caught = catch_unwind(AssertUnwindSafe(move || {
        let _waiting = future;
        panic!("the caller's own trouble");
    }));
    assert_eq!(
        caught.unwrap_err().downcast_ref::<&str>(),
        Some(&"the caller's own trouble")
    );
    assert_eq!(log.take().len(), 2);
    let expected = Counts {
        left: 10,
        granted: 1,
        refunds: 1,
        failures: 1,
        ..Counts::default()
    };
    assert_eq!(ledger.counts(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_protocol_that_panics_over_a_name_leaves_no_token_behind() {
    struct Nameless;
    impl Protocol<u32, (), ()> for Nameless {
        fn classify(&self, _: &Attempt<'_, u32, (), ()>) -> Verdict {
            Verdict::Retry
        }

        fn clone_request(&self, request: &u32) -> Option<u32> {
            Some(*request)
        }

        fn error_type(&self, _: &Result<(), ()>) -> &'static str {
            panic!("no name")
        }
    }
    let (log, ledger) = (Log::default(), Ledger::new(10));
    let policy: StandardPolicy<_, Schedule> = StandardPolicy::new(Nameless)
        .name("checkout")
        .backoff(delays(&[100]))
        .budget(ledger.clone())
        .observe(log.clone());
    let service = tower::service_fn(async |_: u32| Err::<(), _>(()));
    let mut future = spawn(RetryLayer::new(policy).layer(service).oneshot(0));
    assert!(catch_unwind(AssertUnwindSafe(|| future.poll())).is_err());
    drop(future);
    assert_eq!((ledger.counts().granted, ledger.counts().refunds), (1, 1));
    let [
        Told::Finished {
            reason: StopReason::Cancelled,
            ..
        },
    ] = log.take()[..]
    else {
        panic!("its end was not told once")
    };
}

// === words ===

#[test]
fn reasons_are_words_for_labels_and_all_differ() {
    let mut words = EVERY_REASON.map(StopReason::as_str);
    words.sort_unstable();
    for pair in words.windows(2) {
        assert_ne!(pair[0], pair[1]);
    }
    for word in words {
        assert!(word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
    }
}

#[test]
fn events_and_levels_print_themselves() {
    let told = || Some(2.5);
    let mut event = Finished::new("checkout", 3, StopReason::NotReady);
    event.budget = Level::new(&told);
    event.transparent = 1;
    assert_eq!(event.resends(), 3);
    assert!(!event.nested && Finished::new("checkout", 1, StopReason::Nested).nested);
    assert!(format!("{event:?}").contains("Level(Some(2.5))"));
    assert!(format!("{:?}", Retrying::new("checkout", 1)).contains("Level(None)"));
}
