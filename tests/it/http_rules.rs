//! The table of HTTP: method, mark and outcome against the verdict.

use std::{
    convert::Infallible,
    error::Error,
    fmt,
    io::{self, ErrorKind},
    time::Duration,
};

use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header::RETRY_AFTER};
use http_body_util::{BodyExt, Either, Empty, Full, Limited};
use tower_retry_layer::{
    Attempt, Limits, Protocol, Verdict,
    http::{
        Boxed, Deadline, ErrorRef, Http, Idempotent, MaxAttempts, NoRetry, ReplayableBody,
        RetryAttempt, Typed,
    },
};

type BoxError = Box<dyn Error + Send + Sync>;

const IDEMPOTENT: [&str; 6] = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];
const OTHERS: [&str; 5] = ["POST", "PATCH", "CONNECT", "QUERY", "PROPFIND"];
const RETRIED: [u16; 5] = [408, 429, 502, 503, 504];

/// How a request says that it may be sent twice.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mark {
    None,
    Key,
    Extension,
}

const MARKS: [Mark; 3] = [Mark::None, Mark::Key, Mark::Extension];

#[test]
fn every_status_for_every_method_and_mark() {
    for method in IDEMPOTENT.into_iter().chain(OTHERS) {
        for mark in MARKS {
            let may = IDEMPOTENT.contains(&method) || mark != Mark::None;
            for status in 100..=999 {
                let expected = match status {
                    _ if RETRIED.contains(&status) && may => Verdict::Retry,
                    _ if RETRIED.contains(&status) => Verdict::Stop,
                    ..500 => Verdict::Success,
                    _ => Verdict::Stop,
                };
                let seen = status_verdict(&Http::default(), &request(method, mark), status);
                assert_eq!(seen, expected, "{method} {mark:?} {status}");
            }
        }
    }
}

