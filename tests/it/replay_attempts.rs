//! What every attempt is given: edge cases 1 to 11, 19, 21, 22, 31 to 33 and 36. Case 23 is in
//! `src/replay/record.rs`, case 39 in `grpc_peek.rs`.

use std::{collections::VecDeque, error::Error as _, sync::atomic::Ordering, time::Duration};

use bytes::{Buf, Bytes};
use http::{Method, Request};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use tower::{Layer, Service, service_fn};
use tower_retry_layer::replay::{ReplayBody, ReplayLayer};

use crate::replay_support::{
    Broken, Scripted, Step, data, drain, halting, nudge, read, recorded, slow, trailers,
};

#[test]
fn case_01_an_empty_body_is_empty_on_every_attempt() {
    every_way(&[]);
}

#[test]
fn case_02_a_body_over_before_it_began_says_so_on_every_attempt() {
    let first = ReplayBody::new(Empty::<Bytes>::new(), 0);
    let second = first.try_replay().unwrap();
    let third = second.try_replay().unwrap();
    for attempt in [first, second, third] {
        assert!(attempt.is_end_stream());
        assert_eq!(attempt.size_hint().exact(), Some(0));
        assert_eq!(drain(attempt).steps, []);
    }
    let scripted = ReplayBody::new(Scripted::new(&[]).aloud(), 0);
    assert!(scripted.is_end_stream());
    assert!(scripted.try_replay().unwrap().is_end_stream());
}

#[test]
fn case_03_a_single_chunk_is_the_same_on_every_attempt() {
    every_way(&[data("once upon a time")]);
}

#[test]
fn case_04_chunks_keep_their_boundaries() {
    every_way(&[
        data("a"),
        data("bc"),
        data(vec![7; 5_000]),
        data("def"),
        data("g"),
    ]);
}

#[test]
fn case_05_trailers_follow_the_data_on_every_attempt() {
    every_way(&[data("a"), data("b"), trailers()]);
}

#[test]
fn case_06_trailers_alone_are_replayed() {
    every_way(&[trailers()]);
}

#[test]
fn case_07_an_attempt_that_read_nothing_takes_nothing_from_the_next() {
    let steps = [data("a"), data("b"), trailers()];
    for polls in [0, 1] {
        let mut first = ReplayBody::new(halting(&steps), usize::MAX);
        let second = first.try_replay().unwrap();
        // The first poll begins to read and finds nothing yet.
        nudge(&mut first, polls);
        drop(first);
        assert_eq!(drain(second).steps, steps);
    }
}

#[test]
fn case_08_the_live_tail_follows_what_an_abandoned_attempt_read() {
    let steps = [data("a"), data("b"), data("c"), data("d")];
    let mut first = ReplayBody::new(halting(&steps), usize::MAX);
    let second = first.try_replay().unwrap();
    assert_eq!(read(&mut first, 2).steps, steps[..2]);
    drop(first);
    assert_eq!(drain(second).steps, steps);
}

#[test]
fn case_09_trailers_are_read_by_the_attempt_after_the_one_that_stopped_before_them() {
    let steps = [data("a"), data("b"), trailers()];
    let mut first = ReplayBody::new(halting(&steps), usize::MAX);
    let second = first.try_replay().unwrap();
    assert_eq!(read(&mut first, 2).steps, steps[..2]);
    assert_eq!(drain(second).steps, steps);
}

#[test]
fn case_10_an_attempt_may_be_abandoned_while_the_recording_is_played() {
    let steps = [data("a"), data("b"), data("c"), trailers()];
    let mut first = ReplayBody::new(halting(&steps), usize::MAX);
    let mut second = first.try_replay().unwrap();
    assert_eq!(read(&mut first, 3).steps, steps[..3]);
    let third = second.try_replay().unwrap();
    assert_eq!(read(&mut second, 1).steps, steps[..1]);
    drop(second);
    assert_eq!(drain(third).steps, steps);
}

#[test]
fn case_11_three_incomplete_attempts_leave_the_fourth_complete() {
    let steps = [data("a"), data("b"), data("c"), data("d"), trailers()];
    let mut attempt = ReplayBody::new(halting(&steps), usize::MAX);
    for frames in [3, 1, 4] {
        let next = attempt.try_replay().unwrap();
        assert_eq!(read(&mut attempt, frames).steps, steps[..frames]);
        attempt = next;
    }
    assert_eq!(drain(attempt).steps, steps);
}

