//! The two limits of recording: bytes of one request, and bytes of all requests of a layer.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::error::Lost;

/// What a layer holds at most, in bytes, unless told otherwise: what the Java and Node
/// implementations of gRPC's retries (proposal A6, "retry buffer size") allow one channel.
const DEFAULT_MAX_TOTAL_BYTES: usize = 16 * 1024 * 1024;

/// The limits that recordings share. Clones draw from the same reservation.
#[derive(Clone)]
pub(super) struct Limits {
    max_bytes: usize,
    total: Arc<Total>,
}

struct Total {
    max: usize,
    held: AtomicUsize,
}

/// What one recording holds. Given back when it is dropped.
pub(super) struct Reservation {
    limits: Limits,
    held: usize,
}

// === impl Limits ===

impl Limits {
    /// `max_bytes` for one request. The layer's limit is its default, or as much if that is more:
    /// a limit that no single request could use up would be a silent second one.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            total: Total::new(max_bytes.max(DEFAULT_MAX_TOTAL_BYTES)),
        }
    }

    /// The same limit for one request, with a reservation of its own for all of them.
    pub(super) fn with_max_total_bytes(self, max: usize) -> Self {
        Self {
            total: Total::new(max),
            ..self
        }
    }

    pub(super) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    pub(super) fn held(&self) -> usize {
        self.total.held.load(Ordering::Relaxed)
    }

    pub(super) fn reservation(self) -> Reservation {
        Reservation {
            limits: self,
            held: 0,
        }
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits")
            .field("max_bytes", &self.max_bytes)
            .field("max_total_bytes", &self.total.max)
            .field("held", &self.held())
            .finish()
    }
}

// === impl Total ===

impl Total {
    fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            held: AtomicUsize::new(0),
        })
    }

    // Relaxed: the counter guards no other memory.
    fn take(&self, bytes: usize) -> bool {
        self.held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                held.checked_add(bytes).filter(|sum| *sum <= self.max)
            })
            .is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// === impl Reservation ===

impl Reservation {
    /// Reserves `bytes` more, or nothing.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), Lost> {
        let sum = self
            .held
            .checked_add(bytes)
            .filter(|sum| *sum <= self.limits.max_bytes)
            .ok_or(Lost::TooLarge)?;
        if !self.limits.total.take(bytes) {
            return Err(Lost::NoRoom);
        }
        self.held = sum;
        Ok(())
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits.clone()
    }

    /// Gives back up to `bytes`: frames that were handed on over the limit hold nothing.
    pub(super) fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.held);
        self.held -= bytes;
        self.limits.total.give_back(bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.limits.total.give_back(self.held);
    }
}
