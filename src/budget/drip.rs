//! `Drip`: what the passing of time adds to a bucket.

use super::sync::{AtomicU64, Relaxed};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// A steady flow, handed out in whole units to whoever asks.
///
/// A stretch of time belongs to the one caller that moved `last` over it, and what a stretch is
/// worth is the difference of two totals since the start. So nothing is handed out twice, and no
/// fraction is lost however often somebody asks.
pub(super) struct Drip {
    per_second: u64,
    /// Nanoseconds since the start that were handed out.
    last: AtomicU64,
}

impl Drip {
    pub(super) fn new(per_second: u64) -> Self {
        Self {
            per_second,
            last: AtomicU64::new(0),
        }
    }

    pub(super) fn per_second(&self) -> u64 {
        self.per_second
    }

    /// What has flowed up to `now`, in nanoseconds since the start, and was not handed out yet.
    pub(super) fn collect(&self, now: u64) -> u64 {
        let last = self.last.fetch_max(now, Relaxed);
        if now <= last {
            return 0;
        }
        u64::try_from(self.total(now) - self.total(last)).unwrap_or(u64::MAX)
    }

    /// All that flowed since the start. The product of two `u64` fits.
    fn total(&self, now: u64) -> u128 {
        u128::from(self.per_second) * u128::from(now) / NANOS_PER_SECOND
    }
}
