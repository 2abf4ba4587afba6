//! The retry layer over hyper's client against real servers.

use std::sync::Mutex;

use http::StatusCode;
use http_body_util::BodyExt;
use tower::{ServiceBuilder, ServiceExt};
use tower_retry_layer::{
    RetryLayer,
    http::{Http, IdempotencyKeyLayer, Idempotent, MaxAttempts, NoRetry},
    observe::{StopReason, on_retry},
};

use crate::support_http::{
    Log, OK, RawServer, Refusing, Reply, UNAVAILABLE, http1, quick, request, with,
};

#[tokio::test]
async fn twice_unavailable_then_ok() {
    let server = RawServer::start([
        Reply::Keep(UNAVAILABLE),
        Reply::Keep(UNAVAILABLE),
        Reply::Keep(OK),
    ])
    .await;
    let log = Log::default();
    let client = RetryLayer::new(quick().observe(log.clone()));
    let client = ServiceBuilder::new().layer(client).service(http1());
    let response = client.oneshot(request("GET", server.uri())).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "ok");
    assert_eq!(server.requests(), 3);
    assert_eq!(log.events().ends, [(StopReason::Success, 3, 0)]);
}

#[tokio::test]
async fn a_post_is_sent_again_with_a_mark_only() {
    for (mark, sent) in [("none", 1), ("extension", 2), ("key", 2)] {
        let server = RawServer::start([Reply::Keep(UNAVAILABLE), Reply::Keep(OK)]).await;
        let client = ServiceBuilder::new()
            .layer(RetryLayer::new(quick()))
            .service(http1());
        let mut request = request("POST", server.uri());
        match mark {
            "extension" => drop(request.extensions_mut().insert(Idempotent)),
            "key" => {
                let key = http::HeaderValue::from_static("\"1\"");
                request.headers_mut().insert("idempotency-key", key);
            }
            _ => {}
        }
        client.oneshot(request).await.unwrap();
        assert_eq!(server.requests(), sent, "{mark}");
    }
}

#[tokio::test]
async fn refused_then_up() {
    for method in ["GET", "POST"] {
        let refusing = Refusing::new();
        let uri = refusing.uri();
        let refusing = Mutex::new(Some(refusing));
        let (up, server) = std::sync::mpsc::channel();
        // It comes up while the first retry waits.
        let policy = quick().observe(on_retry(move |_| {
            if let Some(refusing) = refusing.lock().unwrap().take() {
                up.send(refusing.listen([Reply::Keep(OK)])).unwrap();
            }
        }));
        let client = ServiceBuilder::new()
            .layer(RetryLayer::new(policy))
            .service(http1());
        let response = client.oneshot(request(method, uri)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{method}");
        assert_eq!(server.recv().unwrap().requests(), 1, "{method}");
    }
}

#[tokio::test]
async fn a_connection_that_stays_refused_is_the_clients_own_error() {
    let refusing = Refusing::new();
    let log = Log::default();
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(quick().observe(log.clone())))
        .service(http1());
    let result = client.oneshot(request("POST", refusing.uri())).await;
    assert!(result.unwrap_err().is_connect());
    assert_eq!(log.events().ends, [(StopReason::AttemptsExhausted, 3, 0)]);
}

#[tokio::test]
async fn a_response_cut_in_its_head_is_asked_for_again_by_get_only() {
    for (method, sent) in [("GET", 2), ("POST", 1)] {
        let cut = Reply::Close("HTTP/1.1 200 OK\r\ncontent-le");
        let server = RawServer::start([cut, Reply::Keep(OK)]).await;
        let client = ServiceBuilder::new()
            .layer(RetryLayer::new(quick()))
            .service(http1());
        let result = client.oneshot(request(method, server.uri())).await;
        assert_eq!(result.is_ok(), method == "GET", "{result:?}");
        assert_eq!(server.requests(), sent, "{method}");
    }
}

#[tokio::test]
async fn a_response_cut_in_its_body_is_the_callers() {
    let cut = Reply::Close("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nok");
    let server = RawServer::start([cut, Reply::Keep(OK)]).await;
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(quick()))
        .service(http1());
    let response = client.oneshot(request("GET", server.uri())).await.unwrap();
    assert!(response.into_body().collect().await.is_err());
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn a_kept_connection_closed_under_the_request_is_replaced_for_get_only() {
    for (method, sent) in [("GET", 3), ("POST", 2)] {
        let replies = [Reply::Keep(OK), Reply::Close(""), Reply::Keep(OK)];
        let server = RawServer::start(replies).await;
        let mut client = ServiceBuilder::new()
            .layer(RetryLayer::new(quick()))
            .service(http1());
        let first = client.ready().await.unwrap();
        let first = tower::Service::call(first, request(method, server.uri()));
        let body = first.await.unwrap().into_body();
        body.collect().await.unwrap();
        let second = client.oneshot(request(method, server.uri())).await;
        assert_eq!(second.is_ok(), method == "GET", "{second:?}");
        assert_eq!(server.requests(), sent, "{method}");
        assert_eq!(server.connections(), sent - 1, "{method}: one was kept");
    }
}

