//! The state machine against a reference: random services, policies, interleavings and drops.
//!
//! Everything that the machine touches writes into a log; the reference says what must stand there,
//! word for word. The invariants of DESIGN.md that such a log can break are read out of it once
//! more, apart from the reference.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use proptest::prelude::*;
use tower::Service;
use tower_retry_layer::{End, Policy, Retry, future::ResponseFuture};

/// Retries that one poll may send (invariant 8).
const RETRIES_PER_POLL: u32 = 128;

/// The number of the error of a service that does not become ready.
const NOT_READY: u32 = u32::MAX;

/// What a policy adds to each request when it prepares it.
const MARK: u32 = 1_000;

/// One request, and all that will happen to it.
#[derive(Clone, Debug)]
struct Script {
    /// The service's first readiness, before there is a session.
    first: Readiness,
    /// The attempts; what comes after the last of them is sent without a copy and succeeds.
    attempts: Vec<Attempt>,
    /// Dropped after so many polls of the future.
    dropped: Option<u8>,
}

#[derive(Clone, Debug)]
struct Attempt {
    copy: bool,
    pending: u8,
    ok: bool,
    /// What the policy makes of the outcome and, where it retries, of the request.
    change: Change,
    add: u32,
    /// How often the delay is pending. `None`: no retry.
    delay: Option<u8>,
    ready: Readiness,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Nothing,
    Flip,
    Replace,
}

#[derive(Clone, Copy, Debug)]
struct Readiness {
    pending: u8,
    fails: bool,
}

/// What a log is made of. An outcome is told by whether it is `Ok` and by its number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Ready { handle: u32, ready: Poll<bool> },
    Prepare(u32),
    Copy { value: u32, kept: bool },
    Call { handle: u32, value: u32 },
    CloneService,
    PollAttempt,
    DropAttempt,
    Retry { value: u32, outcome: (bool, u32) },
    End { outcome: (bool, u32), why: End },
    DropOutcome(u32),
    PollDelay,
    DropDelay,
    Suspended,
    Returned((bool, u32)),
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn sessions_do_what_the_reference_says(
        scripts in prop::collection::vec(script(), 1..4),
        schedule in prop::collection::vec(0_usize..4, 0..40),
    ) {
        check(&scripts, &schedule)?;
    }

    // Invariant 8: for hundreds of retries nothing is pending, so only the machine itself can yield.
    #[test]
    fn hundreds_of_retries_at_once_do_what_the_reference_says(
        at_once in 0_usize..600,
        mut script in script(),
    ) {
        script.attempts.splice(0..0, vec![Attempt::at_once(); at_once]);
        check(&[script], &[])?;
    }
}

/// Runs the scripts side by side on one service, polled in the order of the schedule and then in
/// turn, and compares.
fn check(scripts: &[Script], schedule: &[usize]) -> Result<(), TestCaseError> {
    let logs = run(scripts, schedule)?;
    for (script, log) in scripts.iter().zip(&logs) {
        let mut expected = reference(script);
        cut(&mut expected, script.dropped);
        prop_assert_eq!(log, &expected);
        read_invariants(log)?;
    }
    Ok(())
}

/// What must be in the log of a session that nobody drops.
fn reference(script: &Script) -> Vec<Event> {
    let mut log = Reference::default();
    if !log.ready(0, script.first) {
        return log.events;
    }
    let mut value = 0;
    for number in 0.. {
        let last = Attempt::last();
        let attempt = script.attempts.get(number as usize).unwrap_or(&last);
        let kept = attempt.copy;
        value += MARK;
        log.push(Event::Prepare(value));
        log.push(Event::Copy { value, kept });
        let handle = number.min(1);
        log.push(Event::Call { handle, value });
        if number == 0 && kept {
            log.push(Event::CloneService);
        }
        log.poll(Event::PollAttempt, attempt.pending);
        log.push(Event::DropAttempt);
        let outcome = (attempt.ok, number * 2);
        if !kept {
            let why = End::NoCopy;
            log.push(Event::End { outcome, why });
            log.push(Event::Returned(outcome));
            break;
        }
        log.push(Event::Retry { value, outcome });
        let outcome = match attempt.change {
            Change::Nothing => outcome,
            Change::Flip => (!attempt.ok, number * 2),
            Change::Replace => {
                log.push(Event::DropOutcome(number * 2));
                (attempt.ok, number * 2 + 1)
            }
        };
        let Some(delay) = attempt.delay else {
            log.push(Event::Returned(outcome));
            break;
        };
        value += attempt.add;
        log.push(Event::DropOutcome(outcome.1));
        if log.sent == RETRIES_PER_POLL {
            log.suspend();
        }
        log.poll(Event::PollDelay, delay);
        log.push(Event::DropDelay);
        if !log.ready(1, attempt.ready) {
            let outcome = (false, NOT_READY);
            let why = End::NotReady;
            log.push(Event::End { outcome, why });
            log.push(Event::Returned(outcome));
            break;
        }
        log.sent += 1;
    }
    log.events
}

