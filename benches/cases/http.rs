//! HTTP in the process: a request of some size through `Http`, and reading `Retry-After`.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    hint::black_box,
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use ::http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header::RETRY_AFTER};
use bytes::Bytes;
use http_body_util::Full;
use tower::{Layer, Service, layer::util::Identity};
use tower_retry_layer::{RetryLayer, StandardPolicy, http::retry_after};

use super::{Group, Tower, call};

/// Long before the dates below.
const NOW: Duration = Duration::from_secs(1_000_000_000);

pub(super) fn groups() -> Vec<Group> {
    vec![through(), parsing()]
}

fn through() -> Group {
    let tower = tower::retry::RetryLayer::new(Tower { budget: None });
    let ours = RetryLayer::new(StandardPolicy::http());
    let mut group = Group::new("request with 12 headers");
    group.case("bare", answers(Identity::new().layer(Echo)));
    group.case("tower", answers(tower.layer(Echo)));
    group.case("ours", answers(ours.layer(Echo)));
    group
}

fn parsing() -> Group {
    let mut group = Group::new("Retry-After");
    for (name, value, read) in [
        ("seconds", "120", true),
        ("date", "Wed, 21 Oct 2065 07:28:00 GMT", true),
        ("date of 1994", "Sun, 06 Nov 1994 08:49:37 GMT", false),
        ("neither", "in an hour or so", false),
    ] {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]);
        group.case(name, move || assert_eq!(hint(&headers).is_some(), read));
    }
    let headers = HeaderMap::new();
    group.case("none", move || assert_eq!(hint(&headers), None));
    group
}

fn hint(headers: &HeaderMap) -> Option<Duration> {
    let now = SystemTime::UNIX_EPOCH + NOW;
    retry_after(black_box(headers), now, Duration::from_secs(60))
}

fn answers<S>(mut service: S) -> impl FnMut()
where
    S: Service<Request<Full<Bytes>>, Response = Response<usize>, Error = Infallible>,
{
    let mut request = Request::put("http://127.0.0.1/orders/17").body(Full::from("one pizza"));
    let headers = request.as_mut().unwrap().headers_mut();
    for number in 0..12 {
        let name = HeaderName::try_from(format!("x-header-{number}")).unwrap();
        headers.insert(name, HeaderValue::from_static("some value of some length"));
    }
    let request = request.unwrap();
    move || {
        let answer = call(&mut service, black_box(&request).clone()).unwrap();
        assert_eq!(answer.into_body(), 12);
    }
}

/// Answers with the number of headers.
#[derive(Clone)]
struct Echo;

impl Service<Request<Full<Bytes>>> for Echo {
    type Response = Response<usize>;
    type Error = Infallible;
    type Future = Ready<Result<Response<usize>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        ready(Ok(Response::new(request.headers().len())))
    }
}
