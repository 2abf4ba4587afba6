//! The table of gRPC: code, pushback, HTTP status and error against the verdict; what attempts carry.

use std::{
    error::Error,
    fmt,
    io::{self, ErrorKind},
    time::Duration,
};

use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::Full;
use tokio::time::Instant;
use tower_retry_layer::{
    Attempt, Limits, Protocol, Verdict,
    grpc::{Code, Grpc},
    http::{Boxed, Deadline, MaxAttempts, NoRetry, RetryAttempt},
};

use crate::support::ms;

type BoxError = Box<dyn Error + Send + Sync>;
type Body = Full<&'static [u8]>;

const PATH: &str = "/pkg.Service/Method";
const STATUS: &str = "grpc-status";
const PUSHBACK: &str = "grpc-retry-pushback-ms";
const TIMEOUT: &str = "grpc-timeout";
const PREVIOUS: &str = "grpc-previous-rpc-attempts";

fn codes() -> impl Iterator<Item = Code> {
    (0..17).map(Code::from)
}

#[test]
fn the_codes_have_the_numbers_and_names_of_the_protocol() {
    let names = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    for (number, name) in names.into_iter().enumerate() {
        let code = Code::from(number as i32);
        assert_eq!(code as usize, number);
        assert_eq!(code.to_string(), name);
        let tonic = tonic::Code::from_i32(number as i32);
        assert_eq!(format!("{code:?}"), format!("{tonic:?}"));
        assert_eq!(Code::from(tonic as i32), code);
    }
    for number in [-1, 17, i32::MIN, i32::MAX] {
        assert_eq!(Code::from(number), Code::Unknown);
    }
}

#[test]
fn every_code_is_a_success_a_retry_or_a_stop() {
    for code in codes() {
        let expected = match code {
            Code::Ok => Verdict::Success,
            Code::Unavailable => Verdict::Retry,
            _ => Verdict::Stop,
        };
        assert_eq!(verdict(&Grpc::new(), &with_code(code)), expected, "{code}");
    }
}

#[test]
fn a_code_is_retried_once_it_is_asked_for_and_success_never() {
    for code in codes() {
        let expected = match code {
            Code::Ok => Verdict::Success,
            _ => Verdict::Retry,
        };
        let rules = Grpc::new().retry_code(code);
        assert_eq!(verdict(&rules, &with_code(code)), expected, "{code}");
        let rules = rules.without_code(code).without_code(code);
        let expected = match code {
            Code::Ok => Verdict::Success,
            _ => Verdict::Stop,
        };
        assert_eq!(verdict(&rules, &with_code(code)), expected, "{code}");
    }
}

#[test]
fn a_method_may_have_codes_of_its_own() {
    let rules = Grpc::new()
        .without_code(Code::Unavailable)
        .retry_code_for(PATH, Code::Unavailable)
        .retry_code_for(PATH.to_owned(), Code::Aborted);
    for code in codes() {
        let response = with_code(code);
        let own = match code {
            Code::Ok => Verdict::Success,
            Code::Unavailable | Code::Aborted => Verdict::Retry,
            _ => Verdict::Stop,
        };
        assert_eq!(verdict(&rules, &response), own, "{code}");
        for other in [
            "/pkg.Service/Method2",
            "/pkg.Service/",
            "pkg.Service/Method",
        ] {
            let other = Request::post(other).body(Body::default());
            let other = match other {
                Ok(other) => other,
                Err(_) => continue, // not a path
            };
            let expected = match code {
                Code::Ok => Verdict::Success,
                _ => Verdict::Stop,
            };
            let seen = classify(&rules, Some(&other), &Ok::<_, fmt::Error>(response.clone()));
            assert_eq!(seen, expected, "{code}");
        }
        // Of the last attempt no copy is kept, and the method is not known.
        let last = classify(&rules, None, &Ok::<_, fmt::Error>(response));
        assert_eq!(last, own, "{code}");
    }
}

