//! `StandardPolicy` against a reference: random settings, requests, outcomes and drops.
//!
//! The reference is the list of decisions in the type's documentation, told as one function over
//! milliseconds. What is compared: every send with its time, attempt number and remaining time, every
//! question to the budget and its level, every event, and the answer with its summary.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::Duration,
};

use proptest::prelude::*;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tower::{Layer, Service, ServiceExt};
use tower_retry_layer::{
    Attempt, Limits, Protocol, RetryLayer, StandardPolicy, Verdict,
    backoff::{Backoff, MakeBackoff},
    budget::{Budget, TokenBudget},
    observe::{DelaySource, RetrySummary, StopReason},
};

use crate::{
    budget::paused,
    support::{Event, Events, ms},
};

/// All times are even, a drop comes at an odd one: nothing is left to the order within a moment.
const BACKOFF: [u64; 4] = [0, 20, 100, 400];

/// The share of a server's delay that the backoff below adds.
const SPREAD: u32 = 16;

#[derive(Clone, Debug)]
struct Setup {
    max_attempts: u32,
    capacity: u32,
    total_timeout: Option<u64>,
    min_attempt_time: u64,
    max_server_delay: u64,
}

#[derive(Clone, Debug)]
struct Request {
    first: Readiness,
    /// The attempts; those beyond the list succeed at once.
    steps: Vec<Step>,
    max_attempts: Option<u32>,
    deadline: Option<u64>,
    no_retry: bool,
    nested: bool,
    dropped: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    copy: bool,
    replays: bool,
    takes: u64,
    ok: bool,
    verdict: Verdict,
    ready: Readiness,
}

#[derive(Clone, Copy, Debug)]
struct Readiness {
    takes: u64,
    fails: bool,
}

/// All that can be seen of one request, and what the budget was asked.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    sends: Vec<Sent>,
    asked: Vec<Asked>,
    events: Vec<Event>,
    answer: Option<Result<Answer, Answer>>,
    level: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Sent {
    at: u64,
    /// `None`: not marked.
    mark: Option<(u32, Option<u64>)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    Deposit,
    Withdraw(bool),
    Refund,
    Failure,
}

/// The number of the send that it came from; `None` is a service that was not ready.
#[derive(Clone, Debug, PartialEq)]
struct Answer {
    send: Option<usize>,
    verdict: Verdict,
    summary: Option<RetrySummary>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    #[test]
    fn sessions_decide_what_the_reference_decides(
        setup in setup(),
        requests in prop::collection::vec(request(), 1..6),
    ) {
        paused(async move {
            let (budget, events) = (Arc::new(Recorded::new(setup.capacity)), Events::default());
            let layer = RetryLayer::new(policy(&setup, budget.clone(), events.clone()));
            let mut balance = Balance::full(setup.capacity);
            for request in requests {
                let expected = reference(&setup, &request, &mut balance);
                let seen = run(&layer, request, &budget, &events).await;
                prop_assert_eq!(seen, expected);
            }
            Ok(())
        })?;
    }
}

/// What must be seen.
fn reference(setup: &Setup, request: &Request, balance: &mut Balance) -> Seen {
    let mut session = Session {
        setup,
        request,
        balance,
        seen: Seen::default(),
        now: 0,
        start: 0,
        attempts: 1,
        transparent: 0,
        backoff: 0,
        total_delay: 0,
        waited: false,
        borrowed: false,
    };
    session.run();
    session.seen.level = session.balance.level();
    session.seen
}

/// The reference, in milliseconds since the request was made.
struct Session<'a> {
    setup: &'a Setup,
    request: &'a Request,
    balance: &'a mut Balance,
    seen: Seen,
    now: u64,
    start: u64,
    attempts: u32,
    transparent: u32,
    backoff: usize,
    total_delay: u64,
    waited: bool,
    borrowed: bool,
}

/// A bucket in millionths of a retry.
struct Balance {
    units: u64,
    capacity: u64,
}

// === impl Session ===

