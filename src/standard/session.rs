//! `Session`: the decisions of one request.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use tokio::time::Instant;

use super::{Settings, StandardPolicy, Wait};
use crate::{
    backoff::{Backoff, MakeBackoff},
    observe::{DelaySource, Finished, Observe, Retrying, StopReason},
    policy::{End, Policy},
    protocol::{Attempt, Limits, Protocol, Verdict},
};

/// What one request's session remembers. Nothing of it is touched before the request is sent.
pub(super) struct Session<B> {
    // Attempts sent and counted; 0 before the session begins.
    attempt: u32,
    // Retries that were sent without being counted.
    transparent: u32,
    // The request's own limits over the policy's settings.
    max_attempts: u32,
    no_retry: bool,
    nested: bool,
    // The next send is not counted.
    uncounted: bool,
    // The budget lent a retry that is not sent yet (invariant 6).
    borrowed: bool,
    // The end of the session is still to be told.
    open: bool,
    // `Some` where somebody asks for the time: see `Protocol::timed`.
    started: Option<Instant>,
    deadline: Option<Instant>,
    total_delay: Duration,
    // `Some` from the first delay on, unless the server made it start over.
    backoff: Option<B>,
}

impl<B> Session<B> {
    pub(super) fn new() -> Self {
        Self {
            attempt: 0,
            transparent: 0,
            max_attempts: 0,
            no_retry: false,
            nested: false,
            uncounted: false,
            borrowed: false,
            open: false,
            started: None,
            deadline: None,
            total_delay: Duration::ZERO,
            backoff: None,
        }
    }

    fn begin(&mut self, limits: Limits, settings: &Settings, timed: bool) {
        self.open = true;
        self.max_attempts = limits.max_attempts.unwrap_or(settings.max_attempts);
        self.no_retry = limits.no_retry;
        self.nested = limits.nested;
        if self.started.is_none()
            && (timed || settings.total_timeout.is_some() || !settings.observers.is_empty())
        {
            self.started = Some(Instant::now());
        }
        // A timeout beyond the range of the clock is none.
        let own = settings
            .total_timeout
            .and_then(|timeout| self.started?.checked_add(timeout));
        self.deadline = match (own, limits.deadline) {
            (Some(own), Some(asked)) => Some(own.min(asked)),
            (own, asked) => own.or(asked),
        };
    }

    /// Whether a retry could follow the attempt that is about to be sent.
    fn may_follow(&self) -> bool {
        !self.nested && !self.no_retry && self.attempt < self.max_attempts
    }

    fn elapsed(&self) -> Duration {
        self.started
            .map_or(Duration::ZERO, |started| started.elapsed())
    }

    /// Counts an attempt that is about to be sent, and keeps what the budget lent for it.
    fn sent(&mut self) {
        if self.uncounted {
            self.uncounted = false;
        } else {
            self.attempt = self.attempt.saturating_add(1);
        }
        self.borrowed = false;
    }

    /// Why no retry may follow, whatever the delay, budget and deadline say.
    fn limit(&self, copy: bool) -> Option<StopReason> {
        if self.nested {
            Some(StopReason::Nested)
        } else if self.no_retry {
            Some(StopReason::NotRetryable)
        } else if self.attempt >= self.max_attempts {
            Some(StopReason::AttemptsExhausted)
        } else if !copy {
            Some(StopReason::NotReplayable)
        } else {
            None
        }
    }

    /// The retry at once of a request that was certainly not acted on: see `Verdict::Unprocessed`.
    fn is_transparent(&self, verdict: Verdict) -> bool {
        verdict == Verdict::Unprocessed
            && self.attempt == 1
            && self.transparent == 0
            && self.max_attempts > 1
    }

    fn fits(&self, delay: Duration, settings: &Settings) -> bool {
        self.deadline.is_none_or(|deadline| {
            delay
                .checked_add(settings.min_attempt_time)
                .is_some_and(|needed| needed < deadline.saturating_duration_since(Instant::now()))
        })
    }
}

impl<P, M: MakeBackoff> StandardPolicy<P, M> {
    fn begin<Req, Res, E>(&mut self, request: &Req)
    where
        P: Protocol<Req, Res, E>,
    {
        let protocol = &*self.config.protocol;
        let limits = protocol.limits(request);
        self.session
            .begin(limits, &self.config.settings, protocol.timed());
    }

    /// Decides about an outcome: `Some` wait, or `None` and the session is finished.
    fn decide<Req, Res, E>(
        &mut self,
        request: Option<&Req>,
        outcome: &Result<Res, E>,
    ) -> Option<Duration>
    where
        P: Protocol<Req, Res, E>,
    {
        let attempt = Attempt::new(request, outcome, self.session.attempt);
        let verdict = if self.config.protocol.timed() {
            let attempt = attempt.with_elapsed(self.session.elapsed());
            self.config.protocol.classify(&attempt)
        } else {
            self.config.protocol.classify(&attempt)
        };
        let decision = match verdict {
            Verdict::Success => {
                // A request of a layer above is that layer's to account for.
                if !self.session.nested {
                    self.config.settings.budget.deposit();
                }
                Err(StopReason::Success)
            }
            Verdict::Stop => Err(StopReason::NotRetryable),
            _ => {
                let protocol = &self.config.protocol;
                let copy = request.is_some_and(|request| protocol.can_replay(request));
                self.schedule(verdict, copy)
            }
        };
        match decision {
            Ok((delay, source)) => {
                self.session.total_delay = self.session.total_delay.saturating_add(delay);
                self.tell_retrying(delay, source);
                Some(delay)
            }
            Err(reason) => {
                self.finish(reason);
                None
            }
        }
    }

