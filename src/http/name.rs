//! Names for failures: OpenTelemetry's `error.type`.

use std::{
    error::Error,
    io::{self, ErrorKind},
};

use http::StatusCode;

use super::error::{MAX_DEPTH, cause};

/// OpenTelemetry's word for a failure without a name.
const OTHER: &str = "_OTHER";

const CONNECT: &str = "connect";

/// Every status that there can be, 100 to 999, one after another.
static STATUSES: &str = match std::str::from_utf8(&digits()) {
    Ok(digits) => digits,
    Err(_) => "",
};

/// The status as text, `503`.
pub(super) fn status(status: StatusCode) -> &'static str {
    let at = (usize::from(status.as_u16()) - 100) * 3;
    STATUSES.get(at..at + 3).unwrap_or(OTHER)
}

/// A word for an error, one of about ten: the outermost cause that has one counts.
pub(crate) fn error(error: &(dyn Error + 'static)) -> &'static str {
    let mut name = OTHER;
    let mut next = Some(error);
    for _ in 0..MAX_DEPTH {
        let Some(error) = next else { break };
        match word(error) {
            // Its cause may say how it failed.
            Some(CONNECT) => name = CONNECT,
            Some(word) => return word,
            None => {}
        }
        next = cause(error);
    }
    name
}

fn word(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return io_word(error.kind());
    }
    if error.is::<tower::timeout::error::Elapsed>() || error.is::<tokio::time::error::Elapsed>() {
        return Some("timeout");
    }
    client_word(error)
}

fn io_word(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::TimedOut => Some("timeout"),
        ErrorKind::ConnectionRefused => Some("connection_refused"),
        // A Unix socket that is not there.
        ErrorKind::NotFound => Some(CONNECT),
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::NotConnected
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof
        | ErrorKind::WriteZero => Some("connection_reset"),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
            Some("unreachable")
        }
        _ => None,
    }
}

#[cfg(not(feature = "hyper"))]
fn client_word(_: &(dyn Error + 'static)) -> Option<&'static str> {
    None
}

#[cfg(feature = "hyper")]
fn client_word(error: &(dyn Error + 'static)) -> Option<&'static str> {
    #[cfg(feature = "reqwest")]
    if let Some(error) = error.downcast_ref::<reqwest::Error>() {
        return match error {
            error if error.is_timeout() => Some("timeout"),
            error if error.is_connect() => Some(CONNECT),
            _ => None,
        };
    }
    if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
        return error.is_connect().then_some(CONNECT);
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        return match error {
            error if error.is_timeout() => Some("timeout"),
            error if error.is_parse() => Some("invalid_response"),
            error if error.is_incomplete_message() => Some("connection_reset"),
            error if error.is_canceled() || error.is_closed() => Some("connection_closed"),
            _ => None,
        };
    }
    let error = error.downcast_ref::<h2::Error>()?;
    match error.reason()? {
        h2::Reason::REFUSED_STREAM => Some("refused_stream"),
        _ if error.is_go_away() => Some("goaway"),
        _ => Some("http2"),
    }
}

const fn digits() -> [u8; 2_700] {
    let mut digits = [0; 2_700];
    let mut at = 0;
    while at < digits.len() {
        let code = 100 + at / 3;
        digits[at] = b'0' + (code / 100) as u8;
        digits[at + 1] = b'0' + (code / 10 % 10) as u8;
        digits[at + 2] = b'0' + (code % 10) as u8;
        at += 3;
    }
    digits
}
