//! Both ways between this crate's traits and `tower::retry`'s.
//!
//! - [`StandardPolicy`](crate::StandardPolicy) is a `tower::retry::Policy`, so `ServiceBuilder::retry` takes it. Attempts,
//!   budget, deadline, hints and events hold there too; what tower does not tell a policy it cannot
//!   know: the outcome of a request that could not be copied, the moment at which an attempt is
//!   sent, and that a session ends before its first outcome. So such requests deposit nothing and
//!   end in silence, the first attempt is not marked, and the time left that later ones are marked
//!   with is reckoned before the wait. Without the first mark a retry layer below retries the
//!   first attempt, too.
//! - Budgets and backoffs of this crate are tower's `Budget`, `MakeBackoff` and `Backoff`.
//! - [`TowerPolicy`] lets a policy written for tower sit in a [`RetryLayer`](crate::RetryLayer).
//!
//! # Examples
//!
//! ```
//! use std::convert::Infallible;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_retry_layer::{StandardPolicy, on_error};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let service = ServiceBuilder::new()
//!     .retry(StandardPolicy::new(on_error()))
//!     .service(service_fn(async |n: u32| Ok::<_, Infallible>(n + 1)));
//! assert_eq!(service.oneshot(1).await, Ok(2));
//! # });
//! ```

use ::tower::retry as theirs;
use tokio::time::Sleep;

use crate::{
    backoff::{
        Backoff, BackoffFn, ExponentialBackoff, ExponentialBackoffMaker, InSchedule, MakeBackoff,
        MakeBackoffFn, MakeRng, Schedule,
    },
    budget::{Budget, RetryThrottle, TokenBudget, TpsBudget, Unlimited},
    policy::Policy,
};

/// A `tower::retry::Policy` as a [`Policy`] of this crate.
///
/// # Examples
///
/// ```
/// use std::future::{Ready, ready};
/// use tower_retry_layer::{RetryLayer, compat::TowerPolicy};
///
/// #[derive(Clone)]
/// struct Once(bool);
///
/// impl<Req: Clone, Res, E> tower::retry::Policy<Req, Res, E> for Once {
///     type Future = Ready<()>;
///
///     fn retry(&mut self, _: &mut Req, result: &mut Result<Res, E>) -> Option<Ready<()>> {
///         (result.is_err() && std::mem::take(&mut self.0)).then(|| ready(()))
///     }
///
///     fn clone_request(&mut self, request: &Req) -> Option<Req> {
///         Some(request.clone())
///     }
/// }
///
/// let _layer = RetryLayer::new(TowerPolicy::new(Once(true)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TowerPolicy<P> {
    policy: P,
}

// === impl TowerPolicy ===

impl<P> TowerPolicy<P> {
    /// The policy, for this crate.
    pub fn new(policy: P) -> Self {
        Self { policy }
    }

    /// The policy, for tower.
    pub fn into_inner(self) -> P {
        self.policy
    }
}

impl<P, Req, Res, E> Policy<Req, Res, E> for TowerPolicy<P>
where
    P: theirs::Policy<Req, Res, E>,
{
    type Future = P::Future;

    fn retry(&mut self, request: &mut Req, result: &mut Result<Res, E>) -> Option<P::Future> {
        self.policy.retry(request, result)
    }

    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        self.policy.clone_request(request)
    }
}

// === budgets ===

macro_rules! budget {
    ($($budget:ty),*) => {$(
        impl theirs::budget::Budget for $budget {
            fn deposit(&self) {
                Budget::deposit(self);
            }

            fn withdraw(&self) -> bool {
                Budget::withdraw(self)
            }
        }
    )*};
}

budget!(RetryThrottle, TokenBudget, TpsBudget, Unlimited);

// === backoffs ===

macro_rules! backoff {
    ($([$($generics:tt)*] $maker:ty, $backoff:ty;)*) => {$(
        impl<$($generics)*> theirs::backoff::MakeBackoff for $maker {
            type Backoff = $backoff;

            fn make_backoff(&mut self) -> $backoff {
                MakeBackoff::make_backoff(self)
            }
        }

        impl<$($generics)*> theirs::backoff::Backoff for $backoff {
            type Future = Sleep;

            fn next_backoff(&mut self) -> Sleep {
                Backoff::next_backoff(self)
            }
        }
    )*};
}

backoff! {
    [R: MakeRng + Clone] ExponentialBackoffMaker<R>, ExponentialBackoff<R>;
    [] Schedule, InSchedule;
    [F: Fn(u32) -> std::time::Duration + Clone] MakeBackoffFn<F>, BackoffFn<F>;
}
