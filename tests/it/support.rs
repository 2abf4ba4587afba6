//! What the tests share: known random numbers, a scripted service, a recording observer.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Instant;
use tower::Service;
use tower_retry_layer::{
    backoff::{Rng, Schedule},
    budget::Budget,
    observe::{DelaySource, Finished, Observe, Retrying, StopReason},
};

/// The largest number below 1.
pub(crate) const JUST_BELOW_ONE: f64 = 1.0 - f64::EPSILON / 2.0;

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A backoff without jitter: these milliseconds one after another.
pub(crate) fn delays(millis: &[u64]) -> Schedule {
    Schedule::new(millis.iter().copied().map(Duration::from_millis)).unwrap()
}

/// A generator that always gives the same number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed(pub(crate) f64);

impl Rng for Fixed {
    fn next_u64(&mut self) -> u64 {
        unreachable!("only `next_f64` is asked")
    }

    fn next_f64(&mut self) -> f64 {
        self.0
    }
}

/// A service that answers as scripted, and checks the rules that every caller must keep.
pub(crate) struct Scripted<Req, Res, E> {
    shared: Arc<Shared<Req, Res, E>>,
    ready: bool,
}

/// What an attempt takes, and what it comes to.
type Answer<Res, E> = (Duration, Result<Res, E>);

type Script<Req, Res, E> = Box<dyn FnMut(u32, &Req) -> Answer<Res, E> + Send>;

struct Shared<Req, Res, E> {
    answers: Mutex<Script<Req, Res, E>>,
    readiness: Mutex<VecDeque<Poll<Result<(), E>>>>,
    calls: Mutex<Vec<(Instant, Req)>>,
    clones: AtomicU32,
    in_flight: AtomicU32,
}

impl<Req: Clone, Res, E> Scripted<Req, Res, E> {
    /// `answer` gets the number of the call, from 1, and the request.
    pub(crate) fn new(
        mut answer: impl FnMut(u32, &Req) -> Result<Res, E> + Send + 'static,
    ) -> Self {
        Self::timed(move |call, request| (Duration::ZERO, answer(call, request)))
    }

    pub(crate) fn timed(answer: impl FnMut(u32, &Req) -> Answer<Res, E> + Send + 'static) -> Self {
        let shared = Arc::new(Shared {
            answers: Mutex::new(Box::new(answer)),
            readiness: Mutex::default(),
            calls: Mutex::default(),
            clones: AtomicU32::new(0),
            in_flight: AtomicU32::new(0),
        });
        Self {
            shared,
            ready: false,
        }
    }

    /// What `poll_ready` gives next; afterwards it is always ready.
    pub(crate) fn readiness(self, script: impl IntoIterator<Item = Poll<Result<(), E>>>) -> Self {
        self.shared.readiness.lock().unwrap().extend(script);
        self
    }

    /// Another handle to look at the counts with; it is not counted as a clone.
    pub(crate) fn handle(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            ready: false,
        }
    }

    pub(crate) fn calls(&self) -> usize {
        self.shared.calls.lock().unwrap().len()
    }

    pub(crate) fn requests(&self) -> Vec<Req> {
        self.shared
            .calls
            .lock()
            .unwrap()
            .iter()
            .map(|(_, request)| request.clone())
            .collect()
    }

    /// When each call came, since `start`.
    pub(crate) fn times(&self, start: Instant) -> Vec<Duration> {
        self.shared
            .calls
            .lock()
            .unwrap()
            .iter()
            .map(|(at, _)| *at - start)
            .collect()
    }

    pub(crate) fn clones(&self) -> u32 {
        self.shared.clones.load(Ordering::Relaxed)
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.shared.in_flight.load(Ordering::Relaxed)
    }
}

impl<Req, Res, E> Clone for Scripted<Req, Res, E> {
    fn clone(&self) -> Self {
        self.shared.clones.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: self.shared.clone(),
            ready: false,
        }
    }
}

