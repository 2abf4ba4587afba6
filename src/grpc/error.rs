//! What a transport error means to a call: never processed, or a code.

use std::error::Error;

use h2::Reason;

use super::code::Code;
use crate::http::error::{Fate, decide};

/// How a call failed for which no response came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No server acted on it.
    Unprocessed,
    /// It may have been acted on.
    Code(Code),
}

/// Reads an error and its causes. What is not known is no reason to send the call again.
pub(super) fn failure(error: &(dyn Error + 'static)) -> Failure {
    let (fate, cause) = decide(error);
    let without = match fate {
        Fate::NeverSent | Fate::Refused => return Failure::Unprocessed,
        // A connection that is gone.
        Fate::PerhapsProcessed => Code::Unavailable,
        Fate::Hopeless => Code::Unknown,
    };
    Failure::Code(cause.and_then(known).unwrap_or(without))
}

/// The causes that have a code of their own.
fn known(cause: &(dyn Error + 'static)) -> Option<Code> {
    if cause.is::<tower::timeout::error::Elapsed>() || cause.is::<tokio::time::error::Elapsed>() {
        return Some(Code::DeadlineExceeded);
    }
    let error: &h2::Error = cause.downcast_ref()?;
    error.reason().map(from_reason)
}

/// gRPC's PROTOCOL-HTTP2, "Errors".
fn from_reason(reason: Reason) -> Code {
    match reason {
        Reason::NO_ERROR
        | Reason::PROTOCOL_ERROR
        | Reason::INTERNAL_ERROR
        | Reason::FLOW_CONTROL_ERROR
        | Reason::SETTINGS_TIMEOUT
        | Reason::FRAME_SIZE_ERROR
        | Reason::COMPRESSION_ERROR
        | Reason::CONNECT_ERROR => Code::Internal,
        Reason::REFUSED_STREAM => Code::Unavailable,
        Reason::CANCEL => Code::Cancelled,
        Reason::ENHANCE_YOUR_CALM => Code::ResourceExhausted,
        Reason::INADEQUATE_SECURITY => Code::PermissionDenied,
        // STREAM_CLOSED: "no mapping"; and those that the document does not know.
        _ => Code::Unknown,
    }
}
