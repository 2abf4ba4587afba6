//! A copy takes over before it is read: what becomes of the attempts before it, and of the recording.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_retry_layer::{
    RetryLayer, StandardPolicy,
    budget::{Budget, TokenBudget},
    http::ReplayableBody,
    observe::{StopReason, on_finish},
    replay::{ReplayBody, ReplayError, ReplayLayer},
};

use crate::{
    replay_support::{Broken, Flag, Step, data, drain, halting, poll, read, slow, trailers},
    support::delays,
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A copy that a source can reach while it is polled.
type Shared = Arc<Mutex<Option<ReplayBody<Hooked>>>>;

/// What happens in the middle of the poll for the frame at this place.
type Hook = (usize, Box<dyn FnOnce() + Send>);

/// A source that does something in the middle of a poll, as another thread might.
struct Hooked {
    steps: std::vec::IntoIter<Result<&'static str, Broken>>,
    hook: Arc<Mutex<Option<Hook>>>,
    at: usize,
}

#[test]
fn the_attempts_before_it_fail_at_once_and_the_recording_goes_on() {
    let steps = [data("a"), data("b"), data("c"), trailers()];
    let layer = ReplayLayer::new(usize::MAX);
    let body = halting(&steps);
    let probe = body.probe();
    let mut first = wrap(&layer, body);
    let unread = first.try_replay().unwrap();
    let copy = first.try_replay().unwrap();
    assert_eq!(read(&mut first, 1).steps, steps[..1]);
    let old = Arc::new(Flag::default());
    assert!(poll(&mut first, &old.clone().into()).is_none());
    let (polls, held) = (probe.polls(), layer.held_bytes());
    old.take();

    assert!(copy.take_over());
    assert!(old.take(), "the former reader sleeps");
    assert!(!first.can_replay() && first.try_replay().is_none());
    assert!(!first.take_over() && !unread.take_over());
    for attempt in [first, unread] {
        assert!(drain(attempt).error.unwrap().is_superseded());
    }
    assert_eq!((probe.polls(), layer.held_bytes()), (polls, held));

    // The same as before, to whoever asks; and it may be told twice.
    assert!(copy.can_replay() && copy.take_over());
    let mut next = copy.try_replay().unwrap();
    assert_eq!(drain(copy).steps, steps);
    assert!(next.can_replay() && next.take_over());
    assert_eq!(read(&mut next, 1).steps, steps[..1]);
    assert!(next.take_over(), "it is the current one");
    assert_eq!(drain(next).steps, steps[1..]);
    assert_eq!(layer.held_bytes(), 0);
}

#[test]
fn one_that_is_dropped_unread_leaves_nothing_behind() {
    let layer = ReplayLayer::new(usize::MAX);
    let body = halting(&[data("a"), data("b")]);
    let probe = body.probe();
    let mut first = wrap(&layer, body);
    let copy = first.try_replay().unwrap();
    read(&mut first, 1);
    assert!(copy.take_over());
    drop(copy);
    assert_eq!(layer.held_bytes(), 0);
    assert!(probe.is_dropped());
    assert!(drain(first).error.unwrap().is_superseded());
}

#[test]
fn its_own_copy_outlives_it() {
    let steps = [data("a"), data("b")];
    let mut first = ReplayBody::new(halting(&steps), usize::MAX);
    let second = first.try_replay().unwrap();
    read(&mut first, 1);
    assert!(second.take_over());
    let third = second.try_replay().unwrap();
    drop(second);
    assert_eq!(drain(third).steps, steps);
}

#[test]
fn one_that_cannot_be_sent_does_not_take_over() {
    let steps = [data("ab"), data(vec![1; 3_000]), data("cd")];
    let mut first = ReplayBody::new(halting(&steps), 1_024);
    let copy = first.try_replay().unwrap();
    assert_eq!(read(&mut first, 2).steps, steps[..2]);
    assert!(!copy.take_over());
    assert_eq!(read(&mut first, usize::MAX).steps, steps[2..]);
    assert!(!first.take_over(), "it is over");
    assert!(drain(copy).error.unwrap().is_not_replayable());

    let mut first = ReplayBody::new(halting(&[Step::Fail]), usize::MAX);
    let copy = first.try_replay().unwrap();
    read(&mut first, 1);
    assert!(!copy.take_over() && !first.take_over());
}

#[test]
fn in_memory_nothing_is_shared() {
    let first = ReplayBody::new(Full::new(Bytes::from("abc")), 0);
    let second = first.try_replay().unwrap();
    assert!(second.take_over());
    assert_eq!(drain(first).steps, [data("abc")]);
    assert_eq!(drain(second).steps, [data("abc")]);
}

#[test]
fn what_is_read_at_that_moment_is_recorded_and_not_given_to_the_former_attempt() {
    let steps = vec![Ok("a"), Ok("b"), Ok("c")];
    let (mut first, copy) = taken_over_in_poll(steps, 1, usize::MAX);
    assert_eq!(read(&mut first, 1).steps, [data("a")]);
    let played = read(&mut first, usize::MAX);
    assert_eq!(played.steps, []);
    assert!(played.error.unwrap().is_superseded());
    let copy = copy.lock().unwrap().take().unwrap();
    let next = copy.try_replay().unwrap();
    for attempt in [copy, next] {
        assert_eq!(drain(attempt).steps, [data("a"), data("b"), data("c")]);
    }
}

#[test]
fn a_limit_crossed_at_that_moment_leaves_the_copy_whole() {
    let steps = vec![Ok("a"), Ok("bb"), Ok("c")];
    let (mut first, copy) = taken_over_in_poll(steps, 1, 65);
    assert_eq!(read(&mut first, 1).steps, [data("a")]);
    assert!(
        read(&mut first, 1).error.unwrap().is_superseded(),
        "the frame above the limit is the copy's"
    );
    let copy = copy.lock().unwrap().take().unwrap();
    assert!(!copy.can_replay() && copy.try_replay().is_none());
    assert!(copy.take_over(), "it can be sent all the same");
    assert_eq!(drain(copy).steps, [data("a"), data("bb"), data("c")]);
}

#[test]
fn a_failure_met_at_that_moment_is_the_copys() {
    let (mut first, copy) = taken_over_in_poll(vec![Ok("a"), Err(Broken)], 1, usize::MAX);
    read(&mut first, 1);
    assert!(read(&mut first, 1).error.unwrap().is_superseded());
    let copy = copy.lock().unwrap().take().unwrap();
    assert!(copy.try_replay().is_none());
    let played = drain(copy);
    assert_eq!(played.steps, [data("a")]);
    assert!(played.error.unwrap().is_source());
}

#[test]
fn containers_hand_it_on() {
    fn check<B: ReplayableBody>(wrap: impl Fn(ReplayBody<Hooked>) -> B) {
        let first = ReplayBody::new(Hooked::new(vec![Ok("a")]), usize::MAX);
        let copy = wrap(first.try_replay().unwrap());
        assert!(copy.take_over());
        assert!(!wrap(first).take_over());
    }
    check(|body| body);
    check(Some);
    check(Box::new);
    check(http_body_util::Either::<_, Full<Bytes>>::Left);
    check(http_body_util::Either::<Full<Bytes>, _>::Right);
    assert!(None::<ReplayBody<Hooked>>.take_over() && String::new().take_over());
}

// A failing server that goes on reading, as hyper does with an answered request's body. Read on
// during the wait, the body would outgrow its limit or fail, and the copy already decided on with it.
#[tokio::test(start_paused = true)]
async fn a_retry_that_is_decided_is_not_lost_to_the_abandoned_attempt() {
    for (limit, frames, fails, status, end) in [
        (3 * 65, 5, usize::MAX, Ok(200), (StopReason::Success, 2)),
        (1_000, 5, usize::MAX, Ok(200), (StopReason::Success, 2)),
        (1_000, 5, 3, Err(()), (StopReason::NotRetryable, 2)),
        // One that outgrew its limit before the server answered was never to be sent again.
        (64, 5, usize::MAX, Ok(503), (StopReason::NotReplayable, 1)),
    ] {
        let (read, body) = slow(frames, fails);
        let budget = Arc::new(TokenBudget::new(10, 0.5).unwrap());
        let (ends, calls) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let told = ends.clone();
        let policy = StandardPolicy::http()
            .backoff(delays(&[60_000]))
            .budget(budget.clone())
            .observe(on_finish(move |event| {
                told.lock().unwrap().push((event.reason, event.attempts));
            }));
        let (at_retry, abandoned) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
        let service = {
            let (read, at_retry, abandoned) = (read.clone(), at_retry.clone(), abandoned.clone());
            service_fn(move |request: Request<ReplayBody<_>>| {
                let first = std::mem::replace(&mut *calls.lock().unwrap(), 1) == 0;
                let (read, at_retry, abandoned) =
                    (read.clone(), at_retry.clone(), abandoned.clone());
                async move {
                    let mut body = request.into_body();
                    let mut response = Response::new(());
                    if first {
                        body.frame().await.expect("a first frame")?;
                        *abandoned.lock().unwrap() = Some(tokio::spawn(body.collect()));
                        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                    } else {
                        *at_retry.lock().unwrap() = Some(count(&read));
                        body.collect().await?;
                    }
                    Ok::<_, BoxError>(response)
                }
            })
        };
        let service = RetryLayer::new(policy).layer(service);
        let service = ReplayLayer::new(limit).layer(service);
        let request = Request::put("/").body(body).unwrap();
        let answer = service.oneshot(request).await;

        let answer = answer.map(|response| response.status().as_u16());
        assert_eq!(answer.map_err(|_: BoxError| ()), status);
        assert_eq!(*ends.lock().unwrap(), [end]);
        let abandoned = abandoned.lock().unwrap().take().unwrap();
        let abandoned = abandoned.await.unwrap();
        let retried = end.1 == 2;
        assert_eq!(*at_retry.lock().unwrap(), retried.then_some(1));
        assert_eq!(
            abandoned.is_err_and(|error: ReplayError| error.is_superseded()),
            retried
        );
        let lent = f64::from(u8::from(retried));
        let earned = if end.0 == StopReason::Success {
            0.5
        } else {
            0.0
        };
        assert_eq!(budget.level(), Some(10.0 - lent + earned));
    }
}

fn count(read: &std::sync::atomic::AtomicUsize) -> usize {
    read.load(std::sync::atomic::Ordering::Relaxed)
}

fn wrap<B: Body + Send + 'static>(layer: &ReplayLayer, body: B) -> ReplayBody<B> {
    let echo = service_fn(|request: Request<ReplayBody<B>>| {
        std::future::ready(Ok::<_, Infallible>(request.into_body()))
    });
    let call = layer.layer(echo).call(Request::new(body));
    call.into_inner().unwrap()
}

