//! Many requests at once through faults, cancellations and clock jumps; at the end all accounts balance.
//!
//! The normal run sends 20 000 requests; `SOAK_REQUESTS=1000000` sends as many as it says. A run is
//! told by its seed, 1 unless `SOAK_SEED` says otherwise.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    task::{JoinError, JoinSet},
    time::{Instant, Sleep, advance, sleep, timeout},
};
use tower::{Service, ServiceExt};
use tower_retry_layer::{
    Attempt, End, Limits, Policy, Protocol, Retry, StandardPolicy, Verdict, Wait,
    backoff::{ExponentialBackoffMaker, Jitter, MakeRng, Rng, Seeds, SessionRng},
    budget::{Budget, RetryThrottle, TokenBudget, TpsBudget, Unlimited},
    observe::{DelaySource, Finished, Observe, Retrying, StopReason},
};

use crate::support::ms;

/// Requests under way at any moment.
const AT_ONCE: usize = 200;

/// Sends of one kind of weather; see [`World::weather`].
const PHASE: u64 = 500;

#[tokio::test(start_paused = true)]
async fn a_bucket_balances() {
    let books = soak(TokenBudget::default(), 1).await;
    // What it started with, what came in and fitted, less what went out.
    let level = books.replay(100_000_000, |asked, level| match asked {
        Asked::Deposit => *level += 200_000,
        Asked::Withdraw => {
            assert!(*level >= 1_000_000);
            *level -= 1_000_000;
        }
        Asked::Refund => *level += 1_000_000,
        Asked::Refused => assert!(*level < 1_000_000),
        Asked::Failure => {}
    });
    assert_eq!(books.budget.level(), Some(level as f64 / 1e6));
    assert!(books.count(Asked::Refused) > 0, "no outage was bad enough");
}

#[tokio::test(start_paused = true)]
async fn a_window_balances() {
    let books = soak(TpsBudget::default(), 2).await;
    assert!(books.count(Asked::Refused) > 0, "no outage was bad enough");
    let sent = books.count(Asked::Withdraw) - books.count(Asked::Refund);
    // The reserve of 100 comes back after nine tenths of ten seconds at the soonest.
    let windows = books.took.as_secs() / 9 + 1;
    assert!(sent <= books.count(Asked::Deposit) / 5 + 100 * windows);
    advance(Duration::from_secs(10)).await;
    assert_eq!(books.budget.level(), Some(100.0));
}

#[tokio::test(start_paused = true)]
async fn a_throttle_balances() {
    let books = soak(RetryThrottle::new(100, 0.5).unwrap(), 3).await;
    let level = books.replay(100_000, |asked, level| match asked {
        Asked::Deposit => *level += 500,
        Asked::Failure => *level = 0.max(*level - 1_000),
        Asked::Withdraw => assert!(*level > 50_000),
        Asked::Refused => assert!(*level <= 50_000),
        Asked::Refund => {}
    });
    assert_eq!(books.budget.level(), Some(level as f64 / 1e3));
    assert!(books.count(Asked::Refused) > 0, "no outage was bad enough");
}

#[tokio::test(start_paused = true)]
async fn no_budget_balances() {
    let books = soak(Unlimited, 4).await;
    assert_eq!(books.count(Asked::Refused), 0);
}

/// Runs a quarter of the requests on this budget and checks what holds for every budget.
async fn soak(budget: impl Budget + 'static, stream: u64) -> Books {
    let requests = setting("SOAK_REQUESTS", 20_000) / 4;
    let world = Arc::new(World::new(setting("SOAK_SEED", 1) << 8 | stream));
    let books = Arc::new(Counter::new(budget));
    let service = Retry::new(
        Waits {
            inner: policy(books.clone(), world.seeds.clone()),
            world: world.clone(),
        },
        Upstream {
            world: world.clone(),
            clones: 0,
            wait: None,
        },
    );
    let start = Instant::now();
    let tally = send_all(requests, &service, &world).await;
    drop(service);

    // Nothing is left: no task, and no attempt, wait, copy or handle, as each holds the world.
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
    let world = Arc::into_inner(world).expect("somebody still holds the world");
    let books = Arc::into_inner(books).expect("a session still holds its budget");
    let books = books.close(start.elapsed());
    check(&books, &tally, &world, requests);
    books
}

