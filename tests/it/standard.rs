//! The standard policy: each decision in its order, each end told once, each token accounted for.

use std::{
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
    Attempt, Limits, Protocol, RetryLayer, StandardPolicy, Verdict, classify_fn,
    observe::{DelaySource, StopReason, on_finish, on_retry},
    on_error,
};

use crate::support::{Counts, Event, Events, Ledger, Scripted, delays, ms};

type Outcome = Result<&'static str, Verdict>;

/// Errors are verdicts; the request says what it asks for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Request {
    attempt: u32,
    remaining: Option<Duration>,
    limits: Limits,
    single: bool,
    stale: bool,
    overtaken: bool,
}

struct ByVerdict;

impl Protocol<Request, &'static str, Verdict> for ByVerdict {
    fn classify(&self, attempt: &Attempt<'_, Request, &'static str, Verdict>) -> Verdict {
        attempt
            .outcome()
            .as_ref()
            .err()
            .copied()
            .unwrap_or(Verdict::Success)
    }

    fn clone_request(&self, request: &Request) -> Option<Request> {
        (!request.single).then_some(*request)
    }

    fn can_replay(&self, copy: &Request) -> bool {
        !copy.stale
    }

    fn take_over(&self, copy: &Request) -> bool {
        !copy.overtaken
    }

    fn limits(&self, request: &Request) -> Limits {
        request.limits
    }

    fn prepare(&self, request: &mut Request, attempt: u32, remaining: Option<Duration>) {
        request.attempt = attempt;
        request.remaining = remaining;
    }
}

type Policy = StandardPolicy<ByVerdict, tower_retry_layer::backoff::Schedule>;

struct Fixture {
    events: Events,
    ledger: Ledger,
    policy: Policy,
    start: Instant,
}

/// Five attempts, 100 ms apart, ten retries to lend.
fn fixture() -> Fixture {
    let (events, ledger) = (Events::default(), Ledger::new(10));
    let policy = StandardPolicy::new(ByVerdict)
        .max_attempts(5)
        .backoff(delays(&[100]))
        .budget(ledger.clone())
        .observe(events.clone());
    Fixture {
        events,
        ledger,
        policy,
        start: Instant::now(),
    }
}