#[test]
fn a_head_without_a_status_has_begun_and_is_final() {
    let rules = Grpc::new().retry_code(Code::Unknown);
    assert_eq!(verdict(&rules, &response(200, &[])), Verdict::Success);
    let pushed = response(200, &[(PUSHBACK, "-1")]);
    assert_eq!(verdict(&rules, &pushed), Verdict::Success);
    assert_eq!(error_type(&pushed), "OK");
}

#[test]
fn a_status_that_is_no_code_is_unknown() {
    let odd = [
        "",
        "17",
        "20",
        "24",
        "94",
        "05",
        "99",
        "-1",
        "+14",
        " 14",
        "14 ",
        "1.4",
        "014",
        "0x0E",
        "UNAVAILABLE",
    ];
    for value in odd {
        let response = response(200, &[(STATUS, value)]);
        assert_eq!(verdict(&Grpc::new(), &response), Verdict::Stop, "{value:?}");
        assert_eq!(error_type(&response), "UNKNOWN", "{value:?}");
    }
    let mut bytes = response(200, &[]);
    let value = HeaderValue::from_bytes(b"\xff\xfe").unwrap();
    bytes.headers_mut().insert(STATUS, value);
    assert_eq!(error_type(&bytes), "UNKNOWN");
    // The first of two counts.
    let two = response(200, &[(STATUS, "14"), (STATUS, "0")]);
    assert_eq!(verdict(&Grpc::new(), &two), Verdict::Retry);
}

#[test]
fn details_that_cannot_be_decoded_are_nobodys_business_here() {
    let details = ("grpc-status-details-bin", "!!! not base64 !!!");
    let message = ("grpc-message", "%zz%");
    let response = response(200, &[(STATUS, "14"), details, message]);
    assert_eq!(verdict(&Grpc::new(), &response), Verdict::Retry);
}

#[test]
fn an_answer_of_a_proxy_is_mapped_by_its_status() {
    for status in 100..=999 {
        let code = match status {
            200 => continue,
            400 => "INTERNAL",
            401 => "UNAUTHENTICATED",
            403 => "PERMISSION_DENIED",
            404 => "UNIMPLEMENTED",
            429 | 502 | 503 | 504 => "UNAVAILABLE",
            _ => "UNKNOWN",
        };
        let answer = response(status, &[]);
        assert_eq!(error_type(&answer), code, "{status}");
        let expected = match code {
            "UNAVAILABLE" => Verdict::Retry,
            _ => Verdict::Stop,
        };
        assert_eq!(verdict(&Grpc::new(), &answer), expected, "{status}");
        // One that does have a code is no proxy's.
        let answer = response(status, &[(STATUS, "5")]);
        assert_eq!(error_type(&answer), "NOT_FOUND", "{status}");
    }
}

#[test]
fn a_proxy_may_say_when_to_come_back() {
    let busy = response(503, &[("retry-after", "7")]);
    let after = Verdict::RetryAfter(Duration::from_secs(7));
    assert_eq!(verdict(&Grpc::new(), &busy), after);
    let stop = verdict(&Grpc::new().without_code(Code::Unavailable), &busy);
    assert_eq!(stop, Verdict::Stop);
    // A gRPC server has a word of its own for that.
    let grpc = response(200, &[(STATUS, "14"), ("retry-after", "7")]);
    assert_eq!(verdict(&Grpc::new(), &grpc), Verdict::Retry);
}

