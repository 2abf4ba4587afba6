//! A tower middleware that sends a failed request again, and knows when not to.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod backoff;
pub mod budget;
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub mod compat;
pub mod future;
mod layer;
pub mod observe;
mod policy;
mod protocol;
mod service;
mod standard;

pub use self::{
    layer::RetryLayer,
    policy::{End, Policy},
    protocol::{Attempt, ClassifyFn, Limits, OnError, Protocol, Verdict, classify_fn, on_error},
    service::Retry,
    standard::{StandardPolicy, Wait},
};
