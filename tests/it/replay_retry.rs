//! The replay layer above the retry layer: a streaming request is retried, and its memory follows.

use std::{
    collections::VecDeque,
    error::Error,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tower::{Layer, ServiceExt, service_fn};
use tower_retry_layer::{
    RetryLayer, StandardPolicy,
    observe::{StopReason, on_finish},
    replay::{ReplayBody, ReplayLayer},
};

use crate::replay_support::{Broken, Scripted, Step, data, halting, trailers};

type BoxError = Box<dyn Error + Send + Sync>;
type Attempt = Request<ReplayBody<Scripted>>;

/// What the server does with one attempt.
#[derive(Clone, Copy)]
enum Act {
    /// Answers after so many frames, and keeps the body.
    After(usize, StatusCode),
    /// Answers after the whole body.
    All(StatusCode),
}

/// A server that acts as told, one attempt after the other, and what came of it.
#[derive(Clone)]
struct Server {
    acts: Arc<Mutex<VecDeque<Act>>>,
    /// Bytes of the attempts that were read to the end.
    whole: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Bodies that the transport has not let go of.
    kept: Arc<Mutex<Vec<ReplayBody<Scripted>>>>,
    reasons: Arc<Mutex<Vec<(StopReason, u32)>>>,
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_sent_again_until_it_is_accepted() {
    let server = Server::new(&[busy_after(0), busy_after(2), Act::All(StatusCode::OK)]);
    let layer = ReplayLayer::new(usize::MAX);
    let response = server.call(&layer, put(halting(&script()))).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(*server.whole.lock().unwrap(), [b"abc"]);
    assert_eq!(server.reasons(), [(StopReason::Success, 3)]);
    assert_eq!(layer.held_bytes(), 0);

    // The transport still has the bodies of the abandoned attempts, and they are revoked.
    let kept = std::mem::take(&mut *server.kept.lock().unwrap());
    for abandoned in kept {
        let error = abandoned.collect().await.unwrap_err();
        assert!(error.is_superseded());
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_above_the_limit_is_sent_once_and_the_failure_is_the_outcome() {
    let server = Server::new(&[Act::All(StatusCode::SERVICE_UNAVAILABLE)]);
    let layer = ReplayLayer::new(100);
    let response = server.call(&layer, put(halting(&script()))).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(*server.whole.lock().unwrap(), [b"abc"]);
    assert_eq!(server.reasons(), [(StopReason::NotReplayable, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_announces_too_much_is_sent_once() {
    let server = Server::new(&[Act::All(StatusCode::SERVICE_UNAVAILABLE)]);
    let body = halting(&script()).hint(1_000, None);
    let response = server
        .call(&ReplayLayer::new(100), put(body))
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(server.reasons(), [(StopReason::NotReplayable, 1)]);
}

#[tokio::test(start_paused = true)]
async fn an_accepted_upload_goes_on_without_its_recording() {
    let server = Server::new(&[Act::After(2, StatusCode::OK)]);
    let layer = ReplayLayer::new(usize::MAX);
    let response = server.call(&layer, put(halting(&script()))).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(layer.held_bytes(), 0);
    let body = server.kept.lock().unwrap().pop().unwrap();
    let rest = body.collect().await.unwrap();
    assert!(rest.trailers().is_some());
    assert_eq!(rest.to_bytes(), "c");
    assert_eq!(layer.held_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_last_attempt_records_nothing() {
    let server = Server::new(&[busy_after(3), busy_after(0), busy_after(1)]);
    let layer = ReplayLayer::new(usize::MAX);
    let response = server.call(&layer, put(halting(&script()))).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(server.reasons(), [(StopReason::AttemptsExhausted, 3)]);
    // Three frames were recorded; the last attempt was given one and has two ahead of it.
    let last = server.kept.lock().unwrap().pop().unwrap();
    assert_eq!(layer.held_bytes(), 2 * 65);
    assert_eq!(last.collect().await.unwrap().to_bytes(), "bc");
    assert_eq!(layer.held_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_leaves_nothing_behind() {
    let server = Server::new(&[busy_after(2)]);
    let layer = ReplayLayer::new(usize::MAX);
    let body = halting(&script());
    let probe = body.probe();
    let call = server.call(&layer, put(body));
    // The first attempt is over at once, and the wait is longer than nothing.
    assert!(tokio::time::timeout(Duration::ZERO, call).await.is_err());
    assert_eq!(layer.held_bytes(), 0);
    server.kept.lock().unwrap().clear();
    assert!(probe.is_dropped());
    assert_eq!(server.reasons(), [(StopReason::Cancelled, 1)]);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_body_is_not_retried_and_reaches_the_caller() {
    let server = Server::new(&[Act::All(StatusCode::OK)]);
    let layer = ReplayLayer::new(usize::MAX);
    let steps = [data("a"), Step::Fail];
    let error = server.call(&layer, put(halting(&steps))).await.unwrap_err();
    assert_eq!(error.source().unwrap().downcast_ref(), Some(&Broken));
    assert_eq!(server.reasons(), [(StopReason::NotRetryable, 1)]);
    assert!(server.whole.lock().unwrap().is_empty());
}

fn script() -> [Step; 4] {
    [data("a"), data("b"), data("c"), trailers()]
}

fn busy_after(frames: usize) -> Act {
    Act::After(frames, StatusCode::SERVICE_UNAVAILABLE)
}

fn put(body: Scripted) -> Request<Scripted> {
    Request::put("/").body(body).unwrap()
}

// === impl Server ===

impl Server {
    fn new(acts: &[Act]) -> Self {
        Self {
            acts: Arc::new(Mutex::new(acts.iter().copied().collect())),
            whole: Arc::default(),
            kept: Arc::default(),
            reasons: Arc::default(),
        }
    }

    fn reasons(&self) -> Vec<(StopReason, u32)> {
        self.reasons.lock().unwrap().clone()
    }

    async fn call(
        &self,
        layer: &ReplayLayer,
        request: Request<Scripted>,
    ) -> Result<Response<()>, BoxError> {
        let server = self.clone();
        let service = service_fn(move |attempt: Attempt| server.clone().answer(attempt));
        let reasons = self.reasons.clone();
        let policy = StandardPolicy::http().observe(on_finish(move |it| {
            reasons.lock().unwrap().push((it.reason, it.attempts));
        }));
        let service = RetryLayer::new(policy).layer(service);
        layer.layer(service).oneshot(request).await
    }

    async fn answer(self, attempt: Attempt) -> Result<Response<()>, BoxError> {
        let act = self
            .acts
            .lock()
            .unwrap()
            .pop_front()
            .expect("one attempt too many");
        let mut body = attempt.into_body();
        let status = match act {
            Act::After(frames, status) => {
                for _ in 0..frames {
                    body.frame().await.expect("a frame")?;
                }
                self.kept.lock().unwrap().push(body);
                status
            }
            Act::All(status) => {
                let whole = body.collect().await?.to_bytes();
                self.whole.lock().unwrap().push(whole.to_vec());
                status
            }
        };
        let mut response = Response::new(());
        *response.status_mut() = status;
        Ok(response)
    }
}
