//! What fails before there is a connection: never sent, so sent again whatever the method.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    io::{self, ErrorKind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Response, StatusCode, Uri};
use http_body_util::Full;
use hyper_util::{
    client::legacy::{self, Client},
    rt::{TokioExecutor, TokioIo},
};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_retry_layer::{RetryLayer, Verdict, observe::StopReason};

use crate::support_http::{
    HyperClient, Log, Pipe, Refusing, classify, connect_error, http2, quick, request,
};

const SECOND: Duration = Duration::from_secs(1);
const URI: &str = "http://in.memory/";

/// Takes a second to connect; the first so many connects are refused, the others reach an HTTP/2
/// server.
#[derive(Clone)]
struct Slow {
    refused: usize,
    connects: Arc<AtomicUsize>,
}

#[tokio::test(start_paused = true)]
async fn all_that_wait_for_one_connect_are_sent_again_when_it_fails() {
    for method in ["GET", "POST"] {
        for requests in [1, 2, 5, 50] {
            let slow = Slow::refusing(usize::MAX);
            let (log, responses) = at_once(&slow, method, requests).await;
            assert!(responses.iter().all(Result::is_err));
            let exhausted = (StopReason::AttemptsExhausted, 3, 0);
            assert_eq!(log.events().ends, vec![exhausted; requests], "{method}");
            // So all but one of them were told no more than that it had failed.
            assert_eq!(slow.connects(), 3, "{method} {requests}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_that_wait_for_one_connect_come_through_once_the_server_is_up() {
    for method in ["GET", "POST"] {
        for refused in 0..3 {
            let slow = Slow::refusing(refused);
            let (log, responses) = at_once(&slow, method, 20).await;
            for response in responses {
                assert_eq!(response.unwrap().status(), StatusCode::OK);
            }
            let attempts = u32::try_from(refused).unwrap() + 1;
            let success = (StopReason::Success, attempts, 0);
            assert_eq!(log.events().ends, [success; 20], "{method}");
            assert_eq!(slow.connects(), refused + 1, "{method}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_the_connect_of_a_request_that_is_dropped_is_sent_again() {
    for method in ["GET", "POST"] {
        let slow = Slow::refusing(0);
        let log = Log::default();
        let client = RetryLayer::new(quick().observe(log.clone())).layer(slow.client());
        let first = tokio::spawn(client.clone().oneshot(request(method, URI)));
        sleep(SECOND / 4).await;
        let second = tokio::spawn(client.oneshot(request(method, URI)));
        sleep(SECOND / 4).await;
        first.abort();
        let response = second.await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{method}");
        let (dropped, other) = (StopReason::Cancelled, StopReason::Success);
        assert_eq!(log.events().ends, [(dropped, 1, 0), (other, 2, 0)]);
        assert_eq!(slow.connects(), 2, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn boxed_by_a_timeout_it_is_the_same() {
    let slow = Slow::refusing(1);
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(quick()))
        .timeout(600 * SECOND)
        .service(slow.client());
    let calls = (0..9).map(|_| client.clone().oneshot(request("POST", URI)));
    for response in futures_util::future::join_all(calls).await {
        assert_eq!(response.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(slow.connects(), 2);
}

#[tokio::test]
async fn a_port_that_refuses_many_at_once_is_tried_by_each_as_often_as_by_one() {
    for method in ["GET", "POST"] {
        let refusing = Refusing::new();
        let log = Log::default();
        let client = RetryLayer::new(quick().observe(log.clone())).layer(http2());
        let calls = (0..20).map(|_| client.clone().oneshot(request(method, refusing.uri())));
        for result in futures_util::future::join_all(calls).await {
            assert!(result.unwrap_err().is_connect());
        }
        let exhausted = (StopReason::AttemptsExhausted, 3, 0);
        assert_eq!(log.events().ends, [exhausted; 20], "{method}");
    }
}

#[tokio::test]
async fn every_kind_of_failed_connect() {
    let hopeless = [
        ErrorKind::InvalidData,
        ErrorKind::InvalidInput,
        ErrorKind::PermissionDenied,
        ErrorKind::Unsupported,
    ];
    let never_sent = [
        ErrorKind::ConnectionRefused,
        ErrorKind::ConnectionReset,
        ErrorKind::ConnectionAborted,
        ErrorKind::AddrInUse,
        ErrorKind::AddrNotAvailable,
        ErrorKind::NotConnected,
        ErrorKind::BrokenPipe,
        ErrorKind::UnexpectedEof,
        ErrorKind::TimedOut,
        ErrorKind::HostUnreachable,
        ErrorKind::NetworkUnreachable,
        ErrorKind::NetworkDown,
        ErrorKind::NotFound,
        ErrorKind::OutOfMemory,
        ErrorKind::Other,
    ];
    for kind in hopeless {
        for method in ["GET", "POST"] {
            assert_eq!(connect(method, kind).await, Verdict::Stop, "{kind:?}");
            // As hyper-rustls reports a bad certificate, among others.
            let inside = io::Error::other(io::Error::from(kind));
            assert_eq!(connect(method, inside).await, Verdict::Stop, "{kind:?}");
        }
    }
    for kind in never_sent {
        for method in ["GET", "POST"] {
            assert_eq!(connect(method, kind).await, Verdict::Retry, "{kind:?}");
            let inside = io::Error::other(io::Error::from(kind));
            assert_eq!(connect(method, inside).await, Verdict::Retry, "{kind:?}");
        }
    }
}

#[tokio::test]
async fn a_connect_that_fails_of_what_nobody_knows_was_not_sent_either() {
    for method in ["GET", "POST"] {
        let unknown = connect(method, io::Error::other(fmt::Error)).await;
        assert_eq!(unknown, Verdict::Retry, "{method}");
        let unknown = connect(method, io::Error::other("who knows")).await;
        assert_eq!(unknown, Verdict::Retry, "{method}");
        // Timeouts, too: they are about the connect.
        let elapsed = io::Error::other(tower::timeout::error::Elapsed::new());
        assert_eq!(connect(method, elapsed).await, Verdict::Retry, "{method}");
    }
    // The same unknown without a client that says where it happened.
    let outcome = Err::<Response<()>, _>(io::Error::other(fmt::Error));
    assert_eq!(classify("GET", &outcome), Verdict::Stop);
}

#[tokio::test]
async fn a_connectors_error_says_so_without_the_clients_around_it() {
    // A name that does not resolve: of itself this kind says nothing of connections.
    let resolver = tower::service_fn(async |_: legacy::connect::dns::Name| {
        Err::<std::vec::IntoIter<std::net::SocketAddr>, _>(io::Error::from(ErrorKind::NotFound))
    });
    let connector = legacy::connect::HttpConnector::new_with_resolver(resolver);
    for (uri, expected) in [
        (URI, Verdict::Retry),
        ("ftp://in.memory/", Verdict::Stop),
        ("in.memory", Verdict::Stop),
    ] {
        let result = connector.clone().oneshot(uri.parse().unwrap()).await;
        let outcome = result.map(|_| Response::new(()));
        assert_eq!(classify("POST", &outcome), expected, "{uri}");
    }
}

/// So many requests of one client at one moment.
async fn at_once(
    slow: &Slow,
    method: &str,
    requests: usize,
) -> (
    Log,
    Vec<Result<Response<hyper::body::Incoming>, legacy::Error>>,
) {
    let log = Log::default();
    let client = RetryLayer::new(quick().observe(log.clone())).layer(slow.client());
    let calls = (0..requests).map(|_| client.clone().oneshot(request(method, URI)));
    let started = Instant::now();
    let responses = futures_util::future::join_all(calls).await;
    let connects = u32::try_from(slow.connects()).unwrap();
    assert!(started.elapsed() >= connects * SECOND);
    (log, responses)
}

/// The verdict on hyper-util's error when its connector fails in this way.
async fn connect(method: &str, error: impl Into<io::Error>) -> Verdict {
    classify(method, &Err(connect_error(error.into()).await))
}

// === impl Slow ===

impl Slow {
    fn refusing(refused: usize) -> Self {
        Self {
            refused,
            connects: Arc::default(),
        }
    }

    fn client(&self) -> HyperClient<Self> {
        Client::builder(TokioExecutor::new())
            .http2_only(true)
            .build(self.clone())
    }

    fn connects(&self) -> usize {
        self.connects.load(Ordering::SeqCst)
    }
}

impl tower::Service<Uri> for Slow {
    type Response = Pipe;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Pipe>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let number = self.connects.fetch_add(1, Ordering::SeqCst);
        let refused = number < self.refused;
        Box::pin(async move {
            sleep(SECOND).await;
            if refused {
                return Err(ErrorKind::ConnectionRefused.into());
            }
            let (client, server) = tokio::io::duplex(64 * 1024);
            tokio::spawn(async move {
                let ok = hyper::service::service_fn(async |_| {
                    Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
                });
                let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(server), ok)
                    .await;
            });
            Ok(Pipe::new(client))
        })
    }
}