#[test]
fn a_pushback_is_exact_or_forbids_the_retry() {
    // G15, G16, R17, R18, and 5.4's {0, 250, -1, "x", huge}.
    let after = |millis| Verdict::Pushback(Duration::from_millis(millis));
    let rows = [
        ("0", after(0)),
        ("00", after(0)),
        ("1", after(1)),
        ("250", after(250)),
        ("1000", after(1_000)),
        ("5000", after(5_000)),
        (" 5000 ", after(5_000)),
        ("\t5000", after(5_000)),
        ("999999", after(999_999)),
        ("2147483647", after(2_147_483_647)),
        ("2147483648", Verdict::ServerRefused),
        ("18446744073709551616", Verdict::ServerRefused),
        ("-1", Verdict::ServerRefused),
        ("-0", Verdict::ServerRefused),
        ("+1", Verdict::ServerRefused),
        ("", Verdict::ServerRefused),
        (" ", Verdict::ServerRefused),
        ("x", Verdict::ServerRefused),
        ("xxx", Verdict::ServerRefused),
        ("abc", Verdict::ServerRefused),
        ("1.5", Verdict::ServerRefused),
        ("10ms", Verdict::ServerRefused),
        ("1,2", Verdict::ServerRefused),
        ("1 2", Verdict::ServerRefused),
    ];
    for (value, expected) in rows {
        let response = response(200, &[(STATUS, "14"), (PUSHBACK, value)]);
        assert_eq!(verdict(&Grpc::new(), &response), expected, "{value:?}");
    }
    let twice = response(200, &[(STATUS, "14"), (PUSHBACK, "1"), (PUSHBACK, "1")]);
    assert_eq!(verdict(&Grpc::new(), &twice), Verdict::ServerRefused);
    let mut bytes = response(200, &[(STATUS, "14")]);
    let value = HeaderValue::from_bytes(b"\xff").unwrap();
    bytes.headers_mut().insert(PUSHBACK, value);
    assert_eq!(verdict(&Grpc::new(), &bytes), Verdict::ServerRefused);
}

#[test]
fn a_pushback_makes_nothing_retryable_and_a_refusal_counts_whatever_the_code() {
    for code in codes() {
        let number = (code as u8).to_string();
        let after = response(200, &[(STATUS, &number), (PUSHBACK, "10")]);
        let expected = match code {
            Code::Ok => Verdict::Success,
            Code::Unavailable => Verdict::Pushback(ms(10)),
            _ => Verdict::Stop,
        };
        assert_eq!(verdict(&Grpc::new(), &after), expected, "{code}");
        let never = response(200, &[(STATUS, &number), (PUSHBACK, "-1")]);
        let expected = match code {
            Code::Ok => Verdict::Success,
            _ => Verdict::ServerRefused,
        };
        assert_eq!(verdict(&Grpc::new(), &never), expected, "{code}");
    }
}

