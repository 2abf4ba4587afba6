//! `grpc-timeout`: the time that the caller gives a call (gRPC's PROTOCOL-HTTP2).

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

pub(super) const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The most digits that the protocol allows.
const MAX_DIGITS: usize = 8;

/// The largest number of that many digits.
const MAX_VALUE: u128 = 99_999_999;

/// The units in nanoseconds, from the finest to the coarsest.
const UNITS: [(u8, u64); 6] = [
    (b'n', 1),
    (b'u', 1_000),
    (b'm', 1_000_000),
    (b'S', 1_000_000_000),
    (b'M', 60 * 1_000_000_000),
    (b'H', 3_600 * 1_000_000_000),
];

/// The time that a request's headers give it: the first field that can be read. A caller that says
/// one thing legibly means to have a timeout, whatever stands before it.
///
/// `None`: there is none.
pub(super) fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let mut fields = headers.get_all(GRPC_TIMEOUT).iter();
    fields.find_map(|field| read(field.as_bytes()))
}

/// The same as a header, in the finest unit that eight digits reach to, rounded down: an attempt
/// never gets more than is left. Never zero, which the protocol does not know: then it is `1n`.
pub(super) fn header(timeout: Duration) -> HeaderValue {
    let nanos = timeout.as_nanos().max(1);
    let (unit, value) = UNITS
        .iter()
        .map(|(unit, size)| (*unit, nanos / u128::from(*size)))
        .find(|(_, value)| *value <= MAX_VALUE)
        .unwrap_or((b'H', MAX_VALUE));
    let text = format!("{value}{}", char::from(unit));
    HeaderValue::try_from(text).expect("digits and a letter")
}

/// One to eight digits and a unit, as in `250m`. `None` for whatever is not that: a sign, a fraction,
/// whitespace, nine digits, a unit that the protocol does not know.
fn read(field: &[u8]) -> Option<Duration> {
    let (unit, digits) = field.split_last()?;
    let (_, nanos) = UNITS.iter().find(|(name, _)| name == unit)?;
    if !(1..=MAX_DIGITS).contains(&digits.len()) {
        return None;
    }
    let mut value = 0_u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u64::from(digit - b'0'); // eight digits fit
    }
    // 99 999 999 hours have more nanoseconds than a `u64`.
    let nanos = u128::from(value) * u128::from(*nanos);
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}
