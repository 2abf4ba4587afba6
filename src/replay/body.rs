//! `ReplayBody`: a body of which copies start from the beginning.

use std::{
    any::Any,
    fmt,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

use super::{
    error::{BoxError, ReplayError},
    limits::Limits,
    recording::{Next, Reader},
    sole::Sole,
    source::Source,
};

/// A body that can be sent again: what it yields is recorded while a copy of it exists.
///
/// See the [module docs](super) for what is recorded, for how long, and within which limits.
///
/// # Cancellation safety
///
/// A frame is taken from the wrapped body and recorded within one poll. An attempt may be dropped
/// between any two polls and the next one misses nothing.
///
/// # Examples
///
/// The first attempt fails halfway; the second one has it all:
///
/// ```
/// use bytes::Bytes;
/// use http_body::Frame;
/// use http_body_util::{BodyExt, StreamBody};
/// use tower_retry_layer::replay::ReplayBody;
///
/// # tokio_test::block_on(async {
/// let frames = ["to be", " or not"].map(|text| Ok::<_, std::io::Error>(Frame::data(Bytes::from(text))));
/// let mut first = ReplayBody::new(StreamBody::new(futures_util::stream::iter(frames)), 1_024);
///
/// let second = first.try_replay().expect("nothing was lost yet");
/// let frame = first.frame().await.unwrap()?;
/// assert_eq!(frame.into_data().unwrap(), "to be");
/// drop(first);
///
/// assert!(second.can_replay());
/// assert_eq!(second.collect().await?.to_bytes(), "to be or not");
/// # Ok::<(), tower_retry_layer::replay::ReplayError>(()) }).unwrap();
/// ```
pub struct ReplayBody<B> {
    inner: Inner<B>,
    /// What the wrapped body said of its size before it was first polled.
    hint: SizeHint,
    /// Bytes of data that this attempt was given.
    delivered: u64,
    ended: bool,
}

enum Inner<B> {
    /// No frames, on any attempt.
    Empty,
    /// All there is, in memory: a copy shares it and neither knows of the other.
    Whole(Bytes),
    /// Shares a recording with its copies.
    Reader(Reader<B>),
    /// Has the rest for itself.
    Sole(Sole<B>),
    Done,
    /// Repeated on every poll: an end after an error might be taken for the body's end.
    Failed(ReplayError),
}

// === impl ReplayBody ===

impl<B> ReplayBody<B> {
    /// Wraps a body of which at most `max_bytes` are recorded.
    ///
    /// Each frame counts as its length and 64 bytes. 0 records nothing; `usize::MAX` has no limit.
    /// [`ReplayLayer`](super::ReplayLayer) wraps the body of every request, and bounds what all of
    /// them hold together.
    pub fn new(body: B, max_bytes: usize) -> Self
    where
        B: Body + 'static,
    {
        Self::recorded(body, &Limits::new(max_bytes))
    }

    pub(super) fn recorded(body: B, limits: &Limits) -> Self
    where
        B: Body + 'static,
    {
        let hint = body.size_hint();
        let max = u64::try_from(limits.max_bytes()).unwrap_or(u64::MAX);
        if body.is_end_stream() {
            // Transports discard a body that says so. What else it might yield was never sent.
            return Self::start(Inner::Empty, hint);
        }
        match in_memory(body) {
            Ok(bytes) => Self::start(Inner::Whole(bytes), hint),
            Err(body) if hint.lower() > max => Self::live(body),
            Err(body) => {
                let reader = Reader::new(Source::new(body), limits.clone());
                Self::start(Inner::Reader(reader), hint)
            }
        }
    }

    /// Wraps a body that is sent once and not recorded.
    pub(super) fn live(body: B) -> Self
    where
        B: Body,
    {
        let (hint, ended) = (body.size_hint(), body.is_end_stream());
        let inner = Inner::Sole(Sole::live(Source::new(body)));
        Self {
            ended,
            ..Self::start(inner, hint)
        }
    }

    /// Makes a copy that starts from the beginning, or `None` if the beginning is not kept.
    ///
    /// From now until the last copy has begun to read, or is dropped, what is read is recorded. So
    /// a copy is made before the body is first polled: of a body without copies nothing is kept.
    ///
    /// The copy becomes the current attempt at its first poll, or when it is told to
    /// [take over](Self::take_over). The attempt before it then fails with
    /// [`ReplayError::is_superseded`] if it goes on, and so does any older handle, begun or not. So
    /// the older of two handles is the one to send first.
    ///
    /// `None` for a body above the limit, a body that failed, an attempt that was superseded, and
    /// one that is over.
    pub fn try_replay(&self) -> Option<Self> {
        let inner = match &self.inner {
            Inner::Empty => Inner::Empty,
            Inner::Whole(bytes) => Inner::Whole(bytes.clone()),
            Inner::Reader(reader) => Inner::Reader(reader.try_copy()?),
            Inner::Sole(_) | Inner::Done | Inner::Failed(_) => return None,
        };
        Some(Self::start(inner, self.hint))
    }

    /// Whether [`try_replay`](Self::try_replay) would make a copy now.
    ///
    /// A copy that was made may have become useless since, when the body outgrew a limit or
    /// failed. Sent all the same, it yields an error instead of data. Only one that took over before
    /// yields all there is: for it the start is kept, though no further copy is made.
    pub fn can_replay(&self) -> bool {
        match &self.inner {
            Inner::Empty | Inner::Whole(_) => true,
            Inner::Reader(reader) => reader.can_replay(),
            Inner::Sole(_) | Inner::Done | Inner::Failed(_) => false,
        }
    }

    /// Makes this copy the current attempt before it is polled. Returns whether it can be sent.
    ///
    /// The attempt before it, and any older handle, fails from now on, and is woken to find out.
    /// Nobody reads the wrapped body until this copy is polled, and it may be copied itself until
    /// then: the recording goes on for it. `Http` and `Grpc` call it when a retry is decided, so
    /// that a transport which still holds the abandoned attempt reads nothing during the wait. What
    /// such a poll on another thread finds at this moment is recorded for this copy.
    ///
    /// `false`, and no effect, for a copy that [cannot be replayed](Self::can_replay). On the
    /// current attempt itself it changes nothing, nor where the body is in memory: there the
    /// attempts know nothing of each other.
    ///
    /// # Examples
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http_body::Frame;
    /// use http_body_util::{BodyExt, StreamBody};
    /// use tower_retry_layer::replay::ReplayBody;
    ///
    /// # tokio_test::block_on(async {
    /// let frames = ["to be", " or not"].map(|text| Ok::<_, std::io::Error>(Frame::data(Bytes::from(text))));
    /// let mut first = ReplayBody::new(StreamBody::new(futures_util::stream::iter(frames)), 1_024);
    /// let second = first.try_replay().expect("nothing was lost yet");
    ///
    /// assert!(second.take_over());
    /// assert!(first.frame().await.unwrap().unwrap_err().is_superseded());
    /// assert_eq!(second.collect().await?.to_bytes(), "to be or not");
    /// # Ok::<(), tower_retry_layer::replay::ReplayError>(()) }).unwrap();
    /// ```
    pub fn take_over(&self) -> bool {
        match &self.inner {
            Inner::Empty | Inner::Whole(_) => true,
            Inner::Reader(reader) => reader.take_over(),
            // The rest is this attempt's alone, so it is the current one.
            Inner::Sole(_) => true,
            Inner::Done | Inner::Failed(_) => false,
        }
    }

    fn start(inner: Inner<B>, hint: SizeHint) -> Self {
        Self {
            ended: matches!(inner, Inner::Empty),
            inner,
            hint,
            delivered: 0,
        }
    }

    /// Follows what this attempt is given, without moving it.
    fn note(&mut self, item: &Option<Result<Frame<Bytes>, ReplayError>>) {
        match item {
            Some(Ok(frame)) => {
                let len = frame.data_ref().map_or(0, Bytes::len);
                let len = u64::try_from(len).unwrap_or(u64::MAX);
                self.delivered = self.delivered.saturating_add(len);
            }
            Some(Err(error)) => {
                self.inner = Inner::Failed(error.clone());
                // A frame that was read for the attempt that took over says nothing of this one.
                self.ended = false;
            }
            None => {
                self.inner = Inner::Done;
                self.ended = true;
            }
        }
    }
}

impl<B> Body for ReplayBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = ReplayError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReplayError>>> {
        let this = self.get_mut();
        let ended = &mut this.ended;
        let polled = loop {
            match &mut this.inner {
                Inner::Empty | Inner::Done => return Poll::Ready(None),
                Inner::Failed(error) => return Poll::Ready(Some(Err(error.clone()))),
                Inner::Sole(sole) => break sole.poll(cx, ended),
                Inner::Reader(reader) => match reader.poll(cx, ended) {
                    Next::Polled(polled) => break polled,
                    Next::Own(sole) => this.inner = Inner::Sole(sole),
                },
                Inner::Whole(bytes) => {
                    let frame = Frame::data(std::mem::take(bytes));
                    this.inner = Inner::Done;
                    *ended = true;
                    break Poll::Ready(Some(Ok(frame)));
                }
            }
        };
        if let Poll::Ready(item) = &polled {
            this.note(item);
        }
        polled
    }

    /// True once this attempt was given what the wrapped body called its last frame, or its end.
    ///
    /// What the body said after the last frame that was recorded is kept, and every attempt quotes
    /// it. Said of an earlier frame it was wrong, and only the attempt that read it heard it.
    fn is_end_stream(&self) -> bool {
        self.ended
    }

    /// What the wrapped body said at first, less what this attempt was given.
    ///
    /// A size that the recording revealed is not told: it would frame the second attempt otherwise
    /// than the first, and a known length leaves no place for trailers.
    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        hint.set_lower(self.hint.lower().saturating_sub(self.delivered));
        if let Some(upper) = self.hint.upper() {
            hint.set_upper(upper.saturating_sub(self.delivered));
        }
        hint
    }
}

impl<B> fmt::Debug for ReplayBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayBody")
            .field("replayable", &self.can_replay())
            .field("delivered", &self.delivered)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// The data of a body that is known to be one piece in memory, or the body.
fn in_memory<B: 'static>(body: B) -> Result<Bytes, B> {
    let mut slot = Some(body);
    let any: &mut dyn Any = &mut slot;
    if let Some(text) = any.downcast_mut::<Option<String>>() {
        return Ok(text.take().map(Bytes::from).unwrap_or_default());
    }
    if let Some(Some(full)) = any.downcast_mut::<Option<Full<Bytes>>>() {
        // A `Full` gives its data away only through a poll, which never waits.
        let poll = Pin::new(full).poll_frame(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(Some(Ok(frame))) = poll {
            return Ok(frame.into_data().unwrap_or_default());
        }
        return Ok(Bytes::new());
    }
    match slot {
        Some(body) => Err(body),
        None => Ok(Bytes::new()),
    }
}
