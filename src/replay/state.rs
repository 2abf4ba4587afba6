//! `State`: what the attempts at one body share, and every change of it. Nothing here waits or locks.
//!
//! # Invariants
//!
//! 1. At most one reader is current. It alone polls the source, it alone is given frames, and
//!    `cursor` is its place. A former one that polls the source already may finish that poll: what
//!    it read is recorded, and not given to it. A copy that took over is current before it reads;
//!    until then nobody polls.
//! 2. While `lost` is `None` the record goes back to the body's start. From then on it holds only
//!    what lies ahead of the current reader.
//! 3. The source is polled, wakers are cloned, woken and dropped, and frames are dropped, without
//!    the lock: all of these run code of others, which may end up here again. So a change is given
//!    what it keeps and hands out what it frees.
//! 4. What nobody can read is freed: see [`State::sweep`], which follows every change.

use std::{collections::VecDeque, mem, task::Waker};

use super::{
    error::{Lost, ReplayError},
    limits::Limits,
    record::{Piece, Record},
    sole::Sole,
    source::Source,
};

/// What the attempts share.
pub(super) struct State<B> {
    record: Record,
    slot: Slot<B>,
    /// The source said, after the last frame of the record, that nothing follows.
    ended: bool,
    /// Why no further reader can begin. `None` while one can.
    lost: Option<ReplayError>,
    /// The serial of the reader that began or took over last, until it is dropped or done.
    current: Option<u64>,
    /// How many frames of the record the current reader was given.
    cursor: usize,
    /// The serials of those that have not begun and may: all are newer than any that has, and
    /// none is older than one that took over.
    copies: Vec<u64>,
    next_serial: u64,
    /// The current reader's, since it last had to wait.
    waker: Option<Waker>,
}

enum Slot<B> {
    Here(Source<B>),
    /// A reader polls it, perhaps one that is no longer current.
    Lent,
    /// A reader owns it, or nobody needs it.
    Gone,
}

/// What the state has for its current reader.
pub(super) enum Turn<B> {
    /// The next frame of the record, and whether the source said that nothing follows it.
    Piece(Piece, bool),
    /// Nobody else can read any more: the rest belongs to this reader alone.
    Own(Sole<B>),
    /// Nothing recorded lies ahead: the reader polls the source, then settles.
    Poll(Source<B>),
    /// A former reader still polls the source: see [`State::wait`].
    Wait,
}

/// A frame that was read from the source, as [`State::settle`] needs it.
pub(super) struct Fresh {
    /// `None`: of unknown kind.
    pub(super) piece: Option<Piece>,
    pub(super) ended: bool,
}

/// What a change leaves to be done without the lock (invariant 3).
pub(super) struct After<B> {
    pub(super) wake: Option<Waker>,
    frames: VecDeque<Piece>,
    source: Option<Source<B>>,
    pub(super) waker: Option<Waker>,
}

// === impl State ===

impl<B> State<B> {
    /// The state of a recording with one handle, whose serial is 0.
    pub(super) fn new(source: Source<B>, limits: Limits) -> Self {
        Self {
            record: Record::new(limits),
            slot: Slot::Here(source),
            ended: false,
            lost: None,
            current: None,
            cursor: 0,
            copies: vec![0],
            next_serial: 1,
            waker: None,
        }
    }

    pub(super) fn can_replay(&self, serial: u64, begun: bool) -> bool {
        let valid = if begun {
            self.current == Some(serial)
        } else {
            self.copies.contains(&serial)
        };
        valid && self.lost.is_none()
    }

    /// The serial of a new copy, if there is still all that one needs.
    pub(super) fn copy(&mut self, serial: u64, begun: bool) -> Option<u64> {
        if !self.can_replay(serial, begun) {
            return None;
        }
        let copy = self.next_serial;
        self.next_serial += 1;
        self.copies.push(copy);
        Some(copy)
    }

    /// Makes a copy the current reader, and void all that are older.
    ///
    /// An older one belongs to an attempt that was given up before it read anything. It must not
    /// stop the one that took its place, nor send the body once more when that one is done.
    pub(super) fn begin(&mut self, serial: u64, after: &mut After<B>) -> Result<(), ReplayError> {
        if !self.copies.contains(&serial) {
            return Err(ReplayError::superseded());
        }
        match &self.lost {
            // What was kept for one that took over goes back to the start nevertheless.
            Some(lost) if self.current != Some(serial) => return Err(lost.clone()),
            _ => {}
        }
        self.copies.retain(|copy| *copy > serial);
        self.succeed(serial, after);
        Ok(())
    }

    /// Makes a copy the current reader before it reads, and void all that are older. Says whether
    /// it can be sent.
    ///
    /// It stays a copy: recording goes on for it, and it may be copied.
    pub(super) fn take_over(&mut self, serial: u64, begun: bool, after: &mut After<B>) -> bool {
        if self.current == Some(serial) {
            return true;
        }
        if !self.can_replay(serial, begun) {
            return false;
        }
        self.copies.retain(|copy| *copy >= serial);
        self.succeed(serial, after);
        true
    }

