//! `Retry`: a service that sends failed requests again.

use std::task::{Context, Poll};

use tower_service::Service;

use crate::future::ResponseFuture;
use crate::policy::Policy;

/// A service that sends a failed request again, as its policy decides.
///
/// Made by [`RetryLayer`](crate::RetryLayer). The inner service is cloned for the retries of a
/// request, so it must be `Clone`; `BoxCloneSyncService` is a `Clone` box for one whose type is long,
/// and a `Buffer` makes any service `Clone`.
///
/// # Readiness
///
/// [`poll_ready`](Service::poll_ready) readies the inner service for the *first* attempt; a retry
/// readies a clone of its own. Below this service stands what each attempt shall pay for itself. A
/// `ConcurrencyLimit` or a `Buffer` there hands out its place at `poll_ready`: a caller that
/// readies the service early and does not call it holds a place that a retry may be waiting for.
///
/// # When the compiler finds no method `call` or `oneshot`
///
/// Then `Retry` is no `Service` for that request, and the message does not say why. Written as
/// `Service::call(&mut service, request)` it does: most often the request is not `Clone`, the inner
/// service is not, or the error below is a `Box<dyn Error + Send + Sync>` that the policy was not
/// written for.
///
/// # Cancellation safety
///
/// Dropping the response future ends the session at once: no further attempt, no timer, and a
/// budget withdrawal whose retry was not sent is given back.
#[derive(Clone, Copy, Debug)]
pub struct Retry<P, S> {
    policy: P,
    service: S,
}

impl<P, S> Retry<P, S> {
    /// A service whose sessions start from clones of `policy`.
    pub fn new(policy: P, service: S) -> Self {
        Self { policy, service }
    }

    /// The policy that sessions are cloned from.
    pub fn policy(&self) -> &P {
        &self.policy
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.service
    }

    /// The inner service, mutably.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.service
    }

    /// The inner service, without its retries.
    pub fn into_inner(self) -> S {
        self.service
    }
}

impl<P, S, Req> Service<Req> for Retry<P, S>
where
    P: Policy<Req, S::Response, S::Error> + Clone,
    S: Service<Req> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<P, S, Req>;

    // Readies `self.service` for the first attempt; `call` relies on it (invariant 2).
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        // Invariant 9: the prototype is cloned and not asked anything.
        ResponseFuture::send(self.policy.clone(), &mut self.service, request)
    }
}
