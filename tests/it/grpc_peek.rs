//! `PeekTrailersLayer`: what it sees, and that it takes nothing away.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use tokio::time::Instant;
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_retry_layer::{
    Attempt, Protocol, Verdict,
    grpc::{Grpc, PeekBody, PeekFuture, PeekTrailers, PeekTrailersLayer},
};

use crate::support::ms;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Data(&'static str),
    Trailers(&'static str),
    Fail,
}

use Step::{Data, Fail, Trailers};

/// A body of these steps. It says loudly when it is at its end, and how long it is, as hyper's do.
#[derive(Clone, Debug)]
struct Source {
    steps: VecDeque<Step>,
    /// Steps before which it is not ready, once each.
    pending: Vec<bool>,
    /// Never ready where it is not: nobody wakes the reader.
    asleep: bool,
}

#[derive(Debug, PartialEq)]
struct Broken;

/// Every kind of response, and what is known of it before its second frame.
fn scripts() -> Vec<(Vec<Step>, Verdict)> {
    vec![
        (vec![], Verdict::Stop),
        (vec![Trailers("14")], Verdict::Retry),
        (vec![Trailers("13")], Verdict::Stop),
        (vec![Trailers("0")], Verdict::Success),
        (vec![Trailers("")], Verdict::Stop),
        (vec![Fail], Verdict::Stop),
        (vec![Data("a")], Verdict::Success),
        (vec![Data("")], Verdict::Success),
        (vec![Data("a"), Trailers("14")], Verdict::Success),
        (vec![Data(""), Trailers("14")], Verdict::Success),
        (vec![Data("a"), Data("bc"), Trailers("0")], Verdict::Success),
        (vec![Data("a"), Fail], Verdict::Success),
        (vec![Data("a"), Data("b"), Fail], Verdict::Success),
    ]
}

#[tokio::test(start_paused = true)]
async fn every_frame_comes_through_wherever_the_body_is_not_ready() {
    for (steps, verdict) in scripts() {
        for pending in 0..1_u32 << (steps.len() + 1) {
            let pending: Vec<_> = (0..=steps.len()).map(|at| pending & 1 << at != 0).collect();
            for wait in [Duration::ZERO, SECOND] {
                let source = Source::new(&steps, &pending);
                let response = peek(wait, Response::new(source.clone())).await;
                // A body at its end says so without being polled.
                let seen = !pending[0] || !wait.is_zero() || steps.is_empty();
                let expected = if seen { verdict } else { Verdict::Success };
                assert_eq!(judge(&response), expected, "{source:?} {wait:?}");
                assert_eq!(
                    played(response.into_body()).await,
                    steps,
                    "{source:?} {wait:?}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_is_never_at_its_end_and_never_too_long_before_it_is() {
    for (steps, _) in scripts() {
        let response = peek(SECOND, Response::new(Source::new(&steps, &[]))).await;
        let mut body = response.into_body();
        for at in 0..=steps.len() {
            let left = &steps[at..];
            assert_eq!(body.is_end_stream(), left.is_empty(), "{steps:?} {at}");
            let bytes = bytes(left);
            let hint = body.size_hint();
            assert!(hint.lower() <= bytes, "{steps:?} {at}");
            assert!(
                hint.upper().is_none_or(|upper| upper >= bytes),
                "{steps:?} {at}"
            );
            if let [Trailers(_) | Fail, ..] = left
                && at == 0
            {
                assert_eq!(hint.exact(), None, "{steps:?}: trailers would be cut off");
            } else {
                assert_eq!(
                    hint.exact(),
                    Some(bytes),
                    "{steps:?} {at}: the source knows"
                );
            }
            next(&mut body).await;
        }
        assert!(next(&mut body).await.is_none(), "and stays there");
        assert!(body.is_end_stream());
    }
}

#[tokio::test]
async fn a_default_body_is_the_inner_one() {
    let mut body = PeekBody::<Full<Bytes>>::default();
    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
    assert!(next(&mut body).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_hint_beyond_all_numbers_does_not_overflow() {
    struct Huge(bool);

    impl Body for Huge {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let first = std::mem::replace(&mut self.0, false);
            Poll::Ready(first.then(|| Ok(Frame::data(Bytes::from_static(b"a")))))
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(u64::MAX)
        }
    }

    let service = service_fn(async |_: ()| Ok::<_, Infallible>(Response::new(Huge(true))));
    let service = PeekTrailersLayer::new(SECOND).layer(service);
    let body = service.oneshot(()).await.unwrap().into_body();
    let hint = body.size_hint();
    assert_eq!((hint.lower(), hint.upper()), (u64::MAX, None));
}

#[tokio::test(start_paused = true)]
async fn a_body_without_a_frame_is_not_asked_again() {
    /// Ends, says so to nobody, and must not be polled after that.
    struct Quiet(bool);

    impl Body for Quiet {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            assert!(
                !std::mem::replace(&mut self.0, true),
                "polled after its end"
            );
            Poll::Ready(None)
        }
    }

    let service = service_fn(async |_: ()| Ok::<_, Infallible>(Response::new(Quiet(false))));
    let service = PeekTrailersLayer::new(SECOND).layer(service);
    let mut body = service.oneshot(()).await.unwrap().into_body();
    for _ in 0..3 {
        assert!(body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(0));
        assert!(next(&mut body).await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_says_it_is_not_looked_behind() {
    let steps = [Trailers("14")];
    for (status, code, expected) in [
        (200, Some("0"), Verdict::Success),
        (200, Some("13"), Verdict::Stop),
        (200, None, Verdict::Retry),
        (404, None, Verdict::Stop),
        (503, None, Verdict::Retry),
    ] {
        let mut response = Response::builder().status(status);
        if let Some(code) = code {
            response = response.header("grpc-status", code);
        }
        let source = Source::new(&steps, &[]);
        let response = peek(SECOND, response.body(source).unwrap()).await;
        assert_eq!(judge(&response), expected, "{status} {code:?}");
        assert_eq!(played(response.into_body()).await, steps);
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_says_it_is_not_waited_behind() {
    for (status, code, wait) in [
        (200, Some("0"), Duration::ZERO),
        (200, Some("14"), Duration::ZERO),
        (503, None, Duration::ZERO),
        (200, None, SECOND),
    ] {
        let mut response = Response::builder().status(status);
        if let Some(code) = code {
            response = response.header("grpc-status", code);
        }
        let mut source = Source::new(&[Data("a")], &[true]);
        source.asleep = true;
        let started = Instant::now();
        peek(SECOND, response.body(source).unwrap()).await;
        assert_eq!(started.elapsed(), wait, "{status} {code:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_body_is_waited_for_no_longer_than_it_may_be() {
    let late = || {
        let mut source = Source::new(&[Trailers("14")], &[true]);
        source.asleep = true;
        Response::new(source)
    };
    for (wait, expected) in [
        (Duration::ZERO, Verdict::Success),
        // Nobody wakes the reader; the body is asked once more when the time is over.
        (ms(1), Verdict::Retry),
        (SECOND, Verdict::Retry),
    ] {
        let started = Instant::now();
        let response = peek(wait, late()).await;
        assert_eq!(started.elapsed(), wait);
        assert_eq!(judge(&response), expected);
        assert_eq!(played(response.into_body()).await, [Trailers("14")]);
    }
    // The bound counts from the head on, whatever the wait for the head.
    let mut peeking = task::spawn(layer(SECOND, &late).oneshot(request()));
    assert_pending!(peeking.poll());
    tokio::time::advance(ms(999)).await;
    assert!(!peeking.is_woken());
    tokio::time::advance(ms(2)).await;
    assert!(peeking.is_woken());
    assert_ready_ok!(peeking.poll());
    // No bound is too large.
    let mut peeking = task::spawn(layer(Duration::MAX, &late).oneshot(request()));
    assert_pending!(peeking.poll());
}

#[tokio::test]
async fn without_a_wait_there_is_no_timer() {
    // Nor a clock: outside of a runtime a timer would panic.
    std::thread::spawn(|| {
        let source = Source::new(&[Trailers("14")], &[true]);
        let mut service = layer(Duration::ZERO, move || Response::new(source.clone()));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(service.poll_ready(&mut cx).is_ready());
        let mut response = pin!(service.call(request()));
        assert!(response.as_mut().poll(&mut cx).is_ready());
    })
    .join()
    .unwrap();
}

#[tokio::test]
async fn an_error_is_passed_on() {
    let service = service_fn(async |_: ()| Err::<Response<Source>, _>(Broken));
    let service = PeekTrailersLayer::new(SECOND).layer(service);
    assert_eq!(service.oneshot(()).await.unwrap_err(), Broken);
}

#[tokio::test]
#[should_panic(expected = "polled after completion")]
async fn a_response_is_not_polled_again() {
    let source = Source::new(&[], &[]);
    let mut response =
        task::spawn(layer(SECOND, move || Response::new(source.clone())).call(request()));
    assert!(response.poll().is_ready());
    let _ = response.poll();
}

#[test]
fn the_types_are_what_services_need() {
    fn send_sync<T: Send + Sync + 'static>() {}
    fn unpin<T: Unpin>() {}
    type Ready = std::future::Ready<Result<Response<Source>, Infallible>>;
    send_sync::<PeekTrailersLayer>();
    send_sync::<PeekTrailers<()>>();
    send_sync::<PeekFuture<Ready, Source>>();
    send_sync::<PeekBody<Source>>();
    unpin::<PeekBody<Source>>();
    let mut service = PeekTrailersLayer::new(ms(5)).layer(7);
    *service.get_mut() += 1;
    assert_eq!(
        format!("{service:?}"),
        "PeekTrailers { inner: 8, max_wait: 5ms }"
    );
    assert_eq!((*service.get_ref(), service.into_inner()), (8, 8));
}

fn layer(
    wait: Duration,
    respond: impl Fn() -> Response<Source> + Clone,
) -> impl Service<
    Request<Full<Bytes>>,
    Response = Response<PeekBody<Source>>,
    Error = Infallible,
    Future: Future<Output = Result<Response<PeekBody<Source>>, Infallible>>,
> + Clone {
    let service = service_fn(move |_| std::future::ready(Ok(respond())));
    PeekTrailersLayer::new(wait).layer(service)
}

async fn peek(wait: Duration, response: Response<Source>) -> Response<PeekBody<Source>> {
    let respond = move || response.clone();
    layer(wait, respond).oneshot(request()).await.unwrap()
}

fn request() -> Request<Full<Bytes>> {
    Request::new(Full::default())
}

fn judge(response: &Response<PeekBody<Source>>) -> Verdict {
    // The verdict is read from the head; a head can be copied.
    let mut head = Response::new(());
    *head.status_mut() = response.status();
    head.headers_mut().clone_from(response.headers());
    head.extensions_mut().clone_from(response.extensions());
    let request = request();
    let outcome = Ok::<_, fmt::Error>(head);
    Grpc::new().classify(&Attempt::new(Some(&request), &outcome, 1))
}

async fn next<B>(body: &mut B) -> Option<Result<Frame<Bytes>, B::Error>>
where
    B: Body<Data = Bytes> + Unpin,
{
    std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}

async fn played(mut body: PeekBody<Source>) -> Vec<Step> {
    let mut steps = Vec::new();
    while let Some(frame) = next(&mut body).await {
        steps.push(match frame {
            Err(Broken) => Fail,
            Ok(frame) => match frame.into_data() {
                Ok(data) => Data(Vec::leak(data.to_vec()).utf8()),
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap();
                    let code = trailers.get("grpc-status");
                    Trailers(code.map_or("", |code| Vec::leak(code.as_bytes().to_vec()).utf8()))
                }
            },
        });
    }
    steps
}

fn bytes(steps: &[Step]) -> u64 {
    let lengths = steps.iter().map(|step| match step {
        Data(text) => text.len() as u64,
        Trailers(_) | Fail => 0,
    });
    lengths.sum()
}

trait Utf8 {
    fn utf8(self) -> &'static str;
}

impl Utf8 for &'static mut [u8] {
    fn utf8(self) -> &'static str {
        std::str::from_utf8(self).unwrap()
    }
}

// === impl Source ===

impl Source {
    fn new(steps: &[Step], pending: &[bool]) -> Self {
        Self {
            steps: steps.iter().cloned().collect(),
            pending: pending.iter().rev().copied().collect(),
            asleep: false,
        }
    }
}

impl Body for Source {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let last = self.pending.last_mut();
        if last.is_some_and(std::mem::take) {
            if !self.asleep {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        self.pending.pop();
        Poll::Ready(self.steps.pop_front().map(|step| match step {
            Data(text) => Ok(Frame::data(Bytes::from_static(text.as_bytes()))),
            Trailers("") => Ok(Frame::trailers(HeaderMap::new())),
            Trailers(code) => {
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", code.parse().unwrap());
                Ok(Frame::trailers(trailers))
            }
            Fail => Err(Broken),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let steps: Vec<_> = self.steps.iter().cloned().collect();
        SizeHint::with_exact(bytes(&steps))
    }
}
