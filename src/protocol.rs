//! `Protocol`: what an outcome means, and what a request says about its own retries.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::observe::RetrySummary;

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

/// One attempt and what it came to, as [`Protocol::classify`] sees it.
pub struct Attempt<'a, Req, Res, E> {
    request: Option<&'a Req>,
    outcome: &'a Result<Res, E>,
    number: u32,
    elapsed: Duration,
}

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

/// A protocol for any request that is `Clone`: every `Ok` is a success, every `Err` is retried.
///
/// Fit for requests that may always be sent twice. Where some errors must not be retried, use
/// [`classify_fn`].
///
/// # Examples
///
/// ```
/// use tower_retry_layer::{RetryLayer, StandardPolicy, on_error};
/// let _layer = RetryLayer::new(StandardPolicy::new(on_error()));
/// ```
pub fn on_error() -> OnError {
    OnError { _priv: () }
}

/// A protocol for any request that is `Clone`, from a closure that gives the verdict.
///
/// A closure that looks into a response or an error needs its type in the parameter, as below;
/// what it does not look into may stay `_`. Write a closure without any types in place: bound to a
/// variable first, it is not general enough for the compiler.
///
/// # Examples
///
/// ```
/// use std::io;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_retry_layer::{Attempt, RetryLayer, StandardPolicy, Verdict, classify_fn};
///
/// let policy = StandardPolicy::new(classify_fn(|attempt: &Attempt<_, _, io::Error>| {
///     match attempt.outcome() {
///         Ok(_) => Verdict::Success,
///         Err(error) if error.kind() == io::ErrorKind::TimedOut => Verdict::Retry,
///         Err(_) => Verdict::Stop,
///     }
/// }));
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let service = ServiceBuilder::new()
///     .layer(RetryLayer::new(policy))
///     .service(service_fn(async |n: u32| Ok::<_, io::Error>(n + 1)));
/// assert_eq!(service.oneshot(1).await.unwrap(), 2);
/// # });
/// ```
pub fn classify_fn<F, Req, Res, E>(classify: F) -> ClassifyFn<F>
where
    F: Fn(&Attempt<'_, Req, Res, E>) -> Verdict,
{
    ClassifyFn { classify }
}

/// See [`on_error`].
#[derive(Clone, Copy, Debug)]
pub struct OnError {
    _priv: (),
}

/// See [`classify_fn`].
#[derive(Clone, Copy)]
pub struct ClassifyFn<F> {
    classify: F,
}

// === impl Attempt ===

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

    /// The time since the session began, waits included. See [`Protocol::timed`].
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

// === impl Verdict ===

impl Verdict {
    /// Whether the outcome could be followed by a retry; [`ServerRefused`](Self::ServerRefused)
    /// could, had the server not said otherwise.
    pub fn is_retryable(self) -> bool {
        !matches!(self, Self::Success | Self::Stop)
    }
}

// === impl OnError ===

impl<Req: Clone, Res, E> Protocol<Req, Res, E> for OnError {
    fn classify(&self, attempt: &Attempt<'_, Req, Res, E>) -> Verdict {
        match attempt.outcome() {
            Ok(_) => Verdict::Success,
            Err(_) => Verdict::Retry,
        }
    }

    fn clone_request(&self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }

    fn timed(&self) -> bool {
        false
    }
}

// === impl ClassifyFn ===

impl<F, Req, Res, E> Protocol<Req, Res, E> for ClassifyFn<F>
where
    Req: Clone,
    F: Fn(&Attempt<'_, Req, Res, E>) -> Verdict,
{
    fn classify(&self, attempt: &Attempt<'_, Req, Res, E>) -> Verdict {
        (self.classify)(attempt)
    }

    fn clone_request(&self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }
}

impl<F> fmt::Debug for ClassifyFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClassifyFn").finish_non_exhaustive()
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