/// Ends a log after so many polls of the future, where it is that long.
fn cut(log: &mut Vec<Event>, dropped: Option<u8>) {
    let Some(polls) = dropped else { return };
    let called = log.iter().position(|e| matches!(e, Event::Call { .. }));
    let Some(called) = called else { return };
    // Before its first poll a future has sent the first attempt all the same.
    let begun = called + 1 + usize::from(log.get(called + 1) == Some(&Event::CloneService));
    let ends = log.iter().enumerate().skip(begun);
    let mut ends = ends.filter(|(_, e)| matches!(e, Event::Suspended));
    match polls.checked_sub(1) {
        None => log.truncate(begun),
        Some(nth) => {
            if let Some((end, _)) = ends.nth(nth.into()) {
                log.truncate(end + 1);
            }
        }
    }
}

/// The invariants, read out of a log without the reference.
fn read_invariants(log: &[Event]) -> Result<(), TestCaseError> {
    let mut ready = BTreeSet::new();
    let (mut in_flight, mut kept, mut rejected) = (false, false, false);
    let (mut calls, mut sent) = (0, 0);
    for (at, event) in log.iter().enumerate() {
        match event {
            Event::Ready { handle, ready: r } => {
                ready.remove(handle);
                if *r == Poll::Ready(true) {
                    ready.insert(*handle);
                }
            }
            Event::Copy { kept: k, .. } => kept = *k,
            Event::Call { handle, .. } => {
                prop_assert!(!in_flight, "invariant 1");
                prop_assert!(ready.remove(handle), "invariant 2");
                in_flight = true;
                calls += 1;
                sent += u32::from(calls > 1);
                prop_assert!(sent <= RETRIES_PER_POLL, "invariant 8");
            }
            Event::DropAttempt => in_flight = false,
            Event::Retry { .. } => {
                prop_assert!(kept, "invariant 3");
                rejected = true;
            }
            Event::End { why, .. } => prop_assert_eq!(*why == End::NoCopy, !kept, "invariant 3"),
            Event::DropOutcome(_) => {
                let next = log.get(at + 1);
                rejected = matches!(next, Some(Event::DropOutcome(_) | Event::Returned(_)));
            }
            Event::PollDelay => {
                prop_assert!(!rejected, "invariant 5");
                prop_assert!(!in_flight, "invariant 1");
            }
            Event::Suspended => sent = 0,
            Event::Returned((_, number)) => {
                let own = *number == NOT_READY || number / 2 + 1 == calls;
                prop_assert!(own, "invariant 4");
            }
            _ => {}
        }
    }
    Ok(())
}

fn run(scripts: &[Script], schedule: &[usize]) -> Result<Vec<Vec<Event>>, TestCaseError> {
    let world = World::new(scripts);
    let mut service = Retry::new(Scripted::prototype(&world), Handle::callers(&world));
    let mut sessions = Vec::new();
    for (number, script) in scripts.iter().enumerate() {
        sessions.push(Running::begin(number, script, &world, &mut service)?);
    }
    let turns = (0..scripts.len()).cycle();
    for number in schedule.iter().copied().chain(turns) {
        if let Some(session) = sessions.get_mut(number) {
            session.step(&world)?;
        }
        if sessions.iter().all(|session| session.future.is_none()) {
            break;
        }
    }
    // Invariant 9: all those clones, and the prototype is as it was.
    prop_assert_eq!(service.policy().calls, 0);
    drop(service);
    let world = Rc::into_inner(world.0).expect("nothing that holds it is alive (invariant 7)");
    Ok(world.into_inner().logs)
}

/// A session, polled by hand.
struct Running {
    number: usize,
    left: Option<u8>,
    future: Option<Pin<Box<ResponseFuture<Scripted, Handle, Request>>>>,
    woken: Arc<Woken>,
}