fn script(outcomes: &'static [Outcome]) -> Scripted<Request, &'static str, Verdict> {
    Scripted::new(move |call, _| outcomes[call as usize - 1])
}

async fn send(
    policy: Policy,
    service: Scripted<Request, &'static str, Verdict>,
    request: Request,
) -> Outcome {
    RetryLayer::new(policy)
        .layer(service)
        .oneshot(request)
        .await
}

fn end(attempts: u32, millis: u64, reason: StopReason) -> Event {
    Event::Finished {
        attempts,
        transparent: 0,
        total_delay: ms(millis),
        elapsed: ms(millis),
        reason,
    }
}

fn retrying(attempt: u32, delay: u64, elapsed: u64) -> Event {
    let (delay, elapsed) = (ms(delay), ms(elapsed));
    Event::Retrying {
        attempt,
        delay,
        source: DelaySource::Backoff,
        elapsed,
    }
}

const RETRY: Outcome = Err(Verdict::Retry);

// === ends ===

#[tokio::test(start_paused = true)]
async fn a_success_at_once_deposits_and_is_told() {
    let Fixture {
        events,
        ledger,
        policy,
        ..
    } = fixture();
    assert_eq!(
        send(policy, script(&[Ok("hi")]), Request::default()).await,
        Ok("hi")
    );
    assert_eq!(events.take(), [end(1, 0, StopReason::Success)]);
    assert_eq!(
        ledger.counts(),
        Counts {
            left: 10,
            deposits: 1,
            ..Counts::default()
        }
    );
}

#[tokio::test(start_paused = true)]
async fn a_success_after_retries_deposits_once() {
    let Fixture {
        events,
        ledger,
        policy,
        start,
    } = fixture();
    let service = script(&[RETRY, RETRY, Ok("hi")]);
    let seen = service.handle();
    assert_eq!(send(policy, service, Request::default()).await, Ok("hi"));
    assert_eq!(seen.times(start), [ms(0), ms(100), ms(200)]);
    assert_eq!(
        events.take(),
        [
            retrying(1, 100, 0),
            retrying(2, 100, 100),
            end(3, 200, StopReason::Success)
        ]
    );
    let expected = Counts {
        left: 8,
        deposits: 1,
        granted: 2,
        failures: 2,
        ..Counts::default()
    };
    assert_eq!(ledger.counts(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_returned_at_once_and_deposits_nothing() {
    let Fixture {
        events,
        ledger,
        policy,
        ..
    } = fixture();
    let outcome = send(policy, script(&[Err(Verdict::Stop)]), Request::default()).await;
    assert_eq!(outcome, Err(Verdict::Stop));
    assert_eq!(events.take(), [end(1, 0, StopReason::NotRetryable)]);
    assert_eq!(
        ledger.counts(),
        Counts {
            left: 10,
            ..Counts::default()
        }
    );
}

#[tokio::test(start_paused = true)]
async fn the_last_attempt_allowed_ends_the_session() {
    let Fixture {
        events,
        ledger,
        policy,
        ..
    } = fixture();
    let service = script(&[RETRY; 5]);
    let seen = service.handle();
    assert_eq!(send(policy, service, Request::default()).await, RETRY);
    assert_eq!(seen.calls(), 5);
    assert_eq!(
        events.take().last(),
        Some(&end(5, 400, StopReason::AttemptsExhausted))
    );
    let expected = Counts {
        left: 6,
        granted: 4,
        failures: 5,
        ..Counts::default()
    };
    assert_eq!(
        ledger.counts(),
        expected,
        "no withdrawal for the last failure"
    );
}

// cenkalti/backoff#80, R7: the outcome of the only attempt is accounted for, too.
#[tokio::test(start_paused = true)]
async fn zero_and_one_attempts_mean_no_retries_and_no_copies() {
    for attempts in [0, 1] {
        for (outcome, reason, deposits, failures) in [
            (Ok("hi"), StopReason::Success, 1, 0),
            (Err(Verdict::Stop), StopReason::NotRetryable, 0, 0),
            (RETRY, StopReason::AttemptsExhausted, 0, 1),
            (
                Err(Verdict::Unprocessed),
                StopReason::AttemptsExhausted,
                0,
                1,
            ),
        ] {
            let Fixture {
                events,
                ledger,
                policy,
                ..
            } = fixture();
            let service = Scripted::new(move |_, _| outcome);
            let seen = service.handle();
            assert_eq!(
                send(policy.max_attempts(attempts), service, Request::default()).await,
                outcome
            );
            assert_eq!((seen.calls(), seen.clones()), (1, 0));
            assert_eq!(events.take(), [end(1, 0, reason)]);
            let counts = ledger.counts();
            assert_eq!((counts.deposits, counts.failures), (deposits, failures));
        }
    }
}

// F7.
#[tokio::test(start_paused = true)]
async fn no_copy_is_made_for_an_attempt_that_nothing_can_follow() {
    #[derive(Debug)]
    struct Counted(Arc<AtomicU32>);
    impl Clone for Counted {
        fn clone(&self) -> Self {
            self.0.fetch_add(1, Ordering::Relaxed);
            Self(self.0.clone())
        }
    }
    for (attempts, copies) in [(1, 0), (2, 1), (4, 3)] {
        let count = Arc::new(AtomicU32::new(0));
        let policy = StandardPolicy::new(on_error())
            .max_attempts(attempts)
            .backoff(delays(&[0]));
        let service = tower::service_fn(async |_: Counted| Err::<(), _>("down"));
        let answer = RetryLayer::new(policy)
            .layer(service)
            .oneshot(Counted(count.clone()))
            .await;
        assert_eq!(answer, Err("down"));
        assert_eq!(count.load(Ordering::Relaxed), copies, "{attempts} attempts");
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_budget_ends_the_session_without_a_wait() {
    let Fixture {
        events,
        policy,
        start,
        ..
    } = fixture();
    let ledger = Ledger::new(1);
    let service = script(&[RETRY; 2]);
    let outcome = send(policy.budget(ledger.clone()), service, Request::default()).await;
    assert_eq!((outcome, start.elapsed()), (RETRY, ms(100)));
    assert_eq!(
        events.take().last(),
        Some(&end(2, 100, StopReason::BudgetExhausted))
    );
    let expected = Counts {
        granted: 1,
        refused: 1,
        failures: 2,
        ..Counts::default()
    };
    assert_eq!(ledger.counts(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_do_not_is_obeyed() {
    let Fixture {
        events,
        ledger,
        policy,
        ..
    } = fixture();
    let outcome = send(
        policy,
        script(&[Err(Verdict::ServerRefused)]),
        Request::default(),
    )
    .await;
    assert_eq!(outcome, Err(Verdict::ServerRefused));
    assert_eq!(events.take(), [end(1, 0, StopReason::ServerRefused)]);
    assert_eq!(
        ledger.counts(),
        Counts {
            left: 10,
            failures: 1,
            ..Counts::default()
        }
    );
}

// What was lost to another thread after the budget had agreed.
#[tokio::test(start_paused = true)]
async fn a_copy_that_cannot_take_over_leaves_the_failure_and_gives_the_budget_back() {
    for outcome in [RETRY, Err(Verdict::Unprocessed)] {
        let Fixture {
            events,
            ledger,
            policy,
            ..
        } = fixture();
        let service = Scripted::new(move |_, _| outcome);
        let seen = service.handle();
        let request = Request {
            overtaken: true,
            ..Request::default()
        };
        assert_eq!(send(policy, service, request).await, outcome);
        assert_eq!(seen.calls(), 1);
        assert_eq!(events.take(), [end(1, 0, StopReason::NotReplayable)]);
        let counts = ledger.counts();
        let lent = u32::from(outcome == RETRY);
        assert_eq!((counts.granted, counts.refunds), (lent, lent));
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_takes_over_before_the_wait_and_only_where_a_retry_follows() {
    #[derive(Clone, Default)]
    struct Noted(Arc<Mutex<Vec<Instant>>>);

    impl Protocol<Request, &'static str, Verdict> for Noted {
        fn classify(&self, attempt: &Attempt<'_, Request, &'static str, Verdict>) -> Verdict {
            ByVerdict.classify(attempt)
        }
        fn clone_request(&self, request: &Request) -> Option<Request> {
            ByVerdict.clone_request(request)
        }
        fn take_over(&self, _: &Request) -> bool {
            self.0.lock().unwrap().push(Instant::now());
            true
        }
    }

    async fn check<P>(protocol: P, noted: &Noted)
    where
        P: Protocol<Request, &'static str, Verdict>,
    {
        for (script, left, expected) in [
            (&[RETRY, RETRY, Ok("hi")][..], 10, &[0, 100][..]),
            (&[RETRY, RETRY, RETRY], 10, &[0, 100]),
            (&[RETRY], 0, &[]),
            (&[Err(Verdict::Stop)], 10, &[]),
            (&[Ok("hi")], 10, &[]),
        ] {
            let start = Instant::now();
            let policy = StandardPolicy::new(&protocol)
                .backoff(delays(&[100]))
                .budget(Ledger::new(left));
            let service = Scripted::new(move |call, _: &Request| script[call as usize - 1]);
            let service = RetryLayer::new(policy).layer(service);
            let _ = service.oneshot(Request::default()).await;
            let times = std::mem::take(&mut *noted.0.lock().unwrap());
            let times: Vec<_> = times.iter().map(|at| (*at - start).as_millis()).collect();
            assert_eq!(times, expected);
        }
    }
    let noted = Noted::default();
    check(noted.clone(), &noted).await;
    check(Box::new(noted.clone()), &noted).await;
    check(Arc::new(noted.clone()), &noted).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_copied_says_so() {
    for request in [
        Request {
            single: true,
            ..Request::default()
        },
        Request {
            stale: true,
            ..Request::default()
        },
    ] {
        for (outcome, reason) in [
            (RETRY, StopReason::NotReplayable),
            (Ok("hi"), StopReason::Success),
            (Err(Verdict::Stop), StopReason::NotRetryable),
        ] {
            let Fixture {
                events,
                ledger,
                policy,
                ..
            } = fixture();
            assert_eq!(
                send(policy, Scripted::new(move |_, _| outcome), request).await,
                outcome
            );
            assert_eq!(events.take(), [end(1, 0, reason)]);
            assert_eq!(ledger.counts().granted, 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_gone_gives_the_withdrawal_back() {
    let Fixture {
        events,
        ledger,
        policy,
        ..
    } = fixture();
    let service =
        script(&[RETRY]).readiness([Poll::Ready(Ok(())), Poll::Ready(Err(Verdict::Stop))]);
    assert_eq!(
        send(policy, service, Request::default()).await,
        Err(Verdict::Stop)
    );
    assert_eq!(
        events.take().last(),
        Some(&end(1, 100, StopReason::NotReady))
    );
    let expected = Counts {
        left: 10,
        granted: 1,
        refunds: 1,
        failures: 1,
        ..Counts::default()
    };
    assert_eq!(ledger.counts(), expected);
}

// === cancellation ===

// F9, W8: tower keeps the tokens.
#[tokio::test(start_paused = true)]
async fn ten_sessions_dropped_while_waiting_leave_a_budget_of_ten_full() {
    let Fixture {
        events,
        ledger,
        policy,
        ..
    } = fixture();
    for _ in 0..10 {
        let service = RetryLayer::new(policy.clone()).layer(script(&[RETRY]));
        let mut future = spawn(service.oneshot(Request::default()));
        assert_pending!(future.poll());
    }
    let expected = Counts {
        left: 10,
        granted: 10,
        refunds: 10,
        failures: 10,
        ..Counts::default()
    };
    assert_eq!(ledger.counts(), expected);
    assert_eq!(events.reasons(), [StopReason::Cancelled; 10]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_in_flight_has_used_its_token_when_it_is_dropped() {
    let Fixture {
        events,
        ledger,
        policy,
        ..
    } = fixture();
    let service =
        Scripted::timed(|call, _: &Request| (if call == 1 { ms(0) } else { ms(1_000) }, RETRY));
    let service = RetryLayer::new(policy).layer(service);
    let answer = tokio::time::timeout(ms(200), service.oneshot(Request::default())).await;
    assert!(answer.is_err());
    assert_eq!(ledger.counts().refunds, 0);
    let told = Event::Finished {
        attempts: 2,
        transparent: 0,
        total_delay: ms(100),
        elapsed: ms(200),
        reason: StopReason::Cancelled,
    };
    assert_eq!(events.take().last(), Some(&told));
}

#[tokio::test(start_paused = true)]
async fn a_session_dropped_before_its_first_outcome_was_cancelled() {
    let Fixture { events, policy, .. } = fixture();
    let service = Scripted::timed(|_, _: &Request| (ms(100), Ok("hi")));
    let mut service = RetryLayer::new(policy).layer(service);
    drop(service.ready().await.unwrap().call(Request::default()));
    assert_eq!(events.take(), [end(1, 0, StopReason::Cancelled)]);
}

#[test]
fn prototypes_and_clones_that_send_nothing_tell_nothing() {
    let events = Events::default();
    let policy = StandardPolicy::new(on_error()).observe(events.clone());
    let layer = RetryLayer::new(policy.clone());
    drop((policy, layer.clone(), layer));
    assert_eq!(events.take(), []);
}

// === deadline ===

#[tokio::test(start_paused = true)]
async fn a_wait_that_does_not_fit_before_the_deadline_is_not_begun() {
    for (timeout, least, calls) in [
        (250, 0, 3),
        (200, 0, 2), // the second wait would end at the deadline, not before it
        (201, 0, 3),
        (250, 50, 2),
        (251, 50, 3),
        (100, 0, 1),
        (0, 0, 1),
    ] {
        let Fixture {
            events,
            ledger,
            policy,
            start,
        } = fixture();
        let policy = policy
            .total_timeout(ms(timeout))
            .min_attempt_time(ms(least));
        let service = script(&[RETRY; 5]);
        let seen = service.handle();
        assert_eq!(send(policy, service, Request::default()).await, RETRY);
        assert_eq!(
            seen.calls(),
            calls,
            "{timeout} ms, at least {least} ms for an attempt"
        );
        let waited = (calls as u64 - 1) * 100;
        assert_eq!(start.elapsed(), ms(waited), "it slept into the timeout");
        let last = end(calls as u32, waited, StopReason::DeadlineExceeded);
        assert_eq!(events.take().last(), Some(&last));
        assert_eq!(
            ledger.counts().granted,
            calls as u32 - 1,
            "the budget is asked last"
        );
    }
}

// backon#238: the time of the attempts counts, too.
#[tokio::test(start_paused = true)]
async fn the_deadline_covers_attempts_and_waits() {
    let Fixture { policy, start, .. } = fixture();
    let service = Scripted::timed(|_, _: &Request| (ms(400), RETRY));
    let seen = service.handle();
    assert_eq!(
        send(policy.total_timeout(ms(1_000)), service, Request::default()).await,
        RETRY
    );
    assert_eq!((seen.calls(), start.elapsed()), (2, ms(900)));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_beyond_the_clock_is_none() {
    let Fixture { policy, events, .. } = fixture();
    let policy = policy
        .total_timeout(Duration::MAX)
        .min_attempt_time(Duration::MAX);
    assert_eq!(
        send(policy, script(&[RETRY; 5]), Request::default()).await,
        RETRY
    );
    assert_eq!(events.reasons(), [StopReason::AttemptsExhausted]);
}

#[tokio::test(start_paused = true)]
async fn each_attempt_is_marked_with_its_number_and_the_time_left() {
    let Fixture { policy, .. } = fixture();
    let service = script(&[RETRY, RETRY, Ok("hi")]);
    let seen = service.handle();
    send(
        policy.clone().total_timeout(ms(1_000)),
        service,
        Request::default(),
    )
    .await
    .unwrap();
    let marks: Vec<_> = seen
        .requests()
        .iter()
        .map(|r| (r.attempt, r.remaining))
        .collect();
    assert_eq!(
        marks,
        [(1, Some(ms(1_000))), (2, Some(ms(900))), (3, Some(ms(800)))]
    );

    let service = script(&[Ok("hi")]);
    let seen = service.handle();
    send(policy, service, Request::default()).await.unwrap();
    assert_eq!(seen.requests()[0].remaining, None);
}

// === what a request asks for itself ===

#[tokio::test(start_paused = true)]
async fn a_requests_own_limits_stand_in_for_the_policys() {
    let start = Instant::now();
    let limits = |set: fn(&mut Limits, Instant)| {
        let mut limits = Limits::default();
        set(&mut limits, start);
        limits
    };
    for (limits, calls, reason) in [
        (
            limits(|l, _| l.max_attempts = Some(2)),
            2,
            StopReason::AttemptsExhausted,
        ),
        (
            limits(|l, _| l.max_attempts = Some(7)),
            7,
            StopReason::AttemptsExhausted,
        ),
        (
            limits(|l, _| l.max_attempts = Some(0)),
            1,
            StopReason::AttemptsExhausted,
        ),
        (
            limits(|l, _| l.no_retry = true),
            1,
            StopReason::NotRetryable,
        ),
        (limits(|l, _| l.nested = true), 1, StopReason::Nested),
        (
            limits(|l, start| l.deadline = Some(start + ms(150))),
            2,
            StopReason::DeadlineExceeded,
        ),
    ] {
        let start = Instant::now();
        let shift = start - Instant::now();
        let Fixture { events, policy, .. } = fixture();
        let service = Scripted::new(|_, _: &Request| RETRY);
        let seen = service.handle();
        let mut limits = limits;
        limits.deadline = limits.deadline.map(|_| start + shift + ms(150));
        let request = Request {
            limits,
            ..Request::default()
        };
        assert_eq!(send(policy, service, request).await, RETRY);
        assert_eq!(
            (seen.calls(), events.reasons()),
            (calls, vec![reason]),
            "{limits:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_earlier_of_two_deadlines_counts() {
    for (own, asked, calls) in [(150, 350, 2), (350, 150, 2), (350, 350, 4)] {
        let Fixture { policy, start, .. } = fixture();
        let mut limits = Limits::default();
        limits.deadline = Some(start + ms(asked));
        let service = script(&[RETRY; 5]);
        let seen = service.handle();
        let request = Request {
            limits,
            ..Request::default()
        };
        send(policy.total_timeout(ms(own)), service, request)
            .await
            .unwrap_err();
        assert_eq!(seen.calls(), calls);
    }
}

// finagle#956: two layers that share a budget deposited twice.
#[tokio::test(start_paused = true)]
async fn a_nested_request_passes_without_marks_or_money() {
    for (outcome, reason) in [
        (Ok("hi"), StopReason::Success),
        (RETRY, StopReason::Nested),
        (Err(Verdict::Unprocessed), StopReason::Nested),
        (Err(Verdict::Stop), StopReason::NotRetryable),
    ] {
        let Fixture {
            events,
            ledger,
            policy,
            ..
        } = fixture();
        let mut limits = Limits::default();
        limits.nested = true;
        let request = Request {
            limits,
            attempt: 42,
            ..Request::default()
        };
        let service = Scripted::new(move |_, _| outcome);
        let seen = service.handle();
        assert_eq!(send(policy, service, request).await, outcome);
        assert_eq!(seen.requests(), [request]);
        assert_eq!(events.take(), [end(1, 0, reason)]);
        assert_eq!(
            ledger.counts(),
            Counts {
                left: 10,
                ..Counts::default()
            }
        );
    }
}

// === hints ===

#[tokio::test(start_paused = true)]
async fn a_hint_takes_the_place_of_one_delay_is_cut_and_spread() {
    for (hint, named, clamped) in [
        (1_000, 1_000, false),
        (60_000, 60_000, false),
        (3_600_000, 60_000, true),
    ] {
        let Fixture { events, policy, .. } = fixture();
        let policy = policy.backoff(delays(&[100, 700]));
        let hinted = Err(Verdict::RetryAfter(ms(hint)));
        let service = Scripted::new(move |call, _| [hinted, RETRY, Ok("hi")][call as usize - 1]);
        send(policy, service, Request::default()).await.unwrap();
        let events = events.take();
        let Event::Retrying { delay, source, .. } = events[0] else {
            unreachable!()
        };
        assert_eq!(source, DelaySource::Server { clamped });
        assert!(
            ms(named) < delay && delay <= ms(named + named / 10),
            "{delay:?}"
        );
        let Event::Retrying { delay, source, .. } = events[1] else {
            unreachable!()
        };
        assert_eq!(
            (delay, source),
            (ms(100), DelaySource::Backoff),
            "the hint took a step"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn two_clients_told_the_same_second_do_not_return_together() {
    let mut waits = Vec::new();
    for _ in 0..4 {
        let Fixture { events, policy, .. } = fixture();
        let hinted = Err(Verdict::RetryAfter(ms(1_000)));
        let service = Scripted::new(move |call, _| [hinted, Ok("hi")][call as usize - 1]);
        send(policy, service, Request::default()).await.unwrap();
        let Event::Retrying { delay, .. } = events.take()[0] else {
            unreachable!()
        };
        waits.push(delay);
    }
    waits.sort();
    waits.dedup();
    assert!(
        waits.len() >= 3,
        "of 10^8 nanoseconds two were drawn twice: {waits:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hint_of_zero_or_a_cap_of_zero_is_no_hint() {
    for (hint, cap) in [(0, 60_000), (1_000, 0)] {
        let Fixture { events, policy, .. } = fixture();
        let hinted = Err(Verdict::RetryAfter(ms(hint)));
        let service = Scripted::new(move |call, _| [hinted, Ok("hi")][call as usize - 1]);
        send(
            policy.max_server_delay(ms(cap)),
            service,
            Request::default(),
        )
        .await
        .unwrap();
        assert_eq!(events.take()[0], retrying(1, 100, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cap_of_zero_makes_pushback_an_ordinary_retry() {
    let Fixture { events, policy, .. } = fixture();
    let policy = policy.max_server_delay(ms(0)).backoff(delays(&[100, 700]));
    let pushed = Err(Verdict::Pushback(ms(10_000)));
    let service = Scripted::new(move |call, _| [RETRY, pushed, Ok("hi")][call as usize - 1]);
    send(policy, service, Request::default()).await.unwrap();
    let told = events.take();
    assert_eq!(
        told[..2],
        [retrying(1, 100, 0), retrying(2, 100, 100)],
        "it starts over"
    );
}

// guzzle_retry_middleware#36; backon B6: a hint must not get around a limit.
#[tokio::test(start_paused = true)]
async fn a_hint_gets_around_no_limit() {
    const HINTED: Outcome = Err(Verdict::RetryAfter(Duration::from_secs(30)));
    let Fixture {
        policy,
        ledger,
        start,
        ..
    } = fixture();

    let outcome = send(
        policy.clone().total_timeout(ms(29_000)),
        script(&[HINTED]),
        Request::default(),
    );
    assert_eq!((outcome.await, start.elapsed()), (HINTED, ms(0)));

    let service = script(&[HINTED; 5]);
    let seen = service.handle();
    assert_eq!(
        send(policy.clone(), service, Request::default()).await,
        HINTED
    );
    assert_eq!((seen.calls(), ledger.counts().granted), (5, 4));

    let outcome = send(
        policy.budget(Ledger::new(0)),
        script(&[HINTED]),
        Request::default(),
    );
    assert_eq!(outcome.await, HINTED);
}

#[tokio::test(start_paused = true)]
async fn the_longest_hint_neither_panics_nor_wraps() {
    let Fixture { events, policy, .. } = fixture();
    let policy = policy.max_server_delay(Duration::MAX);
    let service = script(&[Err(Verdict::RetryAfter(Duration::MAX))]);
    let mut future = spawn(
        RetryLayer::new(policy)
            .layer(service)
            .oneshot(Request::default()),
    );
    assert_pending!(future.poll());
    let Event::Retrying { delay, .. } = events.take()[0] else {
        unreachable!()
    };
    assert_eq!(delay, Duration::MAX);
}

// G16, G23, R17: exactly so long, zero included, and the backoff starts over.
#[tokio::test(start_paused = true)]
async fn pushback_is_exact_and_starts_the_backoff_over() {
    let Fixture { events, policy, .. } = fixture();
    let policy = policy.backoff(delays(&[100, 200, 400])).max_attempts(9);
    const PUSHED: [Outcome; 8] = [
        RETRY,
        RETRY,
        Err(Verdict::Pushback(Duration::from_millis(123))),
        RETRY,
        Err(Verdict::Pushback(Duration::ZERO)),
        Err(Verdict::Pushback(Duration::from_secs(999))),
        RETRY,
        Ok("hi"),
    ];
    let service = script(&PUSHED);
    send(policy, service, Request::default()).await.unwrap();
    let delays: Vec<_> = events
        .take()
        .into_iter()
        .filter_map(|event| match event {
            Event::Retrying { delay, source, .. } => Some((delay.as_millis(), source)),
            Event::Finished { .. } => None,
        })
        .collect();
    let server = |clamped| DelaySource::Server { clamped };
    assert_eq!(
        delays,
        [
            (100, DelaySource::Backoff),
            (200, DelaySource::Backoff),
            (123, server(false)),
            (100, DelaySource::Backoff),
            (0, server(false)),
            (60_000, server(true)),
            (100, DelaySource::Backoff),
        ]
    );
}

// G24.
#[tokio::test(start_paused = true)]
async fn g24_pushback_on_the_last_attempt_is_not_followed() {
    let Fixture { events, policy, .. } = fixture();
    let service = script(&[RETRY, Err(Verdict::Pushback(Duration::ZERO))]);
    send(policy.max_attempts(2), service, Request::default())
        .await
        .unwrap_err();
    assert_eq!(events.reasons(), [StopReason::AttemptsExhausted]);
}

// === certainly unprocessed ===

// G18, G19: once at once and uncounted, the second time by the policy.
#[tokio::test(start_paused = true)]
async fn g19_an_unprocessed_first_attempt_is_repeated_once_uncounted() {
    const UNPROCESSED: Outcome = Err(Verdict::Unprocessed);
    let Fixture {
        events,
        ledger,
        policy,
        start,
    } = fixture();
    let service = script(&[UNPROCESSED, UNPROCESSED, UNPROCESSED, RETRY]);
    let seen = service.handle();
    assert_eq!(
        send(policy.max_attempts(3), service, Request::default()).await,
        RETRY
    );
    assert_eq!(seen.times(start), [ms(0), ms(0), ms(100), ms(200)]);
    let numbers: Vec<_> = seen
        .requests()
        .iter()
        .map(|request| request.attempt)
        .collect();
    assert_eq!(
        numbers,
        [1, 1, 2, 3],
        "the repeat keeps the number of what it replaces"
    );
    let transparent = Event::Retrying {
        attempt: 1,
        delay: ms(0),
        source: DelaySource::Transparent,
        elapsed: ms(0),
    };
    let told = Event::Finished {
        attempts: 3,
        transparent: 1,
        total_delay: ms(200),
        elapsed: ms(200),
        reason: StopReason::AttemptsExhausted,
    };
    let expected = [
        transparent,
        retrying(1, 100, 0),
        retrying(2, 100, 100),
        told,
    ];
    assert_eq!(events.take(), expected);
    let expected = Counts {
        left: 8,
        granted: 2,
        failures: 3,
        ..Counts::default()
    };
    assert_eq!(
        ledger.counts(),
        expected,
        "the repeat is neither a failure nor a withdrawal"
    );
}

// G20.
#[tokio::test(start_paused = true)]
async fn g20_after_a_retry_nothing_is_transparent() {
    let Fixture { events, policy, .. } = fixture();
    let service = script(&[RETRY, Err(Verdict::Unprocessed), Ok("hi")]);
    send(policy, service, Request::default()).await.unwrap();
    let expected = [
        retrying(1, 100, 0),
        retrying(2, 100, 100),
        end(3, 200, StopReason::Success),
    ];
    assert_eq!(events.take(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_transparent_repeat_is_bound_by_the_deadline_and_the_copy() {
    let Fixture { events, policy, .. } = fixture();
    let service = Scripted::timed(|_, _: &Request| (ms(10), Err(Verdict::Unprocessed)));
    send(
        policy.clone().total_timeout(ms(10)),
        service,
        Request::default(),
    )
    .await
    .unwrap_err();
    assert_eq!(events.reasons(), [StopReason::DeadlineExceeded]);

    let request = Request {
        single: true,
        ..Request::default()
    };
    events.take();
    send(policy, script(&[Err(Verdict::Unprocessed)]), request)
        .await
        .unwrap_err();
    assert_eq!(events.reasons(), [StopReason::NotReplayable]);
}

// === the budget under load ===

// tower-resilience T2: 2000 requests became 4000.
#[tokio::test(start_paused = true)]
async fn a_budget_of_one_lends_one_retry_to_two_thousand_failing_requests() {
    use tower_retry_layer::budget::TokenBudget;
    // The first attempt of every request fails, its retry would succeed.
    let service = Scripted::new(|_, failed: &Retried| if failed.1 { Ok(()) } else { Err(()) });
    let seen = service.handle();
    let policy = StandardPolicy::new(MarkRetried)
        .backoff(delays(&[1]))
        .budget(TokenBudget::new(1, 0.0).unwrap());
    let mut service = RetryLayer::new(policy).layer(service);
    for request in 0..2_000 {
        let _ = service
            .ready()
            .await
            .unwrap()
            .call(Retried(request, false))
            .await;
    }
    assert_eq!(seen.calls(), 2_001);
}

#[test]
fn eight_threads_draw_no_more_than_the_budget_lends() {
    use tower_retry_layer::budget::TokenBudget;
    let successes = AtomicU32::new(0);
    let attempts = Arc::new(AtomicU32::new(0));
    let budget = Arc::new(TokenBudget::new(100, 0.2).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (successes, attempts, budget) = (&successes, attempts.clone(), budget.clone());
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_time()
                    .build()
                    .unwrap();
                let mut random = xorshift(thread);
                let service = Scripted::new(move |_, _: &u32| {
                    attempts.fetch_add(1, Ordering::Relaxed);
                    if random() % 4 == 0 { Err(()) } else { Ok(()) }
                });
                let policy = StandardPolicy::new(on_error())
                    .backoff(delays(&[0]))
                    .budget(budget);
                let mut service = RetryLayer::new(policy).layer(service);
                runtime.block_on(async {
                    for request in 0..2_000 {
                        if service.ready().await.unwrap().call(request).await.is_ok() {
                            successes.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            });
        }
    });
    let retries = f64::from(attempts.load(Ordering::Relaxed) - 16_000);
    let bound = 100.0 + 0.2 * f64::from(successes.load(Ordering::Relaxed));
    assert!(retries <= bound, "{retries} retries, at most {bound} lent");
    assert!(
        retries > 0.9 * bound.min(16_000.0 / 4.0),
        "{retries} of {bound}: hardly any lent"
    );
}

// === inside other policies ===

// What "one changed import" invites to: a policy that forwards tower's two methods alone.
#[tokio::test(start_paused = true)]
async fn a_wrapper_that_forwards_two_methods_stays_within_every_limit() {
    #[derive(Clone)]
    struct Wrapper(Policy);

    impl tower_retry_layer::Policy<Request, &'static str, Verdict> for Wrapper {
        type Future = tower_retry_layer::Wait;

        fn retry(&mut self, request: &mut Request, result: &mut Outcome) -> Option<Self::Future> {
            self.0.retry(request, result)
        }

        fn clone_request(&mut self, request: &Request) -> Option<Request> {
            self.0.clone_request(request)
        }
    }

    let Fixture {
        events,
        ledger,
        policy,
        ..
    } = fixture();
    let service = Scripted::new(|_, _: &Request| RETRY);
    let seen = service.handle();
    let layer = RetryLayer::new(Wrapper(policy.clone().max_attempts(3)));
    assert_eq!(
        layer.layer(service).oneshot(Request::default()).await,
        RETRY
    );
    let counts = ledger.counts();
    assert_eq!((seen.calls(), counts.granted, counts.refunds), (3, 2, 0));
    let last = end(3, 200, StopReason::AttemptsExhausted);
    assert_eq!(
        events.take(),
        [retrying(1, 100, 0), retrying(2, 100, 100), last]
    );

    let start = Instant::now();
    let service = Scripted::new(|_, _: &Request| RETRY);
    let seen = service.handle();
    let layer = RetryLayer::new(Wrapper(policy.max_attempts(99).total_timeout(ms(350))));
    assert_eq!(
        layer.layer(service).oneshot(Request::default()).await,
        RETRY
    );
    assert_eq!((seen.calls(), start.elapsed()), (4, ms(300)));
    assert_eq!(events.reasons(), [StopReason::DeadlineExceeded]);
}

#[tokio::test(start_paused = true)]
async fn a_protocol_that_panics_before_a_retry_leaves_no_token_behind() {
    struct Panics;
    impl Protocol<u32, (), ()> for Panics {
        fn classify(&self, _: &Attempt<'_, u32, (), ()>) -> Verdict {
            Verdict::Retry
        }
        fn clone_request(&self, request: &u32) -> Option<u32> {
            Some(*request)
        }
        fn prepare(&self, _: &mut u32, attempt: u32, _: Option<Duration>) {
            assert!(attempt == 1, "a protocol's own trouble");
        }
    }
    let ledger = Ledger::new(10);
    let policy = StandardPolicy::new(Panics)
        .backoff(delays(&[1]))
        .budget(ledger.clone());
    let service = Scripted::new(|_, _: &u32| Err(()));
    let task = tokio::spawn(RetryLayer::new(policy).layer(service).oneshot(0));
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!((ledger.counts().granted, ledger.counts().refunds), (1, 1));
}

// === observers ===

#[tokio::test(start_paused = true)]
async fn several_observers_are_told_and_a_panic_in_one_harms_nobody() {
    let Fixture {
        events,
        ledger,
        policy,
        ..
    } = fixture();
    let later = Events::default();
    let policy = policy
        .observe(on_retry(|_| panic!("an observer's own trouble")))
        .observe(on_finish(|_| panic!("an observer's own trouble")))
        .observe(later.clone());
    assert_eq!(
        send(policy, script(&[RETRY, Ok("hi")]), Request::default()).await,
        Ok("hi")
    );
    assert_eq!(later.take(), events.take());
    let expected = Counts {
        left: 9,
        deposits: 1,
        granted: 1,
        failures: 1,
        ..Counts::default()
    };
    assert_eq!(ledger.counts(), expected);
}

#[tokio::test(start_paused = true)]
async fn events_carry_the_policys_name() {
    let name = Arc::new(std::sync::Mutex::new(String::new()));
    let seen = name.clone();
    let policy = fixture()
        .policy
        .name("checkout")
        .observe(on_finish(move |event| {
            *seen.lock().unwrap() = event.name.to_owned();
        }));
    send(policy, script(&[Ok("hi")]), Request::default())
        .await
        .unwrap();
    assert_eq!(*name.lock().unwrap(), "checkout");
}

// === protocols ===

#[tokio::test(start_paused = true)]
async fn a_closure_sees_request_outcome_number_and_time() {
    let policy = StandardPolicy::new(classify_fn(|attempt: &Attempt<'_, u32, u32, &str>| {
        let request = attempt.request().copied();
        match (
            attempt.number(),
            attempt.elapsed(),
            request,
            attempt.outcome(),
        ) {
            (1, Duration::ZERO, Some(9), Err("first")) => Verdict::Retry,
            (2, elapsed, Some(9), Err("second")) if elapsed == ms(100) => Verdict::Retry,
            (3, elapsed, None, Ok(3)) if elapsed == ms(200) => Verdict::Success,
            other => panic!("{other:?}"),
        }
    }))
    .backoff(delays(&[100]));
    let service = Scripted::new(|call, _: &u32| match call {
        1 => Err("first"),
        2 => Err("second"),
        call => Ok(call),
    });
    assert_eq!(
        RetryLayer::new(policy).layer(service).oneshot(9).await,
        Ok(3)
    );
}

#[tokio::test(start_paused = true)]
async fn setters_after_a_clone_leave_the_clone_alone() {
    let policy = StandardPolicy::new(on_error()).backoff(delays(&[0]));
    let other = policy.clone().max_attempts(7);
    for (policy, calls) in [(policy, 3), (other, 7)] {
        let service = Scripted::new(|_, _: &u32| Err::<(), _>(()));
        let seen = service.handle();
        RetryLayer::new(policy)
            .layer(service)
            .oneshot(0)
            .await
            .unwrap_err();
        assert_eq!(seen.calls(), calls);
    }
}

/// A request, and whether it is a retry.
#[derive(Clone, Copy)]
struct Retried(
    #[expect(dead_code, reason = "tells requests apart")] u32,
    bool,
);

struct MarkRetried;

impl Protocol<Retried, (), ()> for MarkRetried {
    fn classify(&self, attempt: &Attempt<'_, Retried, (), ()>) -> Verdict {
        if attempt.outcome().is_ok() {
            Verdict::Success
        } else {
            Verdict::Retry
        }
    }

    fn clone_request(&self, request: &Retried) -> Option<Retried> {
        Some(*request)
    }

    fn prepare(&self, request: &mut Retried, attempt: u32, _: Option<Duration>) {
        request.1 = attempt > 1;
    }
}

/// Marsaglia's xorshift.
fn xorshift(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed + 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}