impl<Req: Clone, Res, E> Service<Req> for Scripted<Req, Res, E> {
    type Response = Res;
    type Error = E;
    type Future = Reply<Req, Res, E>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), E>> {
        let scripted = self.shared.readiness.lock().unwrap().pop_front();
        let ready = scripted.unwrap_or(Poll::Ready(Ok(())));
        if ready.is_pending() {
            cx.waker().wake_by_ref();
        }
        self.ready = matches!(ready, Poll::Ready(Ok(())));
        ready
    }

    fn call(&mut self, request: Req) -> Self::Future {
        assert!(
            self.ready,
            "called a handle that was not ready (invariant 2)"
        );
        self.ready = false;
        let calls = {
            let mut calls = self.shared.calls.lock().unwrap();
            calls.push((Instant::now(), request.clone()));
            calls.len() as u32
        };
        let (delay, result) = self.shared.answers.lock().unwrap()(calls, &request);
        self.shared.in_flight.fetch_add(1, Ordering::Relaxed);
        let sleep = (!delay.is_zero()).then(|| Box::pin(tokio::time::sleep(delay)));
        Reply {
            shared: self.shared.clone(),
            sleep,
            result: Some(result),
        }
    }
}

/// An attempt in flight.
pub(crate) struct Reply<Req, Res, E> {
    shared: Arc<Shared<Req, Res, E>>,
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
    result: Option<Result<Res, E>>,
}

impl<Req, Res, E> Unpin for Reply<Req, Res, E> {}

impl<Req, Res, E> Future for Reply<Req, Res, E> {
    type Output = Result<Res, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(sleep) = &mut self.sleep {
            std::task::ready!(sleep.as_mut().poll(cx));
        }
        Poll::Ready(self.result.take().expect("polled after completion"))
    }
}

impl<Req, Res, E> Drop for Reply<Req, Res, E> {
    fn drop(&mut self) {
        self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps the events it is told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events(Arc<Mutex<Vec<Event>>>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    Retrying {
        attempt: u32,
        delay: Duration,
        source: DelaySource,
        elapsed: Duration,
    },
    Finished {
        attempts: u32,
        transparent: u32,
        total_delay: Duration,
        elapsed: Duration,
        reason: StopReason,
    },
}

impl Events {
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// The reasons of all the ends that were told.
    pub(crate) fn reasons(&self) -> Vec<StopReason> {
        self.0
            .lock()
            .unwrap()
            .iter()
            .filter_map(|event| match event {
                Event::Finished { reason, .. } => Some(*reason),
                Event::Retrying { .. } => None,
            })
            .collect()
    }
}

impl Observe for Events {
    fn retrying(&self, event: &Retrying<'_>) {
        let Retrying {
            attempt,
            delay,
            source,
            elapsed,
            ..
        } = *event;
        self.0.lock().unwrap().push(Event::Retrying {
            attempt,
            delay,
            source,
            elapsed,
        });
    }

    fn finished(&self, event: &Finished<'_>) {
        let Finished {
            attempts,
            transparent,
            total_delay,
            elapsed,
            reason,
            ..
        } = *event;
        self.0.lock().unwrap().push(Event::Finished {
            attempts,
            transparent,
            total_delay,
            elapsed,
            reason,
        });
    }
}

/// A budget that counts what it is asked, and lends `left` retries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<Counts>>);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) left: u32,
    pub(crate) deposits: u32,
    pub(crate) granted: u32,
    pub(crate) refused: u32,
    pub(crate) refunds: u32,
    pub(crate) failures: u32,
}

impl Ledger {
    pub(crate) fn new(left: u32) -> Self {
        Self(Arc::new(Mutex::new(Counts {
            left,
            ..Counts::default()
        })))
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.0.lock().unwrap()
    }
}

impl Budget for Ledger {
    fn deposit(&self) {
        self.0.lock().unwrap().deposits += 1;
    }

    fn withdraw(&self) -> bool {
        let mut counts = self.0.lock().unwrap();
        let granted = counts.left > 0;
        if granted {
            counts.left -= 1;
            counts.granted += 1;
        } else {
            counts.refused += 1;
        }
        granted
    }

    fn refund(&self) {
        let mut counts = self.0.lock().unwrap();
        counts.left += 1;
        counts.refunds += 1;
    }

    fn failure(&self) {
        self.0.lock().unwrap().failures += 1;
    }
}
