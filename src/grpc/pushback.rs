//! `grpc-retry-pushback-ms`: what the server says of a retry (proposal A6).

use std::time::Duration;

use http::{HeaderMap, HeaderName};

const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// What the server says of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushback {
    /// Send it again after exactly this long.
    After(Duration),
    /// Do not send it again.
    Never,
}

/// Reads the pushback of a response. `None`: the server says nothing.
///
/// A whole number of milliseconds, up to the 2 147 483 647 of A6's 32-bit integer; whitespace around
/// it is no part of a header's value. A negative number, and whatever cannot be read, says not to:
/// the empty string, a fraction, a sign, a number that is too large, a second field.
pub(super) fn pushback(headers: &HeaderMap) -> Option<Pushback> {
    let mut fields = headers.get_all(PUSHBACK).iter();
    let first = fields.next()?;
    let delay = match fields.next() {
        Some(_) => None,
        None => milliseconds(first.as_bytes()),
    };
    Some(delay.map_or(Pushback::Never, Pushback::After))
}

fn milliseconds(value: &[u8]) -> Option<Duration> {
    let digits = value.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: i32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(Duration::from_millis(number.unsigned_abs().into()))
}
