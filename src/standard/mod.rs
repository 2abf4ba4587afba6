//! `StandardPolicy`: the ready-made policy, safe before it is configured.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use self::session::Session;
use crate::{
    backoff::{ExponentialBackoffMaker, MakeBackoff},
    budget::{Budget, TokenBudget, Unlimited},
    observe::Observe,
};

mod decide;
mod policy;
mod session;
#[cfg(feature = "tower")]
mod tower;
mod wait;

pub use self::wait::Wait;

/// A policy of attempts, backoff, budget, deadline and the server's own word, around a
/// [`Protocol`](crate::Protocol) that tells it what outcomes mean.
///
/// # Decisions
///
/// One after another; the first that says no ends the session, and its
/// [`StopReason`](crate::observe::StopReason) is in brackets:
///
/// 1. The verdict: a success deposits into the budget (`Success`), a stop does not
///    (`NotRetryable`).
/// 2. Is an attempt left (`AttemptsExhausted`), and a copy at hand (`NotReplayable`)?
/// 3. Did the server say not to (`ServerRefused`)?
/// 4. Does the delay fit before the deadline (`DeadlineExceeded`)?
/// 5. Does the budget lend one (`BudgetExhausted`)?
///
/// # Defaults
///
/// | setting | default | reason |
/// |---|---|---|
/// | [`max_attempts`](Self::max_attempts) | 3 | the limit of Google's SRE book and of AWS's standard mode |
/// | [`backoff`](Self::backoff) | 50 ms to 20 s, doubled, full jitter | see [`ExponentialBackoffMaker`] |
/// | [`budget`](Self::budget) | 100 retries at once, then one for every five successes | a blip is ridden out; in a long outage nearly nothing is sent again |
/// | [`total_timeout`](Self::total_timeout) | none | only the caller knows how long an answer is of use |
/// | [`min_attempt_time`](Self::min_attempt_time) | zero | depends on the call |
/// | [`max_server_delay`](Self::max_server_delay) | 60 s | a longer hint would keep the caller for a mistyped header |
/// | [`name`](Self::name) | `retry` | |
///
/// A request that the server certainly did not act on is sent again once, at once and outside of
/// attempts and budget: see [`Verdict::Unprocessed`](crate::Verdict::Unprocessed).
///
/// # Inside a policy of your own
///
/// A policy that wraps this one forwards all four methods of [`Policy`](crate::Policy). Without
/// `prepare` requests are not marked, their own limits are not read, and a session that needs no
/// retry is not told to observers.
///
/// # Sharing
///
/// The configuration and the budget are shared by all clones; a clone is a new session. Setters
/// take the policy and give one with a configuration of its own, but the same budget.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_retry_layer::{RetryLayer, StandardPolicy, on_error};
///
/// let policy = StandardPolicy::new(on_error())
///     .max_attempts(5)
///     .total_timeout(Duration::from_secs(10))
///     .min_attempt_time(Duration::from_millis(50));
/// let _layer = RetryLayer::new(policy);
/// ```
#[must_use = "a policy does nothing until it is given to a layer"]
pub struct StandardPolicy<P, M: MakeBackoff = ExponentialBackoffMaker> {
    config: Arc<Config<P, M>>,
    session: Session<M::Backoff>,
}

struct Config<P, M> {
    // Apart from the settings and behind pointers of their own, so that setters need no clone of
    // what users bring.
    protocol: Arc<P>,
    maker: Arc<M>,
    settings: Settings,
}

#[derive(Clone)]
struct Settings {
    name: Cow<'static, str>,
    max_attempts: u32,
    total_timeout: Option<Duration>,
    min_attempt_time: Duration,
    max_server_delay: Duration,
    budget: Arc<dyn Budget>,
    observers: Vec<Arc<dyn Observe>>,
}

// === impl StandardPolicy ===

impl<P> StandardPolicy<P> {
    /// A policy with the defaults above and a budget of its own.
    pub fn new(protocol: P) -> Self {
        Self::from_config(Config {
            protocol: Arc::new(protocol),
            maker: Arc::new(ExponentialBackoffMaker::default()),
            settings: Settings::default(),
        })
    }
}

