//! `ExponentialBackoff`: a delay that grows by a factor up to a cap, and is spread.

use std::{fmt, time::Duration};

use super::{
    Backoff, InvalidBackoff, Jitter, MakeBackoff, MakeRng, Rng, Seeds,
    jitter::{duration, spread},
};

/// Makes backoffs that grow by a factor from a minimum to a maximum, and are spread by a [`Jitter`].
///
/// The default is 50 ms to 20 s, factor 2, full jitter: the base of AWS's SDKs since 2026 and the
/// cap of their standard mode. Half a second of trouble is tried three times, an outage is tried
/// every ten seconds on average.
///
/// A clone shares the stream of seeds, so no two sessions of it and of its clones get the same
/// jitter.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_retry_layer::backoff::{ExponentialBackoffMaker, Jitter, Seeds};
///
/// let (min, max) = (Duration::from_millis(100), Duration::from_secs(10));
/// let maker = ExponentialBackoffMaker::new(min, max, Jitter::Equal, Seeds::random())?
///     .with_factor(1.5)?;
/// assert_eq!(maker.base_delay(2), Duration::from_millis(225));
/// let delay = maker.delay_for(2);
/// assert!(Duration::from_micros(112_500) <= delay && delay <= Duration::from_millis(225));
/// # Ok::<(), tower_retry_layer::backoff::InvalidBackoff>(())
/// ```
#[derive(Clone)]
pub struct ExponentialBackoffMaker<R = Seeds> {
    min: Duration,
    max: Duration,
    factor: f64,
    jitter: Jitter,
    rng: R,
}

/// The waits of one session, growing and spread. Made by an [`ExponentialBackoffMaker`].
///
/// A clone is a *new session*: it starts at the first step with a generator of its own. A seed is
/// drawn at the first delay, so a session that never waits costs nothing.
pub struct ExponentialBackoff<R: MakeRng = Seeds> {
    maker: ExponentialBackoffMaker<R>,
    // `Some` from the first delay on.
    rng: Option<R::Rng>,
    // Delays given since the start or the last reset.
    step: u32,
    // The delay before, in nanoseconds; `Decorrelated` draws from it.
    previous: u128,
}

/// Steps after which a chain of decorrelated delays has forgotten its start. Far below the cap the
/// logarithm of a delay grows by `ln 3 - 1`, a tenth, at each step; the whole range of `Duration`,
/// 2^94 nanoseconds, is crossed in about 660.
const CHAIN: u32 = 1024;

// === impl ExponentialBackoffMaker ===

impl<R> ExponentialBackoffMaker<R> {
    /// Delays from `min` to `max`, with a factor of 2.
    ///
    /// `jitter` is a [`Jitter`], or the ratio of `tower::retry`'s as a number. `rng` is a
    /// [`Seeds`], or a closure that makes a generator.
    ///
    /// # Errors
    ///
    /// When `min` is above `max` or zero, when `max` is zero, or when the jitter's ratio is
    /// negative, NaN or above its limit.
    pub fn new(
        min: Duration,
        max: Duration,
        jitter: impl Into<Jitter>,
        rng: R,
    ) -> Result<Self, InvalidBackoff> {
        let jitter = jitter.into();
        if min > max {
            return Err(InvalidBackoff::new("maximum must not be less than minimum"));
        }
        if max.is_zero() {
            return Err(InvalidBackoff::new("maximum must be non-zero"));
        }
        if min.is_zero() {
            return Err(InvalidBackoff::new("minimum must be non-zero"));
        }
        jitter.check()?;
        Ok(Self {
            min,
            max,
            factor: 2.0,
            jitter,
            rng,
        })
    }

    /// The same with another factor, at least 1; 1 keeps the delay at `min`.
    ///
    /// # Errors
    ///
    /// When the factor is below 1, infinite or NaN.
    pub fn with_factor(self, factor: f64) -> Result<Self, InvalidBackoff> {
        if factor >= 1.0 && factor.is_finite() {
            Ok(Self { factor, ..self })
        } else {
            Err(InvalidBackoff::new("factor must be finite and at least 1"))
        }
    }

    /// The grown delay of a retry before it is spread, `min(max, min·factorⁿ)`; retries count
    /// from 0.
    pub fn base_delay(&self, retry: u32) -> Duration {
        duration(self.base(retry))
    }