impl Running {
    fn begin(
        number: usize,
        script: &Script,
        world: &World,
        service: &mut Retry<Scripted, Handle>,
    ) -> Result<Self, TestCaseError> {
        world.enter(number);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let ready = loop {
            match service.poll_ready(&mut cx) {
                Poll::Pending => world.note(Event::Suspended),
                Poll::Ready(ready) => break ready,
            }
        };
        let request = Request {
            value: 0,
            _life: None,
        };
        let future = match ready {
            Ok(()) => Some(Box::pin(service.call(request))),
            Err(error) => {
                prop_assert_eq!(error.number, NOT_READY);
                world.silently(|| drop(error));
                None
            }
        };
        let mut session = Self {
            number,
            left: script.dropped,
            future,
            woken,
        };
        if session.left == Some(0) {
            session.drop(world)?;
        }
        Ok(session)
    }

    fn step(&mut self, world: &World) -> Result<(), TestCaseError> {
        let Some(future) = &mut self.future else {
            return Ok(());
        };
        world.enter(self.number);
        let waker = Waker::from(self.woken.clone());
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => {
                world.note(Event::Suspended);
                let woken = self.woken.0.swap(false, Ordering::Relaxed);
                prop_assert!(woken, "nobody would poll it again");
                self.left = self.left.map(|left| left - 1);
                if self.left == Some(0) {
                    self.drop(world)?;
                }
            }
            Poll::Ready(result) => {
                world.note(Event::Returned(told(&result)));
                world.silently(|| drop(result));
                // A copy that outlived the answer would keep what it recorded.
                prop_assert_eq!(world.alive(), [Kind::Policy]);
                self.drop(world)?;
            }
        }
        Ok(())
    }

    /// Invariant 7: what the session had is gone with it.
    fn drop(&mut self, world: &World) -> Result<(), TestCaseError> {
        world.enter(self.number);
        // In which order is nobody's business.
        world.silently(|| self.future = None);
        prop_assert_eq!(world.alive(), []);
        Ok(())
    }
}

/// What the service, the policy and the rest of one run share.
#[derive(Clone, Debug)]
struct World(Rc<RefCell<Shared>>);

#[derive(Debug)]
struct Shared {
    scripts: Vec<Script>,
    logs: Vec<Vec<Event>>,
    alive: Vec<Vec<Kind>>,
    calls: Vec<usize>,
    /// The session that runs.
    current: usize,
    silent: bool,
}

/// What a session holds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Policy,
    Copy,
    Handle,
    Attempt,
    Delay,
}

/// The life of something that a session holds.
#[derive(Debug)]
struct Life {
    world: World,
    kind: Kind,
}

/// A policy that does as its session's script says.
#[derive(Debug)]
struct Scripted {
    world: World,
    attempt: Option<usize>,
    /// How often anything was asked of it.
    calls: u32,
    /// `None` in the prototype.
    _life: Option<Life>,
}

#[derive(Debug)]
struct Request {
    value: u32,
    /// `Some` in a copy.
    _life: Option<Life>,
}

/// What an attempt came to; its drop is noted.
#[derive(Debug)]
struct Token {
    world: World,
    number: u32,
}

type Outcome = Result<Token, Token>;

/// A handle of the service: 0 is the caller's, 1 a session's own.
#[derive(Debug)]
struct Handle {
    world: World,
    number: u32,
    polls: u8,
    /// `None` in the caller's.
    _life: Option<Life>,
}

/// Pending so many times; an attempt then comes to an outcome.
#[derive(Debug)]
struct Pending {
    left: u8,
    attempt: usize,
    life: Life,
}

#[derive(Debug)]
struct InFlight(Pending);

#[derive(Debug, Default)]
struct Woken(AtomicBool);

#[derive(Debug, Default)]
struct Reference {
    events: Vec<Event>,
    /// Retries sent since the last suspension.
    sent: u32,
}

// === impl Reference ===

impl Reference {
    fn push(&mut self, event: Event) {
        self.events.push(event);
    }

    fn suspend(&mut self) {
        self.push(Event::Suspended);
        self.sent = 0;
    }

    fn poll(&mut self, event: Event, pending: u8) {
        for _ in 0..pending {
            self.push(event);
            self.suspend();
        }
        self.push(event);
    }

