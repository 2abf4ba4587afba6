//! The delay that a server asks for: `retry-after-ms` and `Retry-After`.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, header::RETRY_AFTER};

/// What some services send beside `Retry-After`, whose unit is the second.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// A two-digit year further ahead than this belongs to the past century (RFC 9110, section 5.6.7).
const FIFTY_YEARS: Duration = Duration::from_secs(50 * 31_556_952);

/// The delay that a response asks for, never above `cap`.
///
/// `retry-after-ms` (whole milliseconds) comes first, being the finer; then `Retry-After`
/// (RFC 9110, section 10.2.3): whole seconds, or a date in any of the three forms that HTTP knows,
/// counted from `now`. Of several fields of one name the first counts.
///
/// `None` means that there is no hint, and the backoff chooses: no such header; zero, which would
/// have every client back at once; a date that has passed; and whatever is not a whole number or a
/// date, such as `-1`, `+1`, `1.5`, `1s`. A number too large for its type is `cap`.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use http::{HeaderMap, HeaderValue, header::RETRY_AFTER};
/// use tower_retry_layer::http::retry_after;
///
/// let minute = Duration::from_secs(60);
/// let mut headers = HeaderMap::new();
/// assert_eq!(retry_after(&headers, SystemTime::now(), minute), None);
///
/// headers.insert(RETRY_AFTER, HeaderValue::from_static("7"));
/// assert_eq!(retry_after(&headers, SystemTime::now(), minute), Some(Duration::from_secs(7)));
///
/// headers.insert(RETRY_AFTER, HeaderValue::from_static("3600"));
/// assert_eq!(retry_after(&headers, SystemTime::now(), minute), Some(minute));
/// ```
pub fn retry_after(headers: &HeaderMap, now: SystemTime, cap: Duration) -> Option<Duration> {
    let milliseconds = || number(text(headers.get(RETRY_AFTER_MS)?)?).map(Duration::from_millis);
    let seconds_or_date = || {
        let text = text(headers.get(RETRY_AFTER)?)?;
        match number(text) {
            Some(seconds) => Some(Duration::from_secs(seconds)),
            None => until(text, now),
        }
    };
    milliseconds()
        .filter(|delay| !delay.is_zero())
        .or_else(seconds_or_date)
        .map(|delay| delay.min(cap))
        .filter(|delay| !delay.is_zero())
}

/// A header's value without the optional whitespace around it. `None`: not visible ASCII.
fn text(value: &HeaderValue) -> Option<&str> {
    Some(value.to_str().ok()?.trim_matches([' ', '\t']))
}

/// `1*DIGIT`, saturating. `None`: anything else, the empty string and signs included.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Digits alone can fail in one way only: too many of them.
    Some(text.parse().unwrap_or(u64::MAX))
}

/// From `now` until an HTTP date. `None`: not a date, or not in the future.
fn until(text: &str, now: SystemTime) -> Option<Duration> {
    let delay = date(text)?.duration_since(now).ok()?;
    // Only the form of RFC 850 has dashes, and only it has a year of two digits.
    (!text.contains('-') || delay <= FIFTY_YEARS).then_some(delay)
}

fn date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text)
        .ok()
        .or_else(|| leap_second(text))
}

/// The grammar allows second 60, `httpdate` does not: it is the second after 59.
fn leap_second(text: &str) -> Option<SystemTime> {
    let date = httpdate::parse_http_date(&text.replacen(":60", ":59", 1)).ok()?;
    // A minute of 60 is no leap second, and its replacement is told by what follows it.
    let (_, rest) = text.split_once(":60")?;
    rest.starts_with(' ')
        .then(|| date.checked_add(Duration::from_secs(1)))?
}
