//! The strategies that are compared, each under the name of its row.

use std::{sync::Arc, time::Duration};

use tower_retry_layer::{
    StandardPolicy,
    backoff::{Backoff, ExponentialBackoffMaker, Jitter, MakeBackoff, Schedule, Seeds},
};

/// The first delay of the growing strategies: the crate's own default.
pub(crate) const BASE: Duration = Duration::from_millis(50);

/// Their longest.
pub(crate) const CAP: Duration = Duration::from_secs(2);

/// The attempts that every strategy has, except for the default policy: enough to survive.
pub(crate) const PATIENCE: u32 = 50;

/// A way to wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Strategy {
    /// 20 ms.
    Immediate,
    /// 200 ms.
    Fixed,
    /// Doubled, without jitter.
    Exponential,
    Full,
    Equal,
    Decorrelated,
    /// `StandardPolicy` as it comes: full jitter, three attempts.
    Default,
}

/// Any `MakeBackoff` behind one type, so that strategies fit into a list.
#[derive(Clone)]
pub(crate) struct Waits(Arc<dyn Fn() -> Box<dyn Backoff + Send> + Send + Sync>);

// === impl Strategy ===

impl Strategy {
    pub(crate) const ALL: [Self; 7] = [
        Self::Immediate,
        Self::Fixed,
        Self::Exponential,
        Self::Full,
        Self::Equal,
        Self::Decorrelated,
        Self::Default,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Immediate => "immediate",
            Self::Fixed => "fixed",
            Self::Exponential => "exponential",
            Self::Full => "full jitter",
            Self::Equal => "equal jitter",
            Self::Decorrelated => "decorrelated",
            Self::Default => "default policy",
        }
    }

    /// A policy that waits like this. Its budget is the default one.
    pub(crate) fn policy<P>(self, protocol: P, seeds: Seeds) -> StandardPolicy<P, Waits> {
        let policy = StandardPolicy::new(protocol).backoff(self.waits(seeds));
        match self {
            Self::Default => policy,
            _ => policy.max_attempts(PATIENCE),
        }
    }

    fn waits(self, seeds: Seeds) -> Waits {
        let every = |millis| Schedule::new([Duration::from_millis(millis)]).expect("a delay");
        let grown = |jitter| Waits::grown(BASE, CAP, jitter, seeds.clone());
        match self {
            Self::Immediate => Waits::new(every(20)),
            Self::Fixed => Waits::new(every(200)),
            Self::Exponential => grown(Jitter::None),
            Self::Full => grown(Jitter::Full),
            Self::Equal => grown(Jitter::Equal),
            Self::Decorrelated => grown(Jitter::Decorrelated),
            Self::Default => {
                // The default's own numbers, with seeds that can be repeated.
                let default = ExponentialBackoffMaker::default();
                let (min, max) = (default.base_delay(0), default.base_delay(u32::MAX));
                Waits::grown(min, max, Jitter::Full, seeds)
            }
        }
    }
}

// === impl Waits ===

impl Waits {
    pub(crate) fn new<M>(maker: M) -> Self
    where
        M: MakeBackoff + Send + Sync + 'static,
        M::Backoff: Send + 'static,
    {
        Self(Arc::new(move || Box::new(maker.make_backoff())))
    }

    /// Doubled from `min` to `max`.
    pub(crate) fn grown(min: Duration, max: Duration, jitter: Jitter, seeds: Seeds) -> Self {
        let maker = ExponentialBackoffMaker::new(min, max, jitter, seeds);
        Self::new(maker.expect("constants of this example are valid"))
    }
}

impl MakeBackoff for Waits {
    type Backoff = Box<dyn Backoff + Send>;

    fn make_backoff(&self) -> Self::Backoff {
        (self.0)()
    }
}
