//! HTTP: what may be sent again, when, and by whom.

mod body;
mod retry_after;

pub use self::{body::ReplayableBody, retry_after::retry_after};