fn check(books: &Books, tally: &Tally, world: &World, requests: u64) {
    let ends = |reason| books.notes.ends.get(&reason).copied().unwrap_or(0);
    let count = |counter: &AtomicU64| counter.load(Relaxed);

    // Requests = successes + stops by reason, and those that never became a session.
    let sessions: u64 = books.notes.ends.values().sum();
    let unready = count(&world.unready);
    assert_eq!(sessions, count(&world.begun));
    assert_eq!(tally.fine + tally.failed + tally.dropped, requests);
    assert_eq!(tally.fine, ends(StopReason::Success));
    let never_begun = requests - unready - sessions;
    assert_eq!(tally.dropped, ends(StopReason::Cancelled) + never_begun);
    assert_eq!(ends(StopReason::NotReady), count(&world.gone));

    // What was sent is what the sessions tell.
    let retries = books.notes.retries + books.notes.transparent;
    assert_eq!(count(&world.sends), sessions + retries);

    // Tokens: one for each retry that was sent, and one back for each that was not.
    let (lent, refunds) = (books.count(Asked::Withdraw), books.count(Asked::Refund));
    assert_eq!(lent, books.notes.retries + refunds);
    assert_eq!(lent + books.notes.told_transparent, books.notes.told);
    assert_eq!(count(&world.waits), books.notes.told);
    assert_eq!(
        books.count(Asked::Refused),
        ends(StopReason::BudgetExhausted)
    );
    assert_eq!(
        books.count(Asked::Deposit),
        tally.fine - books.notes.nested_successes
    );

    // The run met everything that it is there to meet.
    assert!(refunds > 0 && books.notes.transparent > 0 && count(&world.jumps) > 0);
    assert!(unready > 0 && never_begun > unready);
    for reason in REASONS {
        assert!(ends(reason) > 0, "no session ended as {reason}");
    }
}

/// Every way out that the run below has.
const REASONS: [StopReason; 9] = [
    StopReason::Success,
    StopReason::NotRetryable,
    StopReason::AttemptsExhausted,
    StopReason::DeadlineExceeded,
    StopReason::ServerRefused,
    StopReason::NotReplayable,
    StopReason::Nested,
    StopReason::NotReady,
    StopReason::Cancelled,
];

/// Sends the requests, some at a time, and lets some of them be dropped or their tasks be aborted.
async fn send_all(requests: u64, service: &Retry<Waits, Upstream>, world: &Arc<World>) -> Tally {
    let mut tally = Tally::default();
    let mut tasks = JoinSet::new();
    for _ in 0..requests {
        if tasks.len() == AT_ONCE {
            tally.add(tasks.join_next().await);
        }
        let request = Request::random(world);
        let task = tasks.spawn(send(service.clone(), request, world.clone()));
        if world.chance(0.02) {
            // At its first poll or while it is under way.
            if world.chance(0.5) {
                tokio::task::yield_now().await;
            }
            task.abort();
        }
        if world.chance(0.002) {
            world.jumps.fetch_add(1, Relaxed);
            advance(ms(world.below(20_000))).await;
        }
    }
    while !tasks.is_empty() {
        tally.add(tasks.join_next().await);
    }
    tally
}

/// `None`: dropped.
async fn send(
    service: Retry<Waits, Upstream>,
    request: Request,
    world: Arc<World>,
) -> Option<bool> {
    let answer = if world.chance(0.1) {
        timeout(ms(world.below(2_000)), service.oneshot(request))
            .await
            .ok()?
    } else {
        service.oneshot(request).await
    };
    let (Ok(verdict) | Err(verdict)) = answer;
    Some(verdict == Verdict::Success)
}

fn policy(books: Arc<Counter>, seeds: Seeds) -> StandardPolicy<Told, ExponentialBackoffMaker> {
    let backoff = ExponentialBackoffMaker::new(ms(1), ms(2_000), Jitter::Full, seeds).unwrap();
    StandardPolicy::new(Told)
        .max_attempts(4)
        .backoff(backoff)
        .total_timeout(ms(8_000))
        .min_attempt_time(ms(5))
        .max_server_delay(ms(1_000))
        .shared_budget(books.clone())
        .observe(books)
}

/// A number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(number) => number.parse().expect("a whole number"),
        Err(_) => default,
    }
}

/// What the callers saw.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    fine: u64,
    failed: u64,
    dropped: u64,
}

/// What the service, the requests and the waits share, and count.
#[derive(Debug)]
struct World {
    rng: Mutex<SessionRng>,
    seeds: Seeds,
    jumps: AtomicU64,
    begun: AtomicU64,
    sends: AtomicU64,
    waits: AtomicU64,
    /// First readiness that failed, and readiness for a retry that did.
    unready: AtomicU64,
    gone: AtomicU64,
}