impl Session<'_> {
    fn run(&mut self) {
        let first = self.request.first;
        if !self.pass(first.takes) {
            return;
        }
        if first.fails {
            self.seen.answer = Some(Err(Answer::not_ready()));
            return;
        }
        self.start = self.now;
        let reason = self.attempts();
        if self.borrowed {
            self.balance.add(1_000_000);
            self.seen.asked.push(Asked::Refund);
        }
        self.seen.events.push(Event::Finished {
            attempts: self.attempts,
            transparent: self.transparent,
            total_delay: ms(self.total_delay),
            elapsed: ms(self.now - self.start),
            reason,
        });
    }

    fn attempts(&mut self) -> StopReason {
        for number in 0.. {
            let step = self.request.step(number);
            self.send();
            let copy = step.copy && self.limit(true).is_none();
            if !self.pass(step.takes) {
                return StopReason::Cancelled;
            }
            let delay = match self.decide(step, copy) {
                Ok(delay) => delay,
                Err(reason) => {
                    let answer = self.answer(number, step, reason);
                    self.seen.answer = Some(answer);
                    return reason;
                }
            };
            if !self.pass(delay) || !self.pass(step.ready.takes) {
                return StopReason::Cancelled;
            }
            if step.ready.fails {
                self.seen.answer = Some(Err(Answer::not_ready()));
                return StopReason::NotReady;
            }
            match self.borrowed {
                true => self.attempts += 1,
                false => self.transparent += 1,
            }
            self.borrowed = false;
        }
        unreachable!("what comes after the list succeeds")
    }

    /// Whether so much time passes before the request is dropped.
    fn pass(&mut self, time: u64) -> bool {
        self.now += time;
        match self.request.dropped {
            Some(dropped) if dropped < self.now => {
                self.now = dropped;
                false
            }
            _ => true,
        }
    }

    fn send(&mut self) {
        let mark = (self.attempts, self.remaining());
        self.seen.sends.push(Sent {
            at: self.now,
            mark: (!self.request.nested).then_some(mark),
        });
    }

    fn remaining(&self) -> Option<u64> {
        let own = self.setup.total_timeout.map(|time| self.start + time);
        let deadline = own.into_iter().chain(self.request.deadline).min()?;
        Some(deadline.saturating_sub(self.now))
    }

    fn max_attempts(&self) -> u32 {
        self.request.max_attempts.unwrap_or(self.setup.max_attempts)
    }

    fn limit(&self, copy: bool) -> Option<StopReason> {
        if self.request.nested {
            return Some(StopReason::Nested);
        }
        if self.request.no_retry {
            return Some(StopReason::NotRetryable);
        }
        if self.attempts >= self.max_attempts() {
            return Some(StopReason::AttemptsExhausted);
        }
        (!copy).then_some(StopReason::NotReplayable)
    }

    fn decide(&mut self, step: Step, copy: bool) -> Result<u64, StopReason> {
        match step.verdict {
            Verdict::Success => {
                if !self.request.nested {
                    self.seen.asked.push(Asked::Deposit);
                    self.balance.add(300_000);
                }
                return Err(StopReason::Success);
            }
            Verdict::Stop => return Err(StopReason::NotRetryable),
            _ => {}
        }
        let transparent = step.verdict == Verdict::Unprocessed
            && self.attempts == 1
            && self.transparent == 0
            && self.max_attempts() > 1;
        if !transparent && !self.request.nested {
            self.seen.asked.push(Asked::Failure);
        }
        if let Some(reason) = self.limit(copy && step.replays) {
            return Err(reason);
        }
        if step.verdict == Verdict::ServerRefused {
            return Err(StopReason::ServerRefused);
        }
        let (delay, source) = match transparent {
            true => (0, DelaySource::Transparent),
            false => self.delay(step.verdict),
        };
        let needed = delay + self.setup.min_attempt_time;
        if self
            .remaining()
            .is_some_and(|remaining| needed >= remaining)
        {
            return Err(StopReason::DeadlineExceeded);
        }
        if !transparent {
            self.borrowed = self.balance.take();
            self.seen.asked.push(Asked::Withdraw(self.borrowed));
            if !self.borrowed {
                return Err(StopReason::BudgetExhausted);
            }
        }
        self.waited = true;
        self.total_delay += delay;
        self.seen.events.push(Event::Retrying {
            attempt: self.attempts,
            delay: ms(delay),
            source,
            elapsed: ms(self.now - self.start),
        });
        Ok(delay)
    }

    fn delay(&mut self, verdict: Verdict) -> (u64, DelaySource) {
        let max = self.setup.max_server_delay;
        let server = |hint: Duration| {
            let hint = u64::try_from(hint.as_millis()).unwrap();
            let clamped = hint > max;
            (hint.min(max), DelaySource::Server { clamped })
        };
        if let Verdict::Pushback(_) = verdict {
            self.backoff = 0;
        }
        match verdict {
            Verdict::Pushback(hint) if max > 0 => server(hint),
            Verdict::RetryAfter(hint) if !hint.is_zero() && max > 0 => {
                let (delay, source) = server(hint);
                (delay + delay / u64::from(SPREAD), source)
            }
            _ => {
                let delay = BACKOFF[self.backoff.min(BACKOFF.len() - 1)];
                self.backoff += 1;
                (delay, DelaySource::Backoff)
            }
        }
    }

    fn answer(&self, send: usize, step: Step, reason: StopReason) -> Result<Answer, Answer> {
        let told = step.ok && !self.request.nested;
        let told = told && (self.waited || reason != StopReason::Success);
        let summary = told.then(|| {
            let mut summary = RetrySummary::new(self.attempts, reason);
            summary.transparent = self.transparent;
            summary.total_delay = ms(self.total_delay);
            summary
        });
        step.outcome(send)
            .map(|answer| Answer { summary, ..answer })
    }
}