#[test]
fn case_19_empty_frames_anywhere_change_nothing() {
    every_way(&[data(""), data("a"), data("b")]);
    every_way(&[data("a"), data(""), data("b")]);
    every_way(&[data("a"), data("b"), data("")]);
    every_way(&[data("")]);
    every_way(&[data(""), data(""), trailers()]);
}

#[test]
fn case_19_a_million_empty_frames_are_one_frame_in_the_recording() {
    let frames = std::iter::repeat_with(|| Ok::<_, Broken>(Frame::data(Bytes::new())));
    let body = StreamBody::new(futures_util::stream::iter(frames.take(1_000_000)));
    let mut first = ReplayBody::new(body, 64);
    let second = first.try_replay().unwrap();
    assert_eq!(read(&mut first, 1_000_000).steps.len(), 1_000_000);
    drop(first);
    assert_eq!(drain(second).steps, [data("")]);
}

#[test]
fn case_21_an_error_of_the_source_is_seen_and_ends_all_replaying() {
    for steps in [
        vec![Step::Fail, data("a")],
        vec![data("a"), Step::Fail, data("b")],
        vec![data("a"), trailers(), Step::Fail],
    ] {
        let whole = steps.iter().position(|step| *step == Step::Fail).unwrap();
        let body = halting(&steps);
        let probe = body.probe();
        let mut first = ReplayBody::new(body, usize::MAX);
        let copy = first.try_replay().unwrap();

        let played = read(&mut first, usize::MAX);
        assert_eq!(played.steps, steps[..whole]);
        let error = played.error.unwrap();
        assert!(error.is_source());
        assert_eq!(error.source().unwrap().downcast_ref(), Some(&Broken));
        assert!(!first.can_replay() && first.try_replay().is_none());
        assert!(!copy.can_replay() && copy.try_replay().is_none());
        assert!(probe.is_dropped());

        // Neither a second look at the failed attempt nor the stale copy is a body that looks whole.
        assert!(read(&mut first, usize::MAX).error.unwrap().is_source());
        let stale = drain(copy);
        assert_eq!(stale.steps, []);
        assert_eq!(
            stale.error.unwrap().source().unwrap().downcast_ref(),
            Some(&Broken)
        );
    }
}

#[test]
fn case_21_an_error_in_the_live_tail_surfaces_on_the_attempt_that_meets_it() {
    let steps = [data("a"), data("b"), Step::Fail];
    let mut first = ReplayBody::new(halting(&steps), usize::MAX);
    let second = first.try_replay().unwrap();
    assert_eq!(read(&mut first, 1).steps, steps[..1]);
    let played = drain(second);
    assert_eq!(played.steps, steps[..2]);
    assert!(played.error.unwrap().is_source());
}

#[test]
fn case_22_a_source_that_panics_counts_as_failed() {
    for copies in [0, 1] {
        let mut first = ReplayBody::new(halting(&[data("a"), Step::Panic, data("b")]), usize::MAX);
        let copy = (copies > 0).then(|| first.try_replay().unwrap());
        assert_eq!(read(&mut first, 1).steps, [data("a")]);
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            read(&mut first, usize::MAX);
        }));
        assert!(unwound.is_err());
        let error = read(&mut first, usize::MAX).error.unwrap();
        assert!(error.is_source() && error.source().is_none());
        if let Some(copy) = copy {
            assert!(!copy.can_replay());
            assert!(drain(copy).error.unwrap().is_source());
        }
    }
}

