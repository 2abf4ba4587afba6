//! What one request says about its own retries, as extensions; and its copy.

use http::{Extensions, Request};
use tokio::time::Instant;

use super::body::ReplayableBody;
use crate::Limits;

/// The request may be sent twice although its method does not say so: it reads only, or the server
/// recognises a repetition.
///
/// # Examples
///
/// ```
/// use tower_retry_layer::http::Idempotent;
///
/// let search = http::Request::post("/search").extension(Idempotent).body("{}")?;
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Idempotent;

/// The request is sent once, whatever comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NoRetry;

/// The attempts of this request in all, the first included, in place of the policy's number.
/// 0 and 1 mean no retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MaxAttempts(pub u32);

/// The moment by which this request's waits must be over; the policy's own deadline counts as well.
///
/// No wait begins that would end after it. The first attempt is sent in any case, an attempt in
/// flight is not cut off (a timeout above the retry layer does that), and a service that is slow to
/// become ready again may make a retry late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(pub Instant);

/// The number of the attempt, from 1, which the retry layer puts on every attempt.
///
/// A retry layer that meets it in a request lets the layer above retry, and passes through: see
/// [`Http::nested`](super::Http::nested).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RetryAttempt(pub u32);

/// A copy of a request, as far as its body has one. It is marked when it is sent; a mark alone is
/// not worth the allocations.
pub(crate) fn copy<B: ReplayableBody>(request: &Request<B>) -> Option<Request<B>> {
    let mut copy = Request::new(request.body().try_replay()?);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    *copy.version_mut() = request.version();
    copy.headers_mut().clone_from(request.headers());
    let extensions = request.extensions();
    if extensions.len() > 1 || extensions.get::<RetryAttempt>().is_none() {
        copy.extensions_mut().clone_from(extensions);
    }
    Some(copy)
}

/// What a request asks for in its extensions.
pub(crate) fn limits(extensions: &Extensions) -> Limits {
    let mut limits = Limits::default();
    if extensions.is_empty() {
        return limits;
    }
    limits.max_attempts = extensions.get().map(|MaxAttempts(attempts)| *attempts);
    limits.deadline = extensions.get().map(|Deadline(deadline)| *deadline);
    limits.no_retry = extensions.get::<NoRetry>().is_some();
    limits.nested = extensions.get::<RetryAttempt>().is_some();
    limits
}
