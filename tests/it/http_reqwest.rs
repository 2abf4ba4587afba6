//! The retry layer over reqwest's client.

use std::time::Duration;

use http::{HeaderName, StatusCode};
use reqwest::{
    Body, Client, Method, Request,
    dns::{Name, Resolve, Resolving},
};
use tower::{ServiceBuilder, ServiceExt};
use tower_retry_layer::{
    RetryLayer,
    http::{Http, IdempotencyKeyLayer},
    observe::StopReason,
};

use crate::support_http::{Log, OK, RawServer, Refusing, Reply, UNAVAILABLE, quick, with};

#[tokio::test]
async fn twice_unavailable_then_ok() {
    let replies = [
        Reply::Keep(UNAVAILABLE),
        Reply::Keep(UNAVAILABLE),
        Reply::Keep(OK),
    ];
    let server = RawServer::start(replies).await;
    let log = Log::default();
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(quick().observe(log.clone())))
        .service(client());
    let response = client.oneshot(get(&server.uri())).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.text().await.unwrap(), "ok");
    assert_eq!(server.requests(), 3);
    assert_eq!(log.events().ends, [(StopReason::Success, 3, 0)]);
}

#[tokio::test]
async fn a_post_is_sent_again_with_a_key_only() {
    let server = RawServer::start([Reply::Keep(UNAVAILABLE)]).await;
    let retried = ServiceBuilder::new()
        .layer(RetryLayer::new(quick()))
        .service(client());
    retried.clone().oneshot(post(&server.uri())).await.unwrap();
    assert_eq!(server.requests(), 1);
    let keyed = ServiceBuilder::new()
        .layer(IdempotencyKeyLayer::new())
        .service(retried);
    keyed.oneshot(post(&server.uri())).await.unwrap();
    assert_eq!(server.requests(), 4);
}

