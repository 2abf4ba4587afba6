//! `Attempt`: one attempt and what it came to.

use std::{fmt, time::Duration};

/// One attempt and what it came to, as [`Protocol::classify`](super::Protocol::classify) sees it.
pub struct Attempt<'a, Req, Res, E> {
    request: Option<&'a Req>,
    outcome: &'a Result<Res, E>,
    number: u32,
    elapsed: Duration,
}

impl<'a, Req, Res, E> Attempt<'a, Req, Res, E> {
    /// An attempt to classify, with `elapsed` zero: what a test of a protocol needs.
    pub fn new(request: Option<&'a Req>, outcome: &'a Result<Res, E>, number: u32) -> Self {
        Self {
            request,
            outcome,
            number,
            elapsed: Duration::ZERO,
        }
    }

    /// The same attempt, `elapsed` after its session began.
    #[must_use]
    pub fn with_elapsed(mut self, elapsed: Duration) -> Self {
        self.elapsed = elapsed;
        self
    }

    /// The copy of the request. `None`: no copy was kept, so nothing can follow this attempt.
    pub fn request(&self) -> Option<&'a Req> {
        self.request
    }

    /// What the attempt came to.
    pub fn outcome(&self) -> &'a Result<Res, E> {
        self.outcome
    }

    /// The attempt's number, from 1.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The time since the session began, waits included. See
    /// [`Protocol::timed`](super::Protocol::timed).
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }
}

impl<Req, Res, E> fmt::Debug for Attempt<'_, Req, Res, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("number", &self.number)
            .field("elapsed", &self.elapsed)
            .field("ok", &self.outcome.is_ok())
            .field("copy", &self.request.is_some())
            .finish()
    }
}
