//! `End`: how a call ended, read from a response's head, its peeked trailers, or an error.

use std::{
    error::Error,
    time::{Duration, SystemTime},
};

use http::{HeaderMap, Response, StatusCode};

use super::{
    code::Code,
    error::{Failure, failure},
    peek::{GRPC_STATUS, PeekedTrailers},
    pushback::{Pushback, pushback},
};
use crate::http::retry_after;

/// How a call ended, as far as is known when it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// No server acted on it.
    Unprocessed,
    /// The code, and what the server says of a retry.
    Code(Code, Option<Pushback>),
    /// Something other than a gRPC server answered, and may have said when to come back.
    Http(Code, Option<Duration>),
    /// The response has begun; its code comes after its messages.
    Open,
}

impl End {
    pub(super) fn of_response<C>(response: &Response<C>) -> Self {
        let headers = response.headers();
        if headers.contains_key(GRPC_STATUS) {
            return Self::of_trailers(headers);
        }
        if let Some(PeekedTrailers(trailers)) = response.extensions().get() {
            return Self::of_trailers(trailers);
        }
        match response.status() {
            StatusCode::OK => Self::Open,
            status => {
                let hint = retry_after(headers, SystemTime::now(), Duration::MAX);
                Self::Http(Code::from_http(status), hint)
            }
        }
    }

    pub(super) fn of_error(error: &(dyn Error + 'static)) -> Self {
        match failure(error) {
            Failure::Unprocessed => Self::Unprocessed,
            Failure::Code(code) => Self::Code(code, None),
        }
    }

    /// `None`: it is not known yet.
    pub(super) fn code(self) -> Option<Code> {
        match self {
            Self::Unprocessed => Some(Code::Unavailable),
            Self::Code(code, _) | Self::Http(code, _) => Some(code),
            Self::Open => None,
        }
    }

    fn of_trailers(headers: &HeaderMap) -> Self {
        Self::Code(status(headers), pushback(headers))
    }
}

/// The first `grpc-status`. Without one, or with one that is no number of a code, `Unknown`.
///
/// The message and the details beside it are never read: they are the caller's.
fn status(headers: &HeaderMap) -> Code {
    match headers.get(GRPC_STATUS).map(|value| value.as_bytes()) {
        Some([ones @ b'0'..=b'9']) => Code::from(i32::from(ones - b'0')),
        Some([b'1', ones @ b'0'..=b'9']) => Code::from(10 + i32::from(ones - b'0')),
        _ => Code::Unknown,
    }
}