#[tokio::test]
async fn what_is_no_http_is_not_asked_again() {
    let server = RawServer::start([Reply::Close("what?\r\n\r\n")]).await;
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(quick()))
        .service(http1());
    client
        .oneshot(request("GET", server.uri()))
        .await
        .unwrap_err();
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn a_body_that_fails_is_not_sent_again() {
    let server = RawServer::start([Reply::Keep(OK)]).await;
    let log = Log::default();
    let client: hyper_util::client::legacy::Client<_, Failing> =
        hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
            .build_http();
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(quick().observe(log.clone())))
        .service(client);
    let request = request("PUT", server.uri()).map(|_| Failing);
    client.oneshot(request).await.unwrap_err();
    assert_eq!(log.events().ends, [(StopReason::NotRetryable, 1, 0)]);
}

#[tokio::test]
async fn a_url_that_the_connector_does_not_take_is_not_tried_again() {
    let log = Log::default();
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(quick().observe(log.clone())))
        .service(http1());
    let result = client.oneshot(request("GET", "ftp://127.0.0.1/")).await;
    assert!(result.unwrap_err().is_connect());
    assert_eq!(log.events().ends, [(StopReason::NotRetryable, 1, 0)]);
}

#[tokio::test]
async fn a_request_has_its_own_limits() {
    for (attempts, sent) in [(0, 1), (1, 1), (2, 2), (5, 5)] {
        let server = RawServer::start([Reply::Keep(UNAVAILABLE)]).await;
        let client = ServiceBuilder::new()
            .layer(RetryLayer::new(quick()))
            .service(http1());
        let mut request = request("GET", server.uri());
        request.extensions_mut().insert(MaxAttempts(attempts));
        let response = client.oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(server.requests(), sent, "{attempts}");
    }
    let server = RawServer::start([Reply::Keep(UNAVAILABLE)]).await;
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(quick()))
        .service(http1());
    let mut request = request("GET", server.uri());
    request.extensions_mut().insert(NoRetry);
    client.oneshot(request).await.unwrap();
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn two_layers_of_three_attempts_send_three() {
    let server = RawServer::start([Reply::Keep(UNAVAILABLE)]).await;
    let (above, below) = (Log::default(), Log::default());
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(quick().observe(above.clone())))
        .layer(RetryLayer::new(quick().observe(below.clone())))
        .service(http1());
    client.oneshot(request("GET", server.uri())).await.unwrap();
    assert_eq!(server.requests(), 3);
    assert_eq!(above.events().ends, [(StopReason::AttemptsExhausted, 3, 0)]);
    assert_eq!(below.events().ends, [(StopReason::Nested, 1, 0); 3]);
}

#[tokio::test]
async fn two_layers_multiply_where_that_is_asked_for() {
    let server = RawServer::start([Reply::Keep(UNAVAILABLE)]).await;
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(quick()))
        .layer(RetryLayer::new(with(Http::new().nested(true))))
        .service(http1());
    client.oneshot(request("GET", server.uri())).await.unwrap();
    assert_eq!(server.requests(), 9);
}

#[tokio::test]
async fn the_number_of_the_attempt_and_one_key_go_with_every_attempt() {
    let server = RawServer::start([Reply::Keep(UNAVAILABLE)]).await;
    let name = http::HeaderName::from_static("x-attempt");
    let client = ServiceBuilder::new()
        .layer(IdempotencyKeyLayer::new())
        .layer(RetryLayer::new(with(Http::new().attempt_header(name))))
        .service(http1());
    client.oneshot(request("POST", server.uri())).await.unwrap();
    let heads = server.heads();
    assert_eq!(heads.len(), 3);
    for (number, head) in (1..).zip(&heads) {
        assert!(head.contains(&format!("x-attempt: {number}\r\n")), "{head}");
        assert_eq!(key(head), key(&heads[0]));
    }
}

fn key(head: &str) -> &str {
    let key = head
        .lines()
        .find_map(|line| line.strip_prefix("idempotency-key: "));
    key.expect("a key")
}

#[derive(Debug)]
struct Failing;

impl http_body::Body for Failing {
    type Data = bytes::Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, std::io::Error>>> {
        // A kind that would be retried if the connection had failed with it.
        std::task::Poll::Ready(Some(Err(std::io::ErrorKind::ConnectionReset.into())))
    }
}

impl tower_retry_layer::http::ReplayableBody for Failing {
    fn try_replay(&self) -> Option<Self> {
        Some(Self)
    }
}
