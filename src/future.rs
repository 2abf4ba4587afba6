//! `ResponseFuture`: the one state machine.
//!
//! # Invariants
//!
//! The numbers are those of DESIGN.md, "The state machine".
//!
//! - 1: one attempt is in flight at a time; its future is dropped before the next `call`.
//! - 2: no `call` without `Ready` from `poll_ready` on that same handle.
//! - 3: no copy, no retry; then `Policy::end` sees the outcome.
//! - 4: the caller gets the last attempt's own outcome.
//! - 5: the rejected outcome is dropped before the wait begins.
//! - 7: dropping the future cancels everything: all that a session owns is in here.
//! - 8: one poll never runs without bound.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::task::coop;
use tower_service::Service;

use crate::policy::{End, Policy};

/// Retries that one poll may send before it yields, where tokio's cooperative budget does not say
/// so earlier: outside a tokio task there is none. 128 is that budget's own size.
const RETRIES_PER_POLL: u32 = 128;

pin_project! {
    /// The response of a [`Retry`](crate::Retry) service: the last attempt's own outcome.
    ///
    /// # Panics
    ///
    /// When it is polled again after it was ready.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<P, S, Req>
    where
        P: Policy<Req, S::Response, S::Error>,
        S: Service<Req>,
    {
        policy: P,
        // `Some` while a retry is possible: the copy to send, and the handle to send it with.
        next: Option<(Req, S)>,
        #[pin]
        state: State<S::Future, P::Future>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, D> {
        // An attempt is in flight.
        Calling { #[pin] response: F },
        // The retry is decided on and its delay runs. Boxed: every request in flight would carry
        // the room for a timer that few of them need.
        Waiting { delay: Pin<Box<D>> },
        // The delay is over and the handle is not ready yet.
        Readying,
        // The outcome was given away.
        Done,
    }
}

impl<P, S, Req> ResponseFuture<P, S, Req>
where
    P: Policy<Req, S::Response, S::Error>,
    S: Service<Req> + Clone,
{
    /// Sends the first attempt with `service`, which is ready.
    #[inline]
    pub(crate) fn send(mut policy: P, service: &mut S, mut request: Req) -> Self {
        policy.prepare(&mut request);
        let copy = policy.clone_request(&request);
        // Invariant 2: the handle that was readied is the one that is called.
        let response = service.call(request);
        // Invariant 10: without a copy there is no retry, and nothing to clone the service for.
        let next = copy.map(|copy| (copy, service.clone()));
        Self {
            policy,
            next,
            state: State::Calling { response },
        }
    }
}

impl<P, S, Req> Future for ResponseFuture<P, S, Req>
where
    P: Policy<Req, S::Response, S::Error>,
    S: Service<Req> + Clone,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let mut sent = 0;
        loop {
            match this.state.as_mut().project() {
                StateProj::Calling { response } => {
                    let mut outcome = ready!(response.poll(cx));
                    // Checking. Invariant 1: this drops the attempt's future.
                    this.state.set(State::Done);
                    let delay = match this.next.as_mut() {
                        Some((copy, _)) => this.policy.retry(copy, &mut outcome),
                        None => {
                            this.policy.end(&mut outcome, End::NoCopy);
                            None
                        }
                    };
                    match delay {
                        Some(delay) => {
                            drop(outcome); // Invariant 5.
                            this.state.set(State::Waiting {
                                delay: Box::pin(delay),
                            });
                        }
                        None => {
                            // A replayed body records for as long as its copy lives.
                            *this.next = None;
                            return Poll::Ready(outcome);
                        }
                    }
                }
                StateProj::Waiting { delay } => {
                    // Invariant 8.
                    if sent == RETRIES_PER_POLL {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    ready!(coop::poll_proceed(cx)).made_progress();
                    ready!(delay.as_mut().poll(cx));
                    this.state.set(State::Readying);
                }
                StateProj::Readying => {
                    let (_, service) = this.next.as_mut().expect("a retry has its copy");
                    if let Err(error) = ready!(service.poll_ready(cx)) {
                        *this.next = None;
                        this.state.set(State::Done);
                        let mut outcome = Err(error);
                        this.policy.end(&mut outcome, End::NotReady);
                        return Poll::Ready(outcome);
                    }
                    let (mut request, mut service) = this.next.take().expect("as above");
                    this.policy.prepare(&mut request);
                    let copy = this.policy.clone_request(&request);
                    // Invariant 2: `service` was readied above and is not cloned before the call.
                    let response = service.call(request);
                    *this.next = copy.map(|copy| (copy, service));
                    this.state.set(State::Calling { response });
                    sent += 1;
                }
                StateProj::Done => panic!("`ResponseFuture` polled after completion"),
            }
        }
    }
}

impl<P, S, Req> fmt::Debug for ResponseFuture<P, S, Req>
where
    P: Policy<Req, S::Response, S::Error>,
    S: Service<Req>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Calling { .. } => "Calling",
            State::Waiting { .. } => "Waiting",
            State::Readying => "Readying",
            State::Done => "Done",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .field("copy", &self.next.is_some())
            .finish_non_exhaustive()
    }
}
