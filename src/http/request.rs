//! What one request says about its own retries, as extensions.

use tokio::time::Instant;

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
