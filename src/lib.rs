//! A tower middleware that sends a failed request again, and knows when not to.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod budget;
pub mod observe;
mod policy;
mod protocol;

pub use self::{
    policy::{End, Policy},
    protocol::{Attempt, ClassifyFn, Limits, OnError, Protocol, Verdict, classify_fn, on_error},
};
