//! A herd: all callers fail in the same moment, and come back to a server that is starting.

use std::{sync::Arc, time::Duration};

use tower::{Layer, ServiceExt, service_fn};
use tower_retry_layer::{RetryLayer, backoff::Seeds, observe::on_retry, on_error};

use super::{Arrivals, Calls, Server, ServerSettings, Strategy, on_virtual_clock};

/// Callers that share a process: one policy and, where there is one, one budget.
pub(crate) const PROCESS: u32 = 10;

/// What the callers and their server are like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Herd {
    pub(crate) callers: u32,
    /// Of the server, see [`ServerSettings`].
    pub(crate) per_second: u32,
    pub(crate) outage: Duration,
    pub(crate) seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) arrivals: Arrivals,
    pub(crate) lost: u64,
    pub(crate) last_success: Option<Duration>,
    pub(crate) up_at: Duration,
}

// === impl Herd ===

impl Herd {
    /// The capacity that serves this many callers in two seconds, so that the picture is the same
    /// for herds of all sizes.
    pub(crate) fn capacity_for(callers: u32) -> u32 {
        (callers / 2).max(1)
    }

    /// Lets them all call at once. `delay` is told of every wait that is drawn.
    pub(crate) fn run(
        &self,
        strategy: Strategy,
        budget: bool,
        delay: Option<Arc<dyn Fn(Duration) + Send + Sync>>,
    ) -> Outcome {
        on_virtual_clock(async {
            let server = Server::start(self.server());
            let seeds = Seeds::from_seed(self.seed);
            let mut calls = Calls::new();
            let mut callers = self.callers;
            while callers > 0 {
                let mut policy = strategy.policy(on_error(), seeds.clone());
                if !budget {
                    policy = policy.without_budget();
                }
                if let Some(delay) = delay.clone() {
                    policy = policy.observe(on_retry(move |event| delay(event.delay)));
                }
                let layer = RetryLayer::new(policy);
                for _ in 0..callers.min(PROCESS) {
                    let server = server.clone();
                    let service = layer.layer(service_fn(move |()| server.answer()));
                    calls.send(service.oneshot(()));
                }
                callers = callers.saturating_sub(PROCESS);
            }
            Outcome::of(calls, &server).await
        })
    }

    pub(crate) fn server(&self) -> ServerSettings {
        ServerSettings {
            per_second: self.per_second,
            down_at: Duration::ZERO,
            outage: self.outage,
            faults: 0.0,
            seed: self.seed,
        }
    }
}

// === impl Outcome ===

impl Outcome {
    pub(crate) async fn of(calls: Calls, server: &Server) -> Self {
        let (lost, last_success) = calls.ended().await;
        let (arrivals, up_at) = server.seen();
        Self {
            arrivals,
            lost,
            last_success,
            up_at,
        }
    }

    /// The most retries in any ten milliseconds. First calls are left out: they arrive together
    /// whatever the strategy.
    pub(crate) fn worst_instant(&self) -> u64 {
        self.arrivals.worst(1, 10)
    }
}
