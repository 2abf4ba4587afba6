//! Budgets: how much retrying all sessions together may do.
//!
//! An attempt limit bounds what one request costs; it does not bound a client. When the other side
//! fails every request, three attempts each make a client send three times its load at the worst
//! moment. A budget is shared by the sessions of a client and ties their retries to their
//! successes: it lends during a blip and dries up in an outage.
//!
//! - [`TokenBudget`], the default of [`StandardPolicy`](crate::StandardPolicy): a bucket that
//!   successes fill.
//! - [`TpsBudget`]: the sliding window of Finagle and `tower::retry`, with a reserve per second.
//! - [`RetryThrottle`]: gRPC's, which counts failures and stops all retries at half.
//! - [`Unlimited`]: always yes; what refuses to be a budget says so by name.
//!
//! One upstream that fails must not spend the retries of the others: [`Keyed`] keeps a budget for
//! each.

use std::{fmt, sync::Arc};

mod amount;
mod bucket;
mod drip;
mod keyed;
mod sync;
mod throttle;
mod token;
mod tps;
mod window;

pub use self::{keyed::Keyed, throttle::RetryThrottle, token::TokenBudget, tps::TpsBudget};

/// What sessions share to decide whether one more retry may be sent.
///
/// # Contract
///
/// - [`deposit`](Self::deposit) once per *request* that succeeds in the end, never per attempt.
/// - [`withdraw`](Self::withdraw) is the last question before a retry. Refused: the retry is not
///   sent, and nobody waits for a token.
/// - [`refund`](Self::refund) once for a withdrawal whose retry was not sent.
///
/// All methods are called from inside a poll, so they must not block.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use tower_retry_layer::budget::{Budget, TokenBudget};
///
/// let budget: Arc<dyn Budget> = Arc::new(TokenBudget::new(1, 0.5)?);
/// assert!(budget.withdraw());
/// assert!(!budget.withdraw());
/// budget.deposit();
/// budget.deposit();
/// assert!(budget.withdraw());
/// # Ok::<(), tower_retry_layer::budget::InvalidBudget>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a retry budget",
    note = "use `TokenBudget`, `TpsBudget`, or `Unlimited` from `tower_retry_layer::budget`",
    note = "a budget shared by several policies goes in as `.shared_budget(Arc<dyn Budget>)`"
)]
pub trait Budget: Send + Sync {
    /// Records a request that succeeded in the end.
    fn deposit(&self);

    /// Takes one retry out of the budget, or says that there is none.
    #[must_use = "a retry that the budget refused must not be sent"]
    fn withdraw(&self) -> bool;

    /// Gives back the withdrawal of a retry that was not sent.
    fn refund(&self) {}

    /// Records a retryable failure, whether or not a retry follows: what gRPC's throttle counts.
    fn failure(&self) {}

    /// How full the budget is, for a gauge: in retries, with their fraction; a [`RetryThrottle`]'s
    /// in its tokens. `None`, the default: it does not tell, or has no bound.
    fn level(&self) -> Option<f64> {
        None
    }
}

/// The budget that always says yes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

/// A setting that no budget can have.
///
/// Its text is `invalid budget: <setting> <reason>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidBudget {
    setting: &'static str,
    reason: &'static str,
}

// === impl Unlimited ===

impl Budget for Unlimited {
    fn deposit(&self) {}

    fn withdraw(&self) -> bool {
        true
    }
}

// === impl InvalidBudget ===

impl InvalidBudget {
    fn new(setting: &'static str, reason: &'static str) -> Self {
        Self { setting, reason }
    }
}

impl fmt::Display for InvalidBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid budget: {} {}", self.setting, self.reason)
    }
}

impl std::error::Error for InvalidBudget {}

/// Shows only that there is one, so that what holds a `dyn Budget` can derive `Debug`.
impl fmt::Debug for dyn Budget + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Budget")
    }
}

// === pointers ===

macro_rules! forward {
    ($pointer:ty) => {
        impl<B: Budget + ?Sized> Budget for $pointer {
            fn deposit(&self) {
                (**self).deposit();
            }

            fn withdraw(&self) -> bool {
                (**self).withdraw()
            }

            fn refund(&self) {
                (**self).refund();
            }

            fn failure(&self) {
                (**self).failure();
            }

            fn level(&self) -> Option<f64> {
                (**self).level()
            }
        }
    };
}

forward!(&B);
forward!(Box<B>);
forward!(Arc<B>);
