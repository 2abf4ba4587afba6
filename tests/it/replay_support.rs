//! Scripted bodies, and attempts read by hand.

use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt,
    marker::PhantomPinned,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use http_body_util::StreamBody;
use tower_retry_layer::replay::{ReplayBody, ReplayError};

/// What a source does at one poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Data(Bytes),
    Trailers(Vec<(&'static str, &'static str)>),
    Fail,
    Panic,
}

/// A body that follows a script. `Send`, and neither `Sync` nor `Unpin`.
pub(crate) struct Scripted {
    state: RefCell<State>,
    hint: SizeHint,
    /// Says with its last frame that nothing follows.
    aloud: bool,
    probe: Arc<Probe>,
    _pin: PhantomPinned,
}

struct State {
    steps: VecDeque<Step>,
    /// Frames to give after the first end, as a body must not.
    afterlife: VecDeque<Step>,
    halts: bool,
    halted: bool,
}

/// What a source went through.
#[derive(Default)]
pub(crate) struct Probe {
    polls: AtomicUsize,
    dropped: AtomicBool,
}

/// The error of a scripted body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// What an attempt was given.
#[derive(Debug, Default)]
pub(crate) struct Played {
    pub(crate) steps: Vec<Step>,
    /// `size_hint` and `is_end_stream` before the first frame and after each.
    pub(crate) answers: Vec<(u64, Option<u64>, bool)>,
    pub(crate) error: Option<ReplayError>,
}

/// A waker that remembers.
#[derive(Default)]
pub(crate) struct Flag(AtomicBool);

pub(crate) fn data(bytes: impl Into<Bytes>) -> Step {
    Step::Data(bytes.into())
}

pub(crate) fn trailers() -> Step {
    Step::Trailers(vec![("x-checksum", "42"), ("x-checksum", "43")])
}

/// The same script, halting before every step.
pub(crate) fn halting(steps: &[Step]) -> Scripted {
    let body = Scripted::new(steps);
    body.state.borrow_mut().halts = true;
    body
}

/// A body of `frames` digits, 100 ms each, the count of those that were read, and a failure in
/// place of one of them.
pub(crate) fn slow(
    frames: usize,
    fails: usize,
) -> (
    Arc<AtomicUsize>,
    impl Body<Data = Bytes, Error = Broken> + Send + 'static,
) {
    let read = Arc::new(AtomicUsize::new(0));
    let count = read.clone();
    let body = futures_util::stream::unfold(0, move |at| {
        let count = count.clone();
        async move {
            if at == frames {
                return None;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            count.fetch_add(1, Ordering::Relaxed);
            let frame = Frame::data(Bytes::from(at.to_string()));
            Some((if at == fails { Err(Broken) } else { Ok(frame) }, at + 1))
        }
    });
    (read, StreamBody::new(body))
}

/// Polls once. `Pending` is `None`.
pub(crate) fn poll<B>(body: &mut B, waker: &Waker) -> Option<Option<Result<Frame<Bytes>, B::Error>>>
where
    B: Body<Data = Bytes> + Unpin,
{
    match Pin::new(body).poll_frame(&mut Context::from_waker(waker)) {
        Poll::Ready(item) => Some(item),
        Poll::Pending => None,
    }
}

/// Reads up to `frames` frames, or to the end, or to an error. Panics where a body that returned
/// `Pending` did not wake its reader.
pub(crate) fn read<B: Body>(body: &mut ReplayBody<B>, frames: usize) -> Played
where
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(flag.clone());
    let mut played = Played::default();
    played.answers.push(answers(body));
    while played.steps.len() < frames {
        match poll(body, &waker) {
            None => assert!(flag.take(), "a reader was left asleep"),
            Some(None) => break,
            Some(Some(Ok(frame))) => {
                played.steps.push(step(frame));
                played.answers.push(answers(body));
            }
            Some(Some(Err(error))) => {
                played.error = Some(error);
                break;
            }
        }
    }
    played
}

