//! `PeekTrailersLayer`: calls that fail without a message, but not in their head.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{HeaderMap, HeaderName, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tower_layer::Layer;
use tower_service::Service;

use super::peek_body::{First, PeekBody};

pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Looks at the first frame of a response, for servers that send the status of a failed call in
/// trailers even where no message comes before them.
///
/// gRPC has two ways to say that a call failed at once: the status in the response's head
/// (Trailers-Only), or a head without it and then trailers. The second looks like a response that
/// has begun, which is never retried. Some servers, among them Akka's and Python's, know no other.
/// Where nobody looks, such a failure is a success to the budget, too, and deposits like one.
///
/// This layer stands *below* the retry layer. It holds a response back until its first frame, for
/// `max_wait` at most, and tells [`Grpc`](super::Grpc) if that was the trailers. Head and body are
/// not changed: every frame that was read is delivered, and a response that is not held back any
/// longer goes on as it came.
///
/// With a `max_wait` of zero nothing waits: the body is polled once, and trailers that are there
/// already are seen. That is free, and enough for many servers, which write both in one go. A
/// longer one delays the head of every streaming response whose first message is late by that much,
/// and a call in both directions may be one where the server waits for the client first.
///
/// The response's body must be `Unpin`, as tonic's and hyper's are.
///
/// # Examples
///
/// ```
/// use std::{convert::Infallible, time::Duration};
/// use http::{HeaderMap, Request, Response};
/// use http_body::Frame;
/// use http_body_util::{BodyExt, StreamBody};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
/// use tower_retry_layer::{RetryLayer, StandardPolicy, grpc::PeekTrailersLayer, observe::RetrySummary};
///
/// // A server that is never there, and says so in trailers.
/// let server = service_fn(async |_: Request<String>| {
///     let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "14".parse().unwrap())]);
///     let frames = [Ok::<_, Infallible>(Frame::<bytes::Bytes>::trailers(trailers))];
///     Ok::<_, Infallible>(Response::new(StreamBody::new(futures_util::stream::iter(frames))))
/// });
/// let mut channel = ServiceBuilder::new()
///     .layer(RetryLayer::new(StandardPolicy::grpc()))
///     .layer(PeekTrailersLayer::new(Duration::ZERO))
///     .service(server);
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// let response = channel.ready().await.unwrap().call(Request::new(String::new())).await.unwrap();
/// assert_eq!(response.extensions().get::<RetrySummary>().unwrap().attempts, 3);
/// let body = response.into_body().collect().await.unwrap();
/// assert_eq!(body.trailers().unwrap()["grpc-status"], "14");
/// # });
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a layer does nothing until it is given a service"]
pub struct PeekTrailersLayer {
    max_wait: Duration,
}

/// See [`PeekTrailersLayer`].
#[derive(Clone, Copy, Debug)]
pub struct PeekTrailers<S> {
    inner: S,
    max_wait: Duration,
}

/// The trailers that came in place of a message, as an extension of the response. Empty where the
/// body ended, or failed, without any.
#[derive(Clone, Debug)]
pub(super) struct PeekedTrailers(pub(super) HeaderMap);

pin_project! {
    /// The response of a [`PeekTrailers`] service.
    ///
    /// # Panics
    ///
    /// When it is polled again after it was ready.
    #[must_use = "futures do nothing unless polled"]
    pub struct PeekFuture<F, C> {
        #[pin]
        state: State<F, C>,
        max_wait: Duration,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, C> {
        // The head has not come.
        Calling { #[pin] response: F },
        // The head is held back for the first frame. `response` is `Some`; `timer` is from the first
        // poll on that finds no frame.
        Peeking { response: Option<Response<C>>, timer: Option<Pin<Box<Sleep>>> },
    }
}

// === impl PeekTrailersLayer ===

impl PeekTrailersLayer {
    /// Holds a response back for `max_wait` at most, from its head on. Zero: not at all.
    pub fn new(max_wait: Duration) -> Self {
        Self { max_wait }
    }
}

impl<S> Layer<S> for PeekTrailersLayer {
    type Service = PeekTrailers<S>;

    fn layer(&self, inner: S) -> PeekTrailers<S> {
        PeekTrailers {
            inner,
            max_wait: self.max_wait,
        }
    }
}

// === impl PeekTrailers ===

impl<S> PeekTrailers<S> {
    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service, mutably.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service, without the layer.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, Req, C> Service<Req> for PeekTrailers<S>
where
    S: Service<Req, Response = Response<C>>,
    C: Body + Unpin,
{
    type Response = Response<PeekBody<C>>;
    type Error = S::Error;
    type Future = PeekFuture<S::Future, C>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        PeekFuture {
            state: State::Calling {
                response: self.inner.call(request),
            },
            max_wait: self.max_wait,
        }
    }
}

// === impl PeekFuture ===

impl<F, C, E> Future for PeekFuture<F, C>
where
    F: Future<Output = Result<Response<C>, E>>,
    C: Body + Unpin,
{
    type Output = Result<Response<PeekBody<C>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProj::Calling { response } => {
                    let response = ready!(response.poll(cx))?;
                    this.state.set(State::Peeking {
                        response: Some(response),
                        timer: None,
                    });
                }
                StateProj::Peeking { response, timer } => {
                    let held = response
                        .as_mut()
                        .expect("`PeekFuture` polled after completion");
                    let first = match peek(held, cx) {
                        Poll::Ready(first) => first,
                        Poll::Pending if this.max_wait.is_zero() => None,
                        Poll::Pending => {
                            let timer = timer.get_or_insert_with(|| {
                                Box::pin(tokio::time::sleep(*this.max_wait))
                            });
                            ready!(timer.as_mut().poll(cx));
                            None
                        }
                    };
                    let response = response.take().expect("as above");
                    return Poll::Ready(Ok(deliver(response, first)));
                }
            }
        }
    }
}

impl<F, C> fmt::Debug for PeekFuture<F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Calling { .. } => "Calling",
            State::Peeking { .. } => "Peeking",
        };
        f.debug_struct("PeekFuture")
            .field("state", &state)
            .field("max_wait", &self.max_wait)
            .finish()
    }
}

/// Reads the first frame of a response whose head leaves the status open. `None`: it does not.
fn peek<C: Body + Unpin>(
    response: &mut Response<C>,
    cx: &mut Context<'_>,
) -> Poll<Option<First<C::Data, C::Error>>> {
    if response.status() != StatusCode::OK || response.headers().contains_key(GRPC_STATUS) {
        return Poll::Ready(None);
    }
    let body = response.body_mut();
    if body.is_end_stream() {
        return Poll::Ready(Some(First::End));
    }
    // With the caller's own waker: whoever polls the body next registers anew.
    Poll::Ready(Some(match ready!(Pin::new(body).poll_frame(cx)) {
        Some(frame) => First::Frame(frame),
        None => First::End,
    }))
}

fn deliver<C: Body>(
    mut response: Response<C>,
    first: Option<First<C::Data, C::Error>>,
) -> Response<PeekBody<C>> {
    let trailers = match &first {
        None => None,
        Some(First::Frame(Ok(frame))) => frame.trailers_ref().cloned(),
        Some(First::Frame(Err(_)) | First::End) => Some(HeaderMap::new()),
    };
    if let Some(trailers) = trailers {
        response.extensions_mut().insert(PeekedTrailers(trailers));
    }
    response.map(|rest| PeekBody::new(first, rest))
}
