//! The models: what is simulated, without a word about how it is shown.
//!
//! In `herd`, `fleet` and `amplify` every caller is a task that sends through a real
//! [`RetryLayer`](tower_retry_layer::RetryLayer), on tokio's paused clock: the decisions, waits and
//! budgets are the crate's own. tokio's timers count whole milliseconds, so arrivals lie on a grid
//! of one; the delays that the layer draws do not.
//!
//! `contention` has a heap of events in nanoseconds instead, because its network is finer than a
//! millisecond and it is run hundreds of times. Its waits are the crate's, from
//! [`Backoff::next_delay`](tower_retry_layer::backoff::Backoff::next_delay).

pub(crate) mod amplify;
mod arrivals;
mod clock;
pub(crate) mod contention;
pub(crate) mod fleet;
pub(crate) mod herd;
pub(crate) mod law;
mod server;
pub(crate) mod strategy;

pub(crate) use self::{
    arrivals::Arrivals,
    clock::{Calls, on_virtual_clock},
    server::{Refused, Server, ServerSettings},
    strategy::{Strategy, Waits},
};
