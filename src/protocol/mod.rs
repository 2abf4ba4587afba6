//! `Protocol`: what an outcome means, and what a request says about its own retries.

use std::{sync::Arc, time::Duration};

use crate::observe::RetrySummary;

mod attempt;
mod closure;
mod verdict;

pub use self::{
    attempt::Attempt,
    closure::{ClassifyFn, OnError, classify_fn, on_error},
    verdict::{Limits, Verdict},
};

/// The meaning of outcomes, requests and attempts: all that differs from one protocol to another.
///
/// [`StandardPolicy`](crate::StandardPolicy) asks it and does the rest: attempts, backoff, budget,
/// deadline, events. Ready-made: [`on_error`] and [`classify_fn`] for any request that is `Clone`,
/// and `Http` and `Grpc` behind their features.
///
/// It is shared by all sessions and only borrowed, so it holds settings, not state.
///
/// # Examples
///
/// ```
/// use tower_retry_layer::{Attempt, Protocol, StandardPolicy, Verdict};
///
/// /// Requests are file names; an empty answer means that the file is still being written.
/// struct Files;
///
/// impl Protocol<String, Vec<u8>, std::io::Error> for Files {
///     fn classify(&self, attempt: &Attempt<'_, String, Vec<u8>, std::io::Error>) -> Verdict {
///         match attempt.outcome() {
///             Ok(bytes) if bytes.is_empty() => Verdict::Retry,
///             Ok(_) => Verdict::Success,
///             Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Verdict::Retry,
///             Err(_) => Verdict::Stop,
///         }
///     }
///
///     fn clone_request(&self, request: &String) -> Option<String> {
///         Some(request.clone())
///     }
/// }
///
/// let outcome = Ok(Vec::new());
/// let attempt = Attempt::new(None, &outcome, 1);
/// assert_eq!(Files.classify(&attempt), Verdict::Retry);
/// let _policy = StandardPolicy::new(Files).max_attempts(5);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not know the outcomes of a `{Req}`",
    label = "cannot classify `Result<{Res}, {E}>`",
    note = "`on_error()` and `classify_fn(..)` ask for a request that is `Clone`",
    note = "below a tower `Timeout` or `Buffer` the error type is `Box<dyn Error + Send + Sync>`"
)]
pub trait Protocol<Req, Res, E> {
    /// Says what an outcome means.
    fn classify(&self, attempt: &Attempt<'_, Req, Res, E>) -> Verdict;

    /// Copies a request for one more attempt. `None`: it cannot be sent twice.
    fn clone_request(&self, request: &Req) -> Option<Req>;

    /// Whether a copy that was kept can still be sent: a recording may have outgrown its limit
    /// since. Asked after a failure that allows a retry; default: `true`.
    fn can_replay(&self, copy: &Req) -> bool {
        let _ = copy;
        true
    }

    /// Gives up the attempts before this copy: a retry with it is decided. Nothing of them may be
    /// read on, although a transport may still hold their bodies. Says whether the copy can be sent.
    ///
    /// Called once per retry, before the wait, after the budget has agreed. After `false` the budget
    /// is given back what it lent, and the failure is the outcome. Default: nothing, and `true`.
    fn take_over(&self, copy: &Req) -> bool {
        let _ = copy;
        true
    }

    /// Reads what this one request asks for itself, before it is first sent. By default nothing.
    fn limits(&self, request: &Req) -> Limits {
        let _ = request;
        Limits::default()
    }

    /// Marks a request at the moment it is sent.
    ///
    /// `attempt` counts from 1; a retry that is not counted (see [`Verdict::Unprocessed`]) keeps
    /// the number of the attempt that it replaces. `remaining` is the time left to the session's
    /// deadline, `None` without one. By default nothing is marked.
    fn prepare(&self, request: &mut Req, attempt: u32, remaining: Option<Duration>) {
        let _ = (request, attempt, remaining);
    }

    /// Whether [`classify`](Self::classify) reads [`Attempt::elapsed`]. Default: `true`.
    ///
    /// With `false` a session without observer and total timeout reads no clock when it begins,
    /// and its `elapsed` is zero.
    fn timed(&self) -> bool {
        true
    }

    /// Names the failure in an outcome, for observers: OpenTelemetry's `error.type`.
    ///
    /// A status code such as `503`, or a kind of error such as `timeout`. It becomes a label of
    /// metrics, so there must be few of them. Not asked where no observer is told. Default:
    /// `_OTHER`, OpenTelemetry's word for a failure without a name.
    fn error_type(&self, outcome: &Result<Res, E>) -> &'static str {
        let _ = outcome;
        "_OTHER"
    }

    /// Puts what the session came to into the response that ends it. By default nothing.
    ///
    /// Called where there is something to tell: see [`RetrySummary`].
    fn summarize(&self, response: &mut Res, summary: &RetrySummary) {
        let _ = (response, summary);
    }
}

// === pointers ===

macro_rules! forward {
    ($pointer:ty) => {
        impl<Req, Res, E, P> Protocol<Req, Res, E> for $pointer
        where
            P: Protocol<Req, Res, E> + ?Sized,
        {
            fn classify(&self, attempt: &Attempt<'_, Req, Res, E>) -> Verdict {
                (**self).classify(attempt)
            }

            fn clone_request(&self, request: &Req) -> Option<Req> {
                (**self).clone_request(request)
            }

            fn can_replay(&self, copy: &Req) -> bool {
                (**self).can_replay(copy)
            }

            fn take_over(&self, copy: &Req) -> bool {
                (**self).take_over(copy)
            }

            fn limits(&self, request: &Req) -> Limits {
                (**self).limits(request)
            }

            fn prepare(&self, request: &mut Req, attempt: u32, remaining: Option<Duration>) {
                (**self).prepare(request, attempt, remaining);
            }

            fn timed(&self) -> bool {
                (**self).timed()
            }

            fn error_type(&self, outcome: &Result<Res, E>) -> &'static str {
                (**self).error_type(outcome)
            }

            fn summarize(&self, response: &mut Res, summary: &RetrySummary) {
                (**self).summarize(response, summary);
            }
        }
    };
}

forward!(&P);
forward!(Box<P>);
forward!(Arc<P>);
