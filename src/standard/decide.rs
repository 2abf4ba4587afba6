//! The decisions of one request, one after another.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use tokio::time::Instant;

use super::{Settings, StandardPolicy};
use crate::{
    backoff::{Backoff, MakeBackoff},
    observe::{DelaySource, Finished, Level, Observe, RetrySummary, Retrying, StopReason},
    protocol::{Attempt, Limits, Protocol, Verdict},
};

impl<P, M: MakeBackoff> StandardPolicy<P, M> {
    /// Begins a session now, with what its request asks for itself.
    #[inline]
    pub(super) fn begin<Req, Res, E>(&mut self, request: &Req)
    where
        P: Protocol<Req, Res, E>,
    {
        self.begin_at(self.start(), self.config.protocol.limits(request));
    }

    #[inline]
    pub(super) fn begin_at(&mut self, started: Option<Instant>, limits: Limits) {
        self.session.started = started;
        self.session.begin(limits);
        self.session.open = !self.config.settings.observers.is_empty();
    }

    /// The present moment, where somebody asks for the time.
    #[inline]
    pub(super) fn start<Req, Res, E>(&self) -> Option<Instant>
    where
        P: Protocol<Req, Res, E>,
    {
        (self.is_watched() || self.config.protocol.timed()).then(Instant::now)
    }

    fn is_watched(&self) -> bool {
        let Settings {
            total_timeout,
            observers,
            ..
        } = &self.config.settings;
        total_timeout.is_some() || !observers.is_empty()
    }

    /// Marks a request that is sent as this attempt after `wait`. The marks of a nested request are
    /// the outer layer's.
    #[inline]
    pub(super) fn mark<Req, Res, E>(&self, request: &mut Req, attempt: u32, wait: Duration)
    where
        P: Protocol<Req, Res, E>,
    {
        if !self.session.nested() {
            let deadline = self.session.deadline(&self.config.settings);
            let remaining = deadline.map(|deadline| {
                deadline
                    .saturating_duration_since(Instant::now())
                    .saturating_sub(wait)
            });
            self.config.protocol.prepare(request, attempt, remaining);
        }
    }

    /// Decides about an outcome: `Some` wait, or `None` and the session is finished.
    #[inline]
    pub(super) fn decide<Req, Res, E>(
        &mut self,
        request: Option<&Req>,
        outcome: &mut Result<Res, E>,
    ) -> Option<Duration>
    where
        P: Protocol<Req, Res, E>,
    {
        // A wrapper that does not forward `prepare` has sent what was decided on all the same.
        self.session.sent();
        let attempt = Attempt::new(request, &*outcome, self.session.attempt());
        let verdict = if self.config.protocol.timed() {
            let attempt = attempt.with_elapsed(self.session.elapsed());
            self.config.protocol.classify(&attempt)
        } else {
            self.config.protocol.classify(&attempt)
        };
        if verdict == Verdict::Success {
            // A request of a layer above is that layer's to account for.
            if !self.session.nested() {
                self.config.settings.budget.deposit();
            }
            // A success at once has nothing to tell.
            if self.session.has_waited() {
                self.summarize(StopReason::Success, outcome);
            }
            self.finish(StopReason::Success, None);
            return None;
        }
        let copy = request.is_some_and(|request| self.config.protocol.can_replay(request));
        if let (None, Some(request), true) = (self.session.started, request, self.is_watched()) {
            self.begin(request); // as above
        }
        self.decide_failure(verdict, request.filter(|_| copy), outcome)
    }

    // Apart from the success, which is to stay small enough to be inlined.
    #[cold]
    fn decide_failure<Req, Res, E>(
        &mut self,
        verdict: Verdict,
        copy: Option<&Req>,
        outcome: &mut Result<Res, E>,
    ) -> Option<Duration>
    where
        P: Protocol<Req, Res, E>,
    {
        let decision = match verdict {
            Verdict::Stop => Err(StopReason::NotRetryable),
            _ => self.schedule(verdict, copy.is_some()),
        };
        // Last, for it ends the attempt: one that is not followed by another may be read on. It may
        // have outgrown its limit on another thread a moment ago, and then its outcome stands.
        let decision = decision.and_then(|wait| match copy {
            Some(copy) if !self.config.protocol.take_over(copy) => Err(StopReason::NotReplayable),
            _ => Ok(wait),
        });
        match decision {
            Ok((delay, source)) => {
                let waits = self.session.waits();
                waits.total = waits.total.saturating_add(delay);
                waits.decided = true;
                if self.session.open {
                    self.tell_retrying(delay, source, self.config.protocol.error_type(outcome));
                }
                Some(delay)
            }
            Err(reason) => {
                self.fail(reason, outcome);
                None
            }
        }
    }