#[derive(Clone, Debug)]
struct Request {
    limits: Limits,
    copies: bool,
    world: Arc<World>,
}

/// A protocol whose outcomes are their own verdicts.
#[derive(Debug)]
struct Told;

#[derive(Debug)]
struct Upstream {
    world: Arc<World>,
    /// 1 is a caller's handle, 2 a session's.
    clones: u32,
    /// `Some` while it is not ready.
    wait: Option<Pin<Box<Sleep>>>,
}

/// The policy, with its waits counted.
#[derive(Clone, Debug)]
struct Waits {
    inner: StandardPolicy<Told, ExponentialBackoffMaker>,
    world: Arc<World>,
}

/// Notes all that the budget is asked, in order, and all that observers are told.
#[derive(Debug)]
struct Counter {
    budget: Box<dyn Budget>,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    asked: Vec<Asked>,
    ends: HashMap<StopReason, u64>,
    nested_successes: u64,
    /// Retries that were sent: those that were counted, and those that were not.
    retries: u64,
    transparent: u64,
    /// Retries that were decided on, and those among them that were not to be counted.
    told: u64,
    told_transparent: u64,
}

/// What is left when all is over.
#[derive(Debug)]
struct Books {
    budget: Box<dyn Budget>,
    notes: Notes,
    took: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    Deposit,
    Withdraw,
    Refused,
    Refund,
    Failure,
}

// === impl Tally ===