impl Balance {
    fn full(retries: u32) -> Self {
        let capacity = u64::from(retries) * 1_000_000;
        Self {
            units: capacity,
            capacity,
        }
    }

    fn add(&mut self, units: u64) {
        self.units = self.capacity.min(self.units + units);
    }

    fn take(&mut self) -> bool {
        let left = self.units.checked_sub(1_000_000);
        self.units = left.unwrap_or(self.units);
        left.is_some()
    }

    fn level(&self) -> f64 {
        self.units as f64 / 1e6
    }
}

// === the real thing ===

async fn run(
    layer: &RetryLayer<Policy>,
    request: Request,
    budget: &Recorded,
    events: &Events,
) -> Seen {
    let dropped = request.dropped;
    let run = Arc::new(Run {
        request,
        origin: Instant::now(),
        sends: Mutex::default(),
    });
    let service = layer.layer(Upstream {
        run: run.clone(),
        ready: None,
    });
    let call = Call {
        run: run.clone(),
        mark: None,
    };
    let answer = match dropped {
        None => Some(service.oneshot(call).await),
        Some(at) => timeout(ms(at), service.oneshot(call)).await.ok(),
    };
    Seen {
        sends: std::mem::take(&mut *run.sends.lock().unwrap()),
        asked: std::mem::take(&mut *budget.asked.lock().unwrap()),
        events: events.take(),
        answer,
        level: budget.bucket.level().unwrap(),
    }
}

type Policy = StandardPolicy<Told, Steps>;

fn policy(setup: &Setup, budget: Arc<Recorded>, events: Events) -> Policy {
    let policy = StandardPolicy::new(Told)
        .max_attempts(setup.max_attempts)
        .backoff(Steps)
        .shared_budget(budget)
        .min_attempt_time(ms(setup.min_attempt_time))
        .max_server_delay(ms(setup.max_server_delay))
        .observe(events);
    match setup.total_timeout {
        Some(time) => policy.total_timeout(ms(time)),
        None => policy,
    }
}

/// One request's run, as its service and the protocol see it.
#[derive(Debug)]
struct Run {
    request: Request,
    origin: Instant,
    sends: Mutex<Vec<Sent>>,
}

#[derive(Debug)]
struct Call {
    run: Arc<Run>,
    mark: Option<(u32, Option<u64>)>,
}