#[test]
fn every_kind_of_io_error_for_every_method_and_mark() {
    // (kind, of an idempotent request, of any other)
    let never_sent = (Verdict::Retry, Verdict::Retry);
    let perhaps = (Verdict::Retry, Verdict::Stop);
    let hopeless = (Verdict::Stop, Verdict::Stop);
    let rows = [
        (ErrorKind::ConnectionRefused, never_sent),
        (ErrorKind::AddrNotAvailable, never_sent),
        (ErrorKind::AddrInUse, never_sent),
        (ErrorKind::NotFound, never_sent),
        (ErrorKind::ConnectionReset, perhaps),
        (ErrorKind::ConnectionAborted, perhaps),
        (ErrorKind::NotConnected, perhaps),
        (ErrorKind::BrokenPipe, perhaps),
        (ErrorKind::UnexpectedEof, perhaps),
        (ErrorKind::WriteZero, perhaps),
        (ErrorKind::TimedOut, perhaps),
        (ErrorKind::HostUnreachable, perhaps),
        (ErrorKind::NetworkUnreachable, perhaps),
        (ErrorKind::NetworkDown, perhaps),
        (ErrorKind::InvalidData, hopeless),
        (ErrorKind::InvalidInput, hopeless),
        (ErrorKind::PermissionDenied, hopeless),
        (ErrorKind::WouldBlock, hopeless),
        (ErrorKind::Interrupted, hopeless),
        (ErrorKind::OutOfMemory, hopeless),
        (ErrorKind::Unsupported, hopeless),
        (ErrorKind::Other, hopeless),
    ];
    for (kind, (idempotent, other)) in rows {
        for method in IDEMPOTENT.into_iter().chain(OTHERS) {
            for mark in MARKS {
                let may = IDEMPOTENT.contains(&method) || mark != Mark::None;
                let expected = if may { idempotent } else { other };
                let seen = error_verdict(&request(method, mark), io::Error::from(kind));
                assert_eq!(seen, expected, "{method} {mark:?} {kind:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn timeouts_are_retried_if_idempotent() {
    let tower = || tower::timeout::error::Elapsed::new();
    assert_eq!(error_verdict(&get(), tower()), Verdict::Retry);
    assert_eq!(error_verdict(&post(), tower()), Verdict::Stop);
    let pending = std::future::pending::<()>;
    for (request, expected) in [(get(), Verdict::Retry), (post(), Verdict::Stop)] {
        let elapsed = tokio::time::timeout(Duration::from_secs(1), pending()).await;
        assert_eq!(error_verdict(&request, elapsed.unwrap_err()), expected);
    }
}

#[test]
fn an_unknown_error_is_never_retried() {
    assert_eq!(error_verdict(&get(), fmt::Error), Verdict::Stop);
    assert_eq!(
        error_verdict(&get(), BoxError::from("who knows")),
        Verdict::Stop
    );
    let other = io::Error::other("connection reset, says the text");
    assert_eq!(error_verdict(&get(), other), Verdict::Stop);
}

#[test]
fn the_boxed_error_is_read_like_the_error_in_it() {
    for (kind, expected) in [
        (ErrorKind::ConnectionRefused, Verdict::Retry),
        (ErrorKind::ConnectionReset, Verdict::Stop),
    ] {
        let boxed: BoxError = io::Error::from(kind).into();
        assert_eq!(error_verdict(&post(), boxed), expected, "{kind:?}");
    }
}

#[test]
fn causes_are_found_at_any_depth_and_inside_io_errors() {
    for depth in [0, 1, 5, 20] {
        let error = nest(depth, Box::new(io::Error::from(ErrorKind::ConnectionReset)));
        assert_eq!(error_verdict(&get(), error), Verdict::Retry, "{depth}");
    }
    // `source` of an `io::Error` leaves out its own inside.
    let inside = io::Error::other(nest(1, Box::new(tower::timeout::error::Elapsed::new())));
    assert_eq!(error_verdict(&get(), inside), Verdict::Retry);
    let twice = io::Error::other(io::Error::from(ErrorKind::ConnectionRefused));
    assert_eq!(error_verdict(&post(), twice), Verdict::Retry);
}

#[test]
fn the_outermost_known_cause_counts() {
    let reset = io::Error::from(ErrorKind::ConnectionReset);
    let bad_certificate = io::Error::new(ErrorKind::InvalidData, reset);
    assert_eq!(error_verdict(&get(), bad_certificate), Verdict::Stop);
}

#[test]
fn a_chain_without_end_is_cut() {
    #[derive(Debug)]
    struct Ouroboros;

    impl fmt::Display for Ouroboros {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("caused by itself")
        }
    }

    impl Error for Ouroboros {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self)
        }
    }

    assert_eq!(error_verdict(&get(), Ouroboros), Verdict::Stop);
    let deep = nest(
        100_000,
        Box::new(io::Error::from(ErrorKind::ConnectionReset)),
    );
    assert_eq!(error_verdict(&get(), deep), Verdict::Stop);
}

#[test]
fn hints_are_read_from_retried_statuses_only() {
    let hinted = |status| {
        let mut response = response(status);
        let value = HeaderValue::from_static("120");
        response.headers_mut().insert(RETRY_AFTER, value);
        Ok::<_, Infallible>(response)
    };
    let two_minutes = Verdict::RetryAfter(Duration::from_secs(120));
    for status in RETRIED {
        assert_eq!(
            verdict(&Http::new(), Some(&get()), &hinted(status)),
            two_minutes,
            "R1"
        );
        // A hint never makes an outcome retryable.
        assert_eq!(
            verdict(&Http::new(), Some(&post()), &hinted(status)),
            Verdict::Stop
        );
    }
    assert_eq!(
        verdict(&Http::new(), Some(&get()), &hinted(200)),
        Verdict::Success,
        "R4"
    );
    assert_eq!(
        verdict(&Http::new(), Some(&get()), &hinted(301)),
        Verdict::Success
    );
    assert_eq!(
        verdict(&Http::new(), Some(&get()), &hinted(500)),
        Verdict::Stop
    );
    let with_500 = Http::new().server_errors();
    assert_eq!(verdict(&with_500, Some(&get()), &hinted(500)), two_minutes);
}

#[test]
fn a_hint_beyond_all_bounds_is_left_to_the_policy_to_cut() {
    let mut response = response(503);
    let value = HeaderValue::from_static("18446744073709551616");
    response.headers_mut().insert(RETRY_AFTER, value);
    let seen = verdict(&Http::new(), Some(&get()), &Ok::<_, Infallible>(response));
    assert_eq!(
        seen,
        Verdict::RetryAfter(Duration::from_secs(u64::MAX)),
        "R16"
    );
}

#[test]
fn without_a_copy_failures_are_failures_whatever_the_method_was() {
    let http = Http::new();
    let failed: Result<Response<()>, Infallible> = Ok(response(503));
    assert_eq!(verdict(&http, None, &failed), Verdict::Retry);
    let http = Http::new();
    let failed: Result<Response<()>, _> = Err(io::Error::from(ErrorKind::ConnectionReset));
    assert_eq!(verdict(&http, None, &failed), Verdict::Retry);
    let failed: Result<Response<()>, _> = Err(io::Error::from(ErrorKind::InvalidData));
    assert_eq!(verdict(&http, None, &failed), Verdict::Stop);
}

#[test]
fn e16_a_status_can_be_added() {
    let http = Http::<Typed>::new().retry_status(StatusCode::CONFLICT);
    assert_eq!(status_verdict(&http, &get(), 409), Verdict::Retry);
    assert_eq!(status_verdict(&http, &get(), 400), Verdict::Success);
    assert_eq!(status_verdict(&http, &post(), 409), Verdict::Stop);
}

#[test]
fn a_status_taken_off_is_neither_retried_nor_a_success() {
    let http = Http::new()
        .without_status(StatusCode::TOO_MANY_REQUESTS)
        .without_status(StatusCode::BAD_GATEWAY);
    assert_eq!(status_verdict(&http, &get(), 429), Verdict::Stop);
    assert_eq!(status_verdict(&http, &get(), 502), Verdict::Stop);
    assert_eq!(status_verdict(&http, &get(), 503), Verdict::Retry);
}

#[test]
fn server_errors_add_500_and_no_other() {
    let http = Http::new().server_errors().server_errors();
    assert_eq!(status_verdict(&http, &get(), 500), Verdict::Retry);
    for status in [501, 505, 507, 511, 599] {
        assert_eq!(
            status_verdict(&http, &get(), status),
            Verdict::Stop,
            "{status}"
        );
    }
    let back = http.without_status(StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(status_verdict(&back, &get(), 500), Verdict::Stop);
}

#[test]
fn methods_can_be_added_and_taken_away() {
    let query = request("QUERY", Mark::None);
    let http = Http::new()
        .retry_method(Method::from_bytes(b"QUERY").unwrap())
        .without_method(Method::DELETE);
    assert_eq!(status_verdict(&http, &query, 503), Verdict::Retry);
    assert_eq!(status_verdict(&Http::new(), &query, 503), Verdict::Stop);
    for (mark, expected) in [
        (Mark::None, Verdict::Stop),
        (Mark::Key, Verdict::Retry),
        (Mark::Extension, Verdict::Retry),
    ] {
        let delete = request("DELETE", mark);
        assert_eq!(status_verdict(&http, &delete, 503), expected, "{mark:?}");
    }
    // What never left is no matter of methods.
    let refused = Err::<Response<()>, _>(io::Error::from(ErrorKind::ConnectionRefused));
    let http = Http::new().without_method(Method::DELETE);
    let delete = request("DELETE", Mark::None);
    assert_eq!(verdict(&http, Some(&delete), &refused), Verdict::Retry);
}

#[test]
fn behind_redirects_a_failed_connect_may_be_that_of_a_later_hop() {
    let refused = Err::<Response<()>, _>(io::Error::from(ErrorKind::ConnectionRefused));
    let http = Http::new().follows_redirects(true);
    assert_eq!(verdict(&http, Some(&post()), &refused), Verdict::Stop);
    assert_eq!(verdict(&http, Some(&get()), &refused), Verdict::Retry);
    let http = http.follows_redirects(false);
    assert_eq!(verdict(&http, Some(&post()), &refused), Verdict::Retry);
}

#[test]
fn a_rule_sees_the_exchange_and_has_the_last_word() {
    let http = Http::new().classify_with(|seen, default| {
        assert_eq!(seen.number(), 2);
        assert_eq!(seen.elapsed(), Duration::from_secs(3));
        assert_eq!(seen.path(), Some("/things"));
        assert!(seen.request_extensions().is_some());
        match (seen.method(), seen.status(), seen.error()) {
            (Some(&Method::GET), Some(StatusCode::ACCEPTED), None) => {
                assert_eq!(default, Verdict::Success);
                assert!(seen.is_idempotent());
                assert!(seen.headers().is_some() && seen.extensions().is_some());
                Verdict::Retry
            }
            (Some(&Method::POST), None, Some(error)) => {
                assert_eq!(default, Verdict::Stop);
                assert!(!seen.is_idempotent());
                assert!(error.is::<io::Error>());
                assert!(seen.headers().is_none());
                Verdict::ServerRefused
            }
            _ => default,
        }
    });
    let accepted = Ok::<_, io::Error>(response(202));
    let lost = Err::<Response<()>, _>(io::Error::from(ErrorKind::ConnectionReset));
    let (get, post) = (get(), post());
    let third = Duration::from_secs(3);
    let attempt = Attempt::new(Some(&get), &accepted, 2).with_elapsed(third);
    assert_eq!(http.classify(&attempt), Verdict::Retry);
    let attempt = Attempt::new(Some(&post), &lost, 2).with_elapsed(third);
    assert_eq!(http.classify(&attempt), Verdict::ServerRefused);
}

#[test]
fn a_rule_sees_what_the_user_put_into_a_copy_and_the_number_but_not_the_mark_alone() {
    let seen = |copy: Option<&Request<()>>, number| {
        let marks = std::sync::Arc::new(std::sync::Mutex::new(None));
        let told = marks.clone();
        let http = Http::<Typed>::new().classify_with(move |seen, default| {
            let extensions = seen.request_extensions().unwrap();
            *told.lock().unwrap() = Some((
                extensions.get::<RetryAttempt>().copied(),
                extensions.get::<Idempotent>().copied(),
                seen.number(),
            ));
            default
        });
        let outcome = Ok::<_, Infallible>(response(503));
        http.classify(&Attempt::new(copy, &outcome, number));
        marks.lock().unwrap().take().unwrap()
    };
    let mut request = get();
    prepare(&Http::new(), &mut request, 1);
    let alone = copy(&Http::new(), &request);
    assert_eq!(seen(alone.as_ref(), 1), (None, None, 1));
    request.extensions_mut().insert(Idempotent);
    let with_the_users = copy(&Http::new(), &request);
    assert_eq!(seen(with_the_users.as_ref(), 1).1, Some(Idempotent));
}

#[test]
fn a_second_rule_is_asked_after_the_first() {
    let http = Http::<Typed>::new()
        .classify_with(|_, default| {
            assert_eq!(default, Verdict::Success);
            Verdict::Retry
        })
        .classify_with(|_, first| {
            assert_eq!(first, Verdict::Retry);
            Verdict::Stop
        });
    assert_eq!(status_verdict(&http, &get(), 200), Verdict::Stop);
}

#[test]
fn only_a_rule_asks_for_the_time() {
    assert!(!timed(&Http::<Typed>::new()));
    assert!(timed(
        &Http::<Typed>::new().classify_with(|_, default| default)
    ));
}

#[test]
fn a_request_names_its_own_limits() {
    let deadline = tokio::time::Instant::now();
    let mut request = get();
    assert_eq!(limits(&Http::new(), &request), Limits::default());
    request.extensions_mut().insert(MaxAttempts(5));
    request.extensions_mut().insert(Deadline(deadline));
    let named = limits(&Http::new(), &request);
    assert_eq!(named.max_attempts, Some(5));
    assert_eq!(named.deadline, Some(deadline));
    assert!(!named.no_retry && !named.nested);
    request.extensions_mut().insert(NoRetry);
    assert!(limits(&Http::new(), &request).no_retry);
}

#[test]
fn an_attempt_of_a_layer_above_is_nested_unless_told_otherwise() {
    let mut request = get();
    prepare(&Http::new(), &mut request, 1);
    assert!(limits(&Http::new(), &request).nested);
    assert!(!limits(&Http::new().nested(true), &request).nested);
}

#[test]
fn every_attempt_is_marked_and_numbered() {
    let name = HeaderName::from_static("x-attempt");
    let http = Http::new().attempt_header(name.clone());
    let mut request = get();
    for attempt in [1, 2, 3, u32::MAX] {
        prepare(&http, &mut request, attempt);
        assert_eq!(request.extensions().get(), Some(&RetryAttempt(attempt)));
        assert_eq!(request.headers().get_all(&name).iter().count(), 1);
        assert_eq!(request.headers()[&name], attempt.to_string());
    }
    let mut request = get();
    prepare(&Http::new(), &mut request, 1);
    assert!(request.headers().is_empty());
}

#[test]
fn a_copy_is_the_whole_request() {
    let request = Request::put("http://host/path?query")
        .version(http::Version::HTTP_2)
        .header("a", "1")
        .header("a", "2")
        .extension(Idempotent)
        .body(String::from("body"))
        .unwrap();
    let copy = copy(&Http::new(), &request).unwrap();
    assert_eq!(copy.method(), request.method());
    assert_eq!(copy.uri(), request.uri());
    assert_eq!(copy.version(), request.version());
    assert_eq!(copy.headers(), request.headers());
    assert_eq!(copy.extensions().get(), Some(&Idempotent));
    assert_eq!(copy.body(), request.body());
}

#[test]
fn a_copy_of_a_marked_request_keeps_what_the_user_put_there() {
    let mut request = get();
    prepare(&Http::new(), &mut request, 1);
    assert!(
        copy(&Http::new(), &request)
            .unwrap()
            .extensions()
            .is_empty()
    );
    request.extensions_mut().insert(Idempotent);
    let mut copied = copy(&Http::new(), &request).unwrap();
    assert_eq!(copied.extensions().get(), Some(&Idempotent));
    prepare(&Http::new(), &mut copied, 2);
    assert_eq!(copied.extensions().get(), Some(&RetryAttempt(2)));
}

#[test]
fn a_request_whose_body_cannot_be_sent_twice_has_no_copy() {
    assert!(copy(&Http::new(), &Request::new(Once)).is_none());
    assert!(copy(&Http::new(), &Request::new(Some(Once))).is_none());
    assert!(copy(&Http::new(), &Request::new(None::<Once>)).is_some());
    assert!(copy(&Http::new(), &Request::new(Box::new(Once))).is_none());
    let either: Either<Once, Empty<&[u8]>> = Either::Left(Once);
    assert!(copy(&Http::new(), &Request::new(either)).is_none());
    let either: Either<Once, Empty<&[u8]>> = Either::Right(Empty::new());
    assert!(copy(&Http::new(), &Request::new(either)).is_some());
}

#[tokio::test]
async fn bodies_in_memory_are_sent_again_whole() {
    async fn replayed<B>(body: B) -> Vec<u8>
    where
        B: ReplayableBody + http_body::Body<Data: Send, Error: fmt::Debug>,
    {
        let copy = body.try_replay().expect("held in memory");
        copy.collect().await.unwrap().to_bytes().to_vec()
    }
    let bytes = || bytes::Bytes::from_static(b"again");
    assert_eq!(replayed(Full::new(bytes())).await, b"again");
    assert_eq!(replayed(String::from("again")).await, b"again");
    assert_eq!(replayed(Box::new(Full::new(bytes()))).await, b"again");
    assert_eq!(
        replayed(Full::new(bytes()).map_err(|never| match never {})).await,
        b"again"
    );
    assert_eq!(
        replayed(Full::new(bytes()).map_frame(|frame| frame)).await,
        b"again"
    );
    assert_eq!(
        replayed(Limited::new(Full::new(bytes()), 5)).await,
        b"again"
    );
    assert_eq!(replayed(Empty::<bytes::Bytes>::new()).await, b"");
    let either: Either<Full<bytes::Bytes>, Empty<bytes::Bytes>> = Either::Left(Full::new(bytes()));
    assert_eq!(replayed(either).await, b"again");
}

#[test]
fn rules_are_shared_between_threads_whatever_the_error() {
    fn shared<T: Send + Sync + Clone + fmt::Debug + 'static>() {}
    shared::<Http>();
    shared::<Http<Typed>>();
    shared::<Http<Boxed>>();
}

// === helpers ===

#[derive(Debug)]
struct Once;

impl ReplayableBody for Once {
    fn try_replay(&self) -> Option<Self> {
        None
    }
}

#[derive(Debug)]
struct Nested(Option<Box<dyn Error + Send + Sync>>);

impl fmt::Display for Nested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("something below failed")
    }
}

