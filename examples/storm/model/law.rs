//! The laws of waiting that contention compares, each with the row that is published of it.

use std::time::Duration;

use tower_retry_layer::backoff::{
    Backoff, ExponentialBackoffMaker, Jitter, MakeBackoff, MakeRng, Rng, Seeds, SessionRng,
    backoff_fn,
};

use super::Waits;

/// The numbers of clients in the published table.
pub(crate) const CLIENTS: [u32; 5] = [10, 20, 50, 100, 190];

/// The simulation's base and cap. Its first retry waits `base · 2`, which is the crate's minimum.
const BASE: Duration = Duration::from_millis(5);
const FIRST: Duration = Duration::from_millis(10);
const CAP: Duration = Duration::from_millis(2_000);

/// A way to wait after a write that failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Law {
    None,
    Exponential,
    Equal,
    Full,
    /// Full jitter that starts at the base instead of its double.
    FullFromBase,
    /// The article's: the cap cuts off what is drawn above it.
    DecorrelatedCut,
    /// The crate's, and Polly's: the cap bounds what is drawn.
    Decorrelated,
    /// The crate's, with the cap raised by a fifth: gRPC's (A6) may exceed its own by that much.
    ProportionalA6,
    /// The crate's, which never exceeds the cap.
    Proportional,
    /// `tower::retry`'s law, with a stream of random numbers for each session.
    Additive,
    /// The same with one stream for all sessions, as `tower::retry` 0.5.3 has it.
    AdditiveOneStream,
}

/// A mean of 300 runs that is published: time in milliseconds and calls.
pub(crate) type Published = (f64, f64);

// === impl Law ===

impl Law {
    pub(crate) const ALL: [Self; 11] = [
        Self::None,
        Self::Exponential,
        Self::Equal,
        Self::Full,
        Self::FullFromBase,
        Self::DecorrelatedCut,
        Self::Decorrelated,
        Self::ProportionalA6,
        Self::Proportional,
        Self::Additive,
        Self::AdditiveOneStream,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Exponential => "exponential",
            Self::Equal => "equal",
            Self::Full => "full",
            Self::FullFromBase => "full from 5 ms",
            Self::DecorrelatedCut => "decorrelated (blog)",
            Self::Decorrelated => "decorrelated",
            Self::ProportionalA6 => "±20 % (A6)",
            Self::Proportional => "±20 % below the cap",
            Self::Additive => "tower +99 %",
            Self::AdditiveOneStream => "tower, one stream",
        }
    }

    /// Another implementation's means of 300 runs for [`CLIENTS`], where it had this law.
    pub(crate) fn published(self) -> Option<[Published; 5]> {
        Some(match self {
            Self::None => [
                (381.0, 51.0),
                (600.0, 151.9),
                (1145.0, 690.9),
                (2027.0, 2424.5),
                (3546.0, 8011.0),
            ],
            Self::Exponential => [
                (3424.0, 50.7),
                (14368.0, 149.9),
                (36524.0, 623.3),
                (63440.0, 1855.5),
                (101398.0, 5157.0),
            ],
            Self::Equal => [
                (728.0, 42.3),
                (1645.0, 108.0),
                (4258.0, 346.8),
                (6650.0, 812.8),
                (9388.0, 1759.7),
            ],
            Self::Full => [
                (472.0, 39.0),
                (1017.0, 100.2),
                (2855.0, 332.6),
                (4879.0, 795.9),
                (7376.0, 1769.9),
            ],
            Self::FullFromBase => [
                (453.0, 42.6),
                (946.0, 110.1),
                (2773.0, 366.3),
                (4922.0, 876.0),
                (7462.0, 1934.0),
            ],
            Self::DecorrelatedCut => [
                (439.0, 37.6),
                (806.0, 100.9),
                (2227.0, 374.5),
                (4615.0, 1002.5),
                (8020.0, 2426.0),
            ],
            Self::Decorrelated => [
                (439.0, 37.6),
                (806.0, 100.9),
                (2204.0, 374.5),
                (4244.0, 1002.7),
                (6919.0, 2440.0),
            ],
            Self::ProportionalA6 => [
                (854.0, 46.1),
                (2160.0, 119.2),
                (5857.0, 390.2),
                (9295.0, 914.4),
                (13284.0, 1981.0),
            ],
            Self::AdditiveOneStream => [
                (2778.0, 50.7),
                (13477.0, 149.5),
                (35803.0, 624.2),
                (62214.0, 1853.7),
                (100064.0, 5173.0),
            ],
            Self::Additive => [
                (721.0, 42.3),
                (1610.0, 108.1),
                (4634.0, 347.5),
                (9170.0, 816.9),
                (16067.0, 1798.0),
            ],
            Self::Proportional => return None,
        })
    }

    /// Whether the published row is of exactly this law. tower's loses its jitter at the cap and
    /// cuts it to whole seconds, which the crate does not reproduce.
    pub(crate) fn comparable(self) -> bool {
        self.published().is_some() && !matches!(self, Self::Additive | Self::AdditiveOneStream)
    }

    /// What a session waits with. Equal seeds give equal delays.
    pub(crate) fn waits(self, seed: u64) -> Waits {
        let seeds = Seeds::from_seed(seed);
        let grown = |jitter| Waits::grown(FIRST, CAP, jitter, seeds.clone());
        match self {
            Self::None => Waits::new(backoff_fn(|_| Duration::ZERO)),
            Self::Exponential => grown(Jitter::None),
            Self::Equal => grown(Jitter::Equal),
            Self::Full => grown(Jitter::Full),
            Self::FullFromBase => Waits::grown(BASE, CAP, Jitter::Full, seeds),
            Self::DecorrelatedCut => Waits::new(MakeCut { seeds }),
            Self::Decorrelated => Waits::grown(BASE, CAP, Jitter::Decorrelated, seeds),
            Self::ProportionalA6 => {
                Waits::grown(BASE, CAP * 6 / 5, Jitter::Proportional(0.2), seeds)
            }
            Self::Proportional => Waits::grown(BASE, CAP, Jitter::Proportional(0.2), seeds),
            Self::Additive => Waits::grown(BASE, CAP, Jitter::Additive(0.99), seeds),
            Self::AdditiveOneStream => {
                let one = move || Seeds::from_seed(seed).make_rng();
                let maker = ExponentialBackoffMaker::new(BASE, CAP, Jitter::Additive(0.99), one);
                Waits::new(maker.expect("constants of this example are valid"))
            }
        }
    }
}

// === impl Cut ===

/// Makes the article's decorrelated backoff, which the crate does not have: it piles up on the cap.
struct MakeCut {
    seeds: Seeds,
}

struct Cut {
    dice: SessionRng,
    previous: f64,
}

impl MakeBackoff for MakeCut {
    type Backoff = Cut;

    fn make_backoff(&self) -> Cut {
        Cut {
            dice: self.seeds.make_rng(),
            previous: BASE.as_secs_f64(),
        }
    }
}

impl Backoff for Cut {
    fn next_delay(&mut self) -> Duration {
        let (low, high) = (BASE.as_secs_f64(), 3.0 * self.previous);
        let drawn = low + (high - low) * self.dice.next_f64();
        self.previous = drawn.min(CAP.as_secs_f64());
        Duration::from_secs_f64(self.previous)
    }
}