/// A protocol that reads everything from the script.
#[derive(Debug)]
struct Told;

/// The delays of the list above, and the same share of every server's delay.
#[derive(Clone, Copy, Debug)]
struct Steps;

#[derive(Debug)]
struct InSteps(usize);

/// A bucket that notes what it is asked.
#[derive(Debug)]
struct Recorded {
    bucket: TokenBudget,
    asked: Mutex<Vec<Asked>>,
}

#[derive(Debug)]
struct Upstream {
    run: Arc<Run>,
    /// `Some` between the first question and the answer.
    ready: Option<Pin<Box<Sleep>>>,
}

// === impl Request, Step, Answer, Run ===

impl Request {
    fn step(&self, number: usize) -> Step {
        let last = Step {
            copy: true,
            replays: true,
            takes: 0,
            ok: true,
            verdict: Verdict::Success,
            ready: Readiness {
                takes: 0,
                fails: false,
            },
        };
        self.steps.get(number).copied().unwrap_or(last)
    }
}

impl Step {
    fn outcome(self, send: usize) -> Result<Answer, Answer> {
        let answer = Answer {
            send: Some(send),
            verdict: self.verdict,
            summary: None,
        };
        if self.ok { Ok(answer) } else { Err(answer) }
    }
}

impl Answer {
    fn not_ready() -> Self {
        Self {
            send: None,
            verdict: Verdict::Stop,
            summary: None,
        }
    }
}

impl Run {
    fn sends(&self) -> usize {
        self.sends.lock().unwrap().len()
    }
}

// === impl Told ===

impl Protocol<Call, Answer, Answer> for Told {
    fn classify(&self, attempt: &Attempt<'_, Call, Answer, Answer>) -> Verdict {
        match attempt.outcome() {
            Ok(answer) | Err(answer) => answer.verdict,
        }
    }

    fn clone_request(&self, call: &Call) -> Option<Call> {
        let step = call.run.request.step(call.run.sends());
        step.copy.then(|| Call {
            run: call.run.clone(),
            mark: None,
        })
    }

    fn can_replay(&self, copy: &Call) -> bool {
        copy.run.request.step(copy.run.sends() - 1).replays
    }

    fn limits(&self, call: &Call) -> Limits {
        let request = &call.run.request;
        let mut limits = Limits::default();
        limits.max_attempts = request.max_attempts;
        limits.deadline = request.deadline.map(|time| call.run.origin + ms(time));
        limits.no_retry = request.no_retry;
        limits.nested = request.nested;
        limits
    }

    fn prepare(&self, call: &mut Call, attempt: u32, remaining: Option<Duration>) {
        assert_eq!(call.mark, None, "marked twice");
        call.mark = Some((attempt, remaining.map(whole_ms)));
    }

    fn summarize(&self, response: &mut Answer, summary: &RetrySummary) {
        assert_eq!(response.summary, None, "summed up twice");
        response.summary = Some(*summary);
    }
}

// === impl Steps ===

impl MakeBackoff for Steps {
    type Backoff = InSteps;

    fn make_backoff(&self) -> InSteps {
        InSteps(0)
    }
}

impl Backoff for InSteps {
    fn next_delay(&mut self) -> Duration {
        let delay = BACKOFF[self.0.min(BACKOFF.len() - 1)];
        self.0 += 1;
        ms(delay)
    }

    fn spread(&mut self, delay: Duration) -> Duration {
        delay / SPREAD
    }
}

// === impl Recorded ===

impl Recorded {
    fn new(capacity: u32) -> Self {
        Self {
            bucket: TokenBudget::new(capacity, 0.3).unwrap(),
            asked: Mutex::default(),
        }
    }

    fn note(&self, asked: Asked) {
        self.asked.lock().unwrap().push(asked);
    }
}

impl Budget for Recorded {
    fn deposit(&self) {
        self.bucket.deposit();
        self.note(Asked::Deposit);
    }

    fn withdraw(&self) -> bool {
        let granted = self.bucket.withdraw();
        self.note(Asked::Withdraw(granted));
        granted
    }

