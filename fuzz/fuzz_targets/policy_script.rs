//! Any settings of a `StandardPolicy` and any outcomes: it keeps its limits and its accounts.

#![no_main]

use std::{
    cell::RefCell,
    sync::{Arc, Mutex},
    time::Duration,
};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};
use tower_retry_layer::{
    Attempt, End, Limits, Policy, Protocol, StandardPolicy, Verdict,
    backoff::{ExponentialBackoffMaker, Jitter, Seeds},
    budget::Budget,
    observe::{DelaySource, Finished, Observe, Retrying, StopReason},
};

#[derive(Arbitrary, Debug)]
struct Input {
    max_attempts: u32,
    total_timeout: Option<Duration>,
    min_attempt_time: Duration,
    max_server_delay: Duration,
    min: Duration,
    max: Duration,
    factor: f64,
    jitter: (u8, f64),
    seed: u64,
    budget: u8,
    own_attempts: Option<u32>,
    no_retry: bool,
    nested: bool,
    sends: Vec<Send>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Send {
    verdict: Outcome,
    copy: bool,
    replays: bool,
    ready: bool,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Outcome {
    Success,
    Retry,
    RetryAfter(Duration),
    Pushback(Duration),
    Unprocessed,
    ServerRefused,
    Stop,
}

/// Budget and observer: all that is asked and told.
#[derive(Debug, Default)]
struct Books(Mutex<Accounts>);

#[derive(Clone, Debug, Default)]
struct Accounts {
    left: u32,
    granted: u32,
    refunds: u32,
    deposits: u32,
    retrying: Vec<(Duration, DelaySource)>,
    finished: Vec<(u32, u32, StopReason)>,
}

struct Script {
    sends: Vec<Send>,
    limits: Limits,
}

/// The number of the send.
type Request = usize;

thread_local! {
    static RUNTIME: RefCell<Runtime> =
        RefCell::new(Builder::new_current_thread().enable_time().build().unwrap());
}

fuzz_target!(|input: Input| RUNTIME.with_borrow(|runtime| {
    let _entered = runtime.enter();
    run(input);
}));

fn run(input: Input) {
    let jitter = match input.jitter.0 % 7 {
        0 => Jitter::None,
        1 => Jitter::Full,
        2 => Jitter::Equal,
        3 => Jitter::Decorrelated,
        4 => Jitter::FromMin,
        5 => Jitter::Additive(input.jitter.1),
        _ => Jitter::Proportional(input.jitter.1),
    };
    let seeds = Seeds::from_seed(input.seed);
    let backoff = ExponentialBackoffMaker::new(input.min, input.max, jitter, seeds)
        .and_then(|maker| maker.with_factor(input.factor));
    let Ok(backoff) = backoff else { return };
    if input.sends.is_empty() {
        return;
    }
    let books = Arc::new(Books::default());
    books.0.lock().unwrap().left = input.budget.into();
    let mut limits = Limits::default();
    limits.max_attempts = input.own_attempts;
    limits.no_retry = input.no_retry;
    limits.nested = input.nested;
    let policy = StandardPolicy::new(Script {
        sends: input.sends.clone(),
        limits,
    })
    .max_attempts(input.max_attempts)
    .backoff(backoff)
    .min_attempt_time(input.min_attempt_time)
    .max_server_delay(input.max_server_delay)
    .shared_budget(books.clone())
    .observe(books.clone());
    let policy = match input.total_timeout {
        Some(timeout) => policy.total_timeout(timeout),
        None => policy,
    };
    let sent = send(policy.clone(), &input.sends);

    let books = books.0.lock().unwrap().clone();
    let &[(attempts, transparent, reason)] = &books.finished[..] else {
        panic!("told {} ends", books.finished.len());
    };
    let most = input.own_attempts.unwrap_or(input.max_attempts).max(1);
    assert!(attempts <= most && transparent <= 1);
    assert_eq!(attempts + transparent, sent);
    assert_eq!(books.granted, attempts - 1 + books.refunds);
    assert_eq!(
        books.left,
        u32::from(input.budget) - books.granted + books.refunds
    );
    let success = reason == StopReason::Success && !input.nested;
    assert_eq!(books.deposits, u32::from(success));
    let last = input.sends[sent as usize - 1].verdict;
    if matches!(reason, StopReason::Success) {
        assert!(matches!(last, Outcome::Success));
    }
    for (delay, source) in books.retrying {
        let cap = input.max_server_delay;
        assert!(match source {
            DelaySource::Backoff => !delay.is_zero() && delay <= input.max,
            DelaySource::Server { .. } => delay <= cap.saturating_add(cap / 10),
            DelaySource::Transparent => delay.is_zero(),
            _ => false,
        });
    }
}

/// Does what the state machine does, without the waits; sends that are not in the script are not
/// sent, as if the caller went away. Tells how often it sent.
fn send<P: Policy<Request, Verdict, Verdict>>(mut policy: P, sends: &[Send]) -> u32 {
    let mut sent = 0;
    while let Some(script) = sends.get(sent as usize) {
        let mut request = sent as usize;
        policy.prepare(&mut request);
        let copy = policy.clone_request(&request);
        sent += 1;
        let verdict = verdict(script.verdict);
        let mut outcome = if sent % 2 == 0 {
            Ok(verdict)
        } else {
            Err(verdict)
        };
        let Some(mut copy) = copy else {
            policy.end(&mut outcome, End::NoCopy);
            break;
        };
        if policy.retry(&mut copy, &mut outcome).is_none() {
            break;
        }
        if !script.ready {
            policy.end(&mut Err(Verdict::Stop), End::NotReady);
            break;
        }
    }
    sent
}

fn verdict(outcome: Outcome) -> Verdict {
    match outcome {
        Outcome::Success => Verdict::Success,
        Outcome::Retry => Verdict::Retry,
        Outcome::RetryAfter(hint) => Verdict::RetryAfter(hint),
        Outcome::Pushback(hint) => Verdict::Pushback(hint),
        Outcome::Unprocessed => Verdict::Unprocessed,
        Outcome::ServerRefused => Verdict::ServerRefused,
        Outcome::Stop => Verdict::Stop,
    }
}

impl Protocol<Request, Verdict, Verdict> for Script {
    fn classify(&self, attempt: &Attempt<'_, Request, Verdict, Verdict>) -> Verdict {
        let (Ok(verdict) | Err(verdict)) = attempt.outcome();
        *verdict
    }

    fn clone_request(&self, request: &Request) -> Option<Request> {
        self.sends[*request].copy.then_some(*request)
    }

    fn can_replay(&self, copy: &Request) -> bool {
        self.sends[*copy].replays
    }

    fn limits(&self, _: &Request) -> Limits {
        self.limits
    }
}

impl Budget for Books {
    fn deposit(&self) {
        self.0.lock().unwrap().deposits += 1;
    }

    fn withdraw(&self) -> bool {
        let mut books = self.0.lock().unwrap();
        let granted = books.left > 0;
        books.left -= u32::from(granted);
        books.granted += u32::from(granted);
        granted
    }

    fn refund(&self) {
        let mut books = self.0.lock().unwrap();
        books.left += 1;
        books.refunds += 1;
    }
}

impl Observe for Books {
    fn retrying(&self, event: &Retrying<'_>) {
        let mut books = self.0.lock().unwrap();
        books.retrying.push((event.delay, event.source));
    }

    fn finished(&self, event: &Finished<'_>) {
        let mut books = self.0.lock().unwrap();
        books
            .finished
            .push((event.attempts, event.transparent, event.reason));
    }
}
