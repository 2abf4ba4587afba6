//! `ReplayLayer` and `Replay`: wrap the body of every request that passes.

use std::task::{Context, Poll};

use http::{Method, Request, header};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::{body::ReplayBody, limits::Limits};

/// What one request may hold unless told otherwise: the buffer of one call in the C core and Go
/// implementations of gRPC's retries (proposal A6).
const DEFAULT_MAX_BYTES: usize = 256 * 1024;

/// Makes every request's body one that the retry layer below can send again.
///
/// See the [module docs](super) for an example and for the limits.
///
/// Clones share the limit of [`max_total_bytes`](Self::max_total_bytes), as do the services that
/// they make.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is given a service"]
pub struct ReplayLayer {
    limits: Limits,
}

/// The service that [`ReplayLayer`] makes.
///
/// It turns a `Request<B>` into a `Request<ReplayBody<B>>` and leaves the rest to the service
/// below. Three kinds of requests it marks as not replayable, whatever their size:
///
/// - `Expect: 100-continue`: the server decides whether the body is sent at all.
/// - `CONNECT`, and those with an `Upgrade` header: what follows is a conversation, not a body.
#[derive(Clone, Debug)]
pub struct Replay<S> {
    limits: Limits,
    inner: S,
}

// === impl ReplayLayer ===

impl ReplayLayer {
    /// Records at most `max_bytes` of each request.
    ///
    /// Each frame counts as its length and 64 bytes, trailers likewise line by line. A body that
    /// outgrows the limit goes on to the server, but is not sent again. 0 records nothing;
    /// `usize::MAX` has no limit. The [default](Self::default) is 256 KiB.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            limits: Limits::new(max_bytes),
        }
    }

    /// Bounds the bytes that all requests hold together. `usize::MAX` has no limit.
    ///
    /// The request that would go above it gives its recording up and goes on; those that have
    /// theirs keep it. Frames count as their length: one that is a slice of a larger buffer keeps
    /// all of that (see the [module docs](super#limits)). By default 16 MiB, which is what gRPC allows one channel, or as much as one
    /// request may hold if that is more.
    pub fn max_total_bytes(self, max_total_bytes: usize) -> Self {
        Self {
            limits: self.limits.with_max_total_bytes(max_total_bytes),
        }
    }

    /// The bytes that all requests hold now, counted as the limits count them: frames by their
    /// length.
    pub fn held_bytes(&self) -> usize {
        self.limits.held()
    }
}

impl Default for ReplayLayer {
    /// 256 KiB for one request, 16 MiB for all of them.
    fn default() -> Self {
        Self::new(DEFAULT_MAX_BYTES)
    }
}

impl<S> Layer<S> for ReplayLayer {
    type Service = Replay<S>;

    fn layer(&self, inner: S) -> Replay<S> {
        Replay {
            limits: self.limits.clone(),
            inner,
        }
    }
}

// === impl Replay ===

impl<S> Replay<S> {
    /// The same as `ReplayLayer::new(max_bytes).layer(inner)`.
    pub fn new(inner: S, max_bytes: usize) -> Self {
        ReplayLayer::new(max_bytes).layer(inner)
    }

    /// The service below.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service below.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service below, without the layer.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B> Service<Request<B>> for Replay<S>
where
    S: Service<Request<ReplayBody<B>>>,
    B: Body + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        let (head, body) = request.into_parts();
        let body = if sent_once(&head) {
            ReplayBody::live(body)
        } else {
            ReplayBody::recorded(body, &self.limits)
        };
        self.inner.call(Request::from_parts(head, body))
    }
}

/// Whether the request's body is not one that can be sent from its start again.
fn sent_once(head: &http::request::Parts) -> bool {
    head.method == Method::CONNECT
        || head.headers.contains_key(header::UPGRADE)
        || head.headers.get_all(header::EXPECT).iter().any(|value| {
            value
                .as_bytes()
                .split(|byte| *byte == b',')
                .any(|word| word.trim_ascii().eq_ignore_ascii_case(b"100-continue"))
        })
}
