//! `Session`: what one request's session remembers.

use std::time::Duration;

use tokio::time::Instant;

use super::Settings;
use crate::{
    observe::StopReason,
    protocol::{Limits, Verdict},
};

/// What one request's session remembers: a few words, and behind a pointer what a failure adds.
pub(super) struct Session<B> {
    // `Some` where somebody asks for the time: see `Protocol::timed`.
    pub(super) started: Option<Instant>,
    // The request's own limits.
    asked: Option<Instant>,
    max_attempts: Option<u32>,
    barred: Option<StopReason>,
    // The end of the session is still to be told to an observer.
    pub(super) open: bool,
    // `Some` from the first delay on. Boxed, so that a request that succeeds at once does not move
    // about what only a failure needs.
    waits: Option<Box<Waits<B>>>,
    // `Some` in a prototype that `tower::retry` has asked for a copy, and in its clones.
    #[cfg(feature = "tower")]
    pub(super) noted: Option<Box<Noted>>,
}

/// What `tower::retry` lets a policy know of a request before it clones it.
#[cfg(feature = "tower")]
#[derive(Clone)]
pub(super) struct Noted {
    pub(super) started: Option<Instant>,
    pub(super) limits: Limits,
}

/// What a session remembers of its waits.
pub(super) struct Waits<B> {
    pub(super) total: Duration,
    // Retries that were sent and counted.
    counted: u32,
    // Retries that were sent without being counted.
    transparent: u32,
    // A retry was decided on and is not sent yet.
    pub(super) decided: bool,
    // The next send is not counted.
    pub(super) uncounted: bool,
    // The budget lent a retry that is not sent yet (invariant 6).
    pub(super) borrowed: bool,
    // `None` before the first delay, and where the server made it start over.
    pub(super) backoff: Option<B>,
}

// === impl Session ===

impl<B> Session<B> {
    /// A session that was not begun.
    #[inline]
    pub(super) fn new() -> Self {
        Self {
            started: None,
            asked: None,
            max_attempts: None,
            barred: None,
            open: false,
            waits: None,
            #[cfg(feature = "tower")]
            noted: None,
        }
    }

    /// The session of a clone.
    #[inline]
    pub(super) fn fresh(&self) -> Self {
        Self {
            #[cfg(feature = "tower")]
            noted: self.noted.clone(),
            ..Self::new()
        }
    }

    /// Notes what the request asks for itself. Most ask for nothing, and then nothing is written:
    /// a session that is written to before it is moved into its future costs a stall.
    #[inline]
    pub(super) fn begin(&mut self, limits: Limits) {
        if limits != Limits::default() {
            self.asked = limits.deadline;
            self.max_attempts = limits.max_attempts;
            self.barred = match limits {
                Limits { nested: true, .. } => Some(StopReason::Nested),
                Limits { no_retry: true, .. } => Some(StopReason::NotRetryable),
                _ => None,
            };
        }
    }

    pub(super) fn nested(&self) -> bool {
        self.barred == Some(StopReason::Nested)
    }

    /// Whether a retry was decided on, so that the next send is one.
    pub(super) fn has_waited(&self) -> bool {
        self.waits.is_some()
    }

    /// The number of the attempt that was sent last.
    pub(super) fn attempt(&self) -> u32 {
        self.waits
            .as_ref()
            .map_or(1, |waits| waits.counted.saturating_add(1))
    }

    /// The number of the attempt that would be sent now.
    pub(super) fn next_attempt(&self) -> u32 {
        match &self.waits {
            Some(waits) if waits.decided && !waits.uncounted => self.attempt().saturating_add(1),
            _ => self.attempt(),
        }
    }

    /// Counts the retry that was decided on as sent, and keeps what the budget lent for it.
    pub(super) fn sent(&mut self) {
        if let Some(waits) = self.waits.as_mut().filter(|waits| waits.decided) {
            let uncounted = u32::from(waits.uncounted);
            waits.counted = waits.counted.saturating_add(1 - uncounted);
            waits.transparent = waits.transparent.saturating_add(uncounted);
            waits.decided = false;
            waits.uncounted = false;
            waits.borrowed = false;
        }
    }

    pub(super) fn max_attempts(&self, settings: &Settings) -> u32 {
        self.max_attempts.unwrap_or(settings.max_attempts)
    }

    /// Why no retry may follow, whatever the delay, budget and deadline say.
    pub(super) fn limit(&self, copy: bool, settings: &Settings) -> Option<StopReason> {
        if self.barred.is_some() {
            self.barred
        } else if self.attempt() >= self.max_attempts(settings) {
            Some(StopReason::AttemptsExhausted)
        } else if !copy {
            Some(StopReason::NotReplayable)
        } else {
            None
        }
    }

    /// The retry at once of a request that was certainly not acted on: see `Verdict::Unprocessed`.
    pub(super) fn is_transparent(&self, verdict: Verdict, settings: &Settings) -> bool {
        verdict == Verdict::Unprocessed
            && self.attempt() == 1
            && self.transparent() == 0
            && self.max_attempts(settings) > 1
    }

    /// The earlier of the policy's deadline and the request's own. A timeout beyond the range of
    /// the clock is none.
    pub(super) fn deadline(&self, settings: &Settings) -> Option<Instant> {
        let own = settings
            .total_timeout
            .and_then(|timeout| self.started?.checked_add(timeout));
        match (own, self.asked) {
            (Some(own), Some(asked)) => Some(own.min(asked)),
            (own, asked) => own.or(asked),
        }
    }

    pub(super) fn fits(&self, delay: Duration, settings: &Settings) -> bool {
        self.deadline(settings).is_none_or(|deadline| {
            delay
                .checked_add(settings.min_attempt_time)
                .is_some_and(|needed| needed < deadline.saturating_duration_since(Instant::now()))
        })
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started
            .map_or(Duration::ZERO, |started| started.elapsed())
    }

    /// The waits, from the first one on.
    pub(super) fn waits(&mut self) -> &mut Waits<B> {
        self.waits.get_or_insert_with(|| {
            Box::new(Waits {
                total: Duration::ZERO,
                counted: 0,
                transparent: 0,
                decided: false,
                uncounted: false,
                borrowed: false,
                backoff: None,
            })
        })
    }

    pub(super) fn total_delay(&self) -> Duration {
        self.waits
            .as_ref()
            .map_or(Duration::ZERO, |waits| waits.total)
    }

    pub(super) fn transparent(&self) -> u32 {
        self.waits.as_ref().map_or(0, |waits| waits.transparent)
    }

    /// Whether the budget is to be given back what it lent; asked once.
    pub(super) fn take_borrowed(&mut self) -> bool {
        self.waits
            .as_mut()
            .is_some_and(|waits| std::mem::take(&mut waits.borrowed))
    }
}
