//! Any bytes in `retry-after-ms` and `Retry-After`, at any time, with any cap.

#![no_main]

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use tower_retry_layer::http::retry_after;

fuzz_target!(|input: (Option<Vec<u8>>, Option<Vec<u8>>, u64, Duration)| {
    let (milliseconds, other, now, cap) = input;
    let mut headers = HeaderMap::new();
    for (name, value) in [("retry-after-ms", milliseconds), ("retry-after", other)] {
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(name, value);
        }
    }
    let moment = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    // A clock of four digits of years.
    let now = moment(now % 253_402_300_800);
    let hint = retry_after(&headers, now, cap);

    assert!(hint.is_none_or(|hint| !hint.is_zero() && hint <= cap));
    let digits = |name| {
        let value = headers.get(name)?;
        let text = value.to_str().ok()?.trim_matches([' ', '\t']);
        text.bytes()
            .all(|byte| byte.is_ascii_digit())
            .then_some(text)
    };
    let known = |text: &str| text.parse::<u64>().ok().filter(|&number| number > 0);
    let by_milliseconds = digits("retry-after-ms").and_then(known);
    let by_seconds = digits("retry-after").and_then(known);
    if let Some(delay) = by_milliseconds.map(Duration::from_millis) {
        assert_eq!(hint, Some(delay.min(cap)).filter(|delay| !delay.is_zero()));
    } else if let (None, Some(delay)) = (headers.get("retry-after-ms"), by_seconds) {
        let delay = Duration::from_secs(delay);
        assert_eq!(hint, Some(delay.min(cap)).filter(|delay| !delay.is_zero()));
    }
});
