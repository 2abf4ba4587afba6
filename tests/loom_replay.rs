//! Two attempts and their wakers under every interleaving that their threads can have.
//!
//! The module is compiled in here, file by file, against loom's `Arc` and `Mutex` in place of std's
//! (`src/replay/sync.rs`), so the library needs no `--cfg` for it. A wake that is lost leaves a
//! thread waiting for ever, which loom reports.

#![allow(
    dead_code,
    unreachable_pub,
    rustdoc::broken_intra_doc_links,
    reason = "the files are part of a module that is not all here"
)]

#[path = "../src/replay/body.rs"]
mod body;
#[path = "../src/replay/error.rs"]
mod error;
#[path = "../src/replay/limits.rs"]
mod limits;
#[path = "../src/replay/record.rs"]
mod record;
#[path = "../src/replay/recording.rs"]
mod recording;
#[path = "../src/replay/sole.rs"]
mod sole;
#[path = "../src/replay/source.rs"]
mod source;
#[path = "../src/replay/state.rs"]
mod state;

mod sync {
    pub(crate) use loom::sync::{Arc, Mutex};
}

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, Wake, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame};
use loom::{
    sync::{Arc, Mutex, Notify},
    thread,
};

use self::{body::ReplayBody, error::ReplayError};

#[test]
fn a_superseded_attempt_takes_nothing_and_the_next_one_is_given_all() {
    check(|| {
        let channel = Channel::new(&["a", "b"], true);
        let first = ReplayBody::new(channel, usize::MAX);
        let second = first.try_replay().unwrap();
        let old = thread::spawn(move || finish(first));
        let (all, error) = finish(second);
        assert!(error.is_none());
        assert_eq!(all, ["a", "b"]);
        ends_or_is_superseded(old.join().unwrap());
    });
}

#[test]
fn an_attempt_that_sleeps_is_woken_when_it_is_superseded() {
    check(|| {
        let channel = Channel::new(&["a"], false);
        let feeder = channel.clone();
        let mut first = ReplayBody::new(channel, usize::MAX);
        let second = first.try_replay().unwrap();
        // It begins before the threads do, which leaves fewer orders to try.
        assert_eq!(
            poll(&mut first, Waker::noop()),
            Poll::Ready(Some(Ok("a".into())))
        );

        let old = thread::spawn(move || finish(first));
        let new = thread::spawn(move || finish(second));
        feeder.send("b");
        feeder.close();
        let (all, error) = new.join().unwrap();
        assert!(error.is_none());
        assert_eq!(all, ["a", "b"]);
        let (rest, error) = old.join().unwrap();
        ends_or_is_superseded(([vec!["a".into()], rest].concat(), error));
    });
}

#[test]
fn a_copy_dropped_meanwhile_neither_holds_up_nor_truncates_the_attempt() {
    check(|| {
        let channel = Channel::new(&["a", "b"], true);
        let first = ReplayBody::new(channel, usize::MAX);
        let second = first.try_replay().unwrap();
        let caller = thread::spawn(move || drop(second));
        let (all, error) = finish(first);
        assert!(error.is_none());
        assert_eq!(all, ["a", "b"]);
        caller.join().unwrap();
    });
}

#[test]
fn an_attempt_dropped_while_its_predecessor_reads_leaves_nothing_behind() {
    check(|| {
        let channel = Channel::new(&["a", "b"], true);
        let watch = channel.clone();
        let first = ReplayBody::new(channel, usize::MAX);
        let mut second = first.try_replay().unwrap();
        let old = thread::spawn(move || finish(first));
        let _ = poll(&mut second, Waker::noop());
        drop(second);
        ends_or_is_superseded(old.join().unwrap());
        assert_eq!(Arc::strong_count(&watch.0), 1, "the source is still held");
    });
}

#[test]
fn an_attempt_that_reads_while_a_copy_takes_over_loses_nothing_for_it() {
    check(|| {
        let channel = Channel::new(&["a", "b"], true);
        let first = ReplayBody::new(channel, usize::MAX);
        let second = first.try_replay().unwrap();
        let old = thread::spawn(move || finish(first));
        assert!(second.take_over());
        let third = second.try_replay().expect("the recording goes on");
        drop(second);
        let (all, error) = finish(third);
        assert!(error.is_none());
        assert_eq!(all, ["a", "b"]);
        ends_or_is_superseded(old.join().unwrap());
    });
}

