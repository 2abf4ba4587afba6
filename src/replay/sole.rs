//! `Sole`: the rest of a body that one reader owns alone. Nothing is locked, nothing recorded.

use std::{
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
};

use http_body::Body;

use super::{
    error::BoxError,
    record::Record,
    source::{Polled, Source},
};

/// What is left of a recording, freed as it is sent, and then the source.
pub(super) struct Sole<B> {
    /// `None` once it was sent: then nothing of the limits is held either.
    record: Option<Record>,
    source: Exclusive<Source<B>>,
    /// The source said, after the last frame of the record, that nothing follows.
    ended: bool,
}

/// A value that is only reached through `&mut`, and is thereby `Sync` where it is `Send`.
struct Exclusive<T>(Mutex<T>);

// === impl Sole ===

impl<B> Sole<B> {
    pub(super) fn new(record: Record, source: Source<B>, ended: bool) -> Self {
        Self {
            record: Some(record),
            source: Exclusive::new(source),
            ended,
        }
    }

    /// A body that was never recorded.
    pub(super) fn live(source: Source<B>) -> Self {
        Self {
            record: None,
            source: Exclusive::new(source),
            ended: false,
        }
    }
}

impl<B> Sole<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, ended: &mut bool) -> Polled {
        if let Some(record) = &mut self.record {
            if let Some(piece) = record.pop_front() {
                *ended = self.ended && record.is_empty();
                return Poll::Ready(Some(Ok(piece.into())));
            }
            self.record = None;
        }
        self.source.get_mut().poll(cx, ended)
    }
}

// === impl Exclusive ===

impl<T> Exclusive<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    // No lock is taken, so none can be poisoned.
    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}