    fn succeed(&mut self, serial: u64, after: &mut After<B>) {
        // The former reader sleeps on a source that it will not be woken by any more.
        after.wake = self.waker.take();
        self.current = Some(serial);
        self.cursor = 0;
        self.sweep(after);
    }

    /// What comes next for a reader that has begun.
    pub(super) fn turn(&mut self, serial: u64) -> Result<Turn<B>, ReplayError> {
        if self.current != Some(serial) {
            return Err(ReplayError::superseded());
        }
        match mem::replace(&mut self.slot, Slot::Gone) {
            Slot::Here(source) if self.lost.is_some() => {
                let sole = Sole::new(self.record.take(), source, self.ended);
                return Ok(Turn::Own(sole));
            }
            slot => self.slot = slot,
        }
        if let Some(piece) = self.record.get(self.cursor) {
            self.cursor += 1;
            let last = self.ended && self.cursor == self.record.len();
            return Ok(Turn::Piece(piece.clone(), last));
        }
        match mem::replace(&mut self.slot, Slot::Lent) {
            Slot::Here(source) => Ok(Turn::Poll(source)),
            Slot::Lent => Ok(Turn::Wait),
            // Not while there is a current reader. If it were, an error is the safe answer.
            Slot::Gone => {
                self.slot = Slot::Gone;
                Err(ReplayError::superseded())
            }
        }
    }

    /// Keeps the waker of a reader whose turn it is to wait. Says whether it still has to.
    pub(super) fn wait(&mut self, serial: u64, waker: Waker, after: &mut After<B>) -> bool {
        let waits = self.current == Some(serial) && matches!(self.slot, Slot::Lent);
        if waits {
            self.park(waker, after);
        } else {
            after.waker = Some(waker);
        }
        waits
    }

    /// Keeps the current reader's waker.
    pub(super) fn park(&mut self, waker: Waker, after: &mut After<B>) {
        after.waker = self.waker.replace(waker);
    }

    /// Takes note that a handle is dropped.
    pub(super) fn leave(&mut self, serial: u64, begun: bool, after: &mut After<B>) {
        if !begun {
            self.copies.retain(|copy| *copy != serial);
        }
        if self.current == Some(serial) {
            self.current = None;
            after.waker = self.waker.take();
        }
        self.sweep(after);
    }

    /// Takes the source back from a reader, with the frame that it read if it did. Says whether
    /// that reader is still the current one.
    pub(super) fn settle(
        &mut self,
        serial: u64,
        source: Source<B>,
        fresh: Option<Fresh>,
        after: &mut After<B>,
    ) -> bool {
        let current = self.current == Some(serial);
        if let Slot::Gone = self.slot {
            after.source = Some(source);
            return current;
        }
        if let Source::Failed(error) = &source {
            // What was recorded is no whole body and never will be one.
            self.lost.get_or_insert_with(|| error.clone());
        }
        self.slot = Slot::Here(source);
        if let Some(Fresh { piece, ended }) = fresh {
            self.ended = ended;
            self.admit(piece, current, after);
        }
        if current {
            // It polled the source, so it was, and is, at the record's end.
            self.cursor = self.record.len();
        } else {
            after.wake = self.waker.take();
        }
        self.sweep(after);
        current
    }

    /// Records a frame, or gives the recording up. The frame is not lost with it: the current
    /// reader has it in hand, or finds it in the record where a former one read it.
    fn admit(&mut self, piece: Option<Piece>, current: bool, after: &mut After<B>) {
        let piece = if self.lost.is_some() {
            piece
        } else {
            match self.record.push(piece) {
                Ok(()) => return,
                Err((why, piece)) => {
                    self.lost = Some(ReplayError::lost(why));
                    piece
                }
            }
        };
        if current {
            return;
        }
        match piece {
            Some(piece) => self.record.pass_on(piece),
            None => {
                let failed = Source::Failed(ReplayError::lost(Lost::UnknownFrame));
                if let Slot::Here(source) = mem::replace(&mut self.slot, Slot::Here(failed)) {
                    after.source = Some(source);
                }
            }
        }
    }

    /// Frees what nobody can read (invariant 4).
    fn sweep(&mut self, after: &mut After<B>) {
        if self.copies.is_empty() {
            self.lost
                .get_or_insert_with(|| ReplayError::lost(Lost::NoCopy));
        }
        if self.lost.is_none() {
            return;
        }
        if self.current.is_none() {
            self.cursor = self.record.len();
            // Where it is lent, the reader that polls it drops it: see `settle`.
            if let Slot::Here(source) = mem::replace(&mut self.slot, Slot::Gone) {
                after.source.get_or_insert(source);
            }
        }
        after.frames = self.record.take_front(self.cursor);
        self.cursor = 0;
    }
}

// === impl After ===

impl<B> Default for After<B> {
    fn default() -> Self {
        Self {
            wake: None,
            frames: VecDeque::new(),
            source: None,
            waker: None,
        }
    }
}
