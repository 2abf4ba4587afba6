//! `Reader`: one attempt's place in the recording that the attempts share.

use std::{
    mem,
    sync::PoisonError,
    task::{Context, Poll, Waker},
};

use http_body::Body;

use super::{
    error::{BoxError, ReplayError},
    limits::Limits,
    record::Piece,
    sole::Sole,
    source::{Polled, Source},
    state::{After, Fresh, State, Turn},
    sync::{Arc, Mutex},
};

/// One attempt's handle to a recording: a copy until it begins to read.
pub(super) struct Reader<B> {
    recording: Arc<Recording<B>>,
    /// Counts from 0, in the order in which the handles were made.
    serial: u64,
    begun: bool,
}

/// What a poll of a reader comes to.
pub(super) enum Next<B> {
    Polled(Polled),
    /// Nobody else can read any more: the rest belongs to this reader, in place of the recording.
    Own(Sole<B>),
}

struct Recording<B> {
    state: Mutex<State<B>>,
}

/// The source while a reader polls it. Dropped, it goes back: by way of a panic, too.
struct Loan<'a, B> {
    reader: &'a Reader<B>,
    /// `None` once given back.
    source: Option<Source<B>>,
}

// === impl Reader ===

impl<B> Reader<B> {
    /// Starts a recording with its first handle.
    pub(super) fn new(source: Source<B>, limits: Limits) -> Self {
        Self {
            recording: Arc::new(Recording {
                state: Mutex::new(State::new(source, limits)),
            }),
            serial: 0,
            begun: false,
        }
    }

    /// Makes a handle that starts from the beginning, if the beginning is still there.
    pub(super) fn try_copy(&self) -> Option<Self> {
        let serial = self
            .recording
            .with(|state, _| state.copy(self.serial, self.begun))?;
        Some(Self {
            recording: self.recording.clone(),
            serial,
            begun: false,
        })
    }

    pub(super) fn can_replay(&self) -> bool {
        self.recording
            .with(|state, _| state.can_replay(self.serial, self.begun))
    }

    /// Makes this handle the current one before it reads. Says whether it can be sent.
    pub(super) fn take_over(&self) -> bool {
        self.recording
            .with(|state, after| state.take_over(self.serial, self.begun, after))
    }
}

impl<B> Reader<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    /// Polls for the next frame, as [`Source::poll`] does.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, ended: &mut bool) -> Next<B> {
        loop {
            let begins = !mem::replace(&mut self.begun, true);
            let turn = self.recording.with(|state, after| {
                if begins {
                    state.begin(self.serial, after)?;
                }
                state.turn(self.serial)
            });
            return Next::Polled(match turn {
                Ok(Turn::Piece(piece, last)) => {
                    *ended = last;
                    Poll::Ready(Some(Ok(piece.into())))
                }
                Ok(Turn::Own(sole)) => return Next::Own(sole),
                Ok(Turn::Poll(source)) => {
                    let loan = Loan {
                        reader: self,
                        source: Some(source),
                    };
                    loan.poll(cx, ended)
                }
                Ok(Turn::Wait) => {
                    let waker = cx.waker().clone();
                    let waits = |state: &mut State<B>, after: &mut After<B>| {
                        state.wait(self.serial, waker, after)
                    };
                    if !self.recording.with(waits) {
                        // The former reader has just given the source back.
                        continue;
                    }
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Some(Err(error))),
            });
        }
    }
}

impl<B> Drop for Reader<B> {
    fn drop(&mut self) {
        self.recording
            .with(|state, after| state.leave(self.serial, self.begun, after));
    }
}

// === impl Recording ===

impl<B> Recording<B> {
    /// Changes the state, then does without the lock what the change left over (invariant 3).
    fn with<T>(&self, change: impl FnOnce(&mut State<B>, &mut After<B>) -> T) -> T {
        let mut after = After::default();
        let value = {
            // Nothing of others runs under the lock, wakers and the drop of frames included, so a
            // panic there cannot have torn the state.
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut state, &mut after)
        };
        if let Some(waker) = after.wake.take() {
            waker.wake();
        }
        value
    }
}

// === impl Loan ===

impl<B> Loan<'_, B> {
    /// Polls the source and settles.
    fn poll(mut self, cx: &mut Context<'_>, ended: &mut bool) -> Polled
    where
        B: Body,
        B::Error: Into<BoxError>,
    {
        let Some(source) = &mut self.source else {
            return Poll::Ready(Some(Err(ReplayError::panicked())));
        };
        let polled = source.poll(cx, ended);
        let fresh = match &polled {
            Poll::Ready(Some(Ok(frame))) => Some(Fresh {
                piece: Piece::of(frame),
                ended: *ended,
            }),
            _ => None,
        };
        let park = polled.is_pending().then(|| cx.waker().clone());
        if self.settle(fresh, park) {
            polled
        } else {
            Poll::Ready(Some(Err(ReplayError::superseded())))
        }
    }

    fn settle(&mut self, fresh: Option<Fresh>, park: Option<Waker>) -> bool {
        let Some(source) = self.source.take() else {
            return false;
        };
        let serial = self.reader.serial;
        self.reader.recording.with(|state, after| {
            let current = state.settle(serial, source, fresh, after);
            match park {
                Some(waker) if current => state.park(waker, after),
                unused => after.waker = unused,
            }
            current
        })
    }
}

impl<B> Drop for Loan<'_, B> {
    fn drop(&mut self) {
        self.settle(None, None);
    }
}
