//! Observing: an event for every decision, and one for every end.
//!
//! Without an observer nothing is built and no clock is read for it.
//!
//! - [`on_retry`] and [`on_finish`] make observers of closures.
//! - [`Tracing`] logs, with feature `tracing`.
//! - [`Metrics`] counts and measures, with feature `metrics`.
//!
//! The last two take effect where a policy is given them, `.observe(Tracing)`, and never by their
//! feature alone: cargo unifies features, and a dependency must not switch on another's logs.
//!
//! The caller of a request can ask, too: see [`RetrySummary`].

use std::sync::Arc;

mod closure;
mod event;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod tracing;

#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub use self::metrics::{Metric, Metrics};
#[cfg(feature = "tracing")]
#[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
pub use self::tracing::Tracing;
pub use self::{
    closure::{OnFinish, OnRetry, on_finish, on_retry},
    event::{DelaySource, Finished, Level, RetrySummary, Retrying, StopReason},
};

/// Somebody who is told what sessions decide.
///
/// Called from inside a poll: count, log, send to a channel, but do not block.
///
/// # Examples
///
/// Two closures, one for each event:
///
/// ```
/// use tower_retry_layer::{StandardPolicy, on_error};
/// use tower_retry_layer::observe::{on_finish, on_retry};
///
/// let _policy = StandardPolicy::new(on_error())
///     .observe(on_retry(|event| eprintln!("attempt {} failed, waits {:?}", event.attempt, event.delay)))
///     .observe(on_finish(|event| eprintln!("{:?} after {} attempts", event.reason, event.attempts)));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an observer of retries",
    note = "a closure becomes one through `observe::on_retry(..)` or `observe::on_finish(..)`"
)]
pub trait Observe: Send + Sync {
    /// An attempt failed and a retry follows after the delay.
    fn retrying(&self, event: &Retrying<'_>) {
        let _ = event;
    }

    /// A session ended: exactly once per session, whatever the way out.
    fn finished(&self, event: &Finished<'_>) {
        let _ = event;
    }
}

// === pointers ===

macro_rules! forward {
    ($pointer:ty) => {
        impl<O: Observe + ?Sized> Observe for $pointer {
            fn retrying(&self, event: &Retrying<'_>) {
                (**self).retrying(event);
            }

            fn finished(&self, event: &Finished<'_>) {
                (**self).finished(event);
            }
        }
    };
}

forward!(&O);
forward!(Box<O>);
forward!(Arc<O>);
