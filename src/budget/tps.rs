//! `TpsBudget`: a sliding window of successes, and a reserve per second.

use std::{fmt, num::NonZeroU64, time::Duration};

use tokio::time::Instant;

use super::{
    Budget, InvalidBudget,
    amount::{to_float, to_units},
    sync::{AtomicU64, Relaxed},
    window::{RETRY, SLOTS, Window},
};

/// The shortest and the longest window. Below ten milliseconds a tick is finer than the clocks and
/// schedulers it would be measured with; above a day a window says nothing about the present.
const MIN_TTL: Duration = Duration::from_millis(10);
const MAX_TTL: Duration = Duration::from_secs(24 * 3_600);

const NANOS_PER_SECOND: u64 = 1_000_000_000;

const DEFAULT_TTL: NonZeroU64 = NonZeroU64::new(10 * NANOS_PER_SECOND).unwrap();

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
    /// In nanoseconds.
    ttl: NonZeroU64,
    /// The tick that was last computed; every use of it is checked.
    guess: AtomicU64,
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
        // A day of nanoseconds is far below 2^64.
        let ttl = u64::try_from(ttl.as_nanos()).ok().and_then(NonZeroU64::new);
        let ttl = ttl.ok_or(InvalidBudget::new("ttl", "must be non-zero"))?;
        Ok(Self::from_units(ttl, min_per_sec, per_deposit))
    }

    /// The retries that could be sent now, rounded down.
    pub fn balance(&self) -> u64 {
        self.window.balance(self.tick()) / u64::from(RETRY)
    }

    fn from_units(ttl: NonZeroU64, min_per_sec: u32, per_deposit: u64) -> Self {
        let reserve = u128::from(min_per_sec) * u128::from(ttl.get()) * u128::from(RETRY);
        // 2^32 retries a second for a day are less than 2^62 units.
        let reserve = u64::try_from(reserve / u128::from(NANOS_PER_SECOND)).unwrap_or(u64::MAX / 2);
        Self {
            origin: Instant::now(),
            ttl,
            guess: AtomicU64::new(0),
            window: Window::new(per_deposit, reserve),
        }
    }

    /// Tenths of the ttl since the construction, rounded down, so that a tick begins at exactly
    /// every tenth.
    #[inline]
    fn tick(&self) -> u64 {
        let elapsed = Instant::now().saturating_duration_since(self.origin);
        // Ten times the nanoseconds, good for 58 years without 128 bits.
        let tenths = elapsed
            .as_secs()
            .checked_mul(SLOTS as u64 * NANOS_PER_SECOND);
        match tenths.and_then(|t| t.checked_add(SLOTS as u64 * u64::from(elapsed.subsec_nanos()))) {
            Some(tenths) => {
                // To check a guess takes a multiplication, and what follows need not wait for it:
                // within a tick the processor foresees the answer.
                let guess = self.guess.load(Relaxed);
                if tenths.wrapping_sub(guess.wrapping_mul(self.ttl.get())) < self.ttl.get() {
                    guess
                } else {
                    self.next_tick(tenths)
                }
            }
            None => {
                let tick = elapsed.as_nanos() * SLOTS as u128 / u128::from(self.ttl.get());
                u64::try_from(tick).unwrap_or(u64::MAX)
            }
        }
    }

    /// The first of a tick divides, and lets the others guess.
    #[cold]
    fn next_tick(&self, tenths: u64) -> u64 {
        let tick = tenths / self.ttl;
        self.guess.store(tick, Relaxed);
        tick
    }
}

/// A window of 10 s, a reserve of 10 retries a second, and a share of 0.2.
impl Default for TpsBudget {
    fn default() -> Self {
        Self::from_units(DEFAULT_TTL, 10, u64::from(RETRY) / 5)
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

    /// Takes the window's lock.
    fn level(&self) -> Option<f64> {
        Some(to_float(self.window.balance(self.tick()), RETRY))
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
            .field("ttl", &Duration::from_nanos(self.ttl.get()))
            .field("reserve", &to_float(self.window.reserve(), RETRY))
            .field("retry_percent", &to_float(self.window.per_deposit(), RETRY))
            .finish()
    }
}
