//! Closures as observers.

use std::fmt;

use super::{Finished, Observe, Retrying};

/// An observer that calls `f` with each retry.
pub fn on_retry<F>(f: F) -> OnRetry<F>
where
    F: Fn(&Retrying<'_>) + Send + Sync,
{
    OnRetry { f }
}

/// An observer that calls `f` with each end.
pub fn on_finish<F>(f: F) -> OnFinish<F>
where
    F: Fn(&Finished<'_>) + Send + Sync,
{
    OnFinish { f }
}

/// See [`on_retry`].
#[derive(Clone, Copy)]
pub struct OnRetry<F> {
    f: F,
}

/// See [`on_finish`].
#[derive(Clone, Copy)]
pub struct OnFinish<F> {
    f: F,
}

// === impl OnRetry, OnFinish ===

impl<F> Observe for OnRetry<F>
where
    F: Fn(&Retrying<'_>) + Send + Sync,
{
    fn retrying(&self, event: &Retrying<'_>) {
        (self.f)(event);
    }
}

impl<F> Observe for OnFinish<F>
where
    F: Fn(&Finished<'_>) + Send + Sync,
{
    fn finished(&self, event: &Finished<'_>) {
        (self.f)(event);
    }
}

impl<F> fmt::Debug for OnRetry<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnRetry").finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for OnFinish<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnFinish").finish_non_exhaustive()
    }
}