#[tokio::test]
async fn the_client_owns_its_errors() {
    let refusing = Refusing::new();
    let log = Log::default();
    let policy = quick().observe(log.clone());
    let retried = ServiceBuilder::new()
        .layer(RetryLayer::new(policy))
        .service(client());
    let error = retried.oneshot(get(&refusing.uri())).await.unwrap_err();
    assert!(error.is_connect() && !error.is_timeout());
    assert_eq!(log.events().ends, [(StopReason::AttemptsExhausted, 3, 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_the_clients_is_for_one_attempt_and_is_retried() {
    const HOUR: Duration = Duration::from_secs(3600);
    // The clock stands still while a blocking task runs, however long the sockets take.
    let (_end, stand_still) = std::sync::mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || stand_still.recv());

    for (method, sent) in [(Method::GET, 3), (Method::POST, 1)] {
        let server = RawServer::start([Reply::Silence]).await;
        let client = Client::builder().no_proxy().timeout(HOUR).build().unwrap();
        let client = ServiceBuilder::new()
            .layer(RetryLayer::new(quick()))
            .service(client);
        let request = Request::new(method.clone(), server.uri().parse().unwrap());
        let call = tokio::spawn(client.oneshot(request));
        for number in 1..=sent {
            while server.requests() < number {
                // For the wait before the retry.
                tokio::time::advance(Duration::from_millis(1)).await;
            }
            tokio::time::advance(HOUR).await;
        }
        let error = call.await.unwrap().unwrap_err();
        assert!(error.is_timeout() && !error.is_connect());
        assert_eq!(server.requests(), sent, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connect_that_takes_too_long_never_sent_the_request() {
    let client = Client::builder()
        .no_proxy()
        .connect_timeout(Duration::from_secs(10))
        .dns_resolver(Resolver(|| Box::pin(std::future::pending())))
        .build()
        .unwrap();
    for (request, follows, sent) in [
        (get(NAME), true, 3),
        (get(NAME), false, 3),
        (post(NAME), false, 3),
        (post(NAME), true, 1),
    ] {
        let started = tokio::time::Instant::now();
        let (error, log) = fail(client.clone(), request, follows).await;
        assert!(error.is_timeout() && error.is_connect(), "{error:?}");
        assert_eq!(log.events().ends[0].1, sent, "{follows}");
        assert_eq!(started.elapsed().as_secs(), 10 * u64::from(sent));
    }
}

#[tokio::test]
async fn a_connect_that_fails_of_what_nobody_knows_was_not_sent_either() {
    let client = Client::builder()
        .no_proxy()
        .dns_resolver(Resolver(|| Box::pin(async { Err("no such name".into()) })))
        .build()
        .unwrap();
    for request in [get(NAME), post(NAME)] {
        let (error, log) = fail(client.clone(), request, false).await;
        assert!(error.is_connect());
        assert_eq!(log.events().ends, [(StopReason::AttemptsExhausted, 3, 0)]);
    }
}

#[tokio::test]
async fn a_cut_connection_is_replaced_for_an_idempotent_request() {
    for (method, sent) in [(Method::PUT, 2), (Method::POST, 1)] {
        let server = RawServer::start([Reply::Close(""), Reply::Keep(OK)]).await;
        let client = ServiceBuilder::new()
            .layer(RetryLayer::new(quick()))
            .service(client());
        let request = Request::new(method.clone(), server.uri().parse().unwrap());
        assert_eq!(client.oneshot(request).await.is_ok(), sent == 2);
        assert_eq!(server.requests(), sent, "{method}");
    }
}

#[tokio::test]
async fn a_body_that_streams_is_sent_once_and_whole() {
    let server = RawServer::start([Reply::Keep(UNAVAILABLE)]).await;
    let log = Log::default();
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(quick().observe(log.clone())))
        .service(client());
    let mut request = Request::new(Method::PUT, server.uri().parse().unwrap());
    // Boxed, so that reqwest cannot see that it is held in memory.
    let stream = http_body_util::Full::<bytes::Bytes>::from("stream");
    *request.body_mut() = Some(Body::wrap(stream));
    let response = client.oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(server.requests(), 1);
    assert!(server.heads()[0].contains("content-length: 6"));
    assert_eq!(log.events().ends, [(StopReason::NotReplayable, 1, 0)]);
}

#[tokio::test]
async fn a_post_whose_redirect_leads_nowhere_is_not_sent_again() {
    let refusing = Refusing::new();
    // The first server acts on the request and names a second, which is down.
    let away = format!(
        "HTTP/1.1 303 See Other\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n",
        refusing.uri()
    );
    let server = RawServer::start([Reply::Keep(away.leak())]).await;
    let retried = ServiceBuilder::new()
        .layer(RetryLayer::new(quick()))
        .service(client());
    let error = retried.oneshot(post(&server.uri())).await.unwrap_err();
    assert!(error.is_connect());
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn a_post_that_never_left_is_sent_again_where_no_redirect_is_followed() {
    let refusing = Refusing::new();
    let client = Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none());
    let log = Log::default();
    let rules = Http::new().follows_redirects(false);
    let retried = ServiceBuilder::new()
        .layer(RetryLayer::new(with(rules).observe(log.clone())))
        .service(client.build().unwrap());
    retried.oneshot(post(&refusing.uri())).await.unwrap_err();
    assert_eq!(log.events().ends, [(StopReason::AttemptsExhausted, 3, 0)]);
}

#[tokio::test]
async fn a_request_that_cannot_be_built_is_not_tried_again() {
    let log = Log::default();
    let retried = ServiceBuilder::new()
        .layer(RetryLayer::new(quick().observe(log.clone())))
        .service(client());
    let error = retried.oneshot(get("ftp://127.0.0.1/")).await.unwrap_err();
    assert!(error.is_builder());
    assert_eq!(log.events().ends, [(StopReason::NotRetryable, 1, 0)]);
}

#[tokio::test]
async fn redirects_without_end_are_not_followed_again() {
    const ROUND: &str = "HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n";
    let server = RawServer::start([Reply::Keep(ROUND)]).await;
    let retried = ServiceBuilder::new()
        .layer(RetryLayer::new(quick()))
        .service(client());
    let error = retried.oneshot(get(&server.uri())).await.unwrap_err();
    assert!(error.is_redirect());
    assert_eq!(server.requests(), 11); // one session of reqwest's ten redirects
}

#[tokio::test]
async fn two_layers_with_one_attempt_header_send_three() {
    let server = RawServer::start([Reply::Keep(UNAVAILABLE)]).await;
    let rules = Http::new().attempt_header(HeaderName::from_static("x-attempt"));
    let log = Log::default();
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(with(rules.clone())))
        .layer(RetryLayer::new(with(rules).observe(log.clone())))
        .service(client());
    client.oneshot(get(&server.uri())).await.unwrap();
    assert_eq!(server.requests(), 3);
    assert_eq!(log.events().ends, [(StopReason::Nested, 1, 0); 3]);
    let heads = server.heads();
    assert!(heads[0].contains("x-attempt: 1") && heads[2].contains("x-attempt: 3"));
}

#[tokio::test]
async fn under_a_tower_timeout_the_boxed_error_is_reqwests() {
    let refusing = Refusing::new();
    let log = Log::default();
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(quick().observe(log.clone())))
        .timeout(Duration::from_secs(600))
        .service(client());
    let error = client.oneshot(get(&refusing.uri())).await.unwrap_err();
    assert!(error.downcast::<reqwest::Error>().unwrap().is_connect());
    assert_eq!(log.events().ends, [(StopReason::AttemptsExhausted, 3, 0)]);
}

const NAME: &str = "http://in.memory/";

struct Resolver(fn() -> Resolving);

impl Resolve for Resolver {
    fn resolve(&self, _: Name) -> Resolving {
        (self.0)()
    }
}

async fn fail(client: Client, request: Request, follows: bool) -> (reqwest::Error, Log) {
    let log = Log::default();
    let rules = Http::new().follows_redirects(follows);
    let retried = ServiceBuilder::new()
        .layer(RetryLayer::new(with(rules).observe(log.clone())))
        .service(client);
    (retried.oneshot(request).await.unwrap_err(), log)
}

fn client() -> Client {
    Client::builder().no_proxy().build().unwrap()
}

fn get(uri: &str) -> Request {
    Request::new(Method::GET, uri.parse().unwrap())
}

fn post(uri: &str) -> Request {
    let mut request = Request::new(Method::POST, uri.parse().unwrap());
    *request.body_mut() = Some(Body::from("body"));
    request
}
