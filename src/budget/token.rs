//! `TokenBudget`: a bucket of retries that successes fill.

use std::fmt;

use tokio::time::Instant;

use super::{
    Budget, InvalidBudget,
    amount::{to_float, to_units},
    bucket::Bucket,
    drip::Drip,
};

/// Parts of a retry that are told apart: a millionth.
const RETRY: u32 = 1_000_000;

/// A bucket of retries that successes fill.
///
/// It starts full. A success adds a fixed part of a retry, never above the capacity; a retry takes
/// one. Whatever the threads do at once, the retries are at most
/// `capacity + ratio × successes`, plus the refill if one is set.
///
/// A full bucket costs a deposit one relaxed load and no write, so healthy traffic scales with the
/// cores. No clock is read unless a refill is set.
///
/// The default is a capacity of 100, a ratio of 0.2 and no refill: in an outage a client sends 100
/// retries and then stops; while it limps, one request in five may be retried, the share that
/// Finagle, tower and reqwest settled on.
///
/// A refill serves clients with so few requests that successes alone would take too long to fill
/// the bucket again.
///
/// # Examples
///
/// ```
/// use tower_retry_layer::budget::{Budget, TokenBudget};
///
/// let budget = TokenBudget::new(10, 0.5)?;
/// assert_eq!(budget.balance(), 10);
/// while budget.withdraw() {}
///
/// budget.deposit();
/// assert!(!budget.withdraw(), "half a retry is none");
/// budget.deposit();
/// assert!(budget.withdraw());
///
/// let refused = TokenBudget::new(10, -1.0).unwrap_err();
/// assert_eq!(refused.to_string(), "invalid budget: ratio must not be negative");
/// # Ok::<(), tower_retry_layer::budget::InvalidBudget>(())
/// ```
pub struct TokenBudget {
    bucket: Bucket,
    per_deposit: u64,
    refill: Option<Refill>,
}

/// Where a refill is counted from, and how much of it was handed out.
struct Refill {
    origin: Instant,
    drip: Drip,
}

// === impl TokenBudget ===

impl TokenBudget {
    /// A full bucket of `capacity` retries, to which every success adds `ratio` of a retry.
    ///
    /// The ratio is rounded to the nearest millionth; one above the capacity fills the bucket at
    /// once. A capacity of zero never lends, a ratio of zero never fills.
    ///
    /// # Errors
    ///
    /// A ratio that is NaN, infinite or negative, or above zero and below half a millionth.
    pub fn new(capacity: u32, ratio: f32) -> Result<Self, InvalidBudget> {
        Ok(Self::from_units(capacity, to_units("ratio", ratio, RETRY)?))
    }

    /// Adds `retries` a second as well, whatever the outcomes, up to the capacity.
    ///
    /// Time counts from here. Rounded to the nearest millionth; zero is no refill. The clock is
    /// tokio's and is read when a retry is asked for.
    ///
    /// # Errors
    ///
    /// A number that is NaN, infinite or negative, or above zero and below half a millionth.
    pub fn with_refill_per_second(mut self, retries: f32) -> Result<Self, InvalidBudget> {
        let per_second = to_units("refill per second", retries, RETRY)?;
        self.refill = (per_second > 0).then(|| Refill {
            origin: Instant::now(),
            drip: Drip::new(per_second),
        });
        Ok(self)
    }

    /// The retries that could be sent now, rounded down.
    pub fn balance(&self) -> u64 {
        self.collect_refill();
        self.bucket.amount() / u64::from(RETRY)
    }

    fn from_units(capacity: u32, per_deposit: u64) -> Self {
        // The largest capacity is 2^32 millions of units, far below 2^64.
        let capacity = u64::from(capacity) * u64::from(RETRY);
        Self {
            bucket: Bucket::new(capacity, capacity),
            per_deposit: per_deposit.min(capacity),
            refill: None,
        }
    }

    fn collect_refill(&self) {
        if let Some(refill) = &self.refill {
            self.bucket.add(refill.collect());
        }
    }
}

/// A capacity of 100, a ratio of 0.2, no refill.
impl Default for TokenBudget {
    fn default() -> Self {
        Self::from_units(100, u64::from(RETRY) / 5)
    }
}

impl Budget for TokenBudget {
    #[inline]
    fn deposit(&self) {
        self.bucket.add(self.per_deposit);
    }

    #[inline]
    fn withdraw(&self) -> bool {
        self.collect_refill();
        self.bucket.take(u64::from(RETRY))
    }

    /// Adds one retry, never above the capacity.
    fn refund(&self) {
        self.bucket.add(u64::from(RETRY));
    }

    fn level(&self) -> Option<f64> {
        self.collect_refill();
        Some(to_float(self.bucket.amount(), RETRY))
    }
}

impl fmt::Debug for TokenBudget {
    /// Prints the balance of this moment, in retries with their fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.collect_refill();
        let refill = self
            .refill
            .as_ref()
            .map_or(0, |refill| refill.drip.per_second());
        f.debug_struct("TokenBudget")
            .field("balance", &to_float(self.bucket.amount(), RETRY))
            .field("capacity", &(self.bucket.capacity() / u64::from(RETRY)))
            .field("ratio", &to_float(self.per_deposit, RETRY))
            .field("refill_per_second", &to_float(refill, RETRY))
            .finish()
    }
}

// === impl Refill ===

impl Refill {
    fn collect(&self) -> u64 {
        let elapsed = Instant::now().saturating_duration_since(self.origin);
        // 2^64 nanoseconds are 584 years.
        self.drip
            .collect(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }
}
