//! `Source`: the wrapped body, latched when it is over.

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame};

use super::error::{BoxError, ReplayError};

/// The wrapped body. Once it has ended, failed or panicked it is dropped and never polled again.
/// Its data is part of it: a frame whose `Buf` panics is a body that did.
pub(super) enum Source<B> {
    /// Boxed so that `B` need not be `Unpin`.
    Open(Pin<Box<B>>),
    Ended,
    Failed(ReplayError),
}

/// What a poll comes to, in the one form that it keeps on its way out: frames are large to move.
pub(super) type Polled = Poll<Option<Result<Frame<Bytes>, ReplayError>>>;

// === impl Source ===

impl<B> Source<B> {
    pub(super) fn new(body: B) -> Self {
        Self::Open(Box::pin(body))
    }
}

impl<B> Source<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    /// Polls the body. `ended` is set where it says, with a frame, that nothing follows. That is a
    /// hint: it is believed as far as a transport believes it, and no further.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, ended: &mut bool) -> Polled {
        // A body that panics is gone: what unwinding leaves behind is the latched failure.
        let mut body = match mem::replace(self, Self::Failed(ReplayError::panicked())) {
            Self::Open(body) => body,
            Self::Ended => {
                *self = Self::Ended;
                return Poll::Ready(None);
            }
            Self::Failed(error) => {
                *self = Self::Failed(error.clone());
                return Poll::Ready(Some(Err(error)));
            }
        };
        match body.as_mut().poll_frame(cx) {
            Poll::Pending => {
                *self = Self::Open(body);
                Poll::Pending
            }
            Poll::Ready(Some(Ok(frame))) => {
                let frame = frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
                *ended = body.is_end_stream();
                // Last: what panics before it would leave a hole in the body.
                *self = Self::Open(body);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                *self = Self::Ended;
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                let error = ReplayError::source(error.into());
                *self = Self::Failed(error.clone());
                Poll::Ready(Some(Err(error)))
            }
        }
    }
}
