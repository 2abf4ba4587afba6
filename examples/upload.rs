//! A file is streamed to a flaky server: the first attempt is refused while it is still being sent,
//! the second one fails after all of it, and a hash proves that the third arrived.
//!
//! `cargo run --example upload --features hyper`

use std::{
    error::Error,
    hash::{DefaultHasher, Hasher},
    io,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use axum::{Router, body::Body, http::StatusCode, routing::put};
use bytes::Bytes;
use futures_util::stream;
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::{fs::File, io::AsyncReadExt};
use tower::{ServiceBuilder, ServiceExt};
use tower_retry_layer::{
    RetryLayer, StandardPolicy,
    observe::{on_finish, on_retry},
    replay::ReplayLayer,
};

/// Answers an upload with the hash of what arrived, at the third attempt.
async fn receive(mut body: Body) -> Result<String, StatusCode> {
    static ATTEMPTS: AtomicUsize = AtomicUsize::new(0);
    let attempt = ATTEMPTS.fetch_add(1, Ordering::Relaxed);
    let (mut hasher, mut len) = (DefaultHasher::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
        let data = frame.into_data().unwrap_or_default();
        hasher.write(&data);
        len += data.len();
        if attempt == 0 {
            println!("server: busy after {len} bytes");
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
    }
    println!("server: {len} bytes arrived");
    match attempt {
        1 => Err(StatusCode::BAD_GATEWAY),
        _ => Ok(format!("{:x}", hasher.finish())),
    }
}

/// The file, read as the connection takes it. Nothing about it is `Clone`.
fn streamed(file: File) -> impl http_body::Body<Data = Bytes, Error = io::Error> + Send + 'static {
    let frames = stream::unfold(file, async |mut file| {
        let mut chunk = Vec::with_capacity(60_000);
        match file.read_buf(&mut chunk).await {
            Ok(0) => None,
            Ok(_) => Some((Ok(Frame::data(chunk.into())), file)),
            Err(error) => Some((Err(error), file)),
        }
    });
    StreamBody::new(Box::pin(frames))
}

async fn upload(path: &Path, url: &str) -> Result<Bytes, Box<dyn Error + Send + Sync>> {
    let policy = StandardPolicy::http()
        .observe(on_retry(|it| {
            println!(
                "client: attempt {} failed, waits {:?}",
                it.attempt, it.delay
            )
        }))
        .observe(on_finish(|it| {
            println!("client: {} after {} attempts", it.reason, it.attempts)
        }));
    let client = ServiceBuilder::new()
        .layer(ReplayLayer::new(2 << 20)) // records up to 2 MiB of a body
        .layer(RetryLayer::new(policy)) // and sends it again from there
        .service(Client::builder(TokioExecutor::new()).build_http());

    let request = Request::put(url).body(streamed(File::open(path).await?))?;
    let response = client.oneshot(request).await?;
    assert_eq!(response.status(), StatusCode::OK);
    Ok(response.into_body().collect().await?.to_bytes())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let app = Router::new().route("/", put(receive));
    tokio::spawn(async move { axum::serve(listener, app).await });

    let content: Vec<u8> = (0..1 << 20).map(|at| (at * 31 % 251) as u8).collect();
    let path = std::env::temp_dir().join(format!("upload-{}.bin", std::process::id()));
    tokio::fs::write(&path, &content).await?;
    let answer = upload(&path, &url).await;
    tokio::fs::remove_file(&path).await?;

    let mut hasher = DefaultHasher::new();
    hasher.write(&content);
    assert_eq!(answer?, format!("{:x}", hasher.finish()));
    println!("client: the hash is right");
    Ok(())
}