impl Error for Nested {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&**self.0.as_ref()?)
    }
}

// A chain of any length must not overflow the stack when it is dropped.
impl Drop for Nested {
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(error) = next {
            next = match error.downcast::<Nested>() {
                Ok(mut nested) => nested.0.take(),
                Err(_) => None,
            };
        }
    }
}

fn nest(depth: usize, inner: BoxError) -> Nested {
    let mut nested = Nested(Some(inner));
    for _ in 0..depth {
        nested = Nested(Some(Box::new(nested)));
    }
    nested
}

fn get() -> Request<()> {
    request("GET", Mark::None)
}

fn post() -> Request<()> {
    request("POST", Mark::None)
}

fn request(method: &str, mark: Mark) -> Request<()> {
    let mut request = Request::builder()
        .method(method)
        .uri("/things?q")
        .body(())
        .unwrap();
    match mark {
        Mark::None => {}
        Mark::Key => {
            let key = HeaderValue::from_static("\"k\"");
            request.headers_mut().insert("idempotency-key", key);
        }
        Mark::Extension => {
            request.extensions_mut().insert(Idempotent);
        }
    }
    request
}

fn response(status: u16) -> Response<()> {
    Response::builder().status(status).body(()).unwrap()
}

fn verdict<E, M>(
    http: &Http<M>,
    request: Option<&Request<()>>,
    outcome: &Result<Response<()>, E>,
) -> Verdict
where
    E: ErrorRef<M>,
{
    http.classify(&Attempt::new(request, outcome, 1))
}

fn status_verdict(http: &Http, request: &Request<()>, status: u16) -> Verdict {
    verdict(http, Some(request), &Ok::<_, Infallible>(response(status)))
}

fn error_verdict<E: ErrorRef<M>, M>(request: &Request<()>, error: E) -> Verdict {
    verdict(&Http::new(), Some(request), &Err(error))
}

fn timed(http: &Http) -> bool {
    Protocol::<Request<()>, Response<()>, Infallible>::timed(http)
}

fn limits(http: &Http, request: &Request<()>) -> Limits {
    Protocol::<_, Response<()>, Infallible>::limits(http, request)
}

fn prepare(http: &Http, request: &mut Request<()>, attempt: u32) {
    Protocol::<_, Response<()>, Infallible>::prepare(http, request, attempt, None);
}

fn copy<B: ReplayableBody>(http: &Http, request: &Request<B>) -> Option<Request<B>> {
    Protocol::<_, Response<()>, Infallible>::clone_request(http, request)
}