/// Reads everything.
pub(crate) fn drain<B: Body>(mut body: ReplayBody<B>) -> Played
where
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    read(&mut body, usize::MAX)
}

/// Polls until something comes that is not `Pending`, `polls` times at most.
pub(crate) fn nudge<B: Body>(body: &mut ReplayBody<B>, polls: usize)
where
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    for _ in 0..polls {
        if poll(body, Waker::noop()).is_some() {
            return;
        }
    }
}

/// Frames that hold something, or the first one.
pub(crate) fn recorded(steps: &[Step]) -> Vec<Step> {
    let mut kept = Vec::new();
    for step in steps {
        match step {
            Step::Data(data) if data.is_empty() && !kept.is_empty() => {}
            step => kept.push(step.clone()),
        }
    }
    kept
}

fn step(frame: Frame<Bytes>) -> Step {
    match frame.into_data() {
        Ok(data) => Step::Data(data),
        Err(frame) => {
            let map = frame.into_trailers().expect("data or trailers");
            assert_eq!(map, headers(), "trailers are replayed line by line");
            trailers()
        }
    }
}

fn headers() -> HeaderMap {
    let Step::Trailers(lines) = trailers() else {
        unreachable!("trailers() makes trailers");
    };
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        map.append(name, HeaderValue::from_static(value));
    }
    map
}

fn answers(body: &impl Body) -> (u64, Option<u64>, bool) {
    let hint = body.size_hint();
    (hint.lower(), hint.upper(), body.is_end_stream())
}

// === impl Scripted ===

impl Scripted {
    pub(crate) fn new(steps: &[Step]) -> Self {
        Self {
            state: RefCell::new(State {
                steps: steps.iter().cloned().collect(),
                afterlife: VecDeque::new(),
                halts: false,
                halted: false,
            }),
            hint: SizeHint::new(),
            aloud: false,
            probe: Arc::default(),
            _pin: PhantomPinned,
        }
    }

    /// Declares a size, true or not.
    pub(crate) fn hint(mut self, lower: u64, upper: Option<u64>) -> Self {
        self.hint = SizeHint::new();
        self.hint.set_lower(lower);
        if let Some(upper) = upper {
            self.hint.set_upper(upper);
        }
        self
    }

    /// Declares the size that the script has.
    pub(crate) fn sized(self) -> Self {
        let size = self.state.borrow().steps.iter().map(Step::len).sum();
        self.hint(size, Some(size))
    }

    pub(crate) fn aloud(mut self) -> Self {
        self.aloud = true;
        self
    }

    pub(crate) fn afterlife(self, steps: &[Step]) -> Self {
        self.state.borrow_mut().afterlife = steps.iter().cloned().collect();
        self
    }

    pub(crate) fn probe(&self) -> Arc<Probe> {
        self.probe.clone()
    }
}

impl Body for Scripted {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.as_ref().get_ref();
        this.probe.polls.fetch_add(1, Ordering::Relaxed);
        let mut state = this.state.borrow_mut();
        if state.halts && !state.halted {
            state.halted = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        state.halted = false;
        let Some(step) = state.steps.pop_front() else {
            state.steps = std::mem::take(&mut state.afterlife);
            return Poll::Ready(None);
        };
        Poll::Ready(Some(match step {
            Step::Data(bytes) => Ok(Frame::data(bytes)),
            Step::Trailers(_) => Ok(Frame::trailers(headers())),
            Step::Fail => Err(Broken),
            Step::Panic => panic!("as scripted"),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.aloud && self.state.borrow().steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.hint
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.probe.dropped.store(true, Ordering::Relaxed);
    }
}

// === impl Step ===

impl Step {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Data(data) => data.len() as u64,
            _ => 0,
        }
    }
}

// === impl Probe ===

impl Probe {
    pub(crate) fn polls(&self) -> usize {
        self.polls.load(Ordering::Relaxed)
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed)
    }
}

// === impl Flag ===

impl Flag {
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

// === impl Broken ===

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("broken as scripted")
    }
}

impl std::error::Error for Broken {}
