//! Backoff: how long to wait before each retry.
//!
//! Two things are in a wait. *Growth* gives a server that is down more time with each failure;
//! *jitter* spreads the clients that failed together, so that they do not return together. The
//! second does more: see the table of [`Jitter`], and the README's figures.
//!
//! A [`MakeBackoff`] is shared by all sessions and makes each of them a [`Backoff`] of its own.
//! [`ExponentialBackoffMaker`] is the usual one, [`Schedule`] a list of delays, and [`backoff_fn`]
//! makes one from a closure.
//!
//! # As a counter
//!
//! A backoff is of use without any service, as in a loop that reconnects:
//!
//! ```
//! use std::time::Duration;
//! use tower_retry_layer::backoff::{
//!     Backoff, ExponentialBackoffMaker, Jitter, MakeBackoff, Seeds,
//! };
//!
//! let (min, max) = (Duration::from_millis(100), Duration::from_secs(1));
//! let maker = ExponentialBackoffMaker::new(min, max, Jitter::None, Seeds::random())?;
//! let mut backoff = maker.make_backoff();
//! let delays: Vec<u128> = (0..6).map(|_| backoff.next_delay().as_millis()).collect();
//! assert_eq!(delays, [100, 200, 400, 800, 1000, 1000]);
//! assert_eq!(backoff.attempt(), 6);
//!
//! backoff.reset(); // connected
//! assert_eq!(backoff.next_delay(), min);
//! # Ok::<(), tower_retry_layer::backoff::InvalidBackoff>(())
//! ```

use std::{fmt, sync::Arc, time::Duration};

mod exponential;
mod jitter;
mod rng;
mod schedule;

pub use self::{
    exponential::{ExponentialBackoff, ExponentialBackoffMaker},
    jitter::Jitter,
    rng::{MakeRng, Rng, Seeds, SessionRng},
    schedule::{BackoffFn, InSchedule, MakeBackoffFn, Schedule, backoff_fn},
};

/// Makes each session a backoff of its own.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not make backoffs",
    note = "use `ExponentialBackoffMaker` or `Schedule` from `tower_retry_layer::backoff`",
    note = "a closure from the retry's number to a `Duration` becomes one through `backoff_fn(..)`"
)]
pub trait MakeBackoff {
    /// The backoff of one session.
    type Backoff: Backoff;

    /// A backoff at its first step.
    fn make_backoff(&self) -> Self::Backoff;
}

/// The waits of one session, one after another.
///
/// There is no reset here, as not every backoff has one: for a fresh start make another.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a backoff")]
pub trait Backoff {
    /// The next wait, and one step on.
    fn next_delay(&mut self) -> Duration;

    /// The next wait as a timer that starts now, and one step on.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with its time driver enabled, as every tokio timer does.
    fn next_backoff(&mut self) -> tokio::time::Sleep {
        tokio::time::sleep(self.next_delay())
    }

    /// A small random share of `delay`, to add to a delay that a server named, so that clients told
    /// the same second do not return together.
    ///
    /// At most a tenth of `delay`. By default it comes from a generator of the thread; a backoff
    /// with a stream of its own draws from that, and is reproducible where the stream is.
    fn spread(&mut self, delay: Duration) -> Duration {
        jitter::spread(delay, rng::thread_unit())
    }
}

/// A setting that no backoff can have.
///
/// Its text is `invalid backoff: <reason>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidBackoff {
    reason: &'static str,
}

// === impl InvalidBackoff ===

impl InvalidBackoff {
    fn new(reason: &'static str) -> Self {
        Self { reason }
    }
}

impl fmt::Display for InvalidBackoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid backoff: {}", self.reason)
    }
}

impl std::error::Error for InvalidBackoff {}

// === pointers ===

macro_rules! forward_make {
    ($pointer:ty) => {
        impl<M: MakeBackoff + ?Sized> MakeBackoff for $pointer {
            type Backoff = M::Backoff;

            fn make_backoff(&self) -> M::Backoff {
                (**self).make_backoff()
            }
        }
    };
}

forward_make!(&M);
forward_make!(Box<M>);
forward_make!(Arc<M>);

macro_rules! forward {
    ($pointer:ty) => {
        impl<B: Backoff + ?Sized> Backoff for $pointer {
            fn next_delay(&mut self) -> Duration {
                (**self).next_delay()
            }

            fn spread(&mut self, delay: Duration) -> Duration {
                (**self).spread(delay)
            }
        }
    };
}

forward!(&mut B);
forward!(Box<B>);
