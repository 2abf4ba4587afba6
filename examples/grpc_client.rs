//! tonic's client with retries: a health service that is not there yet, then busy, then well.
//!
//! `cargo run --example grpc_client --features grpc`

use std::{
    error::Error,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use http::Request;
use tokio::net::TcpSocket;
use tonic::{
    Status,
    body::Body,
    transport::{Endpoint, Server, server::TcpIncoming},
};
use tonic_health::{
    ServingStatus,
    pb::{HealthCheckRequest, health_client::HealthClient, health_server::HealthServer},
    server::{HealthReporter, HealthService},
};
use tower::ServiceBuilder;
use tower_retry_layer::{
    RetryLayer, StandardPolicy,
    backoff::{ExponentialBackoffMaker, Jitter, Seeds},
    grpc::PeekTrailersLayer,
    observe::{RetrySummary, on_retry},
    replay::ReplayLayer,
};

static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Before each call of the server: busy, then busy with a word about when to come back, then well.
fn starting(request: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
    let header = |name| request.metadata().get(name).and_then(|it| it.to_str().ok());
    println!(
        "  server: attempts before: {}, time left: {}",
        header("grpc-previous-rpc-attempts").unwrap_or("none"),
        header("grpc-timeout").unwrap_or("any"),
    );
    let mut busy = Status::unavailable("starting");
    match CALLS.fetch_add(1, Ordering::Relaxed) {
        0 => Err(busy),
        1 => {
            let pushback = "50".parse().expect("a number");
            busy.metadata_mut()
                .insert("grpc-retry-pushback-ms", pushback);
            Err(busy)
        }
        _ => Ok(request),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    let url = format!("http://{}", socket.local_addr()?);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await; // connections are refused until then
        let reporter = HealthReporter::new();
        reporter
            .set_service_status("shop", ServingStatus::Serving)
            .await;
        let health = HealthService::from_health_reporter(reporter);
        Server::builder()
            .add_service(HealthServer::with_interceptor(health, starting))
            .serve_with_incoming(TcpIncoming::from(socket.listen(16).expect("a listener")))
            .await
    });

    // The delays of gRPC's proposal A6; the default ones are spread wider.
    let (min, max) = (Duration::from_millis(100), Duration::from_secs(1));
    let jitter = Jitter::Proportional(0.2);
    let policy = StandardPolicy::grpc()
        .max_attempts(10)
        .backoff(ExponentialBackoffMaker::new(
            min,
            max,
            jitter,
            Seeds::random(),
        )?)
        .observe(on_retry(|it| {
            println!("  client: {}, waits {:?}", it.error_type, it.delay);
        }));

    let channel = Endpoint::from_shared(url)?.connect_lazy();
    let channel = ServiceBuilder::new()
        .layer(ReplayLayer::default())
        .layer(RetryLayer::new(policy))
        // For servers that put the status of a failed call into trailers; this one does not.
        .layer(PeekTrailersLayer::new(Duration::ZERO))
        .map_request(|request: Request<_>| request.map(Body::new))
        .service(channel);

    // From here on all is as it would be over the bare channel.
    let mut client = HealthClient::new(channel);
    let mut request = tonic::Request::new(HealthCheckRequest {
        service: "shop".into(),
    });
    request.set_timeout(Duration::from_secs(30));
    let response = client.check(request).await?;

    let summary = response.extensions().get::<RetrySummary>();
    let attempts = summary.map_or(1, |summary| summary.attempts);
    println!(
        "{:?} after {attempts} attempts",
        response.get_ref().status()
    );
    // How many attempts found no server depends on the machine; two were told that it is busy.
    assert_eq!(response.get_ref().status, 1);
    assert_eq!(CALLS.load(Ordering::Relaxed), 3);
    assert!((3..=10).contains(&attempts));
    Ok(())
}