impl<P, M: MakeBackoff> StandardPolicy<P, M> {
    /// Attempts in all, the first included: 3 means at most three sends. 0 and 1 mean no retries.
    pub fn max_attempts(self, attempts: u32) -> Self {
        self.with(|settings| settings.max_attempts = attempts)
    }

    /// The waits between attempts.
    pub fn backoff<N: MakeBackoff>(self, maker: N) -> StandardPolicy<P, N> {
        StandardPolicy::from_config(Config {
            protocol: self.config.protocol.clone(),
            maker: Arc::new(maker),
            settings: self.config.settings.clone(),
        })
    }

    /// A budget of this policy's own, shared by its clones.
    pub fn budget(self, budget: impl Budget + 'static) -> Self {
        self.shared_budget(Arc::new(budget))
    }

    /// A budget shared with other policies: of clients whose retries hit the same server.
    ///
    /// [`budget`](Self::budget) takes an `Arc` as well, for a second pointer in between.
    pub fn shared_budget(self, budget: Arc<dyn Budget>) -> Self {
        self.with(|settings| settings.budget = budget)
    }

    /// No budget: every request may use all of its attempts, whatever becomes of the others.
    ///
    /// In an outage that sends `max_attempts` times the load, at the moment at which the server
    /// bears it least.
    pub fn without_budget(self) -> Self {
        self.with(|settings| settings.budget = Arc::new(Unlimited))
    }

    /// The time for a whole session, attempts and waits, from the first call.
    ///
    /// No wait begins that would end after it. An attempt in flight is not cut short by the policy: a
    /// timeout above the retry layer does that, or over gRPC what heeds `grpc-timeout`. Nor is the wait for a service that is slow to become
    /// ready again, so a retry that was decided on in time may be sent late. Timers are rounded up
    /// to the millisecond.
    pub fn total_timeout(self, timeout: Duration) -> Self {
        self.with(|settings| settings.total_timeout = Some(timeout))
    }

    /// The least time an attempt needs: none is started with less than this left to the deadline.
    pub fn min_attempt_time(self, time: Duration) -> Self {
        self.with(|settings| settings.min_attempt_time = time)
    }

    /// The cap on delays that the server names. A random tenth at most comes on top of it, so that
    /// clients told the same second do not return together. Zero ignores all hints, pushback
    /// included.
    pub fn max_server_delay(self, max: Duration) -> Self {
        self.with(|settings| settings.max_server_delay = max)
    }

    /// One more observer; all of them are told, in the order in which they came.
    ///
    /// A panic in an observer harms neither the session nor the budget. None is there by default,
    /// whatever features are on; the [module](crate::observe) has ready-made ones.
    pub fn observe(self, observer: impl Observe + 'static) -> Self {
        self.with(|settings| settings.observers.push(Arc::new(observer)))
    }

    /// The name that events carry, one for each client or upstream.
    pub fn name(self, name: impl Into<Cow<'static, str>>) -> Self {
        self.with(|settings| settings.name = name.into())
    }

    fn with(self, set: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = self.config.settings.clone();
        set(&mut settings);
        Self::from_config(Config {
            protocol: self.config.protocol.clone(),
            maker: self.config.maker.clone(),
            settings,
        })
    }

    fn from_config(config: Config<P, M>) -> Self {
        Self {
            config: Arc::new(config),
            session: Session::new(),
        }
    }
}

/// A clone is a new session of the same configuration.
impl<P, M: MakeBackoff> Clone for StandardPolicy<P, M> {
    fn clone(&self) -> Self {
        Self {
            config: self.config.clone(),
            session: self.session.fresh(),
        }
    }
}

impl<P, M: MakeBackoff> fmt::Debug for StandardPolicy<P, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.config.settings;
        f.debug_struct("StandardPolicy")
            .field("name", &settings.name)
            .field("max_attempts", &settings.max_attempts)
            .field("total_timeout", &settings.total_timeout)
            .field("min_attempt_time", &settings.min_attempt_time)
            .field("max_server_delay", &settings.max_server_delay)
            .field("observers", &settings.observers.len())
            .finish_non_exhaustive()
    }
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: Cow::Borrowed("retry"),
            max_attempts: 3,
            total_timeout: None,
            min_attempt_time: Duration::ZERO,
            max_server_delay: Duration::from_secs(60),
            budget: Arc::new(TokenBudget::default()),
            observers: Vec::new(),
        }
    }
}
