//! A server with one processor: serving, refusing and recovering all take time from it.

use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;
use tower_retry_layer::backoff::{MakeRng, Rng, Seeds, SessionRng};

use super::Arrivals;

/// Work that the server takes on at most, in time: the rest finds the door shut, at no cost.
const QUEUE: Duration = Duration::from_millis(100);

/// Refusing a call takes a tenth of serving it.
const REFUSAL: u32 = 10;

/// What a server is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerSettings {
    /// Calls that it can serve in a second.
    pub(crate) per_second: u32,
    /// When it goes down.
    pub(crate) down_at: Duration,
    /// What its recovery takes from an idle processor. Under load it takes longer, because only the
    /// time that refusals leave is spent on it.
    pub(crate) outage: Duration,
    /// The share of calls that fail for no reason while it is up.
    pub(crate) faults: f64,
    pub(crate) seed: u64,
}

/// A server; a clone is the same one.
#[derive(Clone)]
pub(crate) struct Server {
    start: Instant,
    settings: ServerSettings,
    state: Arc<Mutex<State>>,
}

/// The server's only error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused;

struct State {
    arrivals: Arrivals,
    // Everything in time since the start.
    busy_until: Duration,
    seen_until: Duration,
    recovery: Recovery,
    dice: SessionRng,
}

enum Recovery {
    NotYetDown,
    Left(Duration),
    Done(Duration),
}

// === impl Server ===

impl Server {
    /// A server whose time begins now.
    pub(crate) fn start(settings: ServerSettings) -> Self {
        let state = State {
            arrivals: Arrivals::default(),
            busy_until: Duration::ZERO,
            seen_until: Duration::ZERO,
            recovery: Recovery::NotYetDown,
            dice: Seeds::from_seed(settings.seed).make_rng(),
        };
        Self {
            start: Instant::now(),
            settings,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Answers a call: a refusal at once, a success when its turn has come.
    pub(crate) fn answer(&self) -> impl Future<Output = Result<(), Refused>> + Send + use<> {
        let start = self.start;
        let answer = self
            .state
            .lock()
            .unwrap()
            .arrive(start.elapsed(), &self.settings);
        async move {
            tokio::time::sleep_until(start + answer?).await;
            Ok(())
        }
    }

    /// All arrivals, and when the server is up again if nobody else calls.
    pub(crate) fn seen(&self) -> (Arrivals, Duration) {
        let mut state = self.state.lock().unwrap();
        state.recover(Duration::MAX, &self.settings);
        let Recovery::Done(up_at) = state.recovery else {
            unreachable!("for ever is long enough")
        };
        (state.arrivals.clone(), up_at)
    }
}

// === impl State ===

impl State {
    fn arrive(&mut self, now: Duration, settings: &ServerSettings) -> Result<Duration, Refused> {
        self.arrivals.note(now);
        self.recover(now, settings);
        if self.busy_until.saturating_sub(now) >= QUEUE {
            return Err(Refused);
        }
        let serving = Duration::from_secs(1) / settings.per_second;
        let down = matches!(self.recovery, Recovery::Left(_));
        if down || self.dice.next_f64() < settings.faults {
            self.busy_until = self.busy_until.max(now) + serving / REFUSAL;
            return Err(Refused);
        }
        self.busy_until = self.busy_until.max(now) + serving;
        Ok(self.busy_until)
    }

    /// Spends the idle time since the last look on the recovery.
    fn recover(&mut self, now: Duration, settings: &ServerSettings) {
        if now >= settings.down_at && matches!(self.recovery, Recovery::NotYetDown) {
            self.recovery = Recovery::Left(settings.outage);
            self.seen_until = settings.down_at;
        }
        if let Recovery::Left(left) = self.recovery {
            let idle_from = self.busy_until.max(self.seen_until);
            let idle = now.saturating_sub(idle_from);
            self.recovery = match left.checked_sub(idle) {
                Some(left) if !left.is_zero() => Recovery::Left(left),
                _ => Recovery::Done(idle_from + left),
            };
        }
        self.seen_until = now;
    }
}

// === impl Refused ===

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}

impl std::error::Error for Refused {}
