//! Limits and lifetime of a recording: edge cases 12 to 18, 20, 24, 25, 28 to 30, 34, 35, 37, 38.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
};

use bytes::Bytes;
use http::{Method, Request, header};
use http_body::{Body, Frame};
use http_body_util::{Empty, Full, StreamBody};
use tower::{Layer, Service, service_fn};
use tower_retry_layer::replay::{Replay, ReplayBody, ReplayError, ReplayLayer};

use crate::replay_support::{
    Broken, Flag, Scripted, Step, data, drain, halting, poll, read, trailers,
};

/// What a frame costs beside its bytes.
const FRAME: usize = 64;

#[test]
fn case_12_a_body_of_exactly_the_limit_is_replayed() {
    let steps = [data("abc"), data(vec![1; 2_000]), trailers()];
    // Two trailers of ten and two bytes, each a line.
    let limit = 3 + 2_000 + 3 * FRAME + 2 * (12 + FRAME);
    let mut first = ReplayBody::new(halting(&steps), limit);
    let second = first.try_replay().unwrap();
    assert_eq!(read(&mut first, usize::MAX).steps, steps);
    assert!(second.can_replay());
    assert_eq!(drain(second).steps, steps);

    let first = ReplayBody::new(halting(&steps), limit - 1);
    let second = first.try_replay().unwrap();
    assert_eq!(drain(first).steps, steps);
    refuses(second);
}

#[test]
fn case_13_one_byte_above_the_limit_in_one_frame_gives_the_recording_up() {
    for (len, replayable) in [(1_000, true), (1_001, false)] {
        let steps = [data(vec![1; len])];
        let mut first = ReplayBody::new(halting(&steps), 1_000 + FRAME);
        let second = first.try_replay().unwrap();
        assert_eq!(read(&mut first, usize::MAX).steps, steps);
        assert_eq!(second.can_replay(), replayable);
        assert_eq!(second.try_replay().is_some(), replayable);
    }
}

#[test]
fn case_14_a_limit_crossed_on_the_second_attempt_leaves_that_attempt_whole() {
    let steps = [data("a"), data("b"), data("c"), trailers()];
    let mut first = ReplayBody::new(halting(&steps), 2 * (1 + FRAME));
    let mut second = first.try_replay().unwrap();
    read(&mut first, 2);
    drop(first);
    let third = second.try_replay().unwrap();
    assert_eq!(read(&mut second, 2).steps, steps[..2]);
    assert!(third.can_replay());
    assert_eq!(read(&mut second, usize::MAX).steps, steps[2..]);
    refuses(third);
}

#[test]
fn case_15_a_body_that_announces_more_than_the_limit_passes_through() {
    let steps = [data("abcd"), data("e")];
    let body = ReplayBody::new(halting(&steps).sized().aloud(), 4);
    assert!(!body.can_replay() && body.try_replay().is_none());
    assert_eq!(body.size_hint().exact(), Some(5));
    let played = drain(body);
    assert_eq!(played.steps, steps);
    assert_eq!(played.answers[2], (0, Some(0), true));
}

#[test]
fn case_16_a_body_larger_than_it_said_is_cut_off_by_nobody() {
    let steps: Vec<Step> = (0..64).map(|_| data(vec![1; 16 * 1_024])).collect();
    let first = ReplayBody::new(halting(&steps).hint(4, Some(4)), 64 * 1_024);
    let second = first.try_replay().unwrap();
    let played = drain(first);
    assert_eq!(played.steps, steps);
    assert_eq!(played.answers.last(), Some(&(0, Some(0), false)));
    refuses(second);
}

#[test]
fn case_17_a_limit_of_nothing_records_nothing() {
    let first = ReplayBody::new(halting(&[data("a")]), 0);
    let second = first.try_replay().unwrap();
    assert_eq!(drain(first).steps, [data("a")]);
    refuses(second);

    // There is nothing to record in a body that turns out to be empty.
    let mut first = ReplayBody::new(halting(&[]), 0);
    let second = first.try_replay().unwrap();
    read(&mut first, 1);
    assert!(second.can_replay());
    assert_eq!(drain(second).steps, []);
}

#[test]
fn case_17_the_largest_limit_is_none() {
    let layer = ReplayLayer::new(usize::MAX).max_total_bytes(usize::MAX);
    let steps = vec![data(vec![1; 1 << 20]); 40];
    let mut first = wrap(&layer, Scripted::new(&steps).hint(u64::MAX, None));
    let second = first.try_replay().unwrap();
    assert_eq!(read(&mut first, usize::MAX).steps, steps);
    assert_eq!(drain(second).steps, steps);
    assert_eq!(layer.held_bytes(), 0);
}