#[test]
fn case_22_data_that_panics_when_it_is_copied_leaves_no_hole() {
    struct Data(&'static [u8]);
    impl Buf for Data {
        fn remaining(&self) -> usize {
            self.0.len()
        }
        fn chunk(&self) -> &[u8] {
            assert_ne!(self.0, b"b", "as scripted");
            self.0
        }
        fn advance(&mut self, count: usize) {
            self.0.advance(count);
        }
    }
    // Recorded for a copy, recorded for none, and never recorded.
    for (method, copied) in [
        (Method::PUT, true),
        (Method::PUT, false),
        (Method::CONNECT, false),
    ] {
        let frames = [&b"a"[..], b"b", b"c"].map(|data| Ok::<_, Broken>(Frame::data(Data(data))));
        let body = StreamBody::new(futures_util::stream::iter(frames));
        let request = Request::builder().method(method).body(body).unwrap();
        let echo = service_fn(|request: Request<ReplayBody<_>>| {
            std::future::ready(Ok::<_, ()>(request.into_body()))
        });
        let call = ReplayLayer::default().layer(echo).call(request);
        let mut first = call.into_inner().unwrap();
        let copy = copied.then(|| first.try_replay().unwrap());
        assert_eq!(read(&mut first, 1).steps, [data("a")]);
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            read(&mut first, usize::MAX);
        }));
        assert!(unwound.is_err());
        let played = read(&mut first, usize::MAX);
        assert_eq!(played.steps, []);
        assert!(played.error.unwrap().is_source());
        if let Some(copy) = copy {
            assert!(!copy.can_replay());
            let played = drain(copy);
            assert_eq!(played.steps, []);
            assert!(played.error.unwrap().is_source());
        }
    }
}

#[test]
fn case_22_frames_after_the_end_are_never_asked_for() {
    let body = halting(&[data("a")]).afterlife(&[data("ghost")]);
    let mut first = ReplayBody::new(body, usize::MAX);
    let second = first.try_replay().unwrap();
    assert_eq!(read(&mut first, usize::MAX).steps, [data("a")]);
    assert_eq!(read(&mut first, usize::MAX).steps, []);
    assert_eq!(drain(second).steps, [data("a")]);
}

#[test]
fn case_31_the_size_told_is_the_same_on_every_attempt_and_never_below_what_is_left() {
    let steps = [data("abc"), data(vec![1; 2_000]), data("d")];
    for body in [
        halting(&steps),
        halting(&steps).sized(),
        halting(&steps).hint(4, Some(9_000)),
    ] {
        let first = ReplayBody::new(body, usize::MAX);
        let second = first.try_replay().unwrap();
        let third = second.try_replay().unwrap();
        let [first, second, third] = [first, second, third].map(drain);
        assert_eq!(first.answers, second.answers);
        assert_eq!(first.answers, third.answers);
        for (read, (_, upper, _)) in first.answers.iter().enumerate() {
            let left: u64 = steps[read..].iter().map(Step::len).sum();
            assert!(upper.is_none_or(|upper| upper >= left));
        }
    }
}

#[test]
fn case_31_a_size_that_was_unknown_stays_unknown_once_it_is_recorded() {
    let first = ReplayBody::new(halting(&[data("abc"), trailers()]), usize::MAX);
    let second = first.try_replay().unwrap();
    drain(first);
    assert_eq!(second.size_hint().lower(), 0);
    assert_eq!(second.size_hint().exact(), None);
}

#[test]
fn case_32_no_attempt_says_that_it_is_over_before_its_trailers() {
    let steps = [data("a"), data("b"), trailers()];
    for body in [halting(&steps), halting(&steps).aloud()] {
        let aloud = body.is_end_stream();
        assert!(!aloud);
        let first = ReplayBody::new(body, usize::MAX);
        let second = first.try_replay().unwrap();
        for played in [drain(first), drain(second)] {
            assert!(played.answers[..3].iter().all(|(_, _, over)| !over));
        }
    }
}

#[test]
fn case_32_a_source_that_names_its_last_frame_is_quoted_on_every_attempt() {
    let steps = [data("a"), data("b")];
    let first = ReplayBody::new(halting(&steps).aloud(), usize::MAX);
    let second = first.try_replay().unwrap();
    let third = second.try_replay().unwrap();
    for played in [drain(first), drain(second), drain(third)] {
        let over: Vec<bool> = played.answers.iter().map(|(_, _, over)| *over).collect();
        assert_eq!(over, [false, false, true]);
    }
}

