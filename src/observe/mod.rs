//! Observing: an event for every decision, and one for every end.
//!
//! Without an observer nothing is built and no clock is read for it.

use std::{fmt, sync::Arc, time::Duration};

/// Somebody who is told what sessions decide.
///
/// Called from inside a poll: count, log, send to a channel, but do not block.
///
/// # Examples
///
/// Two closures, one for each event:
///
/// ```
/// use tower_retry_layer::{StandardPolicy, on_error};
/// use tower_retry_layer::observe::{on_finish, on_retry};
///
/// let _policy = StandardPolicy::new(on_error())
///     .observe(on_retry(|event| eprintln!("attempt {} failed, waits {:?}", event.attempt, event.delay)))
///     .observe(on_finish(|event| eprintln!("{:?} after {} attempts", event.reason, event.attempts)));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an observer of retries",
    note = "a closure becomes one through `observe::on_retry(..)` or `observe::on_finish(..)`"
)]
pub trait Observe: Send + Sync {
    /// An attempt failed and a retry follows after the delay.
    fn retrying(&self, event: &Retrying<'_>) {
        let _ = event;
    }

    /// A session ended: exactly once per session, whatever the way out.
    fn finished(&self, event: &Finished<'_>) {
        let _ = event;
    }
}

/// An attempt failed and a retry follows.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Retrying<'a> {
    /// The policy's name, see [`StandardPolicy::name`](crate::StandardPolicy::name).
    pub name: &'a str,
    /// The attempt that failed, from 1.
    pub attempt: u32,
    /// The wait that begins now.
    pub delay: Duration,
    /// Who chose the delay.
    pub source: DelaySource,
    /// Since the session began.
    pub elapsed: Duration,
}

/// A session ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Finished<'a> {
    /// The policy's name, see [`StandardPolicy::name`](crate::StandardPolicy::name).
    pub name: &'a str,
    /// Attempts sent, the first included. What reached the wire is this plus `transparent`.
    pub attempts: u32,
    /// Retries that were not counted: see [`Verdict::Unprocessed`](crate::Verdict::Unprocessed).
    pub transparent: u32,
    /// The sum of the waits that the session decided on; one that was cut short counts in full.
    pub total_delay: Duration,
    /// Since the session began.
    pub elapsed: Duration,
    /// Why it ended.
    pub reason: StopReason,
}

/// Who chose a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DelaySource {
    /// The policy's backoff.
    Backoff,
    /// The server, through a hint.
    Server {
        /// The hint was longer than `max_server_delay` and was cut to it.
        clamped: bool,
    },
    /// Nobody: the server certainly did not act on the attempt, so it is sent again at once and
    /// not counted.
    Transparent,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The last outcome was a success.
    Success,
    /// The failure is not one that sending again mends, or the request forbade retries.
    NotRetryable,
    /// The last attempt that was allowed failed.
    AttemptsExhausted,
    /// The budget refused.
    BudgetExhausted,
    /// The next wait does not fit before the deadline.
    DeadlineExceeded,
    /// The server said not to try again.
    ServerRefused,
    /// The request could not be copied.
    NotReplayable,
    /// A retry layer above retries this request.
    Nested,
    /// The service failed to become ready for the retry.
    NotReady,
    /// The caller dropped the future.
    Cancelled,
}

/// An observer that calls `f` with each retry.
pub fn on_retry<F>(f: F) -> OnRetry<F>
where
    F: Fn(&Retrying<'_>) + Send + Sync,
{
    OnRetry { f }
}

/// An observer that calls `f` with each end.
pub fn on_finish<F>(f: F) -> OnFinish<F>
where
    F: Fn(&Finished<'_>) + Send + Sync,
{
    OnFinish { f }
}

/// See [`on_retry`].
#[derive(Clone, Copy)]
pub struct OnRetry<F> {
    f: F,
}

/// See [`on_finish`].
#[derive(Clone, Copy)]
pub struct OnFinish<F> {
    f: F,
}

// === impl Retrying, Finished ===

impl<'a> Retrying<'a> {
    /// An event with a delay of zero from the backoff: the rest is set field by field. What a test
    /// of an observer needs.
    pub fn new(name: &'a str, attempt: u32) -> Self {
        Self {
            name,
            attempt,
            delay: Duration::ZERO,
            source: DelaySource::Backoff,
            elapsed: Duration::ZERO,
        }
    }
}

impl<'a> Finished<'a> {
    /// An event of a session that took no time: the rest is set field by field. What a test of an
    /// observer needs.
    pub fn new(name: &'a str, attempts: u32, reason: StopReason) -> Self {
        Self {
            name,
            attempts,
            transparent: 0,
            total_delay: Duration::ZERO,
            elapsed: Duration::ZERO,
            reason,
        }
    }
}

// === impl StopReason ===

impl StopReason {
    /// The reason as a word for logs and labels, such as `budget_exhausted`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::NotRetryable => "not_retryable",
            Self::AttemptsExhausted => "attempts_exhausted",
            Self::BudgetExhausted => "budget_exhausted",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::ServerRefused => "server_refused",
            Self::NotReplayable => "not_replayable",
            Self::Nested => "nested",
            Self::NotReady => "not_ready",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl OnRetry, OnFinish ===

impl<F> Observe for OnRetry<F>
where
    F: Fn(&Retrying<'_>) + Send + Sync,
{
    fn retrying(&self, event: &Retrying<'_>) {
        (self.f)(event);
    }
}

impl<F> Observe for OnFinish<F>
where
    F: Fn(&Finished<'_>) + Send + Sync,
{
    fn finished(&self, event: &Finished<'_>) {
        (self.f)(event);
    }
}

impl<F> fmt::Debug for OnRetry<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnRetry").finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for OnFinish<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnFinish").finish_non_exhaustive()
    }
}

// === pointers ===

macro_rules! forward {
    ($pointer:ty) => {
        impl<O: Observe + ?Sized> Observe for $pointer {
            fn retrying(&self, event: &Retrying<'_>) {
                (**self).retrying(event);
            }

            fn finished(&self, event: &Finished<'_>) {
                (**self).finished(event);
            }
        }
    };
}

forward!(&O);
forward!(Box<O>);
forward!(Arc<O>);