#[test]
fn case_18_above_the_limit_the_attempt_goes_on_and_the_memory_is_free() {
    let steps = [data("ab"), data(vec![1; 3_000]), data("cd"), trailers()];
    let layer = ReplayLayer::new(1_024);
    let body = halting(&steps);
    let probe = body.probe();
    let mut first = wrap(&layer, body);
    let second = first.try_replay().unwrap();
    assert_eq!(read(&mut first, 1).steps, steps[..1]);
    assert_eq!(layer.held_bytes(), 2 + FRAME);

    assert_eq!(read(&mut first, 1).steps, steps[1..2]);
    assert_eq!(layer.held_bytes(), 0);
    assert!(!first.can_replay() && first.try_replay().is_none());

    // A stale copy that is sent all the same must not stop the attempt under way.
    refuses(second);
    assert_eq!(read(&mut first, usize::MAX).steps, steps[2..]);
    assert!(probe.is_dropped());
}

#[test]
fn case_20_tiny_slices_do_not_keep_the_buffer_they_came_from() {
    struct Big([u8; 100_000], Arc<AtomicBool>);
    impl AsRef<[u8]> for Big {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    impl Drop for Big {
        fn drop(&mut self) {
            self.1.store(true, Ordering::Relaxed);
        }
    }

    let dropped = Arc::new(AtomicBool::new(false));
    let buffer = Bytes::from_owner(Big([7; 100_000], dropped.clone()));
    let steps: Vec<Step> = (0..100)
        .map(|at| data(buffer.slice(at * 1_000..(at + 1) * 1_000)))
        .collect();
    let mut first = ReplayBody::new(halting(&steps), usize::MAX);
    let second = first.try_replay().unwrap();
    read(&mut first, usize::MAX);
    drop((steps, buffer, first));
    assert!(dropped.load(Ordering::Relaxed));
    assert_eq!(drain(second).steps, vec![data(vec![7; 1_000]); 100]);
}

#[test]
fn case_24_a_superseded_attempt_fails_is_woken_and_takes_nothing() {
    let (sender, receiver) = channel();
    let mut first = ReplayBody::new(StreamBody::new(receiver), usize::MAX);
    let mut second = first.try_replay().unwrap();
    let (old, new) = (Arc::new(Flag::default()), Arc::new(Flag::default()));

    sender.send(Ok(Frame::data(Bytes::from("a")))).unwrap();
    assert!(poll(&mut first, &old.clone().into()).is_some());
    assert!(poll(&mut first, &old.clone().into()).is_none());
    assert!(!old.take());

    // It is the first poll that supersedes, not the copy.
    let third = second.try_replay().unwrap();
    assert!(!old.take());
    assert!(poll(&mut second, &new.clone().into()).is_some());
    assert!(old.take());
    assert!(poll(&mut second, &new.clone().into()).is_none());

    sender.send(Ok(Frame::data(Bytes::from("b")))).unwrap();
    assert!(new.take() && !old.take());
    for _ in 0..3 {
        let error = poll(&mut first, Waker::noop())
            .unwrap()
            .unwrap()
            .unwrap_err();
        assert!(error.is_superseded() && !error.is_source() && !error.is_not_replayable());
        assert_eq!(error.to_string(), "body superseded by a later attempt");
    }
    assert!(!first.is_end_stream() && !first.can_replay() && first.try_replay().is_none());

    drop(sender);
    assert_eq!(read(&mut second, usize::MAX).steps, [data("b")]);
    assert_eq!(drain(third).steps, [data("a"), data("b")]);
}

#[test]
fn case_24_an_attempt_given_up_before_it_read_neither_stops_nor_follows_a_newer_one() {
    let steps = [data("a"), data("b")];
    let layer = ReplayLayer::new(usize::MAX);
    let [first, second] = [(); 2].map(|()| wrap(&layer, halting(&steps)));
    for (old, done) in [(first, false), (second, true)] {
        let mut new = old.try_replay().unwrap();
        assert_eq!(read(&mut new, 1).steps, steps[..1]);
        if done {
            assert_eq!(read(&mut new, usize::MAX).steps, steps[1..]);
        }
        // It is no copy any more, so nothing is recorded for it.
        assert_eq!(layer.held_bytes(), 0);
        assert!(!old.can_replay() && old.try_replay().is_none());
        assert!(drain(old).error.unwrap().is_superseded());
        let rest = if done { &[][..] } else { &steps[1..] };
        assert_eq!(read(&mut new, usize::MAX).steps, rest);
    }
}

#[test]
fn case_25_an_attempt_polled_on_another_thread_takes_nothing_from_the_next() {
    for round in 0..200 {
        let steps: Vec<Step> = (0..20).map(|n| data(format!("{round}-{n}"))).collect();
        let mut first = ReplayBody::new(halting(&steps), usize::MAX);
        let second = first.try_replay().unwrap();
        let old = thread::spawn(move || read(&mut first, usize::MAX));
        let new = thread::spawn(move || {
            // Waits by spinning: the old reader holds the source at times, and then wakes this one.
            let mut second = second;
            let mut all = Vec::new();
            let flag = Arc::new(Flag::default());
            loop {
                match poll(&mut second, &flag.clone().into()) {
                    None => {
                        while !flag.take() {
                            thread::yield_now()
                        }
                    }
                    Some(None) => return all,
                    Some(Some(frame)) => all.push(Step::Data(frame.unwrap().into_data().unwrap())),
                }
            }
        });
        let old = old.join().unwrap();
        assert_eq!(old.steps, steps[..old.steps.len()]);
        assert!(
            old.error
                .map_or(old.steps.len() == 20, |error| error.is_superseded())
        );
        assert_eq!(new.join().unwrap(), steps);
    }
}

#[test]
fn case_28_a_recording_ends_with_its_last_copy_while_the_upload_goes_on() {
    let steps = vec![data("abcd"); 10];
    let layer = ReplayLayer::new(usize::MAX);
    let mut first = wrap(&layer, halting(&steps));
    let second = first.try_replay().unwrap();
    let third = second.try_replay().unwrap();
    read(&mut first, 4);
    assert_eq!(layer.held_bytes(), 4 * (4 + FRAME));
    drop(third);
    assert_eq!(layer.held_bytes(), 4 * (4 + FRAME));
    drop(second);
    assert_eq!(layer.held_bytes(), 0);
    assert_eq!(read(&mut first, 5).steps, steps[..5]);
    assert_eq!(layer.held_bytes(), 0);
    assert!(!first.can_replay() && first.try_replay().is_none());
    assert_eq!(drain(first).steps, steps[9..]);
}

#[test]
fn case_28_a_body_without_copies_is_never_recorded() {
    let layer = ReplayLayer::new(usize::MAX);
    let mut first = wrap(&layer, halting(&vec![data("abcd"); 10]));
    read(&mut first, 9);
    assert_eq!(layer.held_bytes(), 0);
}

#[test]
fn case_29_the_last_attempt_frees_as_it_sends() {
    let steps = vec![data("abcd"); 5];
    let layer = ReplayLayer::new(usize::MAX);
    let mut first = wrap(&layer, halting(&steps));
    let mut last = first.try_replay().unwrap();
    read(&mut first, 3);
    drop(first);
    let mut held = Vec::new();
    for _ in 0..5 {
        assert_eq!(read(&mut last, 1).steps, steps[..1]);
        held.push(layer.held_bytes() / (4 + FRAME));
    }
    assert_eq!(held, [2, 1, 0, 0, 0]);
}

#[test]
fn case_29_what_was_sent_leaves_no_memory_behind() {
    let steps = vec![data("a"); 5_000];
    let body = Scripted::new(&steps);
    let mut kept = None;
    let live = allocation_counter::measure(|| {
        let mut first = ReplayBody::new(body, usize::MAX);
        let mut last = first.try_replay().unwrap();
        for attempt in [&mut first, &mut last] {
            for _ in 0..5_000 {
                assert!(poll(attempt, Waker::noop()).unwrap().unwrap().is_ok());
            }
        }
        kept = Some(last);
    });
    // The source itself is what is left; the blocks of copies and the places of frames are not.
    assert!(live.bytes_current < 2_048, "{live:?}");
    assert!(live.bytes_max > 5_000, "{live:?}");
    assert_eq!(drain(kept.unwrap()).steps, []);
}

#[test]
fn case_30_when_all_copies_are_gone_the_attempt_under_way_finishes() {
    let steps = [data("a"), data("b"), trailers()];
    let body = halting(&steps);
    let probe = body.probe();
    let layer = ReplayLayer::new(usize::MAX);
    let mut first = wrap(&layer, body);
    let copy = first.try_replay().unwrap();
    read(&mut first, 1);
    drop(copy);
    assert_eq!(drain(first).steps, steps[1..]);
    assert!(probe.is_dropped());
    assert_eq!(layer.held_bytes(), 0);
}

#[test]
fn case_30_what_nobody_can_read_is_freed_though_an_old_attempt_is_kept() {
    let body = halting(&[data("a"), data("b")]);
    let probe = body.probe();
    let layer = ReplayLayer::new(usize::MAX);
    let mut first = wrap(&layer, body);
    let mut second = first.try_replay().unwrap();
    let third = second.try_replay().unwrap();
    read(&mut first, 2);
    read(&mut second, 1);
    drop(second);
    assert!(!probe.is_dropped() && layer.held_bytes() > 0);
    drop(third);
    assert!(probe.is_dropped());
    assert_eq!(layer.held_bytes(), 0);
    assert!(drain(first).error.unwrap().is_superseded());
}

#[test]
fn case_30_a_waker_that_owns_another_attempt_does_not_lock_itself_out() {
    // Some executors keep an idle task alive through its waker alone. The task that sends the
    // first attempt owns the second one here, so waking it for the last time drops a reader.
    struct Task(#[expect(dead_code)] ReplayBody<Scripted>);
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    let layer = ReplayLayer::new(usize::MAX);
    let mut first = wrap(&layer, halting(&[data("a")]));
    let mut second = first.try_replay().unwrap();
    let task = Waker::from(Arc::new(Task(second.try_replay().unwrap())));
    assert!(poll(&mut first, &task).is_none());
    drop(task);
    assert_eq!(read(&mut second, usize::MAX).steps, [data("a")]);
    assert_eq!(layer.held_bytes(), 0);
}

#[test]
fn case_34_a_hundred_thousand_frames_are_dropped_on_a_small_stack() {
    let small = thread::Builder::new().stack_size(64 * 1_024).spawn(|| {
        let frames = (0..100_000).map(|_| Ok::<_, Broken>(Frame::data(Bytes::from_static(b"x"))));
        let layer = ReplayLayer::new(usize::MAX);
        let mut first = wrap(&layer, StreamBody::new(futures_util::stream::iter(frames)));
        let second = first.try_replay().unwrap();
        let mut count = 0;
        while let Some(Some(frame)) = poll(&mut first, Waker::noop()) {
            count += frame.unwrap().data_ref().unwrap().len();
        }
        assert_eq!(count, 100_000);
        assert_eq!(layer.held_bytes(), 100_000 * (1 + FRAME));
        drop(second);
        assert_eq!(layer.held_bytes(), 0);
    });
    small.unwrap().join().unwrap();
}

#[test]
fn case_35_all_requests_together_hold_no_more_than_the_layer_allows() {
    let one = 4 + FRAME;
    let layer = ReplayLayer::new(usize::MAX).max_total_bytes(3 * one);
    let clone = layer.clone();
    let mut pairs: Vec<_> = (0..4)
        .map(|n| {
            let first = wrap(
                if n % 2 == 0 { &layer } else { &clone },
                halting(&vec![data("abcd"); 2]),
            );
            let copy = first.try_replay().unwrap();
            (first, copy)
        })
        .collect();
    for (first, _) in &mut pairs {
        assert_eq!(read(first, 1).steps, [data("abcd")]);
    }
    assert_eq!(layer.held_bytes(), 3 * one);
    let replayable: Vec<bool> = pairs.iter().map(|(_, copy)| copy.can_replay()).collect();
    assert_eq!(replayable, [true, true, true, false]);
    let (fourth, copy) = pairs.pop().unwrap();
    assert_eq!(drain(fourth).steps, [data("abcd")]);
    let error = drain(copy).error.unwrap();
    assert!(error.to_string().contains("all recordings together"));

    // Each request that ends makes room for another.
    for left in [2, 1, 0] {
        pairs.pop();
        assert_eq!(clone.held_bytes(), left * one);
    }
    let mut first = wrap(&clone, halting(&vec![data("abcd"); 3]));
    let copy = first.try_replay().unwrap();
    read(&mut first, usize::MAX);
    assert!(copy.can_replay());
}

#[test]
fn case_35_the_total_is_at_least_what_one_request_may_hold() {
    let megabytes = |n: usize| vec![data(vec![1; 1_000_000]); n];
    for (max_bytes, replayable) in [(16_000_000, 15), (40_000_000, 39)] {
        let layer = ReplayLayer::new(max_bytes);
        let mut first = wrap(&layer, Scripted::new(&megabytes(replayable)));
        let copy = first.try_replay().unwrap();
        read(&mut first, usize::MAX);
        assert!(copy.can_replay());
    }
}

#[test]
fn case_37_expect_connect_and_upgrades_are_sent_once() {
    let plain = Request::put("/").body(halting(&[data("a")])).unwrap();
    assert!(through(&ReplayLayer::default(), plain).can_replay());
    let expects = ["100-continue", "100-Continue", "x, 100-continue"];
    let requests = [Request::builder().method(Method::CONNECT)]
        .into_iter()
        .chain([Request::get("/").header(header::UPGRADE, "websocket")])
        .chain(expects.map(|value| Request::put("/").header(header::EXPECT, value)))
        .chain([Request::put("/")
            .header(header::EXPECT, "x")
            .header(header::EXPECT, "100-continue")]);
    for request in requests {
        let request = request.body(halting(&[data("a"), data("b")])).unwrap();
        let body = through(&ReplayLayer::default(), request);
        assert!(!body.can_replay() && body.try_replay().is_none());
        assert_eq!(drain(body).steps, [data("a"), data("b")]);
    }
    let upgrade = Request::get("/").header(header::UPGRADE, "h2c");
    let empty = through(
        &ReplayLayer::default(),
        upgrade.body(Empty::<Bytes>::new()).unwrap(),
    );
    assert!(empty.is_end_stream() && !empty.can_replay());
}

#[test]
fn case_38_a_body_fits_the_bounds_of_those_who_take_it() {
    fn is<T: Body<Data = Bytes, Error = ReplayError> + Send + Sync + Unpin + 'static>() {}
    fn is_error<T: std::error::Error + Clone + Send + Sync + 'static>() {}
    fn is_service<T: Clone + Send + Sync + Unpin + 'static>() {}
    // Neither `Sync` nor `Unpin`; only `Send`; a body of neither `Bytes` nor a real error.
    is::<ReplayBody<Scripted>>();
    is::<ReplayBody<axum::body::Body>>();
    is::<ReplayBody<hyper::body::Incoming>>();
    is::<ReplayBody<Full<std::collections::VecDeque<u8>>>>();
    is::<
        ReplayBody<
            http_body_util::combinators::UnsyncBoxBody<
                &'static [u8],
                Box<dyn std::error::Error + Send + Sync>,
            >,
        >,
    >();
    is_error::<ReplayError>();
    is_service::<ReplayLayer>();
    is_service::<Replay<()>>();

    let _ = axum::body::Body::new(ReplayBody::new(halting(&[]), 0));
    #[cfg(feature = "reqwest")]
    let _ = reqwest::Body::wrap(ReplayBody::new(halting(&[]), 0));
}

#[test]
fn the_layer_hands_readiness_and_the_service_through() {
    let mut service = Replay::new(7, 1);
    *service.get_mut() += 1;
    assert_eq!(*service.get_ref(), 8);
    assert_eq!(service.into_inner(), 8);

    struct Down;
    impl<R> Service<R> for Down {
        type Response = ();
        type Error = &'static str;
        type Future = std::future::Ready<Result<(), &'static str>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
            Poll::Ready(Err("down"))
        }
        fn call(&mut self, _: R) -> Self::Future {
            unreachable!("not ready")
        }
    }
    let mut service = ReplayLayer::default().layer(Down);
    let cx = &mut Context::from_waker(Waker::noop());
    let ready = Service::<Request<Empty<Bytes>>>::poll_ready(&mut service, cx);
    assert_eq!(ready, Poll::Ready(Err("down")));
}

/// A copy that nothing is left for: it says so, and fails rather than end.
fn refuses<B: Body>(copy: ReplayBody<B>)
where
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    assert!(!copy.can_replay());
    assert!(copy.try_replay().is_none());
    let played = drain(copy);
    assert_eq!(played.steps, []);
    let error = played.error.unwrap();
    assert!(error.is_not_replayable() && !error.is_superseded() && !error.is_source());
}

fn wrap<B: Body + Send + 'static>(layer: &ReplayLayer, body: B) -> ReplayBody<B> {
    through(layer, Request::new(body))
}

/// The body as the layer hands it on.
fn through<B: Body + Send + 'static>(layer: &ReplayLayer, request: Request<B>) -> ReplayBody<B> {
    let echo = service_fn(|request: Request<ReplayBody<B>>| {
        std::future::ready(Ok::<_, ()>(request.into_body()))
    });
    layer.layer(echo).call(request).into_inner().unwrap()
}

type Item = Result<Frame<Bytes>, Broken>;

/// A channel whose receiving end is a stream of frames.
fn channel() -> (
    tokio::sync::mpsc::UnboundedSender<Item>,
    impl futures_util::Stream<Item = Item>,
) {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let stream = futures_util::stream::poll_fn(move |cx| receiver.poll_recv(cx));
    (sender, stream)
}
