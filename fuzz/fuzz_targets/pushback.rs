//! Any bytes in `grpc-retry-pushback-ms`, once or twice, beside any status.

#![no_main]

use http::{HeaderValue, Request, Response};
use libfuzzer_sys::fuzz_target;
use tower_retry_layer::{Attempt, Protocol, Verdict, grpc::Grpc};

fuzz_target!(|input: (u8, Vec<u8>, Option<Vec<u8>>)| {
    let (status, first, second) = input;
    let Ok(value) = HeaderValue::try_from(&*first) else {
        return;
    };
    let mut response = Response::new(String::new());
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from(u16::from(status)));
    headers.append("grpc-retry-pushback-ms", value);
    let second = second.and_then(|second| HeaderValue::try_from(second).ok());
    let twice = second.is_some();
    if let Some(second) = second {
        headers.append("grpc-retry-pushback-ms", second);
    }

    let request = Request::new(String::new());
    let outcome = Ok::<_, std::io::Error>(response);
    let rules: Grpc = Grpc::default();
    let verdict = rules.classify(&Attempt::new(Some(&request), &outcome, 1));

    let text = std::str::from_utf8(&first).unwrap_or_default();
    let digits = text.trim_matches([' ', '\t']);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse::<i32>().ok().filter(|_| plain && !twice);
    match verdict {
        Verdict::Pushback(delay) => {
            let number = number.expect("a number of milliseconds");
            assert_eq!(delay.as_millis(), number.unsigned_abs().into());
        }
        Verdict::ServerRefused => assert_eq!(number, None),
        Verdict::Success => assert_eq!(status, 0),
        Verdict::Stop => assert_ne!(status, 0),
        other => panic!("the pushback was not heard: {other:?}"),
    }
});
