//! `TpsBudget`: a sliding window of successes, and a reserve per second.

use std::{fmt, time::Duration};

use tokio::time::Instant;

use super::{
    Budget, InvalidBudget,
    amount::{to_float, to_units},
    window::{RETRY, SLOTS, Window},
};

/// The shortest and the longest window. Below ten milliseconds a tick is finer than the clocks and
/// schedulers it would be measured with; above a day a window says nothing about the present.
const MIN_TTL: Duration = Duration::from_millis(10);
const MAX_TTL: Duration = Duration::from_secs(24 * 3_600);

/// The highest share, Finagle's and tower's too.
const MAX_PERCENT: f32 = 1_000.0;

/// A sliding window of successes, and a reserve per second: the budget of Finagle and
/// `tower::retry`.
///
/// A success of the last `ttl` is worth `retry_percent` of a retry. Beside that there is a reserve
/// of `min_per_sec × ttl` retries, for clients that have just started or send little. A retry is
/// taken from the oldest successes first, then from the reserve; what is spent of the reserve comes
/// back after `ttl`. The reserve is no rate: it may all be spent at once.
///
/// The window moves in ticks of a tenth of `ttl`. A success counts for more than `ttl − ttl/10` and
/// never longer than `ttl`, and what was spent comes back within the same bounds; what was spent at
/// the start of a tick, exactly `ttl` later. Time is tokio's and counts from the construction.
///
/// The balance is never negative and never overdrawn, whatever the threads do at once. No call
/// takes longer after a long idle time. A deposit takes no lock, nor does a refusal that follows
/// another with no success in between.
///
/// The default is a window of 10 s, 10 retries a second and a share of 0.2, as in Finagle and tower:
/// a reserve of 100 retries.
///
/// # Differences from `tower::retry::budget::TpsBudget`
///
/// A bad setting is an error. Windows shorter than a second, longer than a minute and with a
/// fraction of a second are allowed and counted in full. The share is exact to 1/10 000: 0.6 lends
/// six retries for ten successes where tower lends ten. A withdrawal against a success leaves the
/// window together with it, so no debt stays behind.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_retry_layer::budget::{Budget, TpsBudget};
///
/// // A reserve of 2 retries a second for 1.5 seconds.
/// let budget = TpsBudget::new(Duration::from_millis(1_500), 2, 0.5)?;
/// assert_eq!(budget.balance(), 3);
/// budget.deposit();
/// budget.deposit();
/// assert_eq!(budget.balance(), 4);
///
/// let refused = TpsBudget::new(Duration::ZERO, 2, 0.5).unwrap_err();
/// assert_eq!(refused.to_string(), "invalid budget: ttl must not be less than 10 ms");
/// # Ok::<(), tower_retry_layer::budget::InvalidBudget>(())
/// ```
pub struct TpsBudget {
    origin: Instant,
    ttl: Duration,
    window: Window,
}

// === impl TpsBudget ===

impl TpsBudget {
    /// A window of `ttl`, with a reserve of `min_per_sec` retries for each of its seconds, in which
    /// a success is worth `retry_percent` of a retry.
    ///
    /// - `ttl`: 10 ms to one day.
    /// - `min_per_sec`: zero is no reserve. Fractions of a retry count: a reserve of less than one
    ///   lends only together with successes.
    /// - `retry_percent`: 0 to 1000, rounded to 1/10 000; 0.2 lends one retry for five successes,
    ///   2.0 two for each.
    ///
    /// A tick counts up to 33 million successes; more of them are worth nothing.
    ///
    /// # Errors
    ///
    /// A setting out of its range, a share that is NaN, and one above zero that rounds to it.
    pub fn new(ttl: Duration, min_per_sec: u32, retry_percent: f32) -> Result<Self, InvalidBudget> {
        if ttl < MIN_TTL {
            return Err(InvalidBudget::new("ttl", "must not be less than 10 ms"));
        }
        if ttl > MAX_TTL {
            return Err(InvalidBudget::new("ttl", "must not be greater than a day"));
        }
        let per_deposit = to_units("retry percent", retry_percent, RETRY)?;
        if retry_percent > MAX_PERCENT {
            return Err(InvalidBudget::new(
                "retry percent",
                "must not be greater than 1000",
            ));
        }
        Ok(Self::from_units(ttl, min_per_sec, per_deposit))
    }

    /// The retries that could be sent now, rounded down.
    pub fn balance(&self) -> u64 {
        self.window.balance(self.tick()) / u64::from(RETRY)
    }

    fn from_units(ttl: Duration, min_per_sec: u32, per_deposit: u64) -> Self {
        const NANOS_PER_SECOND: u128 = 1_000_000_000;
        // 2^32 retries a second for a day are less than 2^62 units.
        let reserve =
            u128::from(min_per_sec) * ttl.as_nanos() * u128::from(RETRY) / NANOS_PER_SECOND;
        Self {
            origin: Instant::now(),
            ttl,
            window: Window::new(per_deposit, u64::try_from(reserve).unwrap_or(u64::MAX / 2)),
        }
    }

    /// Tenths of the ttl since the construction, rounded down, so that a tick begins at exactly
    /// every tenth.
    #[inline]
    fn tick(&self) -> u64 {
        let elapsed = Instant::now()
            .saturating_duration_since(self.origin)
            .as_nanos();
        let ttl = self.ttl.as_nanos();
        match (u64::try_from(elapsed * SLOTS as u128), u64::try_from(ttl)) {
            // A division that the processor has an instruction for, good for 58 years.
            (Ok(elapsed), Ok(ttl)) => elapsed / ttl,
            _ => u64::try_from(elapsed * SLOTS as u128 / ttl).unwrap_or(u64::MAX),
        }
    }
}

/// A window of 10 s, a reserve of 10 retries a second, and a share of 0.2.
impl Default for TpsBudget {
    fn default() -> Self {
        Self::from_units(Duration::from_secs(10), 10, u64::from(RETRY) / 5)
    }
}

impl Budget for TpsBudget {
    #[inline]
    fn deposit(&self) {
        if self.window.per_deposit() > 0 {
            self.window.deposit(self.tick());
        }
    }

    #[inline]
    fn withdraw(&self) -> bool {
        self.window.withdraw(self.tick())
    }

    /// Gives back the oldest withdrawal that is still in the window; nothing if there is none.
    ///
    /// Which withdrawal is meant is not known. The oldest is the careful choice: what it gives back
    /// leaves the window first. A refund that comes later than `ttl` after its withdrawal, from a
    /// wait longer than the window, finds its own gone and gives back a younger one.
    fn refund(&self) {
        self.window.refund(self.tick());
    }
}

impl fmt::Debug for TpsBudget {
    /// Prints the balance of this moment, in retries with their fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TpsBudget")
            .field(
                "balance",
                &to_float(self.window.balance(self.tick()), RETRY),
            )
            .field("ttl", &self.ttl)
            .field("reserve", &to_float(self.window.reserve(), RETRY))
            .field("retry_percent", &to_float(self.window.per_deposit(), RETRY))
            .finish()
    }
}