    /// The delay before a retry of a failure that allows one.
    fn schedule(
        &mut self,
        verdict: Verdict,
        copy: bool,
    ) -> Result<(Duration, DelaySource), StopReason> {
        let transparent = self.session.is_transparent(verdict);
        if !transparent && !self.session.nested {
            self.config.settings.budget.failure();
        }
        if let Some(reason) = self.session.limit(copy) {
            return Err(reason);
        }
        if verdict == Verdict::ServerRefused {
            return Err(StopReason::ServerRefused);
        }
        let (delay, source) = if transparent {
            (Duration::ZERO, DelaySource::Transparent)
        } else {
            self.delay(verdict)
        };
        if !self.session.fits(delay, &self.config.settings) {
            return Err(StopReason::DeadlineExceeded);
        }
        if transparent {
            self.session.transparent += 1;
            self.session.uncounted = true;
        } else if self.config.settings.budget.withdraw() {
            self.session.borrowed = true;
        } else {
            return Err(StopReason::BudgetExhausted);
        }
        Ok((delay, source))
    }

    fn delay(&mut self, verdict: Verdict) -> (Duration, DelaySource) {
        let session = &mut self.session;
        let max = self.config.settings.max_server_delay;
        if let Verdict::Pushback(hint) = verdict {
            session.backoff = None;
            return (
                hint.min(max),
                DelaySource::Server {
                    clamped: hint > max,
                },
            );
        }
        let backoff = session
            .backoff
            .get_or_insert_with(|| self.config.maker.make_backoff());
        match verdict {
            Verdict::RetryAfter(hint) if !hint.is_zero() && !max.is_zero() => {
                let delay = hint.min(max);
                let delay = delay.saturating_add(backoff.spread(delay));
                (
                    delay,
                    DelaySource::Server {
                        clamped: hint > max,
                    },
                )
            }
            _ => (backoff.next_delay(), DelaySource::Backoff),
        }
    }

    /// Ends the session once, whatever the way out.
    fn finish(&mut self, reason: StopReason) {
        if !std::mem::take(&mut self.session.open) {
            return;
        }
        // Invariant 6.
        if std::mem::take(&mut self.session.borrowed) {
            self.config.settings.budget.refund();
        }
        self.tell_finished(reason);
    }

    fn tell_retrying(&self, delay: Duration, source: DelaySource) {
        self.tell(|observer, name| {
            let event = Retrying::new(name, self.session.attempt);
            let elapsed = self.session.elapsed();
            observer.retrying(&Retrying {
                delay,
                source,
                elapsed,
                ..event
            });
        });
    }

    fn tell_finished(&self, reason: StopReason) {
        self.tell(|observer, name| {
            let event = Finished::new(name, self.session.attempt, reason);
            observer.finished(&Finished {
                transparent: self.session.transparent,
                total_delay: self.session.total_delay,
                elapsed: self.session.elapsed(),
                ..event
            });
        });
    }

    fn tell(&self, event: impl Fn(&dyn Observe, &str)) {
        let Settings {
            observers, name, ..
        } = &self.config.settings;
        for observer in observers {
            // An observer's panic is its own: the hook has reported it, and unwinding from here
            // would cost the caller the outcome, or abort where a session is dropped.
            let _ = catch_unwind(AssertUnwindSafe(|| event(&**observer, name)));
        }
    }
}

impl<P, M, Req, Res, E> Policy<Req, Res, E> for StandardPolicy<P, M>
where
    P: Protocol<Req, Res, E>,
    M: MakeBackoff,
{
    type Future = Wait;

    fn retry(&mut self, request: &mut Req, result: &mut Result<Res, E>) -> Option<Wait> {
        self.decide(Some(&*request), result).map(Wait::new)
    }

    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        if !self.session.may_follow() {
            return None;
        }
        self.config.protocol.clone_request(request)
    }

    fn prepare(&mut self, request: &mut Req) {
        if self.session.attempt == 0 {
            self.begin(&*request);
        }
        self.session.sent();
        // The marks of a nested request are the outer layer's.
        if !self.session.nested {
            let remaining = self
                .session
                .deadline
                .map(|deadline| deadline.saturating_duration_since(Instant::now()));
            self.config
                .protocol
                .prepare(request, self.session.attempt, remaining);
        }
    }

    fn end(&mut self, result: &mut Result<Res, E>, why: End) {
        match why {
            End::NoCopy => {
                self.decide(None, result);
            }
            End::NotReady => self.finish(StopReason::NotReady),
        }
    }
}

/// A session that is dropped before its end was cancelled (invariants 6 and 7).
impl<P, M: MakeBackoff> Drop for StandardPolicy<P, M> {
    fn drop(&mut self) {
        self.finish(StopReason::Cancelled);
    }
}