#[test]
fn case_33_data_of_any_type_is_replayed_as_bytes() {
    fn check<D: Buf + 'static>(make: impl Fn() -> D) {
        let frames = [
            Ok::<_, Broken>(Frame::data(make())),
            Ok(Frame::data(make())),
        ];
        let body = StreamBody::new(futures_util::stream::iter(frames));
        let mut first = ReplayBody::new(body, usize::MAX);
        let second = first.try_replay().unwrap();
        assert_eq!(read(&mut first, 1).steps, [data("abcd")]);
        assert_eq!(drain(second).steps, [data("abcd"), data("abcd")]);
    }
    check(|| &b"abcd"[..]);
    check(|| VecDeque::from(*b"abcd"));
    check(|| Buf::chain(&b"ab"[..], Bytes::from_static(b"cd")));
    check(|| std::io::Cursor::new("abcd"));
}

#[tokio::test(start_paused = true)]
async fn case_36_nothing_is_read_during_a_wait_though_a_transport_reads_on() {
    let (read, body) = slow(5, usize::MAX);
    let mut first = ReplayBody::new(body, usize::MAX);
    let second = first.try_replay().unwrap();
    assert_eq!(read.load(Ordering::Relaxed), 0, "nothing is read ahead");
    first.frame().await.unwrap().unwrap();
    // As hyper does with the body of a request that was answered early.
    let abandoned = tokio::spawn(first.collect());
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(read.load(Ordering::Relaxed), 2);

    assert!(second.take_over());
    let error = abandoned.await.unwrap().unwrap_err();
    assert!(error.is_superseded());
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(read.load(Ordering::Relaxed), 2);

    let third = second.try_replay().unwrap();
    for attempt in [second, third] {
        assert_eq!(attempt.collect().await.unwrap().to_bytes(), "01234");
    }
    assert_eq!(read.load(Ordering::Relaxed), 5);
}

#[test]
fn bodies_in_memory_are_replayed_whatever_the_limit() {
    let text = "x".repeat(10_000);
    let full = ReplayBody::new(Full::new(Bytes::from(text.clone())), 0);
    let full_copy = full.try_replay().unwrap();
    let string = ReplayBody::new(text.clone(), 0);
    let string_copy = string.try_replay().unwrap();
    for attempt in [full, full_copy] {
        assert_eq!(attempt.size_hint().exact(), Some(10_000));
        let played = drain(attempt);
        assert_eq!(played.steps, [data(text.clone())]);
        assert_eq!(played.answers[1], (0, Some(0), true));
    }
    for attempt in [string, string_copy] {
        assert_eq!(drain(attempt).steps, [data(text.clone())]);
    }
}

#[test]
fn a_copy_of_an_attempt_under_way_starts_from_the_beginning() {
    let steps = [data("a"), data("b"), data("c")];
    let mut first = ReplayBody::new(halting(&steps), usize::MAX);
    let second = first.try_replay().unwrap();
    read(&mut first, 2);
    let third = first.try_replay().unwrap();
    drop((first, second));
    assert_eq!(drain(third).steps, steps);
}

/// Reads the script in every way that two abandoned attempts before the final one can take, with
/// the abandoned ones dropped and kept. Every attempt must be given what the source holds, and
/// answer alike at the same place.
fn every_way(steps: &[Step]) {
    let kept = recorded(steps);
    for make in [
        halting as fn(&[Step]) -> Scripted,
        |steps| Scripted::new(steps).sized(),
        |steps| halting(steps).aloud(),
    ] {
        let whole = drain(ReplayBody::new(make(steps), usize::MAX));
        assert_eq!(whole.steps, steps);
        for one in 0..=steps.len() {
            for two in 0..=steps.len() {
                for keep in [false, true] {
                    let mut first = ReplayBody::new(make(steps), usize::MAX);
                    let mut second = first.try_replay().unwrap();
                    let played = read(&mut first, one);
                    assert_eq!(played.steps, steps[..one]);
                    assert_eq!(played.answers, whole.answers[..=one]);
                    let first = keep.then_some(first);

                    let third = second.try_replay().unwrap();
                    read(&mut second, two);
                    let second = keep.then_some(second);

                    let played = drain(third);
                    assert!(played.error.is_none());
                    assert_eq!(recorded(&played.steps), kept);
                    if kept == steps {
                        assert_eq!(played.answers, whole.answers);
                    }
                    drop((first, second));
                }
            }
        }
    }
}
