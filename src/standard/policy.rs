//! `StandardPolicy` as a `Policy`.

use std::time::Duration;

use super::{StandardPolicy, Wait};
use crate::{
    backoff::MakeBackoff,
    observe::StopReason,
    policy::{End, Policy},
    protocol::Protocol,
};

impl<P, M, Req, Res, E> Policy<Req, Res, E> for StandardPolicy<P, M>
where
    P: Protocol<Req, Res, E>,
    M: MakeBackoff,
{
    type Future = Wait;

    #[inline]
    fn retry(&mut self, request: &mut Req, result: &mut Result<Res, E>) -> Option<Wait> {
        self.decide(Some(&*request), result).map(Wait::new)
    }

    #[inline(always)]
    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        // What could not be followed by a retry is not copied.
        match self.session.limit(true, &self.config.settings) {
            Some(_) => None,
            None => self.config.protocol.clone_request(request),
        }
    }

    #[inline(always)]
    fn prepare(&mut self, request: &mut Req) {
        if !self.session.has_waited() {
            self.begin(&*request);
        }
        self.mark(request, self.session.next_attempt(), Duration::ZERO);
        // Last: a protocol that panics has sent nothing, and the token goes back.
        self.session.sent();
    }

    fn end(&mut self, result: &mut Result<Res, E>, why: End) {
        match why {
            End::NoCopy => {
                self.decide(None, result);
            }
            End::NotReady => self.fail(StopReason::NotReady, result),
        }
    }
}

/// A session that is dropped before its end was cancelled (invariants 6 and 7).
impl<P, M: MakeBackoff> Drop for StandardPolicy<P, M> {
    #[inline]
    fn drop(&mut self) {
        self.finish(StopReason::Cancelled, None);
    }
}
