//! `StandardPolicy` as a policy of `tower::retry`.

use ::tower::retry::Policy;

use super::{StandardPolicy, Wait, session::Noted};
use crate::{
    backoff::MakeBackoff,
    observe::StopReason,
    protocol::{Limits, Protocol},
};

/// See [`compat`](crate::compat) for what tower does not tell its policies.
impl<P, M, Req, Res, E> Policy<Req, Res, E> for StandardPolicy<P, M>
where
    P: Protocol<Req, Res, E>,
    M: MakeBackoff,
{
    type Future = Wait;

    fn retry(&mut self, request: &mut Req, result: &mut Result<Res, E>) -> Option<Wait> {
        match self.session.noted.take() {
            Some(noted) => self.begin_at(noted.started, noted.limits),
            None if self.session.has_waited() => {}
            None => self.begin(&*request),
        }
        let delay = self.decide(Some(&*request), result)?;
        self.mark(request, self.session.next_attempt(), delay);
        Some(Wait::new(delay))
    }

    // tower asks the prototype for the copy of the first attempt, right before it clones it, and a
    // session for each later copy, right before it sends. The last attempt is copied too: tower
    // tells a policy nothing about a request without a copy.
    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        if self.session.has_waited() {
            self.session.sent();
        } else {
            let started = self.start::<Req, Res, E>();
            let limits = self.config.protocol.limits(request);
            // Most requests have nothing to note, and a success at once shall allocate nothing here
            // either (invariant 10).
            let nothing = started.is_none() && limits == Limits::default();
            self.session.noted = (!nothing).then(|| Box::new(Noted { started, limits }));
        }
        let copy = self.config.protocol.clone_request(request);
        if copy.is_none() {
            self.finish(StopReason::NotReplayable, None);
        }
        copy
    }
}