#[test]
fn every_kind_of_io_error() {
    for (kind, expected) in [
        (ErrorKind::ConnectionRefused, Verdict::Unprocessed),
        (ErrorKind::AddrNotAvailable, Verdict::Unprocessed),
        (ErrorKind::NotFound, Verdict::Unprocessed),
        (ErrorKind::ConnectionReset, Verdict::Retry),
        (ErrorKind::BrokenPipe, Verdict::Retry),
        (ErrorKind::UnexpectedEof, Verdict::Retry),
        (ErrorKind::TimedOut, Verdict::Retry),
        (ErrorKind::InvalidData, Verdict::Stop),
        (ErrorKind::Other, Verdict::Stop),
    ] {
        let error = io::Error::from(kind);
        assert_eq!(error_verdict(&Grpc::new(), error), expected, "{kind:?}");
        let boxed: BoxError = io::Error::from(kind).into();
        assert_eq!(error_verdict(&Grpc::<Boxed>::new(), boxed), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_one_attempt_is_retried_where_it_is_asked_for() {
    let asked = || Grpc::new().retry_code(Code::DeadlineExceeded);
    let tower = || tower::timeout::error::Elapsed::new();
    assert_eq!(error_verdict(&Grpc::new(), tower()), Verdict::Stop);
    assert_eq!(error_verdict(&asked(), tower()), Verdict::Retry);
    let elapsed = || async {
        tokio::time::timeout(ms(1), std::future::pending::<()>())
            .await
            .unwrap_err()
    };
    assert_eq!(error_verdict(&Grpc::new(), elapsed().await), Verdict::Stop);
    assert_eq!(error_verdict(&asked(), elapsed().await), Verdict::Retry);
}

#[test]
fn an_unknown_error_is_retried_only_where_unknown_is() {
    assert_eq!(error_verdict(&Grpc::new(), fmt::Error), Verdict::Stop);
    let rules = Grpc::new().retry_code(Code::Unknown);
    assert_eq!(error_verdict(&rules, fmt::Error), Verdict::Retry);
    // A body that failed with a timeout of its own is no timeout of the call.
    let rules = Grpc::new().retry_code(Code::DeadlineExceeded);
    let failed = io::Error::new(
        ErrorKind::InvalidData,
        tower::timeout::error::Elapsed::new(),
    );
    assert_eq!(error_verdict(&rules, failed), Verdict::Stop);
}

#[test]
fn a_call_that_was_not_processed_is_sent_again_even_without_unavailable() {
    let rules = Grpc::new().without_code(Code::Unavailable);
    let refused = io::Error::from(ErrorKind::ConnectionRefused);
    assert_eq!(error_verdict(&rules, refused), Verdict::Unprocessed);
    let reset = io::Error::from(ErrorKind::ConnectionReset);
    assert_eq!(error_verdict(&rules, reset), Verdict::Stop);
}

#[test]
fn to_a_rule_a_call_that_was_not_processed_is_unavailable() {
    let rules = Grpc::new().classify_with(|call, default| {
        assert_eq!(call.code(), Some(Code::Unavailable));
        assert_eq!(default, Verdict::Unprocessed);
        Verdict::ServerRefused
    });
    let refused = io::Error::from(ErrorKind::ConnectionRefused);
    assert_eq!(error_verdict(&rules, refused), Verdict::ServerRefused);
}

#[test]
fn a_rule_sees_the_call_and_has_the_last_word() {
    let rules = Grpc::new()
        .classify_with(|call, default| {
            assert_eq!(call.path(), Some(PATH));
            assert!(call.request_headers().unwrap().contains_key("te"));
            assert!(
                call.request_extensions()
                    .unwrap()
                    .get::<NoRetry>()
                    .is_some()
            );
            assert_eq!((call.number(), call.elapsed()), (2, ms(5)));
            assert!(format!("{call:?}").contains("path"));
            match call.code() {
                Some(Code::NotFound) => {
                    assert_eq!(call.headers().unwrap()[STATUS], "5");
                    assert!(call.error().is_none());
                    Verdict::Success
                }
                Some(Code::Unknown) => {
                    assert!(call.headers().is_none());
                    assert!(call.error().unwrap().is::<fmt::Error>());
                    Verdict::Retry
                }
                None => Verdict::Stop,
                _ => default,
            }
        })
        .classify_with(|_, first| match first {
            Verdict::Stop => Verdict::ServerRefused,
            first => first,
        });
    let request = Request::post(PATH)
        .header("te", "trailers")
        .extension(NoRetry)
        .body(Body::default())
        .unwrap();
    for (outcome, expected) in [
        (Ok(with_code(Code::NotFound)), Verdict::Success),
        (Ok(with_code(Code::Unavailable)), Verdict::Retry),
        (Ok(response(200, &[])), Verdict::ServerRefused),
        (Err(fmt::Error), Verdict::Retry),
    ] {
        let attempt = Attempt::new(Some(&request), &outcome, 2).with_elapsed(ms(5));
        assert_eq!(rules.classify(&attempt), expected);
    }
    assert!(timed(&rules));
    assert!(!timed(&Grpc::new()));
}

#[tokio::test(start_paused = true)]
async fn the_timeout_of_the_caller_is_the_deadline_of_the_session() {
    let hours = |hours: u64| Duration::from_secs(hours * 3_600);
    for (value, timeout) in [
        ("1n", Duration::from_nanos(1)),
        ("99999999n", Duration::from_nanos(99_999_999)),
        ("250u", Duration::from_micros(250)),
        ("250m", ms(250)),
        ("00000250m", ms(250)),
        ("10S", Duration::from_secs(10)),
        ("99999999S", Duration::from_secs(99_999_999)),
        ("2M", Duration::from_secs(120)),
        ("1H", hours(1)),
        ("0S", Duration::ZERO),
    ] {
        let expected = Some(Instant::now() + timeout);
        assert_eq!(limits(value).deadline, expected, "{value}");
    }
    // Far, or beyond the range of the clock: both are no panic.
    let far = limits("99999999H").deadline;
    assert_eq!(far, Instant::now().checked_add(hours(99_999_999)));
    for value in [
        "",
        "S",
        "10",
        "10s",
        "10ms",
        "10x",
        "-1S",
        "+1S",
        "1.5S",
        " 1S",
        "1S ",
        "1 S",
        "123456789S",
        "0x1S",
        "１S",
    ] {
        let mut request = request();
        let bytes = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        request.headers_mut().insert(TIMEOUT, bytes);
        assert_eq!(
            limits_of(&Grpc::new(), &request),
            Limits::default(),
            "{value:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn of_several_timeouts_the_first_that_can_be_read_counts() {
    for (values, millis) in [
        (["1S", "9S"], 1_000),
        (["9S", "1S"], 9_000),
        (["nonsense", "1S"], 1_000),
        (["1S", "nonsense"], 1_000),
        (["123456789n", "0S"], 0),
    ] {
        let mut request = request();
        for value in values {
            let value = HeaderValue::from_static(value);
            request.headers_mut().append(TIMEOUT, value);
        }
        let deadline = Some(Instant::now() + ms(millis));
        let limits = limits_of(&Grpc::new(), &request);
        assert_eq!(limits.deadline, deadline, "{values:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_earlier_deadline_counts_and_the_other_extensions_mean_the_same() {
    let mut request = request();
    let extensions = request.extensions_mut();
    extensions.insert(Deadline(Instant::now() + ms(100)));
    extensions.insert(MaxAttempts(7));
    extensions.insert(NoRetry);
    for (value, millis) in [("50m", 50), ("200m", 100), ("nonsense", 100)] {
        request
            .headers_mut()
            .insert(TIMEOUT, HeaderValue::from_str(value).unwrap());
        let limits = limits_of(&Grpc::new(), &request);
        assert_eq!(
            limits.deadline,
            Some(Instant::now() + ms(millis)),
            "{value}"
        );
        assert_eq!(limits.max_attempts, Some(7));
        assert!(limits.no_retry && !limits.nested);
    }
    request.extensions_mut().insert(RetryAttempt(1));
    assert!(limits_of(&Grpc::new(), &request).nested);
    assert!(!limits_of(&Grpc::new().nested(true), &request).nested);
}

#[test]
fn what_is_left_is_rounded_down_to_eight_digits_and_never_zero() {
    let micros = Duration::from_micros;
    let second = Duration::from_secs(1);
    for (remaining, expected) in [
        (Duration::ZERO, "1n"),
        (Duration::from_nanos(1), "1n"),
        (Duration::from_nanos(99_999_999), "99999999n"),
        (ms(100), "100000u"),
        (ms(100) + Duration::from_nanos(999), "100000u"),
        (micros(99_999_999), "99999999u"),
        (micros(100_000_000), "100000m"),
        (micros(100_000_999), "100000m"),
        (ms(99_999_999), "99999999m"),
        (ms(100_000_000), "100000S"),
        (99_999_999 * second, "99999999S"),
        (100_000_000 * second, "1666666M"),
        (Duration::from_secs(99_999_999 * 60), "99999999M"),
        (Duration::from_secs(100_000_000 * 60), "1666666H"),
        (Duration::from_secs(99_999_999 * 3_600), "99999999H"),
        (Duration::from_secs(100_000_000 * 3_600), "99999999H"),
        (Duration::MAX, "99999999H"),
    ] {
        assert_eq!(prepared(1, Some(remaining)), (None, Some(expected.into())));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_written_is_read_as_no_more_and_hardly_less() {
    let mut nanos = 1_u128;
    while nanos < u128::from(u64::MAX) {
        let remaining = Duration::from_nanos(nanos as u64);
        let (_, header) = prepared(1, Some(remaining));
        let header = header.unwrap();
        assert!((2..=9).contains(&header.len()), "{header}");
        let read = limits(&header).deadline.unwrap() - Instant::now();
        assert!(read <= remaining, "{header} of {remaining:?}");
        // Eight digits at least but for a unit that is a larger step: hours of minutes.
        assert!(
            read >= remaining.mul_f64(0.999_99),
            "{header} of {remaining:?}"
        );
        nanos = nanos * 13 / 10 + 1;
    }
}

#[test]
fn a_retry_says_how_many_attempts_were_before_it_and_the_first_says_nothing() {
    // G13, by the headers; the server's side of it is tested over a wire.
    assert_eq!(prepared(1, None), (None, None));
    for attempt in [2_u32, 3, 4, u32::MAX] {
        let previous = (attempt - 1).to_string();
        assert_eq!(prepared(attempt, None), (Some(previous), None));
    }
}

#[test]
fn the_rules_print_their_codes() {
    let rules: Grpc = Grpc::default().retry_code_for(PATH, Code::Aborted);
    assert_eq!(
        format!("{:?}", rules.clone()),
        format!(
            "Grpc {{ codes: {{Unavailable}}, methods: [({PATH:?}, {{Aborted}})], rule: false, \
             nested: false }}"
        ),
    );
}

fn request() -> Request<Body> {
    Request::post(PATH).body(Body::default()).unwrap()
}

fn response(status: u16, headers: &[(&'static str, &str)]) -> Response<()> {
    let mut response = Response::builder().status(status).body(()).unwrap();
    for (name, value) in headers {
        response.headers_mut().append(
            HeaderName::from_static(name),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
    response
}

fn with_code(code: Code) -> Response<()> {
    response(200, &[(STATUS, &(code as u8).to_string())])
}

fn classify<E, M>(
    rules: &Grpc<M>,
    request: Option<&Request<Body>>,
    outcome: &Result<Response<()>, E>,
) -> Verdict
where
    Grpc<M>: Protocol<Request<Body>, Response<()>, E>,
{
    rules.classify(&Attempt::new(request, outcome, 1))
}

fn verdict(rules: &Grpc, response: &Response<()>) -> Verdict {
    classify(
        rules,
        Some(&request()),
        &Ok::<_, fmt::Error>(response.clone()),
    )
}

fn error_verdict<E, M>(rules: &Grpc<M>, error: E) -> Verdict
where
    Grpc<M>: Protocol<Request<Body>, Response<()>, E>,
{
    classify(rules, Some(&request()), &Err(error))
}

fn error_type(response: &Response<()>) -> &'static str {
    let outcome = Ok::<_, fmt::Error>(response.clone());
    Protocol::<Request<Body>, _, _>::error_type(&Grpc::new(), &outcome)
}

fn limits_of(rules: &Grpc, request: &Request<Body>) -> Limits {
    Protocol::<_, Response<()>, fmt::Error>::limits(rules, request)
}

fn limits(timeout: &str) -> Limits {
    let mut request = request();
    let value = HeaderValue::from_str(timeout).unwrap();
    request.headers_mut().insert(TIMEOUT, value);
    limits_of(&Grpc::new(), &request)
}

/// The two headers of a request that came with headers of another call.
fn prepared(attempt: u32, remaining: Option<Duration>) -> (Option<String>, Option<String>) {
    let mut request = request();
    let headers = request.headers_mut();
    headers.insert(PREVIOUS, HeaderValue::from_static("99"));
    headers.append(PREVIOUS, HeaderValue::from_static("98"));
    if remaining.is_some() {
        headers.insert(TIMEOUT, HeaderValue::from_static("1H"));
        headers.append(TIMEOUT, HeaderValue::from_static("2H"));
    }
    let rules = Grpc::new();
    Protocol::<_, Response<()>, fmt::Error>::prepare(&rules, &mut request, attempt, remaining);
    assert_eq!(
        request.extensions().get::<RetryAttempt>(),
        Some(&RetryAttempt(attempt))
    );
    let one = |name: &str| {
        let mut values = request.headers().get_all(name).iter();
        let value = values
            .next()
            .map(|value| value.to_str().unwrap().to_owned());
        assert!(values.next().is_none(), "{name} is there once");
        value
    };
    (one(PREVIOUS), one(TIMEOUT))
}

fn timed(rules: &Grpc) -> bool {
    Protocol::<Request<Body>, Response<()>, fmt::Error>::timed(rules)
}
