//! A reverse proxy: axum in front, hyper's client behind, retries between, and a budget for each
//! upstream, so that one that is down does not spend the retries of the other. A real proxy also
//! drops the hop-by-hop headers.
//!
//! `cargo run --example reverse_proxy --features hyper`

use std::{
    error::Error,
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{StatusCode, Uri},
    response::Response,
    routing::any,
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::net::TcpListener;
use tower::ServiceExt;
use tower_retry_layer::{
    Retry, StandardPolicy,
    budget::TokenBudget,
    http::Http,
    observe::on_finish,
    replay::{Replay, ReplayBody},
};

type Behind = Client<HttpConnector, ReplayBody<Body>>;

/// What is kept of a body to be sent twice; a larger one passes, and is sent once.
const MAX_BODY: usize = 64 * 1024;

static ARRIVED: AtomicUsize = AtomicUsize::new(0);

#[derive(Clone)]
struct Upstream {
    address: SocketAddr,
    client: Replay<Retry<StandardPolicy<Http>, Behind>>,
}

/// Four retries at once, then one for every ten successes.
fn upstream(name: &'static str, address: SocketAddr) -> Result<Upstream, Box<dyn Error>> {
    let policy = StandardPolicy::http()
        .name(name)
        .budget(TokenBudget::new(4, 0.1)?)
        .observe(on_finish(|it| {
            println!("{}: {} after {}", it.name, it.reason, it.attempts)
        }));
    let client = Client::builder(TokioExecutor::new()).build_http();
    Ok(Upstream {
        address,
        client: Replay::new(Retry::new(policy, client), MAX_BODY),
    })
}

async fn forward(
    State(upstream): State<Upstream>,
    mut request: Request,
) -> Result<Response, StatusCode> {
    let uri = format!("http://{}{}", upstream.address, request.uri());
    *request.uri_mut() = Uri::try_from(uri).map_err(|_| StatusCode::BAD_REQUEST)?;
    let response = upstream.client.oneshot(request).await;
    response
        .map(|it| it.map(Body::new))
        .map_err(|_| StatusCode::BAD_GATEWAY)
}

/// Every second request meets a busy server.
async fn flaky() -> StatusCode {
    match ARRIVED.fetch_add(1, Ordering::Relaxed) % 2 {
        0 => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::OK,
    }
}

async fn serve(app: Router) -> Result<SocketAddr, std::io::Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let flaky = serve(Router::new().fallback(any(flaky))).await?;
    let down = TcpListener::bind("127.0.0.1:0").await?.local_addr()?; // given back at once
    let one = any(forward).with_state(upstream("flaky", flaky)?);
    let other = any(forward).with_state(upstream("down", down)?);
    let proxy = serve(Router::new().route("/flaky", one).route("/down", other)).await?;

    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    for (path, status) in [("down", 502), ("flaky", 200)] {
        for _ in 0..4 {
            let response = client
                .get(format!("http://{proxy}/{path}").parse()?)
                .await?;
            assert_eq!(response.status(), status);
        }
    }
    Ok(())
}