#[test]
fn an_attempt_that_sleeps_is_woken_when_a_copy_takes_over_and_nobody_reads_till_it_is_polled() {
    check(|| {
        let channel = Channel::new(&[], false);
        let feeder = channel.clone();
        let first = ReplayBody::new(channel, usize::MAX);
        let second = first.try_replay().unwrap();
        let old = thread::spawn(move || finish(first));
        assert!(second.take_over());
        // It ends though nothing ever came.
        let (given, error) = old.join().unwrap();
        assert!(given.is_empty() && error.unwrap().is_superseded());
        feeder.send("a");
        feeder.send("b");
        feeder.close();
        assert_eq!(feeder.0.lock().unwrap().frames.len(), 2);
        let (all, error) = finish(second);
        assert!(error.is_none());
        assert_eq!(all, ["a", "b"]);
    });
}

#[test]
fn a_copy_that_took_over_and_is_dropped_while_its_predecessor_reads_leaves_nothing_behind() {
    check(|| {
        let channel = Channel::new(&["a", "b"], true);
        let watch = channel.clone();
        let first = ReplayBody::new(channel, usize::MAX);
        let second = first.try_replay().unwrap();
        let old = thread::spawn(move || finish(first));
        second.take_over();
        drop(second);
        ends_or_is_superseded(old.join().unwrap());
        assert_eq!(Arc::strong_count(&watch.0), 1, "the source is still held");
    });
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    // loom's own advice: few bugs need more than two or three.
    builder.preemption_bound = Some(3);
    builder.check(model);
}

type Given = (Vec<String>, Option<ReplayError>);

/// What the source holds is "a" and "b". No other end than those two looks whole.
fn ends_or_is_superseded((given, error): Given) {
    match error {
        Some(error) => assert!(error.is_superseded()),
        None => assert_eq!(given, ["a", "b"]),
    }
}

/// Reads to the end, asleep while there is nothing.
fn finish(mut body: ReplayBody<Channel>) -> Given {
    let alarm = std::sync::Arc::new(Alarm(Notify::new()));
    let waker = Waker::from(alarm.clone());
    let mut all = Vec::new();
    loop {
        match poll(&mut body, &waker) {
            Poll::Pending => alarm.0.wait(),
            Poll::Ready(None) => return (all, None),
            Poll::Ready(Some(Ok(data))) => all.push(data),
            Poll::Ready(Some(Err(_))) => {
                // Repeated, so that it can be taken here.
                let Poll::Ready(Some(Err(error))) = frame(&mut body, &waker) else {
                    unreachable!("an error is repeated");
                };
                assert!(!body.is_end_stream(), "an attempt that failed looks whole");
                return (all, Some(error));
            }
        }
    }
}

fn poll(body: &mut ReplayBody<Channel>, waker: &Waker) -> Poll<Option<Result<String, ()>>> {
    frame(body, waker).map(|item| {
        item.map(|frame| {
            let data = frame.map_err(drop)?.into_data().map_err(drop)?;
            Ok(String::from_utf8(data.to_vec()).unwrap())
        })
    })
}

fn frame(
    body: &mut ReplayBody<Channel>,
    waker: &Waker,
) -> Poll<Option<Result<Frame<Bytes>, ReplayError>>> {
    Pin::new(body).poll_frame(&mut Context::from_waker(waker))
}

/// A thread asleep.
struct Alarm(Notify);

impl Wake for Alarm {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.notify();
    }
}

/// A source that is fed. It wakes whoever polled it last, as a channel does.
#[derive(Clone)]
struct Channel(Arc<Mutex<Feed>>);

struct Feed {
    frames: VecDeque<&'static str>,
    closed: bool,
    waker: Option<Waker>,
}

impl Channel {
    fn new(frames: &[&'static str], closed: bool) -> Self {
        Self(Arc::new(Mutex::new(Feed {
            frames: frames.iter().copied().collect(),
            closed,
            waker: None,
        })))
    }

    fn send(&self, frame: &'static str) {
        self.change(|feed| feed.frames.push_back(frame));
    }

    fn close(&self) {
        self.change(|feed| feed.closed = true);
    }

    fn change(&self, change: impl FnOnce(&mut Feed)) {
        let waker = {
            let mut feed = self.0.lock().unwrap();
            change(&mut feed);
            feed.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Body for Channel {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut feed = self.0.lock().unwrap();
        match feed.frames.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(frame.as_bytes()))))),
            None if feed.closed => Poll::Ready(None),
            None => {
                feed.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let feed = self.0.lock().unwrap();
        feed.closed && feed.frames.is_empty()
    }
}
