//! `PeekBody`: a body whose first frame was read ahead.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response that a [`PeekTrailers`](super::PeekTrailers) service let through: all
    /// frames of the inner body, in their order.
    ///
    /// While the frame that was read ahead is not delivered, it is counted in
    /// [`size_hint`](Body::size_hint), and the body is not at its end. Trailers that were read ahead
    /// leave the size open: a size of zero, though right, would have them cut off.
    pub struct PeekBody<C>
    where
        C: Body,
    {
        // `None` once it is delivered, and where nothing was read ahead. An `End` stays.
        first: Option<First<C::Data, C::Error>>,
        #[pin]
        rest: C,
    }
}

/// What was read ahead.
pub(super) enum First<D, E> {
    Frame(Result<Frame<D>, E>),
    /// There is no frame at all.
    End,
}

impl<C: Body> PeekBody<C> {
    pub(super) fn new(first: Option<First<C::Data, C::Error>>, rest: C) -> Self {
        Self { first, rest }
    }
}

impl<C: Body> Body for PeekBody<C> {
    type Data = C::Data;
    type Error = C::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<C::Data>, C::Error>>> {
        let this = self.project();
        match this.first.take() {
            Some(First::Frame(frame)) => Poll::Ready(Some(frame)),
            Some(First::End) => {
                *this.first = Some(First::End);
                Poll::Ready(None)
            }
            None => this.rest.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self.first {
            Some(First::Frame(_)) => false,
            Some(First::End) => true,
            None => self.rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.first {
            None => self.rest.size_hint(),
            Some(First::End) => SizeHint::with_exact(0),
            Some(First::Frame(Ok(frame))) => match frame.data_ref() {
                Some(data) => plus(&self.rest.size_hint(), data.remaining()),
                None => SizeHint::new(),
            },
            Some(First::Frame(Err(_))) => SizeHint::new(),
        }
    }
}

/// A default body with nothing read ahead: what tonic's interceptors answer with if they refuse a call.
impl<C: Body + Default> Default for PeekBody<C> {
    fn default() -> Self {
        Self::new(None, C::default())
    }
}

impl<C: Body> fmt::Debug for PeekBody<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeekBody")
            .field("read_ahead", &matches!(self.first, Some(First::Frame(_))))
            .finish_non_exhaustive()
    }
}

/// A hint with so many bytes before it.
fn plus(rest: &SizeHint, bytes: usize) -> SizeHint {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    let mut hint = SizeHint::new();
    hint.set_lower(rest.lower().saturating_add(bytes));
    if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(bytes)) {
        hint.set_upper(upper);
    }
    hint
}