    fn ready(&mut self, handle: u32, script: Readiness) -> bool {
        let ready = Poll::Pending;
        for _ in 0..script.pending {
            self.push(Event::Ready { handle, ready });
            self.suspend();
        }
        let ready = Poll::Ready(!script.fails);
        self.push(Event::Ready { handle, ready });
        !script.fails
    }
}

// === impl Attempt ===

impl Attempt {
    fn last() -> Self {
        Self {
            copy: false,
            ..Self::at_once()
        }
    }

    fn at_once() -> Self {
        Self {
            copy: true,
            pending: 0,
            ok: true,
            change: Change::Nothing,
            add: 1,
            delay: Some(0),
            ready: Readiness {
                pending: 0,
                fails: false,
            },
        }
    }
}

// === impl World ===

impl World {
    fn new(scripts: &[Script]) -> Self {
        Self(Rc::new(RefCell::new(Shared {
            scripts: scripts.to_vec(),
            logs: vec![Vec::new(); scripts.len()],
            alive: vec![Vec::new(); scripts.len()],
            calls: vec![0; scripts.len()],
            current: 0,
            silent: false,
        })))
    }

    fn enter(&self, session: usize) {
        self.0.borrow_mut().current = session;
    }

    fn note(&self, event: Event) {
        let mut shared = self.0.borrow_mut();
        let current = shared.current;
        if !shared.silent {
            shared.logs[current].push(event);
        }
    }

    fn silently(&self, work: impl FnOnce()) {
        self.0.borrow_mut().silent = true;
        work();
        self.0.borrow_mut().silent = false;
    }

    fn alive(&self) -> Vec<Kind> {
        let shared = self.0.borrow();
        shared.alive[shared.current].clone()
    }

    fn live(&self, kind: Kind) -> Life {
        let mut shared = self.0.borrow_mut();
        let current = shared.current;
        shared.alive[current].push(kind);
        Life {
            world: self.clone(),
            kind,
        }
    }

    fn attempt(&self, number: usize) -> Attempt {
        let shared = self.0.borrow();
        let attempts = &shared.scripts[shared.current].attempts;
        attempts.get(number).cloned().unwrap_or_else(Attempt::last)
    }

