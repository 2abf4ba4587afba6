//! `Schedule`: a list of delays; and backoffs from a closure.

use std::{fmt, sync::Arc, time::Duration};

use super::{Backoff, InvalidBackoff, MakeBackoff};

/// A list of delays, used one after another; the last one repeats.
///
/// A delay of zero retries at once. It has no jitter: clients that fail together return together. Use it where a schedule is
/// prescribed, or in tests.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_retry_layer::backoff::{Backoff, MakeBackoff, Schedule};
///
/// let schedule = Schedule::new([1, 5, 30].map(Duration::from_secs))?;
/// let mut backoff = schedule.make_backoff();
/// let delays: Vec<u64> = (0..4).map(|_| backoff.next_delay().as_secs()).collect();
/// assert_eq!(delays, [1, 5, 30, 30]);
/// # Ok::<(), tower_retry_layer::backoff::InvalidBackoff>(())
/// ```
#[derive(Clone, Debug)]
pub struct Schedule {
    delays: Arc<[Duration]>,
}

/// The backoff of a [`Schedule`].
///
/// A clone is a new session: it starts at the first delay.
#[derive(Debug)]
pub struct InSchedule {
    delays: Arc<[Duration]>,
    step: usize,
}

/// Makes backoffs from a closure that gives each retry its delay; retries count from 0.
///
/// Zero is allowed and retries at once; the closure answers for growth, cap and jitter.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_retry_layer::backoff::{Backoff, MakeBackoff, backoff_fn};
///
/// let maker = backoff_fn(|retry| Duration::from_millis(10 + 5 * u64::from(retry)));
/// let mut backoff = maker.make_backoff();
/// assert_eq!(backoff.next_delay().as_millis(), 10);
/// assert_eq!(backoff.next_delay().as_millis(), 15);
/// ```
pub fn backoff_fn<F>(delay: F) -> MakeBackoffFn<F>
where
    F: Fn(u32) -> Duration + Clone,
{
    MakeBackoffFn { delay }
}

/// See [`backoff_fn`].
#[derive(Clone, Copy)]
pub struct MakeBackoffFn<F> {
    delay: F,
}

/// The backoff of a [`MakeBackoffFn`].
///
/// A clone is a new session: it starts at retry 0.
pub struct BackoffFn<F> {
    delay: F,
    step: u32,
}

// === impl Schedule ===

impl Schedule {
    /// A schedule of these delays.
    ///
    /// # Errors
    ///
    /// When there is no delay.
    pub fn new(delays: impl IntoIterator<Item = Duration>) -> Result<Self, InvalidBackoff> {
        let delays: Arc<[Duration]> = delays.into_iter().collect();
        if delays.is_empty() {
            return Err(InvalidBackoff::new("schedule must not be empty"));
        }
        Ok(Self { delays })
    }
}

impl MakeBackoff for Schedule {
    type Backoff = InSchedule;

    fn make_backoff(&self) -> InSchedule {
        InSchedule {
            delays: self.delays.clone(),
            step: 0,
        }
    }
}

// === impl InSchedule ===

impl Backoff for InSchedule {
    fn next_delay(&mut self) -> Duration {
        let delay = self.delays[self.step];
        self.step = (self.step + 1).min(self.delays.len() - 1);
        delay
    }
}

impl Clone for InSchedule {
    fn clone(&self) -> Self {
        Self {
            delays: self.delays.clone(),
            step: 0,
        }
    }
}

// === impl MakeBackoffFn ===

impl<F> MakeBackoff for MakeBackoffFn<F>
where
    F: Fn(u32) -> Duration + Clone,
{
    type Backoff = BackoffFn<F>;

    fn make_backoff(&self) -> BackoffFn<F> {
        BackoffFn {
            delay: self.delay.clone(),
            step: 0,
        }
    }
}

impl<F> fmt::Debug for MakeBackoffFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MakeBackoffFn").finish_non_exhaustive()
    }
}

// === impl BackoffFn ===

impl<F: Fn(u32) -> Duration> Backoff for BackoffFn<F> {
    fn next_delay(&mut self) -> Duration {
        let delay = (self.delay)(self.step);
        self.step = self.step.saturating_add(1);
        delay
    }
}

impl<F: Clone> Clone for BackoffFn<F> {
    fn clone(&self) -> Self {
        Self {
            delay: self.delay.clone(),
            step: 0,
        }
    }
}

impl<F> fmt::Debug for BackoffFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackoffFn")
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}
