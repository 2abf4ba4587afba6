//! Any bytes in `grpc-timeout`, and any time written into it and read again.

#![no_main]

use std::time::Duration;

use http::{HeaderValue, Request, Response};
use libfuzzer_sys::fuzz_target;
use tokio::time::Instant;
use tower_retry_layer::{Protocol, grpc::Grpc};

type Sent = Request<String>;

/// `Grpc` for types that its methods alone would not tell.
fn rules() -> impl Protocol<Sent, Response<String>, std::io::Error> {
    Grpc::default()
}

fuzz_target!(|input: (Vec<u8>, Duration)| {
    let (value, remaining) = input;
    let mut request = Request::new(String::new());
    if let Ok(value) = HeaderValue::try_from(&*value) {
        request.headers_mut().insert("grpc-timeout", value);
        let before = Instant::now();
        let read = rules().limits(&request).deadline.map(|deadline| {
            // The call read a clock between these two.
            (deadline - before, deadline - Instant::now())
        });
        let known = reference(&value_of(&request));
        match (read, known) {
            (Some((latest, earliest)), Some(known)) => {
                assert!(
                    earliest <= known && known <= latest,
                    "{earliest:?} {known:?} {latest:?}"
                );
            }
            // More than the clock holds is no deadline.
            (None, Some(known)) => assert!(before.checked_add(known).is_none()),
            (read, None) => assert_eq!(read, None),
        }
    }

    request
        .headers_mut()
        .insert("grpc-timeout", HeaderValue::from_static("1S"));
    rules().prepare(&mut request, 1, Some(remaining));
    let written = reference(&value_of(&request)).expect("what is written can be read");
    assert!(written <= remaining.max(Duration::from_nanos(1)));
});

fn value_of(request: &Sent) -> Vec<u8> {
    request.headers()["grpc-timeout"].as_bytes().to_vec()
}

/// One to eight digits and a unit.
fn reference(value: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?;
    let (unit, nanos) = [
        ("n", 1_u64),
        ("u", 1_000),
        ("m", 1_000_000),
        ("S", 1_000_000_000),
        ("M", 60_000_000_000),
        ("H", 3_600_000_000_000),
    ]
    .into_iter()
    .find(|(unit, _)| text.ends_with(unit))?;
    let digits = text.strip_suffix(unit)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u32 = digits.parse().ok()?;
    Some(Duration::from_nanos(nanos) * number)
}