    /// Ends the session with this failure.
    pub(super) fn fail<Req, Res, E>(&mut self, reason: StopReason, outcome: &mut Result<Res, E>)
    where
        P: Protocol<Req, Res, E>,
    {
        self.summarize(reason, outcome);
        let protocol = &self.config.protocol;
        let error_type = self.session.open.then(|| protocol.error_type(outcome));
        self.finish(reason, error_type);
    }

    #[cold]
    fn summarize<Req, Res, E>(&self, reason: StopReason, outcome: &mut Result<Res, E>)
    where
        P: Protocol<Req, Res, E>,
    {
        match outcome {
            // A nested request is the outer layer's to sum up.
            Ok(response) if !self.session.nested() => {
                let summary = RetrySummary {
                    transparent: self.session.transparent(),
                    total_delay: self.session.total_delay(),
                    ..RetrySummary::new(self.session.attempt(), reason)
                };
                self.config.protocol.summarize(response, &summary);
            }
            _ => {}
        }
    }

    /// The delay before a retry of a failure that allows one.
    fn schedule(
        &mut self,
        verdict: Verdict,
        copy: bool,
    ) -> Result<(Duration, DelaySource), StopReason> {
        let transparent = self.session.is_transparent(verdict, &self.config.settings);
        if !transparent && !self.session.nested() {
            self.config.settings.budget.failure();
        }
        if let Some(reason) = self.session.limit(copy, &self.config.settings) {
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
            self.session.waits().uncounted = true;
        } else if self.config.settings.budget.withdraw() {
            self.session.waits().borrowed = true;
        } else {
            return Err(StopReason::BudgetExhausted);
        }
        Ok((delay, source))
    }

    fn delay(&mut self, verdict: Verdict) -> (Duration, DelaySource) {
        let waits = self.session.waits();
        let max = self.config.settings.max_server_delay;
        if let Verdict::Pushback(_) = verdict {
            waits.backoff = None;
        }
        let backoff = waits
            .backoff
            .get_or_insert_with(|| self.config.maker.make_backoff());
        match verdict {
            Verdict::Pushback(hint) if !max.is_zero() => (
                hint.min(max),
                DelaySource::Server {
                    clamped: hint > max,
                },
            ),
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

    /// Ends the session: tells it once, and gives back what was lent for a retry that was not sent
    /// (invariant 6).
    #[inline]
    pub(super) fn finish(&mut self, reason: StopReason, error_type: Option<&'static str>) {
        // Nobody asks after a session that nobody observes and that never waited.
        if self.session.open || self.session.has_waited() {
            self.close(reason, error_type);
        }
    }

    #[inline(never)]
    fn close(&mut self, reason: StopReason, error_type: Option<&'static str>) {
        if self.session.take_borrowed() {
            self.config.settings.budget.refund();
        }
        if std::mem::take(&mut self.session.open) {
            self.tell_finished(reason, error_type);
        }
    }

    fn tell_retrying(&self, delay: Duration, source: DelaySource, error_type: &'static str) {
        let Settings { name, budget, .. } = &self.config.settings;
        let attempt = self.session.attempt();
        let level = || budget.level();
        let event = Retrying {
            resend: attempt.saturating_add(self.session.transparent()),
            error_type,
            delay,
            source,
            elapsed: self.session.elapsed(),
            budget: Level::new(&level),
            ..Retrying::new(name, attempt)
        };
        self.tell(|observer| observer.retrying(&event));
    }

    fn tell_finished(&self, reason: StopReason, error_type: Option<&'static str>) {
        let Settings { name, budget, .. } = &self.config.settings;
        let level = || budget.level();
        let event = Finished {
            transparent: self.session.transparent(),
            total_delay: self.session.total_delay(),
            elapsed: self.session.elapsed(),
            error_type,
            nested: self.session.nested(),
            budget: Level::new(&level),
            ..Finished::new(name, self.session.attempt(), reason)
        };
        self.tell(|observer| observer.finished(&event));
    }

    fn tell(&self, event: impl Fn(&dyn Observe)) {
        for observer in &self.config.settings.observers {
            // An observer's panic is its own: the hook has reported it, and unwinding from here
            // would cost the caller the outcome, or abort where a session is dropped.
            let told = catch_unwind(AssertUnwindSafe(|| event(&**observer)));
            if let Err(panic) = told {
                // What was thrown may throw again when it is dropped; that is then let be.
                let dropped = catch_unwind(AssertUnwindSafe(|| drop(panic)));
                std::mem::forget(dropped);
            }
        }
    }
}
