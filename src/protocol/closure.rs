//! Protocols from a closure, and from none.

use std::fmt;

use super::{Attempt, Protocol, Verdict};

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