    fn refund(&self) {
        self.bucket.refund();
        self.note(Asked::Refund);
    }

    fn failure(&self) {
        self.note(Asked::Failure);
    }
}

// === impl Upstream ===

impl Clone for Upstream {
    fn clone(&self) -> Self {
        Self {
            run: self.run.clone(),
            ready: None,
        }
    }
}

impl Service<Call> for Upstream {
    type Response = Answer;
    type Error = Answer;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Answer>>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Answer>> {
        let readiness = match self.run.sends().checked_sub(1) {
            None => self.run.request.first,
            Some(last) => self.run.request.step(last).ready,
        };
        if readiness.takes > 0 {
            let wait = || Box::pin(sleep(ms(readiness.takes)));
            ready!(self.ready.get_or_insert_with(wait).as_mut().poll(cx));
        }
        Poll::Ready(match readiness.fails {
            true => Err(Answer::not_ready()),
            false => Ok(()),
        })
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let number = self.run.sends();
        let step = self.run.request.step(number);
        let at = whole_ms(self.run.origin.elapsed());
        let mark = call.mark;
        self.run.sends.lock().unwrap().push(Sent { at, mark });
        self.ready = None;
        Box::pin(async move {
            if step.takes > 0 {
                sleep(ms(step.takes)).await;
            }
            step.outcome(number)
        })
    }
}

fn whole_ms(time: Duration) -> u64 {
    assert_eq!(time.subsec_nanos() % 1_000_000, 0, "{time:?}");
    u64::try_from(time.as_millis()).unwrap()
}

// === strategies ===

fn setup() -> impl Strategy<Value = Setup> {
    (
        0_u32..6,
        0_u32..8,
        prop::option::of(even(1_200)),
        prop_oneof![Just(0), even(200)],
        prop_oneof![Just(0), Just(320), Just(6_400)],
    )
        .prop_map(
            |(max_attempts, capacity, total_timeout, min_attempt_time, max_server_delay)| Setup {
                max_attempts,
                capacity,
                total_timeout,
                min_attempt_time,
                max_server_delay,
            },
        )
}

fn request() -> impl Strategy<Value = Request> {
    (
        readiness(),
        prop::collection::vec(step(), 0..6),
        prop::option::weighted(0.3, 0_u32..6),
        prop::option::weighted(0.3, even(1_200)),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.1),
        prop::option::weighted(0.3, even(1_200)),
    )
        .prop_map(
            |(first, steps, max_attempts, deadline, no_retry, nested, dropped)| Request {
                first,
                steps,
                max_attempts,
                deadline,
                no_retry,
                nested,
                dropped: dropped.map(|time| time + 1),
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    let verdict = prop_oneof![
        2 => Just(Verdict::Success),
        6 => Just(Verdict::Retry),
        3 => hint().prop_map(Verdict::RetryAfter),
        3 => hint().prop_map(Verdict::Pushback),
        3 => Just(Verdict::Unprocessed),
        1 => Just(Verdict::ServerRefused),
        1 => Just(Verdict::Stop),
    ];
    (
        prop::bool::weighted(0.95),
        prop::bool::weighted(0.95),
        prop_oneof![Just(0), even(200)],
        any::<bool>(),
        verdict,
        readiness(),
    )
        .prop_map(|(copy, replays, takes, ok, verdict, ready)| Step {
            copy,
            replays,
            takes,
            ok,
            verdict,
            ready,
        })
}

fn readiness() -> impl Strategy<Value = Readiness> {
    (
        prop_oneof![4 => Just(0), 1 => even(200)],
        prop::bool::weighted(0.03),
    )
        .prop_map(|(takes, fails)| Readiness { takes, fails })
}

/// A share of it is a whole, even number of milliseconds.
fn hint() -> impl Strategy<Value = Duration> {
    (0_u64..20).prop_map(|n| ms(n * 32))
}

fn even(below: u64) -> impl Strategy<Value = u64> {
    (0..below / 2).prop_map(|n| n * 2)
}
