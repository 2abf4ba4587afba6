//! `RetryThrottle`: the retry throttle of gRPC (proposal A6).

use std::fmt;

use super::{Budget, InvalidBudget, amount::to_float, bucket::Bucket};

/// Parts of a token that are told apart: A6 has three decimals.
const TOKEN: u32 = 1_000;

/// The most tokens that A6 allows.
const MAX_TOKENS: u32 = 1_000;

/// The retry throttle of gRPC, from [proposal A6].
///
/// It counts outcomes rather than retries: it starts with `max_tokens`, every retryable failure
/// costs one token, whether or not a retry follows, and every success returns `token_ratio` of one.
/// Retries are sent while more than half of the tokens are there; at exactly half none is.
///
/// So a refused retry costs nothing, and there is nothing to refund. One throttle serves one server
/// name; in a service config it is `retryThrottling`.
///
/// A call is counted when its response begins. So one that fails in trailers counts as a success,
/// unless a `grpc::PeekTrailersLayer` looks at them: against servers that
/// put every status there, the throttle does not close without that layer.
///
/// [proposal A6]: https://github.com/grpc/proposal/blob/master/A6-client-retries.md
///
/// # Examples
///
/// ```
/// use tower_retry_layer::budget::{Budget, RetryThrottle};
///
/// let throttle = RetryThrottle::new(4, 0.8)?;
/// throttle.failure();
/// assert!(throttle.withdraw(), "3 of 4 tokens");
/// throttle.failure();
/// assert!(!throttle.withdraw(), "2 of 4 tokens");
/// throttle.deposit();
/// assert_eq!(throttle.tokens(), 2.8);
/// assert!(throttle.withdraw());
/// # Ok::<(), tower_retry_layer::budget::InvalidBudget>(())
/// ```
pub struct RetryThrottle {
    bucket: Bucket,
    per_success: u64,
}

impl RetryThrottle {
    /// A throttle with all its `max_tokens`, to which every success returns `token_ratio`.
    ///
    /// `max_tokens` is 1 to 1000. `token_ratio` is above zero and cut, not rounded, after the third
    /// decimal: 0.5466 counts as 0.546. A ratio above `max_tokens` counts as that.
    ///
    /// # Errors
    ///
    /// A number of tokens out of its range; a ratio that is NaN or infinite, or below 0.001.
    pub fn new(max_tokens: u32, token_ratio: f32) -> Result<Self, InvalidBudget> {
        if max_tokens == 0 {
            return Err(InvalidBudget::new("max tokens", "must be non-zero"));
        }
        if max_tokens > MAX_TOKENS {
            return Err(InvalidBudget::new(
                "max tokens",
                "must not be greater than 1000",
            ));
        }
        if token_ratio.is_nan() {
            return Err(InvalidBudget::new("token ratio", "must not be NaN"));
        }
        if token_ratio == f32::INFINITY {
            return Err(InvalidBudget::new("token ratio", "must be finite"));
        }
        let max = u64::from(max_tokens * TOKEN);
        let per_success = thousandths(token_ratio).min(max);
        if per_success == 0 {
            return Err(InvalidBudget::new(
                "token ratio",
                "must not be less than 0.001",
            ));
        }
        Ok(Self {
            bucket: Bucket::new(max, max),
            per_success,
        })
    }

    /// The same throttle, as full as `old` is now: for a server whose settings changed.
    ///
    /// With 3 of 4 tokens there it has 7.5 of 10 here. The old one is not changed; what its users
    /// still report there is not seen here.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_retry_layer::budget::{Budget, RetryThrottle};
    ///
    /// let old = RetryThrottle::new(4, 1.0)?;
    /// old.failure();
    /// let new = RetryThrottle::new(10, 3.0)?.with_fraction_of(&old);
    /// assert_eq!(new.tokens(), 7.5);
    /// # Ok::<(), tower_retry_layer::budget::InvalidBudget>(())
    /// ```
    #[must_use]
    pub fn with_fraction_of(self, old: &Self) -> Self {
        // A million parts at most, each.
        let capacity = self.bucket.capacity();
        let amount = old.bucket.amount() * capacity / old.bucket.capacity();
        Self {
            bucket: Bucket::new(capacity, amount),
            ..self
        }
    }

    /// The tokens that are there, to three decimals.
    pub fn tokens(&self) -> f64 {
        to_float(self.bucket.amount(), TOKEN)
    }
}

impl Budget for RetryThrottle {
    #[inline]
    fn deposit(&self) {
        self.bucket.add(self.per_success);
    }

    /// Says whether more than half of the tokens are there. Takes none.
    #[inline]
    fn withdraw(&self) -> bool {
        self.bucket.amount() > self.bucket.capacity() / 2
    }

    #[inline]
    fn failure(&self) {
        self.bucket.drain(u64::from(TOKEN));
    }

    fn level(&self) -> Option<f64> {
        Some(self.tokens())
    }
}

impl fmt::Debug for RetryThrottle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryThrottle")
            .field("tokens", &self.tokens())
            .field("max_tokens", &to_float(self.bucket.capacity(), TOKEN))
            .field("token_ratio", &to_float(self.per_success, TOKEN))
            .finish()
    }
}

/// Cuts after the third decimal of the number as it was written.
///
/// 0.7 as a float is a little less than 0.7, so cutting the float itself would give 0.699. The
/// shortest decimal that stands for the float is the one that was written. Zero for what is
/// negative.
fn thousandths(value: f32) -> u64 {
    if value <= 0.0 {
        return 0;
    }
    let written = value.to_string();
    let (whole, decimals) = written.split_once('.').unwrap_or((&written, ""));
    // Only what is too large for a `u64` does not parse.
    format!("{whole}{decimals:0<3.3}")
        .parse()
        .unwrap_or(u64::MAX)
}
