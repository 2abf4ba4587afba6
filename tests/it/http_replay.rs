//! Streaming bodies through `ReplayLayer`, the retry layer and hyper's client.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tower::{ServiceBuilder, ServiceExt};
use tower_retry_layer::{RetryLayer, observe::StopReason, replay::ReplayLayer};

use crate::support_http::{Log, Net, quick, serve_http1};

#[tokio::test(start_paused = true)]
async fn a_streaming_body_arrives_whole_on_every_attempt() {
    let seen = upload("PUT", 1024, frames(&["one ", "two ", "three"])).await;
    assert_eq!(seen.status, Some(StatusCode::OK));
    assert_eq!(seen.bodies, ["one two three", "one two three"]);
    assert_eq!(seen.ends, [(StopReason::Success, 2, 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_post_that_streams_is_sent_once() {
    let seen = upload("POST", 1024, frames(&["order"])).await;
    assert_eq!(seen.status, Some(StatusCode::SERVICE_UNAVAILABLE));
    assert_eq!(seen.bodies, ["order"]);
    assert_eq!(seen.ends, [(StopReason::NotRetryable, 1, 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_body_above_the_limit_is_sent_once_and_whole() {
    let seen = upload("PUT", 70, frames(&["one ", "two ", "three"])).await;
    assert_eq!(seen.status, Some(StatusCode::SERVICE_UNAVAILABLE));
    assert_eq!(seen.bodies, ["one two three"]);
    assert_eq!(seen.ends, [(StopReason::NotReplayable, 1, 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_body_whose_source_fails_is_not_sent_again() {
    let mut frames = frames(&["one "]);
    // A kind that would be retried if the connection had failed with it.
    frames.push(Err(io::ErrorKind::ConnectionReset.into()));
    let seen = upload("PUT", 1024, frames).await;
    assert_eq!(seen.status, None);
    assert!(seen.bodies.is_empty());
    assert_eq!(seen.ends, [(StopReason::NotRetryable, 1, 0)]);
}

struct Seen {
    status: Option<StatusCode>,
    bodies: Vec<String>,
    ends: Vec<(StopReason, u32, u32)>,
}

/// Sends frames to a server that is busy once, when it has read the body.
async fn upload(method: &str, max_bytes: usize, frames: Frames) -> Seen {
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let read = bodies.clone();
    let net = Net::new(move |stream| {
        let read = read.clone();
        serve_http1(stream, move |request| {
            let read = read.clone();
            async move {
                let body = request.into_body().collect().await;
                let body = body.map_err(io::Error::other)?.to_bytes();
                let mut read = read.lock().unwrap();
                read.push(String::from_utf8(body.to_vec()).unwrap());
                let status = if read.len() == 1 { 503 } else { 200 };
                let response = Response::builder().status(status);
                Ok(response.body(Full::<Bytes>::default()).unwrap())
            }
        })
    });
    let log = Log::default();
    let client = ServiceBuilder::new()
        .layer(ReplayLayer::new(max_bytes))
        .layer(RetryLayer::new(quick().observe(log.clone())))
        .timeout(Duration::from_secs(60))
        .service(Client::builder(TokioExecutor::new()).build(net));
    let request = http::Request::builder()
        .method(method)
        .uri("http://in.memory/")
        .body(StreamBody::new(stream::iter(frames)))
        .unwrap();
    let status = client.oneshot(request).await.ok().map(|it| it.status());
    Seen {
        status,
        bodies: bodies.lock().unwrap().clone(),
        ends: log.events().ends,
    }
}

type Frames = Vec<io::Result<Frame<Bytes>>>;

fn frames(texts: &[&'static str]) -> Frames {
    let frame = |text: &&'static str| Ok(Frame::data(Bytes::from_static(text.as_bytes())));
    texts.iter().map(frame).collect()
}
