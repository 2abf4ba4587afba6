//! A fleet: many processes, each with a policy of its own, against one server.

use std::time::Duration;

use tower::{Layer, ServiceExt, service_fn};
use tower_retry_layer::{RetryLayer, backoff::Seeds, on_error};

use super::{
    Calls, Server, Strategy,
    herd::{Herd, Outcome},
    on_virtual_clock,
};

/// What the processes and their server are like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fleet {
    pub(crate) processes: u32,
    /// Calls of each process that fail together.
    pub(crate) calls: u32,
    pub(crate) outage: Duration,
    pub(crate) seed: u64,
}

/// Where the processes have their seeds from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Seeding {
    /// Each has its own.
    Apart,
    /// All have the same, as from a constant in the code or in an image that is started many times.
    Equal,
    /// No jitter at all, for comparison.
    NoJitter,
}

// === impl Fleet ===

impl Fleet {
    /// Lets all calls of all processes fail together.
    pub(crate) fn run(&self, seeding: Seeding) -> Outcome {
        on_virtual_clock(async {
            let server = Server::start(self.as_herd().server());
            let mut calls = Calls::new();
            for process in 0..self.processes {
                let (strategy, seed) = match seeding {
                    Seeding::Apart => (Strategy::Full, self.seed.wrapping_add(process.into())),
                    Seeding::Equal => (Strategy::Full, self.seed),
                    Seeding::NoJitter => (Strategy::Exponential, self.seed),
                };
                // With the default budget, one for each process.
                let policy = strategy.policy(on_error(), Seeds::from_seed(seed));
                let layer = RetryLayer::new(policy);
                for _ in 0..self.calls {
                    let server = server.clone();
                    let service = layer.layer(service_fn(move |()| server.answer()));
                    calls.send(service.oneshot(()));
                }
            }
            Outcome::of(calls, &server).await
        })
    }

    fn as_herd(&self) -> Herd {
        let callers = self.processes.saturating_mul(self.calls);
        Herd {
            callers,
            per_second: Herd::capacity_for(callers),
            outage: self.outage,
            seed: self.seed,
        }
    }
}

// === impl Seeding ===

impl Seeding {
    pub(crate) const ALL: [Self; 3] = [Self::Apart, Self::Equal, Self::NoJitter];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Apart => "full, seeds apart",
            Self::Equal => "full, equal seeds",
            Self::NoJitter => "none",
        }
    }
}