/// A first attempt, and its copy that takes over while the source is polled for the frame `at`.
fn taken_over_in_poll(
    steps: Vec<Result<&'static str, Broken>>,
    at: usize,
    limit: usize,
) -> (ReplayBody<Hooked>, Shared) {
    let source = Hooked::new(steps);
    let hook = source.hook.clone();
    let first = ReplayBody::new(source, limit);
    let copy = Arc::new(Mutex::new(first.try_replay()));
    let heir = copy.clone();
    let take_over = move || assert!(heir.lock().unwrap().as_ref().unwrap().take_over());
    *hook.lock().unwrap() = Some((at, Box::new(take_over)));
    (first, copy)
}

// === impl Hooked ===

impl Hooked {
    fn new(steps: Vec<Result<&'static str, Broken>>) -> Self {
        Self {
            steps: steps.into_iter(),
            hook: Arc::default(),
            at: 0,
        }
    }
}

impl Body for Hooked {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let at = self.at;
        self.at += 1;
        let hook = self.hook.lock().unwrap().take_if(|(place, _)| *place == at);
        if let Some((_, hook)) = hook {
            hook();
        }
        let step = self.steps.next();
        Poll::Ready(step.map(|step| step.map(|text| Frame::data(Bytes::from(text)))))
    }
}
