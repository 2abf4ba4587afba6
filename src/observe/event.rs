//! What observers are told, and what a response says about its session.

use std::{fmt, time::Duration};

/// An attempt failed and a retry follows.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Retrying<'a> {
    /// The policy's name, see [`StandardPolicy::name`](crate::StandardPolicy::name).
    pub name: &'a str,
    /// The attempt that failed, from 1.
    pub attempt: u32,
    /// The number of the retry that follows, from 1, those that are not counted included:
    /// OpenTelemetry's `http.request.resend_count`.
    pub resend: u32,
    /// What failed: see [`Protocol::error_type`](crate::Protocol::error_type).
    pub error_type: &'static str,
    /// The wait that begins now.
    pub delay: Duration,
    /// Who chose the delay.
    pub source: DelaySource,
    /// Since the session began.
    pub elapsed: Duration,
    /// The budget, after it lent this retry.
    pub budget: Level<'a>,
}

/// A session ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Finished<'a> {
    /// The policy's name, see [`StandardPolicy::name`](crate::StandardPolicy::name).
    pub name: &'a str,
    /// Attempts sent, the first included. What reached the wire is this plus `transparent`.
    pub attempts: u32,
    /// Retries that were sent without being counted: see
    /// [`Verdict::Unprocessed`](crate::Verdict::Unprocessed).
    pub transparent: u32,
    /// The sum of the waits that the session decided on; one that was cut short counts in full.
    pub total_delay: Duration,
    /// Since the session began.
    pub elapsed: Duration,
    /// Why it ended.
    pub reason: StopReason,
    /// What failed last: see [`Protocol::error_type`](crate::Protocol::error_type). `None` after a
    /// success, and where the session ended without an outcome.
    pub error_type: Option<&'static str>,
    /// A retry layer above retries this request, so this one let it pass: what its end says is
    /// said again by that layer.
    pub nested: bool,
    /// The budget, after the session's last use of it.
    pub budget: Level<'a>,
}

/// What a session came to, for the caller who holds the response.
///
/// A response with room for it carries one: an `http::Response` in its extensions. It is given
/// where there is something to tell, a retry or a failure; a response without one was a success at
/// the first attempt. A request that a retry layer above retries is given that layer's. An error
/// is never touched.
///
/// Where a layer below retries on its own, as with `Http::nested(true)`, it leaves its summary in the
/// response. The layer above replaces it where it has something to tell itself; after a success at
/// its first attempt the caller finds the one from below.
///
/// A protocol of your own hands it over in [`Protocol::summarize`](crate::Protocol::summarize).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct RetrySummary {
    /// As in [`Finished::attempts`].
    pub attempts: u32,
    /// As in [`Finished::transparent`].
    pub transparent: u32,
    /// As in [`Finished::total_delay`].
    pub total_delay: Duration,
    /// Why the session ended: why there was no further retry.
    pub reason: StopReason,
}

/// How full the budget is, for an observer that asks.
///
/// To ask costs what [`Budget::level`](crate::budget::Budget::level) costs; to be told does not.
#[derive(Clone, Copy, Default)]
pub struct Level<'a> {
    ask: Option<&'a dyn Fn() -> Option<f64>>,
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

// === impl Retrying, Finished ===

impl<'a> Retrying<'a> {
    /// An event with a delay of zero from the backoff: the rest is set field by field. What a test
    /// of an observer needs.
    pub fn new(name: &'a str, attempt: u32) -> Self {
        Self {
            name,
            attempt,
            resend: attempt,
            error_type: "_OTHER",
            delay: Duration::ZERO,
            source: DelaySource::Backoff,
            elapsed: Duration::ZERO,
            budget: Level::default(),
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
            error_type: None,
            nested: reason == StopReason::Nested,
            budget: Level::default(),
        }
    }

    /// The retries that were sent, those that were not counted included: OpenTelemetry's
    /// `http.request.resend_count` of the last send.
    pub fn resends(&self) -> u32 {
        self.attempts
            .saturating_sub(1)
            .saturating_add(self.transparent)
    }
}

// === impl RetrySummary ===

impl RetrySummary {
    /// The summary of a session without a wait: the rest is set field by field. What a test of a
    /// protocol needs.
    pub fn new(attempts: u32, reason: StopReason) -> Self {
        Self {
            attempts,
            transparent: 0,
            total_delay: Duration::ZERO,
            reason,
        }
    }
}

// === impl Level ===

impl<'a> Level<'a> {
    /// A level that `ask` tells.
    pub fn new(ask: &'a dyn Fn() -> Option<f64>) -> Self {
        Self { ask: Some(ask) }
    }

    /// The budget's level at this moment, in the budget's own unit. `None`: it has none.
    pub fn get(&self) -> Option<f64> {
        self.ask?()
    }
}

impl fmt::Debug for Level<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Level").field(&self.get()).finish()
    }
}

// === impl DelaySource ===

impl DelaySource {
    /// The source as a word for logs and labels: `backoff`, `server`, `server_clamped`,
    /// `transparent`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Backoff => "backoff",
            Self::Server { clamped: false } => "server",
            Self::Server { clamped: true } => "server_clamped",
            Self::Transparent => "transparent",
        }
    }
}

impl fmt::Display for DelaySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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