    fn token(&self, number: u32) -> Token {
        Token {
            world: self.clone(),
            number,
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let mut shared = self.world.0.borrow_mut();
        let current = shared.current;
        let alive = &mut shared.alive[current];
        let at = alive.iter().position(|kind| *kind == self.kind);
        alive.swap_remove(at.expect("it was alive"));
        drop(shared);
        match self.kind {
            Kind::Attempt => self.world.note(Event::DropAttempt),
            Kind::Delay => self.world.note(Event::DropDelay),
            _ => {}
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.world.note(Event::DropOutcome(self.number));
    }
}

fn told(outcome: &Outcome) -> (bool, u32) {
    match outcome {
        Ok(token) => (true, token.number),
        Err(token) => (false, token.number),
    }
}

// === impl Scripted ===

impl Scripted {
    fn prototype(world: &World) -> Self {
        Self {
            world: world.clone(),
            attempt: None,
            calls: 0,
            _life: None,
        }
    }

    fn script(&mut self) -> Attempt {
        self.calls += 1;
        let number = self.attempt.expect("a request is prepared first");
        self.world.attempt(number)
    }
}

impl Clone for Scripted {
    fn clone(&self) -> Self {
        Self {
            world: self.world.clone(),
            attempt: self.attempt,
            calls: self.calls,
            _life: Some(self.world.live(Kind::Policy)),
        }
    }
}

impl Policy<Request, Token, Token> for Scripted {
    type Future = Pending;

    fn retry(&mut self, request: &mut Request, result: &mut Outcome) -> Option<Pending> {
        let script = self.script();
        let (value, outcome) = (request.value, told(result));
        self.world.note(Event::Retry { value, outcome });
        match script.change {
            Change::Nothing => {}
            Change::Flip => {
                let old = std::mem::replace(result, Ok(self.world.token(0)));
                let flipped = old.map_or_else(Ok, Err);
                self.world.silently(|| *result = flipped);
            }
            Change::Replace => {
                let token = self.world.token(outcome.1 + 1);
                *result = if outcome.0 { Ok(token) } else { Err(token) };
            }
        }
        request.value += script.add;
        Some(Pending {
            left: script.delay?,
            attempt: 0,
            life: self.world.live(Kind::Delay),
        })
    }

    fn clone_request(&mut self, request: &Request) -> Option<Request> {
        let kept = self.script().copy;
        let value = request.value;
        self.world.note(Event::Copy { value, kept });
        kept.then(|| Request {
            value,
            _life: Some(self.world.live(Kind::Copy)),
        })
    }

    fn prepare(&mut self, request: &mut Request) {
        self.calls += 1;
        self.attempt = Some(self.attempt.map_or(0, |number| number + 1));
        request.value += MARK;
        self.world.note(Event::Prepare(request.value));
    }

    fn end(&mut self, result: &mut Outcome, why: End) {
        self.calls += 1;
        let outcome = told(result);
        self.world.note(Event::End { outcome, why });
    }
}

// === impl Handle ===

impl Handle {
    fn callers(world: &World) -> Self {
        Self {
            world: world.clone(),
            number: 0,
            polls: 0,
            _life: None,
        }
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        self.world.note(Event::CloneService);
        Self {
            world: self.world.clone(),
            number: self.number + 1,
            polls: 0,
            _life: Some(self.world.live(Kind::Handle)),
        }
    }
}

impl Service<Request> for Handle {
    type Response = Token;
    type Error = Token;
    type Future = InFlight;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Token>> {
        let script = {
            let shared = self.world.0.borrow();
            let session = &shared.scripts[shared.current];
            match self.number {
                0 => session.first,
                _ => session.attempts[shared.calls[shared.current] - 1].ready,
            }
        };
        let handle = self.number;
        if self.polls < script.pending {
            self.polls += 1;
            cx.waker().wake_by_ref();
            let ready = Poll::Pending;
            self.world.note(Event::Ready { handle, ready });
            return Poll::Pending;
        }
        self.polls = 0;
        let ready = Poll::Ready(!script.fails);
        self.world.note(Event::Ready { handle, ready });
        Poll::Ready(match script.fails {
            false => Ok(()),
            true => Err(self.world.token(NOT_READY)),
        })
    }

    fn call(&mut self, request: Request) -> InFlight {
        let (handle, value) = (self.number, request.value);
        self.world.note(Event::Call { handle, value });
        let attempt = {
            let mut shared = self.world.0.borrow_mut();
            let current = shared.current;
            shared.calls[current] += 1;
            shared.calls[current] - 1
        };
        InFlight(Pending {
            left: self.world.attempt(attempt).pending,
            attempt,
            life: self.world.live(Kind::Attempt),
        })
    }
}

// === impl Pending, InFlight, Woken ===

impl Future for Pending {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.life.world.note(match self.life.kind {
            Kind::Attempt => Event::PollAttempt,
            _ => Event::PollDelay,
        });
        match self.left.checked_sub(1) {
            None => Poll::Ready(()),
            Some(left) => {
                self.left = left;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

impl Future for InFlight {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        std::task::ready!(Pin::new(&mut self.0).poll(cx));
        let (world, number) = (&self.0.life.world, self.0.attempt);
        let token = world.token(u32::try_from(number).unwrap() * 2);
        Poll::Ready(match world.attempt(number).ok {
            true => Ok(token),
            false => Err(token),
        })
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// === strategies ===

fn script() -> impl Strategy<Value = Script> {
    (
        readiness(),
        prop::collection::vec(attempt(), 0..6),
        prop::option::of(0_u8..12),
    )
        .prop_map(|(first, attempts, dropped)| Script {
            first,
            attempts,
            dropped,
        })
}

fn attempt() -> impl Strategy<Value = Attempt> {
    (
        prop::bool::weighted(0.9),
        pending(),
        any::<bool>(),
        prop_oneof![
            Just(Change::Nothing),
            Just(Change::Flip),
            Just(Change::Replace)
        ],
        0_u32..3,
        prop::option::weighted(0.9, pending()),
        readiness(),
    )
        .prop_map(|(copy, pending, ok, change, add, delay, ready)| Attempt {
            copy,
            pending,
            ok,
            change,
            add,
            delay,
            ready,
        })
}

fn readiness() -> impl Strategy<Value = Readiness> {
    (pending(), prop::bool::weighted(0.05))
        .prop_map(|(pending, fails)| Readiness { pending, fails })
}

fn pending() -> impl Strategy<Value = u8> {
    prop_oneof![2 => Just(0_u8), 1 => 1_u8..4]
}
