//! `ReplayError`: why a body failed, told apart by predicates.

use std::{error::Error, fmt, sync::Arc};

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// The error of a [`ReplayBody`](super::ReplayBody).
///
/// A transport that meets it aborts the request. That is its purpose: a body that ended early
/// instead would leave as a well-formed request with half of its data.
///
/// # Introspection is limited
///
/// The kinds are private and told apart by predicates. The error of the body itself is the
/// [`source`](Error::source), where a downcast finds it.
///
/// # Examples
///
/// ```
/// use std::{error::Error, io};
/// use bytes::Bytes;
/// use http_body::Frame;
/// use http_body_util::{BodyExt, StreamBody};
/// use tower_retry_layer::replay::ReplayBody;
///
/// # tokio_test::block_on(async {
/// let frames = [Ok(Frame::data(Bytes::from("half"))), Err(io::Error::other("disk is gone"))];
/// let body = ReplayBody::new(StreamBody::new(futures_util::stream::iter(frames)), 1_024);
///
/// let error = body.collect().await.unwrap_err();
/// assert!(error.is_source());
/// assert_eq!(error.source().unwrap().to_string(), "disk is gone");
/// # });
/// ```
#[derive(Clone)]
pub struct ReplayError {
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Superseded,
    Source(Arc<dyn Error + Send + Sync>),
    Panicked,
    Lost(Lost),
}

/// Why a recording does not go back to the body's start.
#[derive(Clone, Copy)]
pub(super) enum Lost {
    /// No copy was left that could have been sent.
    NoCopy,
    /// The body outgrew the limit of one request.
    TooLarge,
    /// All recordings together reached the layer's limit.
    NoRoom,
    /// A frame that is neither data nor trailers passed by.
    UnknownFrame,
}

// === impl ReplayError ===

impl ReplayError {
    pub(super) const fn superseded() -> Self {
        Self {
            kind: Kind::Superseded,
        }
    }

    pub(super) const fn panicked() -> Self {
        Self {
            kind: Kind::Panicked,
        }
    }

    pub(super) const fn lost(why: Lost) -> Self {
        Self {
            kind: Kind::Lost(why),
        }
    }

    #[cold]
    pub(super) fn source(error: BoxError) -> Self {
        Self {
            kind: Kind::Source(Arc::from(error)),
        }
    }

    /// Whether a later attempt began to read or took over, so that this one must not go on.
    pub fn is_superseded(&self) -> bool {
        matches!(self.kind, Kind::Superseded)
    }

    /// Whether the body itself failed. What it failed with is the [`source`](Error::source).
    ///
    /// A body that panicked while it was read counts as failed, without a source.
    pub fn is_source(&self) -> bool {
        matches!(self.kind, Kind::Source(_) | Kind::Panicked)
    }

    /// Whether the start of the body was no longer kept when this attempt began to read.
    ///
    /// See [`ReplayBody::can_replay`](super::ReplayBody::can_replay), which says so before
    /// anything is sent.
    pub fn is_not_replayable(&self) -> bool {
        matches!(self.kind, Kind::Lost(_))
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Superseded => "body superseded by a later attempt",
            Kind::Source(_) => "body failed",
            Kind::Panicked => "body panicked while it was read",
            Kind::Lost(Lost::NoCopy) => "body cannot be sent again: no copy was kept",
            Kind::Lost(Lost::TooLarge) => {
                "body cannot be sent again: it is above the limit of one request"
            }
            Kind::Lost(Lost::NoRoom) => {
                "body cannot be sent again: all recordings together are at their limit"
            }
            Kind::Lost(Lost::UnknownFrame) => {
                "body cannot be sent again: it has a frame of unknown kind"
            }
        })
    }
}

impl fmt::Debug for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Source(source) => f.debug_tuple("ReplayError").field(source).finish(),
            _ => write!(f, "ReplayError({self})"),
        }
    }
}

impl Error for ReplayError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            Kind::Source(source) => Some(&**source),
            _ => None,
        }
    }
}