impl Tally {
    fn add(&mut self, done: Option<Result<Option<bool>, JoinError>>) {
        match done.expect("a task is under way") {
            Ok(Some(true)) => self.fine += 1,
            Ok(Some(false)) => self.failed += 1,
            Ok(None) => self.dropped += 1,
            Err(error) if error.is_cancelled() => self.dropped += 1,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

// === impl World ===

impl World {
    fn new(seed: u64) -> Self {
        let seeds = Seeds::from_seed(seed);
        Self {
            rng: Mutex::new(seeds.make_rng()),
            seeds,
            jumps: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            sends: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            unready: AtomicU64::new(0),
            gone: AtomicU64::new(0),
        }
    }

    fn chance(&self, share: f64) -> bool {
        self.rng.lock().unwrap().next_f64() < share
    }

    fn below(&self, end: u64) -> u64 {
        self.rng.lock().unwrap().next_u64() % end
    }

    /// The share of sends that fail, and the most milliseconds that one takes: health, a limp, an
    /// outage and a brownout, one after another.
    fn weather(&self) -> (f64, u64) {
        match self.sends.load(Relaxed) / PHASE % 4 {
            0 => (0.01, 20),
            1 => (0.2, 40),
            2 => (0.95, 10),
            _ => (0.3, 3_000),
        }
    }

    fn failure(&self) -> Verdict {
        match self.below(20) {
            0 => Verdict::Stop,
            1 => Verdict::ServerRefused,
            2 | 3 => Verdict::Unprocessed,
            4 | 5 => Verdict::RetryAfter(ms(self.below(2_000))),
            6 | 7 => Verdict::Pushback(ms(self.below(2_000))),
            _ => Verdict::Retry,
        }
    }
}

// === impl Request ===

impl Request {
    fn random(world: &Arc<World>) -> Self {
        let mut limits = Limits::default();
        limits.no_retry = world.chance(0.01);
        limits.nested = world.chance(0.01);
        if world.chance(0.1) {
            limits.max_attempts = Some(u32::try_from(world.below(6)).unwrap());
        }
        if world.chance(0.1) {
            limits.deadline = Some(Instant::now() + ms(world.below(2_000)));
        }
        Self {
            limits,
            copies: world.chance(0.95),
            world: world.clone(),
        }
    }
}

// === impl Told ===

impl Protocol<Request, Verdict, Verdict> for Told {
    fn classify(&self, attempt: &Attempt<'_, Request, Verdict, Verdict>) -> Verdict {
        let (Ok(verdict) | Err(verdict)) = attempt.outcome();
        *verdict
    }

    fn clone_request(&self, request: &Request) -> Option<Request> {
        request.copies.then(|| request.clone())
    }

    fn limits(&self, request: &Request) -> Limits {
        request.world.begun.fetch_add(1, Relaxed);
        request.limits
    }
}

// === impl Upstream ===

impl Clone for Upstream {
    fn clone(&self) -> Self {
        Self {
            world: self.world.clone(),
            clones: self.clones + 1,
            wait: None,
        }
    }
}

impl Service<Request> for Upstream {
    type Response = Verdict;
    type Error = Verdict;
    type Future = Pin<Box<dyn Future<Output = Result<Verdict, Verdict>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Verdict>> {
        let world = &self.world;
        if self.wait.is_none() && world.chance(0.1) {
            self.wait = Some(Box::pin(sleep(ms(world.below(200)))));
        }
        if let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(cx));
            self.wait = None;
        }
        if world.chance(0.01) {
            let counter = if self.clones == 1 {
                &world.unready
            } else {
                &world.gone
            };
            counter.fetch_add(1, Relaxed);
            return Poll::Ready(Err(Verdict::Stop));
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let world = self.world.clone();
        world.sends.fetch_add(1, Relaxed);
        Box::pin(async move {
            let (fails, slowest) = world.weather();
            if world.chance(0.7) {
                sleep(ms(world.below(slowest))).await;
            }
            let verdict = match world.chance(fails) {
                true => world.failure(),
                false => Verdict::Success,
            };
            drop(request);
            // A verdict may come with either.
            if world.chance(0.5) {
                Ok(verdict)
            } else {
                Err(verdict)
            }
        })
    }
}

// === impl Waits ===

impl Policy<Request, Verdict, Verdict> for Waits {
    type Future = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn retry(
        &mut self,
        request: &mut Request,
        result: &mut Result<Verdict, Verdict>,
    ) -> Option<Self::Future> {
        let wait: Wait = self.inner.retry(request, result)?;
        self.world.waits.fetch_add(1, Relaxed);
        // Holds the world for as long as the timer is there.
        let world = self.world.clone();
        Some(Box::pin(async move {
            wait.await;
            drop(world);
        }))
    }

    fn clone_request(&mut self, request: &Request) -> Option<Request> {
        Policy::<_, Verdict, Verdict>::clone_request(&mut self.inner, request)
    }

    fn prepare(&mut self, request: &mut Request) {
        Policy::<_, Verdict, Verdict>::prepare(&mut self.inner, request);
    }

    fn end(&mut self, result: &mut Result<Verdict, Verdict>, why: End) {
        Policy::<Request, _, _>::end(&mut self.inner, result, why);
    }
}

// === impl Counter ===

impl Counter {
    fn new(budget: impl Budget + 'static) -> Self {
        Self {
            budget: Box::new(budget),
            notes: Mutex::default(),
        }
    }

    fn note(&self, asked: Asked) {
        self.notes.lock().unwrap().asked.push(asked);
    }

    fn close(self, took: Duration) -> Books {
        Books {
            budget: self.budget,
            notes: self.notes.into_inner().unwrap(),
            took,
        }
    }
}

impl Budget for Counter {
    fn deposit(&self) {
        self.budget.deposit();
        self.note(Asked::Deposit);
    }

    fn withdraw(&self) -> bool {
        let granted = self.budget.withdraw();
        self.note(if granted {
            Asked::Withdraw
        } else {
            Asked::Refused
        });
        granted
    }

    fn refund(&self) {
        self.budget.refund();
        self.note(Asked::Refund);
    }

    fn failure(&self) {
        self.budget.failure();
        self.note(Asked::Failure);
    }
}

impl Observe for Counter {
    fn retrying(&self, event: &Retrying<'_>) {
        let mut notes = self.notes.lock().unwrap();
        notes.told += 1;
        notes.told_transparent += u64::from(event.source == DelaySource::Transparent);
    }

    fn finished(&self, event: &Finished<'_>) {
        let mut notes = self.notes.lock().unwrap();
        *notes.ends.entry(event.reason).or_default() += 1;
        notes.retries += u64::from(event.attempts - 1);
        notes.transparent += u64::from(event.transparent);
        let success = event.reason == StopReason::Success;
        notes.nested_successes += u64::from(success && event.nested);
    }
}

// === impl Books ===

impl Books {
    fn count(&self, asked: Asked) -> u64 {
        let all = self.notes.asked.iter();
        all.filter(|&&each| each == asked).count() as u64
    }

    /// The level after all that was asked, from a full bucket, in its own units.
    fn replay(&self, full: i64, step: impl Fn(Asked, &mut i64)) -> i64 {
        self.notes.asked.iter().fold(full, |mut level, &asked| {
            step(asked, &mut level);
            level.min(full)
        })
    }
}
