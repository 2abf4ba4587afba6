//! The retry layer over hyper's client against an HTTP/2 server that refuses, resets and leaves.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use h2::Reason;
use http::{Response, StatusCode};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tower::{ServiceBuilder, ServiceExt};
use tower_retry_layer::{RetryLayer, observe::StopReason};

use crate::support_http::{Log, http2, leave, quick, request};

/// What becomes of the n-th request; after the last all are answered with 200.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// RST_STREAM with this reason.
    Reset(Reason),
    /// GOAWAY with this reason and the last stream's id, then the connection is closed.
    GoAway(Reason, u32),
}

#[tokio::test]
async fn a_refused_stream_is_sent_again_at_once_whatever_the_method() {
    for method in ["GET", "POST"] {
        let seen = run(method, &[Fate::Reset(Reason::REFUSED_STREAM)]).await;
        assert!(seen.ok, "{method}");
        assert_eq!(seen.requests, 2, "{method}");
        assert_eq!(seen.log.events().ends, [(StopReason::Success, 1, 1)]);
        assert!(seen.log.events().delays[0].is_zero(), "{method}");
    }
}

#[tokio::test]
async fn a_server_that_always_refuses_is_asked_once_more_than_the_attempts() {
    for method in ["GET", "POST"] {
        let seen = run(method, &[Fate::Reset(Reason::REFUSED_STREAM); 9]).await;
        assert!(!seen.ok);
        assert_eq!(seen.requests, 4, "{method}");
        let ends = seen.log.events().ends;
        assert_eq!(ends, [(StopReason::AttemptsExhausted, 3, 1)]);
    }
}

#[tokio::test]
async fn a_stream_above_the_last_of_a_goaway_is_sent_again_whatever_the_method() {
    for method in ["GET", "POST"] {
        let seen = run(method, &[Fate::GoAway(Reason::NO_ERROR, 0)]).await;
        assert!(seen.ok, "{method}");
        assert_eq!(seen.requests, 2, "{method}");
        assert_eq!(seen.log.events().ends, [(StopReason::Success, 1, 1)]);
    }
}

#[tokio::test]
async fn a_goaway_with_an_error_is_sent_again_after_the_backoff() {
    for method in ["GET", "POST"] {
        let seen = run(method, &[Fate::GoAway(Reason::ENHANCE_YOUR_CALM, 0)]).await;
        assert!(seen.ok, "{method}");
        assert_eq!(seen.log.events().ends, [(StopReason::Success, 2, 0)]);
        assert!(!seen.log.events().delays[0].is_zero(), "{method}");
    }
}

#[tokio::test]
async fn a_stream_that_the_goaway_counts_in_is_perhaps_processed() {
    for reason in [Reason::NO_ERROR, Reason::INTERNAL_ERROR] {
        let seen = run("GET", &[Fate::GoAway(reason, 1)]).await;
        assert!(seen.ok, "{reason:?}");
        assert_eq!(seen.log.events().ends, [(StopReason::Success, 2, 0)]);
        let seen = run("POST", &[Fate::GoAway(reason, 1)]).await;
        assert!(!seen.ok, "{reason:?}");
        assert_eq!(seen.requests, 1, "{reason:?}");
    }
}

#[tokio::test]
async fn every_reason_of_a_reset() {
    let perhaps = [
        Reason::INTERNAL_ERROR,
        Reason::SETTINGS_TIMEOUT,
        Reason::STREAM_CLOSED,
        Reason::CANCEL,
        Reason::CONNECT_ERROR,
        Reason::ENHANCE_YOUR_CALM,
    ];
    let hopeless = [
        Reason::PROTOCOL_ERROR,
        Reason::FLOW_CONTROL_ERROR,
        Reason::FRAME_SIZE_ERROR,
        Reason::COMPRESSION_ERROR,
        Reason::INADEQUATE_SECURITY,
        Reason::HTTP_1_1_REQUIRED,
        Reason::from(0x77),
    ];
    for reason in perhaps {
        assert_eq!(
            run("GET", &[Fate::Reset(reason)]).await.requests,
            2,
            "{reason:?}"
        );
        assert_eq!(
            run("POST", &[Fate::Reset(reason)]).await.requests,
            1,
            "{reason:?}"
        );
    }
    for reason in hopeless {
        assert_eq!(
            run("GET", &[Fate::Reset(reason)]).await.requests,
            1,
            "{reason:?}"
        );
    }
}

struct Seen {
    ok: bool,
    requests: usize,
    log: Log,
}

async fn run(method: &str, fates: &[Fate]) -> Seen {
    let server = Server::start(fates.to_vec()).await;
    let log = Log::default();
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(quick().observe(log.clone())))
        .service(http2());
    let result = client
        .oneshot(request(method, format!("http://{}/", server.addr)))
        .await;
    Seen {
        ok: result.is_ok_and(|response| response.status() == StatusCode::OK),
        requests: server.requests.load(Ordering::SeqCst),
        log,
    }
}

struct Server {
    addr: SocketAddr,
    requests: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(fates: Vec<Fate>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let (seen, fates) = (requests.clone(), Arc::new(fates));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let next = fates.get(seen.load(Ordering::SeqCst));
                if let Some(Fate::GoAway(reason, last)) = next {
                    let (reason, last, seen) = (*reason, *last, seen.clone());
                    connections.spawn(async move {
                        leave(stream, reason, last, || {
                            seen.fetch_add(1, Ordering::SeqCst);
                        })
                        .await;
                    });
                } else {
                    connections.spawn(serve(stream, fates.clone(), seen.clone()));
                }
            }
        });
        Self {
            addr,
            requests,
            task,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: TcpStream, fates: Arc<Vec<Fate>>, seen: Arc<AtomicUsize>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        match fates.get(seen.fetch_add(1, Ordering::SeqCst)) {
            Some(Fate::Reset(reason)) => respond.send_reset(*reason),
            _ => drop(respond.send_response(Response::new(()), true)),
        }
    }
}
