//! HTTP: what may be sent again, when, and by whom.
//!
//! [`Http`] holds the rules; [`StandardPolicy::http`](crate::StandardPolicy::http) is the policy
//! that starts from them. A request says more about itself through its extensions: [`Idempotent`],
//! [`NoRetry`], [`MaxAttempts`], [`Deadline`].

mod body;
pub(crate) mod error;
mod exchange;
mod idempotency_key;
pub(crate) mod name;
mod protocol;
pub(crate) mod request;
#[cfg(feature = "reqwest")]
mod reqwest;
mod retry_after;
mod rules;

pub use self::{
    body::ReplayableBody,
    error::{Boxed, ErrorRef, Typed},
    exchange::Exchange,
    idempotency_key::{IdempotencyKey, IdempotencyKeyLayer},
    request::{Deadline, Idempotent, MaxAttempts, NoRetry, RetryAttempt},
    retry_after::retry_after,
    rules::Http,
};
