//! What the tests of observers share: a session for every end, and a log of all that is told.

use std::{
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use tokio_test::{assert_pending, task::spawn};
use tower::{Layer, ServiceExt};
use tower_retry_layer::{
    Attempt, Limits, Protocol, RetryLayer, StandardPolicy, Verdict,
    backoff::Schedule,
    observe::{DelaySource, Finished, Observe, RetrySummary, Retrying, StopReason},
};

use crate::support::{Ledger, Scripted, delays, ms};

pub(crate) type Scheduled = StandardPolicy<Names, Schedule>;
pub(crate) type Upstream = Scripted<Request, Reply, Reply>;

/// Says what it is, and keeps the summary that it is given.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reply {
    pub(crate) verdict: Verdict,
    pub(crate) name: &'static str,
    pub(crate) summary: Option<RetrySummary>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) limits: Limits,
    pub(crate) single: bool,
}

/// The protocol of such replies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names;

/// All that observers are told, as it was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Told>>>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    Retrying {
        attempt: u32,
        resend: u32,
        error_type: &'static str,
        delay: Duration,
        source: DelaySource,
        elapsed: Duration,
    },
    Finished {
        attempts: u32,
        transparent: u32,
        total_delay: Duration,
        elapsed: Duration,
        reason: StopReason,
        error_type: Option<&'static str>,
        nested: bool,
    },
}

pub(crate) const EVERY_REASON: [StopReason; 10] = [
    StopReason::Success,
    StopReason::NotRetryable,
    StopReason::AttemptsExhausted,
    StopReason::BudgetExhausted,
    StopReason::DeadlineExceeded,
    StopReason::ServerRefused,
    StopReason::NotReplayable,
    StopReason::Nested,
    StopReason::NotReady,
    StopReason::Cancelled,
];

/// Sends one request whose session ends for this reason, always after one retry where there can be
/// one. `policy` has three attempts, 100 ms apart.
pub(crate) async fn end_by(reason: StopReason, policy: Scheduled) {
    let (policy, script, request) = match reason {
        StopReason::Success => (policy, vec![busy(), fine()], Request::default()),
        StopReason::NotRetryable => (policy, vec![busy(), hopeless()], Request::default()),
        StopReason::AttemptsExhausted => (policy, vec![busy(), busy(), busy()], Request::default()),
        StopReason::BudgetExhausted => {
            let policy = policy.budget(Ledger::new(1));
            (policy, vec![busy(), busy()], Request::default())
        }
        StopReason::DeadlineExceeded => {
            let policy = policy.total_timeout(ms(150));
            (policy, vec![busy(), busy()], Request::default())
        }
        StopReason::ServerRefused => {
            let refused = reply(Verdict::ServerRefused, "503");
            (policy, vec![busy(), refused], Request::default())
        }
        StopReason::NotReplayable => {
            let single = true;
            let limits = Limits::default();
            (policy, vec![busy()], Request { limits, single })
        }
        StopReason::Nested => {
            let mut request = Request::default();
            request.limits.nested = true;
            (policy, vec![busy()], request)
        }
        StopReason::NotReady => {
            let gone = reply(Verdict::Stop, "gone");
            let service = script(vec![busy()])
                .readiness([Poll::Ready(Ok(())), Poll::Ready(Err(gone.clone()))]);
            assert_eq!(send(policy, service, Request::default()).await, Err(gone));
            return;
        }
        StopReason::Cancelled => {
            let service = RetryLayer::new(policy).layer(script(vec![busy()]));
            let mut future = spawn(service.oneshot(Request::default()));
            assert_pending!(future.poll());
            return;
        }
        other => unreachable!("{other}"),
    };
    let last = script.last().unwrap().name;
    let service = self::script(script);
    let answer = send(policy, service, request).await;
    assert_eq!(answer.unwrap_or_else(|error| error).name, last);
}

/// Three attempts, 100 ms apart, a budget of its own.
pub(crate) fn policy(observer: impl Observe + 'static) -> Scheduled {
    StandardPolicy::new(Names)
        .name("checkout")
        .backoff(delays(&[100]))
        .observe(observer)
}

pub(crate) fn script(replies: Vec<Reply>) -> Upstream {
    Scripted::new(move |call, _| outcome(replies[call as usize - 1].clone()))
}

pub(crate) async fn send(
    policy: Scheduled,
    service: Upstream,
    request: Request,
) -> Result<Reply, Reply> {
    RetryLayer::new(policy)
        .layer(service)
        .oneshot(request)
        .await
}

pub(crate) fn reply(verdict: Verdict, name: &'static str) -> Reply {
    Reply {
        verdict,
        name,
        summary: None,
    }
}

pub(crate) fn fine() -> Reply {
    reply(Verdict::Success, "fine")
}

pub(crate) fn busy() -> Reply {
    reply(Verdict::Retry, "503")
}

fn hopeless() -> Reply {
    reply(Verdict::Stop, "400")
}

/// What has a number is a response, what has none an error.
pub(crate) fn outcome(reply: Reply) -> Result<Reply, Reply> {
    match reply.name.parse::<u16>() {
        Ok(_) => Ok(reply),
        Err(_) if reply.verdict == Verdict::Success => Ok(reply),
        Err(_) => Err(reply),
    }
}

// === impl Names ===

impl Protocol<Request, Reply, Reply> for Names {
    fn classify(&self, attempt: &Attempt<'_, Request, Reply, Reply>) -> Verdict {
        match attempt.outcome() {
            Ok(reply) | Err(reply) => reply.verdict,
        }
    }

    fn clone_request(&self, request: &Request) -> Option<Request> {
        (!request.single).then(|| request.clone())
    }

    fn limits(&self, request: &Request) -> Limits {
        request.limits
    }

    fn error_type(&self, outcome: &Result<Reply, Reply>) -> &'static str {
        match outcome {
            Ok(reply) | Err(reply) => reply.name,
        }
    }

    fn summarize(&self, response: &mut Reply, summary: &RetrySummary) {
        assert_eq!(response.summary.replace(*summary), None, "told twice");
    }
}

// === impl Log ===

impl Log {
    pub(crate) fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observe for Log {
    fn retrying(&self, event: &Retrying<'_>) {
        assert_eq!(event.name, "checkout");
        self.0.lock().unwrap().push(Told::Retrying {
            attempt: event.attempt,
            resend: event.resend,
            error_type: event.error_type,
            delay: event.delay,
            source: event.source,
            elapsed: event.elapsed,
        });
    }

    fn finished(&self, event: &Finished<'_>) {
        assert_eq!(event.name, "checkout");
        self.0.lock().unwrap().push(Told::Finished {
            attempts: event.attempts,
            transparent: event.transparent,
            total_delay: event.total_delay,
            elapsed: event.elapsed,
            reason: event.reason,
            error_type: event.error_type,
            nested: event.nested,
        });
    }
}
