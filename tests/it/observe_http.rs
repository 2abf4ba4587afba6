//! HTTP seen from outside: names for failures, and the summary in a response.

use std::{
    error::Error,
    io::{self, ErrorKind},
    sync::{Arc, Mutex},
};

use http::{Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};
use tower_retry_layer::{
    Protocol, RetryLayer, StandardPolicy,
    http::Http,
    observe::{RetrySummary, StopReason, on_finish},
};

use crate::support::{delays, ms};

fn name<E, M>(outcome: Result<Response<()>, E>) -> &'static str
where
    Http<M>: Protocol<Request<String>, Response<()>, E>,
{
    Http::<M>::new().error_type(&outcome)
}

fn answer(status: u16) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

#[test]
fn every_status_is_its_own_name() {
    for status in 100..=999 {
        assert_eq!(name::<io::Error, _>(Ok(answer(status))), status.to_string());
    }
}

#[test]
fn errors_have_few_names() {
    for (kind, expected) in [
        (ErrorKind::TimedOut, "timeout"),
        (ErrorKind::ConnectionRefused, "connection_refused"),
        (ErrorKind::NotFound, "connect"),
        (ErrorKind::ConnectionReset, "connection_reset"),
        (ErrorKind::BrokenPipe, "connection_reset"),
        (ErrorKind::UnexpectedEof, "connection_reset"),
        (ErrorKind::NetworkUnreachable, "unreachable"),
        (ErrorKind::InvalidData, "_OTHER"),
    ] {
        assert_eq!(name(Err(io::Error::from(kind))), expected);
        let inside: Box<dyn Error + Send + Sync> =
            Box::new(io::Error::other(io::Error::from(kind)));
        assert_eq!(name(Err(inside)), expected, "boxed, as a cause");
    }
    let elapsed = tower::timeout::error::Elapsed::new();
    assert_eq!(name(Err(elapsed)), "timeout");
}

#[tokio::test(start_paused = true)]
async fn a_response_carries_its_summary_in_its_extensions() {
    for (statuses, expected) in [
        (&[503, 200][..], Some((2, StopReason::Success, None))),
        (&[500], Some((1, StopReason::NotRetryable, Some("500")))),
        (&[200], None),
    ] {
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = told.clone();
        let policy = StandardPolicy::http()
            .backoff(delays(&[100]))
            .observe(on_finish(move |event| {
                log.lock().unwrap().push(event.error_type)
            }));
        let script = Arc::new(Mutex::new(statuses.iter()));
        let service = service_fn(move |_: Request<String>| {
            let status = *script.lock().unwrap().next().unwrap();
            async move { Ok::<_, io::Error>(answer(status)) }
        });
        let response = RetryLayer::new(policy)
            .layer(service)
            .oneshot(Request::new(String::new()))
            .await
            .unwrap();
        let summary = response.extensions().get::<RetrySummary>();
        let expected_summary = expected.map(|(attempts, reason, _)| {
            let mut summary = RetrySummary::new(attempts, reason);
            summary.total_delay = ms(100) * (attempts - 1);
            summary
        });
        assert_eq!(summary.copied(), expected_summary);
        assert_eq!(
            *told.lock().unwrap(),
            [expected.and_then(|(.., name)| name)]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_below_that_retries_leaves_its_summary_to_a_success_at_once() {
    for (statuses, attempts, reason) in [
        // The one below had to retry, and the one above did not.
        (&[503, 200][..], 2, StopReason::Success),
        // The one below gave up twice, and the one above has its own to tell.
        (&[503, 503, 503, 503], 2, StopReason::AttemptsExhausted),
        (&[503, 503, 200], 2, StopReason::Success),
    ] {
        let script = Arc::new(Mutex::new(statuses.iter()));
        let service = service_fn(move |_: Request<String>| {
            let status = *script.lock().unwrap().next().unwrap();
            async move { Ok::<_, io::Error>(answer(status)) }
        });
        let policy = |http: Http, delay| {
            let policy = StandardPolicy::new(http).max_attempts(2);
            RetryLayer::new(policy.backoff(delays(&[delay])))
        };
        let below = policy(Http::new().nested(true), 100).layer(service);
        let above = policy(Http::new(), 1_000).layer(below);
        let response = above.oneshot(Request::new(String::new())).await.unwrap();
        let mut expected = RetrySummary::new(attempts, reason);
        expected.total_delay = if statuses.len() == 2 {
            ms(100)
        } else {
            ms(1_000)
        };
        assert_eq!(response.extensions().get(), Some(&expected));
    }
}
