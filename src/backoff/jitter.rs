//! `Jitter`: how a delay is spread, and the arithmetic of it in whole nanoseconds.

use std::time::Duration;

use super::InvalidBackoff;

/// How delays are spread, so that clients that failed together do not return together.
///
/// With `v` the grown delay after the cap, `v = min(max, min·factorⁿ)` for retry `n` from 0, and
/// `U` uniform:
///
/// | jitter | delay | of use where |
/// |---|---|---|
/// | `None` | `v` | nothing else retries |
/// | `Full` | `U(0, v]` | many clients share a server: the fewest calls |
/// | `Equal` | `v/2 + U[0, v/2]` | a wait must not be too short |
/// | `Decorrelated` | `U[min, min(max, 3·previous)]`, `previous` from `min` | time counts more than calls |
/// | `FromMin` | `U[min, v]` | the first delay shall be `min` |
/// | `Additive(r)` | `U[hi/(1+r), hi]`, `hi = min(max, v·(1+r))`: below the cap `v` plus up to `r·v` | coming from `tower::retry` |
/// | `Proportional(r)` | `U[hi·(1−r)/(1+r), hi]`, `hi` as above: below the cap `v ± r·v` | gRPC (A6 has `r` = 0.2) |
///
/// No delay is above `max` or zero, and all but `None` still spread at the cap. `Full`, `Equal` and
/// `Decorrelated` are those of Brooker's ["Exponential Backoff And Jitter"][aws], the last with its
/// cap inside the draw so that it does not pile up on `max`.
///
/// [aws]: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Jitter {
    /// No spread.
    None,
    /// Anything up to the grown delay. The default: in the simulation of the article above it has
    /// the fewest calls, and nearly the least time.
    Full,
    /// The upper half of the grown delay.
    Equal,
    /// Each delay is drawn up to three times the one before; `factor` is not used.
    Decorrelated,
    /// Between the minimum and the grown delay.
    FromMin,
    /// Up to this share on top of the grown delay: 0 to 100.
    Additive(f64),
    /// Up to this share above or below the grown delay: 0 to 1.
    Proportional(f64),
}

/// The extremes of one draw, in nanoseconds; `low <= high`.
#[derive(Clone, Copy)]
pub(super) struct Range {
    low: u128,
    high: u128,
}

/// The share of a server's delay that may be added to it: a tenth.
const HINT_SHARE: u128 = 10;

/// What to add to a server's delay, for `unit` in `[0, 1)`.
pub(super) fn spread(delay: Duration, unit: f64) -> Duration {
    let range = Range {
        low: 0,
        high: delay.as_nanos() / HINT_SHARE,
    };
    duration(range.delay(unit))
}

/// Whole nanoseconds as a `Duration`, saturating.
#[inline]
pub(super) fn duration(nanos: u128) -> Duration {
    const PER_SECOND: u128 = 1_000_000_000;
    // 584 years. To divide 128 bits takes longer than all the rest of a delay.
    if let Ok(nanos) = u64::try_from(nanos) {
        return Duration::from_nanos(nanos);
    }
    match u64::try_from(nanos / PER_SECOND) {
        // The remainder is below 10^9, which a `u32` holds.
        Ok(secs) => Duration::new(secs, (nanos % PER_SECOND) as u32),
        Err(_) => Duration::MAX,
    }
}

// === impl Jitter ===

impl Jitter {
    pub(super) fn check(self) -> Result<(), InvalidBackoff> {
        let (ratio, limit, reason) = match self {
            Self::Additive(ratio) => (ratio, 100.0, "jitter must not be greater than 100"),
            Self::Proportional(ratio) => (ratio, 1.0, "jitter must not be greater than 1"),
            _ => return Ok(()),
        };
        if ratio.is_nan() {
            Err(InvalidBackoff::new("jitter must not be NaN"))
        } else if ratio < 0.0 {
            Err(InvalidBackoff::new("jitter must not be negative"))
        } else if ratio > limit {
            Err(InvalidBackoff::new(reason))
        } else {
            Ok(())
        }
    }

    /// Where the delay lies for a grown delay `base` within `[min, max]`; for `Decorrelated`,
    /// `base` is the delay before.
    pub(super) fn range(self, base: u128, min: u128, max: u128) -> Range {
        let (low, high) = match self {
            Self::None => (base, base),
            Self::Full => (0, base),
            Self::Equal => (base / 2, base),
            Self::Decorrelated => (min, max.min(base.saturating_mul(3))),
            Self::FromMin => (min, base),
            Self::Additive(ratio) => {
                let high = base.saturating_add(share(base, ratio));
                if high <= max {
                    (base, high)
                } else {
                    (part(max, 1.0 / (1.0 + ratio)), max)
                }
            }
            Self::Proportional(ratio) => {
                let spread = part(base, ratio);
                let high = base.saturating_add(spread);
                if high <= max {
                    (base - spread, high)
                } else {
                    (part(max, (1.0 - ratio) / (1.0 + ratio)), max)
                }
            }
        };
        Range { low, high }
    }
}

/// A number is the ratio of `tower::retry`'s jitter.
impl From<f64> for Jitter {
    fn from(ratio: f64) -> Self {
        Self::Additive(ratio)
    }
}

// === impl Range ===

impl Range {
    /// The delay for `unit`, never zero and never above the upper end.
    pub(super) fn delay(self, unit: f64) -> u128 {
        self.at(unit).max(1)
    }

    // A range that begins at zero is open there, so it is rounded up: each of its `high` values
    // is as likely as the next. Elsewhere fractions of a nanosecond are cut.
    fn at(self, unit: f64) -> u128 {
        let span = self.high - self.low;
        let part = float(span) * unit_of(unit);
        let part = if self.low == 0 { part.ceil() } else { part };
        // Where `span` has more than the 53 bits of an `f64`, the product may be rounded above it.
        self.low + whole(part).min(span)
    }
}

// The nearest number in `[0, 1)`; NaN is 0.
fn unit_of(unit: f64) -> f64 {
    if unit >= 0.0 {
        unit.min(1.0 - f64::EPSILON / 2.0)
    } else {
        0.0
    }
}

// `all * ratio`, for a ratio from 0 to 100. Exact to the nanosecond up to 104 days, the 53 bits of
// an `f64`; `Duration::MAX` has 94 bits, so nothing overflows.
fn share(all: u128, ratio: f64) -> u128 {
    whole(float(all) * ratio)
}

// The same for a ratio from 0 to 1, never rounded above the whole.
fn part(all: u128, ratio: f64) -> u128 {
    share(all, ratio).min(all)
}

// The nearest number, by the processor's own instruction where 64 bits are enough: for 128 there is
// none.
fn float(nanos: u128) -> f64 {
    match u64::try_from(nanos) {
        Ok(nanos) => nanos as f64,
        Err(_) => nanos as f64,
    }
}

// The whole nanoseconds of what is not negative, likewise.
fn whole(nanos: f64) -> u128 {
    if nanos < u64::MAX as f64 {
        (nanos as u64).into()
    } else {
        nanos as u128
    }
}
