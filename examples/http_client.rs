//! hyper's client with retries, over HTTP/1.1 and HTTP/2: a server that is busy twice, a POST that
//! is not sent twice, and one that a key makes safe.
//!
//! `cargo run --example http_client --features hyper`

use std::{
    error::Error,
    sync::atomic::{AtomicUsize, Ordering},
};

use axum::{Router, http::StatusCode, routing::any};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tower::{ServiceBuilder, ServiceExt};
use tower_retry_layer::{
    RetryLayer, StandardPolicy,
    http::IdempotencyKeyLayer,
    observe::{on_finish, on_retry},
};

static ARRIVED: AtomicUsize = AtomicUsize::new(0);

/// Busy for the first two of every three requests.
async fn busy() -> (StatusCode, &'static str) {
    match ARRIVED.fetch_add(1, Ordering::Relaxed) % 3 {
        2 => (StatusCode::OK, "hello"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let app = Router::new().route("/", any(busy));
    tokio::spawn(async move { axum::serve(listener, app).await });

    for http2 in [false, true] {
        let client = Client::builder(TokioExecutor::new())
            .http2_only(http2)
            .build_http::<Full<Bytes>>();
        let policy = StandardPolicy::http()
            .observe(on_retry(|it| {
                println!("  attempt {} failed, waits {:?}", it.attempt, it.delay)
            }))
            .observe(on_finish(|it| {
                println!("  {} after {} attempts", it.reason, it.attempts)
            }));
        let retried = ServiceBuilder::new()
            .layer(RetryLayer::new(policy))
            .service(client);
        let keyed = ServiceBuilder::new()
            .layer(IdempotencyKeyLayer::new())
            .service(retried.clone());

        println!("GET, HTTP/{}", if http2 { 2 } else { 1 });
        let get = Request::get(&url).body(Full::default())?;
        let response = retried.clone().oneshot(get).await?;
        assert_eq!(response.status(), StatusCode::OK);
        let body = response.into_body().collect().await?.to_bytes();
        assert_eq!(body, "hello");

        println!("POST: a second one might order twice");
        let post = Request::post(&url).body(Full::from("one pizza"))?;
        let response = retried.oneshot(post).await?;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);

        println!("POST with an Idempotency-Key");
        let post = Request::post(&url).body(Full::from("one pizza"))?;
        let response = keyed.oneshot(post).await?;
        assert_eq!(response.status(), StatusCode::OK);
        ARRIVED.store(0, Ordering::Relaxed); // for the next client
    }
    Ok(())
}
