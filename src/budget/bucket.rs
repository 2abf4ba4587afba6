//! `Bucket`: an amount between zero and a capacity that threads add to and take from.

use super::sync::{AtomicU64, Relaxed};

/// An amount that never leaves `0..=capacity`.
///
/// `Relaxed` is enough everywhere: all there is to agree on is this one number, and nothing else is
/// published through it.
pub(super) struct Bucket {
    amount: AtomicU64,
    capacity: u64,
}

impl Bucket {
    /// A bucket that holds `amount`, or its capacity if that is less.
    pub(super) fn new(capacity: u64, amount: u64) -> Self {
        Self {
            amount: AtomicU64::new(amount.min(capacity)),
            capacity,
        }
    }

    pub(super) fn amount(&self) -> u64 {
        self.amount.load(Relaxed)
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Adds what fits. A full bucket costs one load and stays in every core's cache.
    #[inline]
    pub(super) fn add(&self, more: u64) {
        let amount = self.amount.load(Relaxed);
        if amount < self.capacity && more > 0 {
            self.change(amount, |amount| {
                let next = amount.saturating_add(more).min(self.capacity);
                (next > amount).then_some(next)
            });
        }
    }

    /// Takes `part`, or nothing if there is less.
    #[inline]
    pub(super) fn take(&self, part: u64) -> bool {
        let amount = self.amount.load(Relaxed);
        self.change(amount, |amount| amount.checked_sub(part))
    }

    /// Takes `part`, or all if there is less.
    #[inline]
    pub(super) fn drain(&self, part: u64) {
        let amount = self.amount.load(Relaxed);
        self.change(amount, |amount| {
            (amount > 0).then(|| amount.saturating_sub(part))
        });
    }

    /// Applies `step` in one piece: check and change are never apart. `None` leaves all as it is.
    ///
    /// A lost race means that another thread got through, so some thread always does.
    #[inline]
    fn change(&self, mut amount: u64, step: impl Fn(u64) -> Option<u64>) -> bool {
        while let Some(next) = step(amount) {
            match self
                .amount
                .compare_exchange_weak(amount, next, Relaxed, Relaxed)
            {
                Ok(_) => return true,
                Err(found) => amount = found,
            }
        }
        false
    }
}
