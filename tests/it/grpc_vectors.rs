//! The public vectors of gRPC's retries, G2 to G26, as sessions of `StandardPolicy::grpc()`.
//!
//! | vector | where |
//! |---|---|
//! | G2, G3, G7 | `budget_throttle` |
//! | G4, G5, G6, G10, G12, G15, G16, G23, G24 | here |
//! | G13, G14, G17, G18, G19, G20 | `grpc_wire`, as a server sees them |
//! | G22, G25, G26 | `backoff`; G25 below the maximum, which no delay exceeds here |
//! | G11, and of G12 the attempts | none: a policy has one number, set in code; there is no service config for a client to cut |
//! | G21 | none: a load balancer's drop; balancing is tonic's, below this layer |

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{Request, Response};
use http_body_util::Full;
use tokio::time::Instant;
use tower::ServiceExt;
use tower_retry_layer::{
    RetryLayer, StandardPolicy,
    backoff::{ExponentialBackoffMaker, Jitter, MakeBackoff, Schedule, Seeds},
    budget::RetryThrottle,
    grpc::{Code, Grpc},
    observe::{RetrySummary, StopReason},
};

use crate::support::{Events, Ledger, Scripted, ms};

type Head = (Code, Option<&'static str>);
type Service = Scripted<Request<Full<&'static [u8]>>, Response<()>, Infallible>;

const UNAVAILABLE: Head = (Code::Unavailable, None);
const OK: Head = (Code::Ok, None);

#[tokio::test(start_paused = true)]
async fn g4_a_code_that_is_not_retryable_leaves_the_throttle_alone() {
    let throttle = Arc::new(RetryThrottle::new(10, 0.5).unwrap());
    let policy = quick(Grpc::new()).shared_budget(throttle.clone());
    // Below its maximum a deposit would be seen.
    call(&policy.clone().max_attempts(1), script(&[UNAVAILABLE])).await;
    assert_eq!(throttle.tokens(), 9.0);
    for code in (1..17)
        .map(Code::from)
        .filter(|it| *it != Code::Unavailable)
    {
        let service = script(&[(code, None)]);
        assert_eq!(call(&policy, service).await, (code, 1));
        let service = script(&[(code, Some("10"))]);
        assert_eq!(call(&policy, service).await, (code, 1));
        assert_eq!(throttle.tokens(), 9.0, "{code}");
    }
    call(&policy, script(&[OK])).await;
    assert_eq!(throttle.tokens(), 9.5);
}

#[tokio::test(start_paused = true)]
async fn g5_a_pushback_that_says_no_takes_a_token_whatever_the_code() {
    let throttle = Arc::new(RetryThrottle::new(10, 0.5).unwrap());
    let policy = quick(Grpc::new()).shared_budget(throttle.clone());
    let refused = script(&[(Code::Unavailable, Some("-1"))]);
    assert_eq!(call(&policy, refused).await, (Code::Unavailable, 1));
    assert_eq!(throttle.tokens(), 9.0);
    let refused = script(&[(Code::Internal, Some("-1"))]);
    assert_eq!(call(&policy, refused).await, (Code::Internal, 1));
    assert_eq!(throttle.tokens(), 8.0);
}

#[tokio::test(start_paused = true)]
async fn g6_the_throttle_over_twelve_calls() {
    let throttle = Arc::new(RetryThrottle::new(10, 0.5).unwrap());
    let policy = quick(Grpc::new())
        .max_attempts(4)
        .shared_budget(throttle.clone());
    let good = [0, 3, 6, 10, 11, 12, 13, 14, 16, 18];
    let service = Scripted::new(move |call, _: &_| {
        let ok = good.contains(&(call - 1));
        Ok(response(if ok { OK } else { UNAVAILABLE }))
    });
    // (code, the last attempt that the server saw, tokens)
    for (code, last, tokens) in [
        (Code::Ok, 0, 10.0),
        (Code::Ok, 3, 8.5),
        (Code::Ok, 6, 7.0),
        (Code::Unavailable, 8, 5.0),
        (Code::Unavailable, 9, 4.0),
        (Code::Ok, 10, 4.5),
        (Code::Ok, 11, 5.0),
        (Code::Ok, 12, 5.5),
        (Code::Ok, 13, 6.0),
        (Code::Ok, 14, 6.5),
        (Code::Ok, 16, 6.0),
        (Code::Unavailable, 17, 5.0),
    ] {
        let (seen, calls) = call(&policy, service.handle()).await;
        assert_eq!((seen, calls - 1, throttle.tokens()), (code, last, tokens));
    }
}

#[tokio::test(start_paused = true)]
async fn g10_seven_calls_with_a_code_that_was_opted_in() {
    let policy = quick(Grpc::new().retry_code(Code::AlreadyExists)).max_attempts(4);
    let service = Scripted::new(|call, _: &_| {
        Ok(response(match call - 1 {
            0 | 2 | 5 => OK,
            6 | 8 | 11 => (Code::Internal, None),
            _ => (Code::AlreadyExists, None),
        }))
    });
    for (code, last) in [
        (Code::Ok, 0),
        (Code::Ok, 2),
        (Code::Ok, 5),
        (Code::Internal, 6),
        (Code::Internal, 8),
        (Code::Internal, 11),
        (Code::AlreadyExists, 15),
    ] {
        let (seen, calls) = call(&policy, service.handle()).await;
        assert_eq!((seen, calls - 1), (code, last));
    }
}

#[test]
fn g12_a_backoff_of_zero_is_refused() {
    let maker = |min, max| ExponentialBackoffMaker::new(min, max, Jitter::None, Seeds::random());
    assert!(maker(Duration::ZERO, ms(1)).is_err());
    assert!(maker(ms(1), Duration::ZERO).is_err());
    assert!(maker(ms(1), ms(1)).unwrap().with_factor(0.0).is_err());
}

#[tokio::test(start_paused = true)]
async fn g12_no_attempts_and_no_codes_mean_no_retries() {
    for attempts in [0, 1] {
        let policy = quick(Grpc::new()).max_attempts(attempts);
        let service = script(&[UNAVAILABLE, OK]);
        assert_eq!(call(&policy, service).await, (Code::Unavailable, 1));
    }
    let policy = quick(Grpc::new().without_code(Code::Unavailable));
    let service = script(&[UNAVAILABLE, OK]);
    assert_eq!(call(&policy, service).await, (Code::Unavailable, 1));
}

#[tokio::test(start_paused = true)]
async fn g15_a_pushback_that_cannot_be_read_forbids_the_retry() {
    for value in ["-1", "xxx", ""] {
        let events = Events::default();
        let policy = quick(Grpc::new()).observe(events.clone());
        let service = script(&[(Code::Unavailable, Some(value)), OK]);
        assert_eq!(
            call(&policy, service).await,
            (Code::Unavailable, 1),
            "{value:?}"
        );
        assert_eq!(events.reasons(), [StopReason::ServerRefused]);
    }
    let service = Scripted::new(|_, _: &_| {
        let mut twice = response((Code::Unavailable, Some("1")));
        let again = http::HeaderValue::from_static("1");
        twice.headers_mut().append("grpc-retry-pushback-ms", again);
        Ok(twice)
    });
    let policy = quick(Grpc::new());
    assert_eq!(call(&policy, service).await, (Code::Unavailable, 1));
}

#[tokio::test(start_paused = true)]
async fn g16_a_pushback_of_a_second_is_waited_for() {
    let service = script(&[(Code::Unavailable, Some("1000")), OK]);
    let start = Instant::now();
    let seen = service.handle();
    assert_eq!(call(&quick(Grpc::new()), service).await, (Code::Ok, 2));
    assert_eq!(seen.times(start), [ms(0), ms(1_000)]);
}

#[tokio::test(start_paused = true)]
async fn g23_a_pushback_starts_the_backoff_over() {
    let (min, max) = (Duration::from_secs(100), Duration::from_secs(700));
    let maker = ExponentialBackoffMaker::new(min, max, Jitter::None, Seeds::random()).unwrap();
    let policy = StandardPolicy::<Grpc>::grpc()
        .backoff(maker)
        .without_budget()
        .max_attempts(9)
        .max_server_delay(Duration::from_secs(10_000));
    let service = script(&[
        UNAVAILABLE,
        UNAVAILABLE,
        (Code::Unavailable, Some("123")),
        (Code::Unavailable, Some("4567000")),
        UNAVAILABLE,
        UNAVAILABLE,
        UNAVAILABLE,
        OK,
    ]);
    let seen = service.handle();
    let start = Instant::now();
    assert_eq!(call(&policy, service).await, (Code::Ok, 8));
    let times = seen.times(start);
    let waits: Vec<_> = times.windows(2).map(|two| two[1] - two[0]).collect();
    let seconds = [100.0, 200.0, 0.123, 4_567.0, 100.0, 200.0, 400.0];
    assert_eq!(waits, seconds.map(Duration::from_secs_f64));
}

#[tokio::test(start_paused = true)]
async fn g24_a_pushback_on_the_last_attempt_is_not_followed() {
    let service = script(&[UNAVAILABLE, (Code::Unavailable, Some("0")), OK]);
    let policy = quick(Grpc::new()).max_attempts(2);
    assert_eq!(call(&policy, service).await, (Code::Unavailable, 2));
}

#[tokio::test(start_paused = true)]
async fn one_call_deposits_once_and_only_if_it_is_ok() {
    let ledger = Ledger::new(9);
    let policy = quick(Grpc::new()).budget(ledger.clone());
    for (script_of_one, deposits) in [
        (&[UNAVAILABLE, UNAVAILABLE, OK][..], 1),
        (&[(Code::NotFound, None)], 0),
        (&[(Code::Internal, None)], 0),
        (&[UNAVAILABLE], 0),
        (&[OK], 1),
    ] {
        let before = ledger.counts().deposits;
        call(&policy, script(script_of_one)).await;
        assert_eq!(ledger.counts().deposits - before, deposits);
    }
}

#[tokio::test(start_paused = true)]
async fn the_response_carries_the_summary_and_the_events_the_code() {
    use std::sync::Mutex;
    use tower_retry_layer::observe::{on_finish, on_retry};

    let told = Arc::new(Mutex::new(Vec::new()));
    let (retried, finished) = (told.clone(), told.clone());
    let policy = quick(Grpc::new())
        .observe(on_retry(move |it| {
            retried.lock().unwrap().push(Some(it.error_type))
        }))
        .observe(on_finish(move |it| {
            finished.lock().unwrap().push(it.error_type)
        }));
    let service = script(&[UNAVAILABLE, (Code::NotFound, None)]);
    let response = send(&policy, service).await;
    let summary = response.extensions().get::<RetrySummary>().unwrap();
    assert_eq!(
        (summary.attempts, summary.reason),
        (2, StopReason::NotRetryable)
    );
    assert_eq!(
        *told.lock().unwrap(),
        [Some("UNAVAILABLE"), Some("NOT_FOUND")]
    );
}

#[tokio::test(start_paused = true)]
async fn a_layer_below_lets_the_one_above_retry() {
    let inner = RetryLayer::new(quick(Grpc::new()));
    let service = script(&[UNAVAILABLE]);
    let seen = service.handle();
    let stacked = tower::ServiceBuilder::new()
        .layer(RetryLayer::new(quick(Grpc::new())))
        .layer(inner)
        .service(service);
    stacked.oneshot(request()).await.unwrap();
    assert_eq!(seen.calls(), 3, "not nine");
    let previous = |number: usize| {
        let requests = seen.requests();
        let value = requests[number]
            .headers()
            .get("grpc-previous-rpc-attempts")?;
        Some(value.to_str().unwrap().to_owned())
    };
    assert_eq!(
        [previous(0), previous(1), previous(2)],
        [None, Some("1".into()), Some("2".into())]
    );
}

fn quick(rules: Grpc) -> StandardPolicy<Grpc, Schedule> {
    StandardPolicy::new(rules)
        .backoff(Schedule::new([ms(1)]).unwrap())
        .without_budget()
}

fn request() -> Request<Full<&'static [u8]>> {
    Request::post("/pkg.Service/Method")
        .body(Full::default())
        .unwrap()
}

fn response((code, pushback): Head) -> Response<()> {
    let mut response = Response::builder().header("grpc-status", code as u16);
    if let Some(pushback) = pushback {
        response = response.header("grpc-retry-pushback-ms", pushback);
    }
    response.body(()).unwrap()
}

/// A server that gives these answers, and the last again and again.
fn script(heads: &[Head]) -> Service {
    let heads = heads.to_vec();
    Scripted::new(move |call, _: &_| {
        let at = (call as usize - 1).min(heads.len() - 1);
        Ok(response(heads[at]))
    })
}

async fn send<M: MakeBackoff>(policy: &StandardPolicy<Grpc, M>, service: Service) -> Response<()> {
    let layer = RetryLayer::new(policy.clone());
    let service = tower::Layer::layer(&layer, service);
    service.oneshot(request()).await.unwrap()
}

/// The code that the caller sees, and the attempts that the server has seen.
async fn call<M: MakeBackoff>(policy: &StandardPolicy<Grpc, M>, service: Service) -> (Code, usize) {
    let seen = service.handle();
    let response = send(policy, service).await;
    let code = response.headers()["grpc-status"].to_str().unwrap();
    (Code::from(code.parse::<i32>().unwrap()), seen.calls())
}
