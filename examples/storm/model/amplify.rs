//! Amplification: what a stream of requests becomes on its way to a server that goes down.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneService};
use tower_retry_layer::{
    Attempt, Limits, Protocol, RetryLayer, StandardPolicy, Verdict,
    backoff::{ExponentialBackoffMaker, Jitter, Seeds},
    budget::{Budget, RetryThrottle, TokenBudget, TpsBudget, Unlimited},
};

use super::{Arrivals, Refused, Server, ServerSettings, on_virtual_clock};

/// The crate's default budget, spelled out for the bound that it keeps.
pub(crate) const CAPACITY: u32 = 100;
pub(crate) const RATIO: f32 = 0.2;

/// gRPC's throttle: retries stop below 50 tokens; ten successes make up for one failure.
const THROTTLE: (u32, f32) = (100, 0.1);

/// What the stream and its server are like. The server could serve half as much again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// Requests in a second, evenly spaced.
    pub(crate) rate: u32,
    /// How long they come.
    pub(crate) lasts: Duration,
    /// When the server goes down.
    pub(crate) down_at: Duration,
    /// See [`ServerSettings`].
    pub(crate) outage: Duration,
    /// The share of attempts that fail while it is up.
    pub(crate) faults: f64,
    pub(crate) seed: u64,
}

/// What stands between the stream and the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Guard {
    /// Three attempts.
    Attempts,
    /// Three attempts within the crate's default budget.
    Token,
    /// Three attempts within Finagle's and tower's budget, at its defaults.
    Tps,
    /// Three attempts within gRPC's throttle.
    Throttle,
    /// Three layers of three attempts each.
    Layers,
    /// The same, each of which sees that a layer above retries already.
    NestedLayers,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) offered: Arrivals,
    pub(crate) sent: Arrivals,
    /// Requests that were lost in the end, by the time at which they were offered.
    pub(crate) lost: Arrivals,
    pub(crate) up_at: Duration,
    /// The most attempts that one request became.
    pub(crate) worst_request: u32,
}

/// A request, with the mark that a retry layer leaves on it.
#[derive(Clone, Copy)]
struct Request {
    id: usize,
    attempt: Option<u32>,
}

/// Retries every refusal, and may look for the mark of a layer above.
#[derive(Clone, Copy)]
struct Marking {
    detect: bool,
}

// === impl Stream ===

impl Stream {
    /// Sends the whole stream through a guard.
    pub(crate) fn run(&self, guard: Guard) -> Load {
        on_virtual_clock(self.send(guard))
    }

    async fn send(&self, guard: Guard) -> Load {
        let server = Server::start(ServerSettings {
            per_second: self.rate.saturating_mul(3).div_ceil(2),
            down_at: self.down_at,
            outage: self.outage,
            faults: self.faults,
            seed: self.seed,
        });
        let requests = self.lasts.as_nanos() * u128::from(self.rate) / 1_000_000_000;
        let sends = Arc::new(Mutex::new(vec![0_u32; requests as usize]));
        let counted = sends.clone();
        let target = server.clone();
        let client = guard.client(self.seed, move |request| {
            counted.lock().unwrap()[request.id] += 1;
            target.answer()
        });

        let start = Instant::now();
        let mut offered = Arrivals::default();
        let lost = Arc::new(Mutex::new(Arrivals::default()));
        let mut tasks = tokio::task::JoinSet::new();
        for id in 0..requests as usize {
            let due = Duration::from_secs(1) * id as u32 / self.rate;
            tokio::time::sleep_until(start + due).await;
            let at = start.elapsed();
            offered.note(at);
            let call = client.clone().oneshot(Request { id, attempt: None });
            let lost = lost.clone();
            tasks.spawn(async move {
                if call.await.is_err() {
                    lost.lock().unwrap().note(at);
                }
            });
            while tasks.try_join_next().is_some() {}
        }
        tasks.join_all().await;

        let (sent, up_at) = server.seen();
        let lost = lost.lock().unwrap().clone();
        let worst_request = sends.lock().unwrap().iter().copied().max().unwrap_or(0);
        Load {
            offered,
            sent,
            lost,
            up_at,
            worst_request,
        }
    }
}

// === impl Guard ===

type Client = BoxCloneService<Request, (), Refused>;

impl Guard {
    pub(crate) const ALL: [Self; 6] = [
        Self::Attempts,
        Self::Token,
        Self::Tps,
        Self::Throttle,
        Self::Layers,
        Self::NestedLayers,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Attempts => "attempts only",
            Self::Token => "token budget",
            Self::Tps => "TPS budget",
            Self::Throttle => "gRPC throttle",
            Self::Layers => "3 layers",
            Self::NestedLayers => "3 layers, nested",
        }
    }

    fn client<F>(self, seed: u64, send: impl Fn(Request) -> F + Clone + Send + 'static) -> Client
    where
        F: Future<Output = Result<(), Refused>> + Send + 'static,
    {
        let seeds = Seeds::from_seed(seed);
        let wire = service_fn(send);
        let detect = self != Self::Layers;
        let layer = |budget| RetryLayer::new(policy(seeds.clone(), budget, detect));
        match self {
            Self::Layers | Self::NestedLayers => {
                let mut client = BoxCloneService::new(wire);
                for _ in 0..3 {
                    client = BoxCloneService::new(layer(Arc::new(Unlimited)).layer(client));
                }
                client
            }
            _ => BoxCloneService::new(layer(self.budget()).layer(wire)),
        }
    }

    fn budget(self) -> Arc<dyn Budget> {
        match self {
            Self::Token => Arc::new(TokenBudget::new(CAPACITY, RATIO).expect("a valid ratio")),
            Self::Tps => Arc::new(TpsBudget::default()),
            Self::Throttle => {
                let (tokens, ratio) = THROTTLE;
                Arc::new(RetryThrottle::new(tokens, ratio).expect("valid settings"))
            }
            _ => Arc::new(Unlimited),
        }
    }
}

/// The crate's default policy but for its budget.
fn policy(seeds: Seeds, budget: Arc<dyn Budget>, detect: bool) -> StandardPolicy<Marking> {
    let default = ExponentialBackoffMaker::default();
    let (min, max) = (default.base_delay(0), default.base_delay(u32::MAX));
    let backoff = ExponentialBackoffMaker::new(min, max, Jitter::Full, seeds)
        .expect("the default's own settings");
    StandardPolicy::new(Marking { detect })
        .backoff(backoff)
        .shared_budget(budget)
}

// === impl Marking ===

impl Protocol<Request, (), Refused> for Marking {
    fn classify(&self, attempt: &Attempt<'_, Request, (), Refused>) -> Verdict {
        match attempt.outcome() {
            Ok(()) => Verdict::Success,
            Err(Refused) => Verdict::Retry,
        }
    }

    fn clone_request(&self, request: &Request) -> Option<Request> {
        Some(*request)
    }

    fn limits(&self, request: &Request) -> Limits {
        let mut limits = Limits::default();
        limits.nested = self.detect && request.attempt.is_some();
        limits
    }

    fn prepare(&self, request: &mut Request, attempt: u32, _: Option<Duration>) {
        request.attempt = Some(attempt);
    }
}
