//! `Verdict` and `Limits`: what a protocol says of an outcome, and of a request.

use std::time::Duration;

use tokio::time::Instant;

/// What an outcome means for the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The request did what it was for. The budget gets its deposit.
    Success,
    /// It failed and may be sent again after the backoff's delay.
    Retry,
    /// It failed, may be sent again, and the server named the delay. Zero counts as no hint.
    RetryAfter(Duration),
    /// It failed, may be sent again after exactly this delay (zero included), and the backoff
    /// starts over: gRPC's pushback (proposal A6).
    Pushback(Duration),
    /// The server certainly did not act on it: never sent, refused stream, GOAWAY above the last
    /// stream. Once in a session, and only in place of the first attempt, it is sent again at once
    /// without being counted as an attempt or drawn from the budget; after that it is a `Retry`.
    Unprocessed,
    /// It failed and could be sent again, but the server said not to.
    ServerRefused,
    /// It failed in a way that sending it again does not mend.
    Stop,
}

/// What one request asks for itself. Each field, where set, stands in for the policy's setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Attempts in all, the first included; 0 and 1 mean no retries.
    pub max_attempts: Option<u32>,
    /// The moment by which every wait must be over: see
    /// [`StandardPolicy::total_timeout`](crate::StandardPolicy::total_timeout). The earlier of this
    /// and the policy's own counts. The first attempt is sent in any case.
    pub deadline: Option<Instant>,
    /// The request must not be retried: a retryable outcome ends it as `NotRetryable`.
    pub no_retry: bool,
    /// A retry layer above already retries this request: this one lets it pass, and touches
    /// neither its marks nor the budget.
    pub nested: bool,
}

// === impl Verdict ===

impl Verdict {
    /// Whether the outcome could be followed by a retry; [`ServerRefused`](Self::ServerRefused)
    /// could, had the server not said otherwise.
    pub fn is_retryable(self) -> bool {
        !matches!(self, Self::Success | Self::Stop)
    }
}