    fn base(&self, retry: u32) -> u128 {
        let (min, max) = (self.min.as_nanos(), self.max.as_nanos());
        // A whole factor, 2 above all, stays exact in integers: an `f64` holds 104 days of
        // nanoseconds.
        let grown = if self.factor == 2.0 {
            // A shift that loses no bit.
            (retry <= min.leading_zeros()).then(|| min << retry)
        } else if self.factor.fract() == 0.0 && self.factor < u64::MAX as f64 {
            (self.factor as u128)
                .checked_pow(retry)
                .and_then(|power| power.checked_mul(min))
        } else {
            // Grown by its excess over 1, so that retry 0 is `min` to the nanosecond.
            let power = self.factor.powi(i32::try_from(retry).unwrap_or(i32::MAX));
            let excess = min as f64 * (power - 1.0);
            (excess < max as f64).then(|| min.saturating_add(excess as u128))
        };
        grown.unwrap_or(max).min(max)
    }
}

impl<R: MakeRng> ExponentialBackoffMaker<R> {
    /// A spread delay for a retry, from no session's stream; retries count from 0.
    ///
    /// For callers that keep the count themselves, from as many threads as they like.
    /// `Decorrelated` draws its whole chain of delays anew.
    pub fn delay_for(&self, retry: u32) -> Duration {
        let mut rng = self.rng.make_rng();
        if self.jitter != Jitter::Decorrelated {
            return duration(self.draw(self.base(retry), &mut rng));
        }
        let mut previous = self.min.as_nanos();
        for _ in 0..=retry.min(CHAIN) {
            previous = self.draw(previous, &mut rng);
        }
        duration(previous)
    }

    fn draw(&self, base: u128, rng: &mut impl Rng) -> u128 {
        let range = self
            .jitter
            .range(base, self.min.as_nanos(), self.max.as_nanos());
        range.delay(rng.next_f64())
    }
}

impl Default for ExponentialBackoffMaker {
    fn default() -> Self {
        Self {
            min: Duration::from_millis(50),
            max: Duration::from_secs(20),
            factor: 2.0,
            jitter: Jitter::Full,
            rng: Seeds::random(),
        }
    }
}

impl<R: MakeRng + Clone> MakeBackoff for ExponentialBackoffMaker<R> {
    type Backoff = ExponentialBackoff<R>;

    fn make_backoff(&self) -> ExponentialBackoff<R> {
        ExponentialBackoff {
            maker: self.clone(),
            rng: None,
            step: 0,
            previous: self.min.as_nanos(),
        }
    }
}

// The generators are left out: a closure has no `Debug`.
impl<R> fmt::Debug for ExponentialBackoffMaker<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExponentialBackoffMaker")
            .field("min", &self.min)
            .field("max", &self.max)
            .field("factor", &self.factor)
            .field("jitter", &self.jitter)
            .finish_non_exhaustive()
    }
}

// === impl ExponentialBackoff ===

impl<R: MakeRng> ExponentialBackoff<R> {
    /// Starts over: the next delay is the first step's. The stream of random numbers goes on.
    pub fn reset(&mut self) {
        self.step = 0;
        self.previous = self.maker.min.as_nanos();
    }

    /// How many delays were given since the start or the last reset.
    pub fn attempt(&self) -> u32 {
        self.step
    }
}

impl<R: MakeRng> Backoff for ExponentialBackoff<R> {
    fn next_delay(&mut self) -> Duration {
        let base = match self.maker.jitter {
            Jitter::Decorrelated => self.previous,
            _ => self.maker.base(self.step),
        };
        self.step = self.step.saturating_add(1);
        self.previous = match self.maker.jitter {
            Jitter::None => base,
            _ => {
                let rng = self.rng.get_or_insert_with(|| self.maker.rng.make_rng());
                self.maker.draw(base, rng)
            }
        };
        duration(self.previous)
    }

    fn spread(&mut self, delay: Duration) -> Duration {
        let rng = self.rng.get_or_insert_with(|| self.maker.rng.make_rng());
        spread(delay, rng.next_f64())
    }
}

impl<R: MakeRng + Clone> Clone for ExponentialBackoff<R> {
    fn clone(&self) -> Self {
        self.maker.make_backoff()
    }
}

impl<R: MakeRng> fmt::Debug for ExponentialBackoff<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExponentialBackoff")
            .field("maker", &self.maker)
            .field("attempt", &self.step)
            .finish_non_exhaustive()
    }
}
