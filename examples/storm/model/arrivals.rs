//! What arrived at a server, and when: counts for each millisecond.

use std::time::Duration;

/// Counts of arrivals, one for each millisecond since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Arrivals {
    counts: Vec<u32>,
}

impl Arrivals {
    pub(crate) fn note(&mut self, at: Duration) {
        let bin = at.as_millis() as usize;
        if bin >= self.counts.len() {
            self.counts.resize(bin + 1, 0);
        }
        self.counts[bin] += 1;
    }

    /// All arrivals from `from` on and before `to`, in milliseconds.
    pub(crate) fn between(&self, from: usize, to: usize) -> u64 {
        let to = to.min(self.counts.len());
        let counts = self.counts.get(from..to).unwrap_or_default();
        counts.iter().copied().map(u64::from).sum()
    }

    pub(crate) fn total(&self) -> u64 {
        self.between(0, usize::MAX)
    }

    /// The most arrivals in any `window` milliseconds from `from` on.
    pub(crate) fn worst(&self, from: usize, window: usize) -> u64 {
        let counts = self.counts.get(from..).unwrap_or_default();
        let mut sum = 0;
        let mut worst = 0;
        for (bin, count) in counts.iter().enumerate() {
            sum += u64::from(*count);
            if bin >= window {
                sum -= u64::from(counts[bin - window]);
            }
            worst = worst.max(sum);
        }
        worst
    }

    /// The counts of each `width` milliseconds up to `end`.
    pub(crate) fn histogram(&self, width: usize, end: usize) -> Vec<u64> {
        (0..end.div_ceil(width))
            .map(|bin| self.between(bin * width, (bin + 1) * width))
            .collect()
    }
}
