//! `Record`: the frames that were read, in order, each charged to the limits.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;

use super::{
    error::Lost,
    limits::{Limits, Reservation},
};

/// What a frame, and each line of trailers, is charged beside its bytes: its place in the queue
/// and its share of an allocation. It bounds how many frames a limit admits.
const OVERHEAD: usize = 64;

/// Data below this many bytes is copied. A frame may be a slice of a buffer many times its size,
/// and keeping the slice would keep the buffer; copying a kilobyte costs less than a page fault.
const TINY: usize = 1024;

/// Copies share blocks. The first is small, for most bodies are; each is twice the one before.
const BLOCKS: std::ops::RangeInclusive<usize> = 1024..=16 * 1024;

/// The frames from where the readers may start to where the source stands.
pub(super) struct Record {
    frames: VecDeque<Piece>,
    reservation: Reservation,
    /// Copies of tiny frames end here. Empty until there is one.
    tail: BytesMut,
    next_block: usize,
}

/// One frame that can be sent any number of times.
#[derive(Clone)]
pub(super) enum Piece {
    Data(Bytes),
    Trailers(Box<HeaderMap>),
}

// === impl Record ===

impl Record {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            frames: VecDeque::new(),
            reservation: limits.reservation(),
            tail: BytesMut::new(),
            next_block: *BLOCKS.start(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Piece> {
        self.frames.get(index)
    }

    /// Appends a frame within the limits, or gives it back with the reason. `None` is a frame of
    /// unknown kind.
    ///
    /// Empty data is kept only at the start. It carries nothing, and a source could send it
    /// without end; but a body that consists of it alone is played back as it was.
    pub(super) fn push(&mut self, piece: Option<Piece>) -> Result<(), (Lost, Option<Piece>)> {
        let piece = match piece {
            None => return Err((Lost::UnknownFrame, None)),
            Some(Piece::Data(data)) if data.is_empty() && !self.frames.is_empty() => return Ok(()),
            Some(piece) => piece,
        };
        if let Err(why) = self.reservation.take(piece.charge()) {
            return Err((why, Some(piece)));
        }
        let piece = match piece {
            Piece::Data(data) if data.len() < TINY => Piece::Data(self.copy(&data)),
            piece => piece,
        };
        self.frames.push_back(piece);
        Ok(())
    }

    /// Appends a frame whatever the limits say: it is not kept, only on its way to a reader.
    pub(super) fn pass_on(&mut self, piece: Piece) {
        self.frames.push_back(piece);
    }

    pub(super) fn pop_front(&mut self) -> Option<Piece> {
        let piece = self.frames.pop_front()?;
        self.reservation.give_back(piece.charge());
        if self.frames.is_empty() {
            // The places of many tiny frames are memory too.
            self.frames = VecDeque::new();
        }
        Some(piece)
    }

    /// Takes the first `count` frames out, for the caller to drop outside of its lock.
    pub(super) fn take_front(&mut self, count: usize) -> VecDeque<Piece> {
        if count == 0 {
            return VecDeque::new();
        }
        let rest = self.frames.split_off(count.min(self.frames.len()));
        let front = std::mem::replace(&mut self.frames, rest);
        self.reservation
            .give_back(front.iter().map(Piece::charge).sum());
        front
    }

    /// Takes everything, the reservation with it.
    pub(super) fn take(&mut self) -> Self {
        let limits = self.reservation.limits();
        // Nothing is copied any more, so the block is left to the frames that are in it.
        self.tail = BytesMut::new();
        std::mem::replace(self, Self::new(limits))
    }

    fn copy(&mut self, data: &[u8]) -> Bytes {
        if self.tail.capacity() < data.len() {
            // Never `reserve`, which would move what earlier copies still share.
            self.tail = BytesMut::with_capacity(self.next_block);
            self.next_block = (self.next_block * 2).min(*BLOCKS.end());
        }
        self.tail.extend_from_slice(data);
        self.tail.split().freeze()
    }
}

// === impl Piece ===

impl Piece {
    /// A second handle to the frame's content. `None`: neither data nor trailers, so that only
    /// the frame itself can be sent. http-body 1 cannot make such a frame, but leaves room for it.
    pub(super) fn of(frame: &Frame<Bytes>) -> Option<Self> {
        if let Some(data) = frame.data_ref() {
            Some(Self::Data(data.clone()))
        } else {
            let trailers = frame.trailers_ref()?;
            Some(Self::Trailers(Box::new(trailers.clone())))
        }
    }

    // Saturating: what is charged more than there are bytes is refused all the same.
    fn charge(&self) -> usize {
        match self {
            Self::Data(data) => data.len().saturating_add(OVERHEAD),
            Self::Trailers(trailers) => trailers.iter().fold(OVERHEAD, |sum, (name, value)| {
                sum.saturating_add(name.as_str().len())
                    .saturating_add(value.len())
                    .saturating_add(OVERHEAD)
            }),
        }
    }
}

impl From<Piece> for Frame<Bytes> {
    fn from(piece: Piece) -> Self {
        match piece {
            Piece::Data(data) => Self::data(data),
            Piece::Trailers(trailers) => Self::trailers(*trailers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Edge case 23: no public constructor makes such a frame, so its branch is met here.
    #[test]
    fn a_frame_of_unknown_kind_is_not_recorded() {
        let mut record = Record::new(Limits::new(usize::MAX));
        let data = Piece::Data(Bytes::from_static(b"a"));
        assert!(record.push(Some(data)).is_ok());
        assert!(matches!(record.push(None), Err((Lost::UnknownFrame, None))));
        assert_eq!(record.len(), 1);
    }
}
