//! `IdempotencyKeyLayer`: one key for each request, the same on all its attempts.

use std::{
    collections::hash_map::RandomState,
    fmt,
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use tower_layer::Layer;
use tower_service::Service;

/// draft-ietf-httpapi-idempotency-key-header-07.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

type MakeKey = Arc<dyn Fn() -> HeaderValue + Send + Sync>;

/// Gives every POST and PATCH that has none an `Idempotency-Key`, which makes it one that
/// [`Http`](super::Http) sends again.
///
/// An empty or blank key, in quotes or not, is none: it is replaced.
///
/// Its place is above the retry layer, so that all attempts of a request carry one key. Below it
/// each attempt would get its own, and the retry layer would see none.
///
/// Only use it for servers that honour the header. A client cannot find out: to one that ignores
/// the key, a retry is a second request.
///
/// # Examples
///
/// ```
/// use tower::ServiceBuilder;
/// use tower_retry_layer::{RetryLayer, StandardPolicy, http::IdempotencyKeyLayer};
///
/// let client = tower::service_fn(async |request: http::Request<String>| {
///     assert!(request.headers().contains_key("idempotency-key"));
///     Ok::<_, std::convert::Infallible>(http::Response::new(()))
/// });
/// let mut client = ServiceBuilder::new()
///     .layer(IdempotencyKeyLayer::new())
///     .layer(RetryLayer::new(StandardPolicy::http()))
///     .service(client);
/// # use tower::Service;
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let payment = http::Request::post("/payments").body(String::from("{}")).unwrap();
/// # futures_util::future::poll_fn(|cx| client.poll_ready(cx)).await.unwrap();
/// client.call(payment).await.unwrap();
/// # });
/// ```
#[derive(Clone)]
#[must_use = "a layer does nothing until it is given a service"]
pub struct IdempotencyKeyLayer {
    make_key: MakeKey,
}

/// See [`IdempotencyKeyLayer`].
#[derive(Clone)]
pub struct IdempotencyKey<S> {
    inner: S,
    make_key: MakeKey,
}

/// Draws version 4 UUIDs.
///
/// A key that two requests share makes the server drop one of them, so what draws them is the
/// standard library's keyed hash, whose keys the system drew at random: 122 bits, of which a small
/// generator's 64-bit state could give no more than its own number of different ones.
struct Uuids {
    high: RandomState,
    low: RandomState,
    drawn: AtomicU64,
}

/// Whether a server can tell the request by its key: nothing but blanks and quotes is none.
pub(super) fn has_key(headers: &HeaderMap) -> bool {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'"');
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    keys.any(|key| !key.as_bytes().iter().all(blank))
}

// === impl IdempotencyKeyLayer ===

impl IdempotencyKeyLayer {
    /// Random UUIDs (version 4) as keys, in the quotes that the draft asks for.
    pub fn new() -> Self {
        let uuids = Uuids {
            high: RandomState::new(),
            low: RandomState::new(),
            drawn: AtomicU64::new(0),
        };
        Self::with(move || uuids.next_key())
    }

    /// Keys of your own: a new one for each call.
    pub fn with<F>(make_key: F) -> Self
    where
        F: Fn() -> HeaderValue + Send + Sync + 'static,
    {
        Self {
            make_key: Arc::new(make_key),
        }
    }
}

impl Default for IdempotencyKeyLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for IdempotencyKeyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyKeyLayer")
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for IdempotencyKeyLayer {
    type Service = IdempotencyKey<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyKey {
            inner,
            make_key: self.make_key.clone(),
        }
    }
}

// === impl IdempotencyKey ===

impl<S> IdempotencyKey<S> {
    /// The service below.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service below.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service below.
    pub fn into_inner(self) -> S {
        self.inner
    }

    fn mark(&self, method: &Method, headers: &mut HeaderMap) {
        if matches!(*method, Method::POST | Method::PATCH) && !has_key(headers) {
            headers.insert(IDEMPOTENCY_KEY, (self.make_key)());
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for IdempotencyKey<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyKey")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<B, S> Service<Request<B>> for IdempotencyKey<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        let method = request.method().clone();
        self.mark(&method, request.headers_mut());
        self.inner.call(request)
    }
}

#[cfg(feature = "reqwest")]
#[cfg_attr(docsrs, doc(cfg(feature = "reqwest")))]
impl<S> Service<reqwest::Request> for IdempotencyKey<S>
where
    S: Service<reqwest::Request>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: reqwest::Request) -> S::Future {
        let method = request.method().clone();
        self.mark(&method, request.headers_mut());
        self.inner.call(request)
    }
}

// === impl Uuids ===

impl Uuids {
    fn next_key(&self) -> HeaderValue {
        let number = self.drawn.fetch_add(1, Ordering::Relaxed);
        let bits =
            u128::from(self.high.hash_one(number)) << 64 | u128::from(self.low.hash_one(number));
        // RFC 9562, section 5.4: version 4 and the variant in their places.
        let bits = bits & !(0xf << 76) | 0x4 << 76;
        let bits = bits & !(0x3 << 62) | 0x2 << 62;
        let key = format!(
            "\"{:08x}-{:04x}-{:04x}-{:04x}-{:012x}\"",
            bits >> 96,
            bits >> 80 & 0xffff,
            bits >> 64 & 0xffff,
            bits >> 48 & 0xffff,
            bits & 0xffff_ffff_ffff,
        );
        HeaderValue::try_from(key).expect("hexadecimal digits, dashes and quotes are visible ASCII")
    }
}
