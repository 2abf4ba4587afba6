//! reqwest's client with retries and a timeout for each attempt.
//!
//! `cargo run --example reqwest_client --features reqwest`

use std::{
    error::Error,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use axum::{Router, http::StatusCode, routing::get};
use reqwest::{Client, Method, Request};
use tower::{ServiceBuilder, ServiceExt};
use tower_retry_layer::{
    RetryLayer, StandardPolicy,
    http::Http,
    observe::{on_finish, on_retry},
};

static ARRIVED: AtomicUsize = AtomicUsize::new(0);

/// Says nothing, then that it is busy, then hello.
async fn slow_then_busy() -> (StatusCode, &'static str) {
    match ARRIVED.fetch_add(1, Ordering::Relaxed) {
        0 => std::future::pending().await,
        1 => (StatusCode::TOO_MANY_REQUESTS, "busy"),
        _ => (StatusCode::OK, "hello"),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let app = Router::new().route("/", get(slow_then_busy));
    tokio::spawn(async move { axum::serve(listener, app).await });

    // reqwest's timeout is below the layer, so it is for one attempt; its own retries are off.
    let client = Client::builder()
        .no_proxy()
        .timeout(Duration::from_millis(200))
        .retry(reqwest::retry::never())
        .redirect(reqwest::redirect::Policy::none())
        .build()?;
    let policy = StandardPolicy::new(Http::new().follows_redirects(false))
        .max_attempts(4)
        .total_timeout(Duration::from_secs(5))
        .observe(on_retry(|it| {
            println!("attempt {} failed, waits {:?}", it.attempt, it.delay)
        }))
        .observe(on_finish(|it| {
            println!("{} after {} attempts", it.reason, it.attempts)
        }));
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(policy))
        .service(client);

    let response = client
        .clone()
        .oneshot(Request::new(Method::GET, url.parse()?))
        .await?;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.text().await?, "hello");
    assert_eq!(ARRIVED.load(Ordering::Relaxed), 3);

    // Nobody listens on a port that was bound and given back. The error is reqwest's own.
    let gone = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let request = Request::new(Method::GET, format!("http://{gone}/").parse()?);
    let error = client.oneshot(request).await.unwrap_err();
    assert!(error.is_connect());
    println!("{error}");
    Ok(())
}
