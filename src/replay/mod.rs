//! Replay: a streaming body can be sent again.
//!
//! A request whose body is a stream is not `Clone`, so nothing can retry it. [`ReplayLayer`], placed
//! above the retry layer, wraps the body: what the first attempt reads is recorded on the way, and
//! a retry is given the recording first and then the rest of the stream.
//!
//! ```
//! use std::convert::Infallible;
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body::Frame;
//! use http_body_util::{BodyExt, StreamBody};
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//! use tower_retry_layer::replay::{ReplayBody, ReplayError, ReplayLayer};
//!
//! # tokio_test::block_on(async {
//! // Where a `RetryLayer` would be: a service that sends each request twice.
//! let twice = service_fn(async |request: Request<ReplayBody<_>>| {
//!     let copy = request.body().try_replay().expect("within the limit");
//!     request.into_body().frame().await.expect("a first frame")?;
//!     let all = copy.collect().await?.to_bytes();
//!     Ok::<_, ReplayError>(Response::new(all))
//! });
//! let mut service = ServiceBuilder::new().layer(ReplayLayer::new(64 * 1024)).service(twice);
//!
//! let frames = ["a stream", " of frames"].map(|text| Ok::<_, Infallible>(Frame::data(Bytes::from(text))));
//! let body = StreamBody::new(futures_util::stream::iter(frames));
//! let response = service.ready().await?.call(Request::new(body)).await?;
//! assert_eq!(response.into_body(), "a stream of frames");
//! # Ok::<(), ReplayError>(()) }).unwrap();
//! ```
//!
//! # What is recorded
//!
//! Frames, one at a time, as the current attempt asks for them: nothing is read ahead, and nothing
//! at all during a wait. Frames keep their boundaries, trailers are frames, and
//! [`size_hint`](http_body::Body::size_hint) and [`is_end_stream`](http_body::Body::is_end_stream)
//! answer alike on every attempt, so that all of them are framed alike on the wire.
//!
//! Empty data frames are recorded only at the start of a body. Frames below a kilobyte are copied,
//! as they may be slices that keep a large buffer alive. Larger ones are shared with the attempt
//! under way, not copied: a second copy of an upload would cost more than what a slice may hold. A
//! slice keeps the whole of its buffer, and does not tell how large that is.
//!
//! # For how long
//!
//! For as long as a copy exists that has not begun to read. A retry policy makes one before it
//! sends an attempt, and drops it when nothing can follow: on the last attempt, when the response
//! is accepted, when the caller goes away. From then on nothing is recorded, and what there is is
//! freed as it is sent.
//!
//! Under tower's own retry layer the last attempt has a copy, too, for that layer asks for one before
//! each: there nothing is freed before the response.
//!
//! # One attempt at a time
//!
//! A copy becomes the current attempt when a retry with it is decided, before the wait: see
//! [`take_over`](ReplayBody::take_over), which `Http` and `Grpc` call, and a policy of your own may.
//! Without that it does when it is first polled. The one before is woken and fails with an error if
//! it is polled again, as transports do with an abandoned request's body. It does not end early:
//! that would leave as a well-formed request with half of its data. A handle that is older and was
//! never polled fails likewise, so an attempt that was given up in a queue cannot send the body once
//! more.
//!
//! # Limits
//!
//! Above [`max_bytes`](ReplayLayer::new) of one request, or
//! [`max_total_bytes`](ReplayLayer::max_total_bytes) of all of them, the recording is dropped. The
//! attempt under way goes on and notices nothing; [`ReplayBody::can_replay`] turns false, and a
//! copy that is sent all the same fails. So does one of a body that itself failed.
//!
//! What counts is the length of the frames, not the size of the buffers that they are slices of. A
//! source that cuts frames of a kilobyte and more out of buffers many times their size, and keeps no
//! other slice of these, makes a recording hold that many times its limit. Such a source had better
//! copy what it yields.
//!
//! # When nothing is recorded
//!
//! - A body that has no frames, a `Full<Bytes>` or a `String` is replayed as it is, without a lock
//!   and whatever its size. These are known by their type. What other types hold in memory does not
//!   show, axum's and tonic's bodies included, and is recorded within the limits like a stream.
//! - A body that announces more bytes than the limit is passed on and never replayed.
//! - So are those of `CONNECT`, upgrades and `Expect: 100-continue`.

mod body;
mod error;
mod layer;
mod limits;
mod record;
mod recording;
mod sole;
mod source;
mod state;
mod sync;

pub use self::{
    body::ReplayBody,
    error::ReplayError,
    layer::{Replay, ReplayLayer},
};
