//! The tests of tower's own retry module, with the values compared.

use std::{
    error::Error,
    future::{Ready, ready},
    time::Duration,
};

use tokio_test::{assert_pending, assert_ready};
use tower::util::ServiceExt;
use tower_retry_layer::{Policy, RetryLayer};
use tower_test::{assert_request_eq, mock};

type BoxError = Box<dyn Error + Send + Sync>;
type Outcome = Result<&'static str, BoxError>;

macro_rules! new_service {
    ($policy:expr) => {
        mock::spawn_layer::<&'static str, &'static str, _>(RetryLayer::new($policy))
    };
}

fn text(outcome: Outcome) -> Result<&'static str, String> {
    outcome.map_err(|error| error.to_string())
}

#[tokio::test(flavor = "current_thread")]
async fn an_error_is_retried_and_the_second_answer_returned() {
    let (mut service, mut handle) = new_service!(RetryErrors);
    assert_ready!(service.poll_ready()).unwrap();
    let mut future = tokio_test::task::spawn(service.call("hello"));
    assert_request_eq!(handle, "hello").send_error("retry me");
    assert_pending!(future.poll());
    assert_request_eq!(handle, "hello").send_response("world");
    assert_eq!(text(assert_ready!(future.poll())), Ok("world"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_limit_of_two_sends_three_and_returns_the_last_error() {
    let (mut service, mut handle) = new_service!(Limit(2));
    assert_ready!(service.poll_ready()).unwrap();
    let mut future = tokio_test::task::spawn(service.call("hello"));
    assert_request_eq!(handle, "hello").send_error("retry 1");
    assert_pending!(future.poll());
    assert_request_eq!(handle, "hello").send_error("retry 2");
    assert_pending!(future.poll());
    assert_request_eq!(handle, "hello").send_error("retry 3");
    assert_eq!(
        text(assert_ready!(future.poll())),
        Err("retry 3".to_owned())
    );
    drop((future, service));
    assert!(
        handle.next_request().await.is_none(),
        "a fourth request was sent"
    );
}

#[tokio::test(flavor = "current_thread")]
async fn a_policy_that_inspects_the_error_stops_at_the_one_it_rejects() {
    let (mut service, mut handle) = new_service!(UnlessErr("reject"));
    assert_ready!(service.poll_ready()).unwrap();
    let mut future = tokio_test::task::spawn(service.call("hello"));
    assert_request_eq!(handle, "hello").send_error("retry 1");
    assert_pending!(future.poll());
    assert_request_eq!(handle, "hello").send_error("reject");
    assert_eq!(text(assert_ready!(future.poll())), Err("reject".to_owned()));
}

#[tokio::test(flavor = "current_thread")]
async fn an_error_without_a_copy_is_returned_and_the_policy_not_asked() {
    let (mut service, mut handle) = new_service!(CannotClone);
    assert_ready!(service.poll_ready()).unwrap();
    let mut future = tokio_test::task::spawn(service.call("hello"));
    assert_request_eq!(handle, "hello").send_error("retry 1");
    assert_eq!(
        text(assert_ready!(future.poll())),
        Err("retry 1".to_owned())
    );
}

#[tokio::test(flavor = "current_thread")]
async fn a_success_without_a_copy_is_returned() {
    let (mut service, mut handle) = new_service!(CannotClone);
    assert_ready!(service.poll_ready()).unwrap();
    let mut future = tokio_test::task::spawn(service.call("hello"));
    assert_request_eq!(handle, "hello").send_response("world");
    assert_eq!(text(assert_ready!(future.poll())), Ok("world"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_policy_may_change_the_request_and_the_result() {
    let (mut service, mut handle) = new_service!(MutatingPolicy { remaining: 2 });
    assert_ready!(service.poll_ready()).unwrap();
    let mut future = tokio_test::task::spawn(service.call("hello"));
    assert_request_eq!(handle, "hello").send_response("world");
    assert_pending!(future.poll());
    assert_request_eq!(handle, "retrying").send_response("world");
    assert_pending!(future.poll());
    assert_request_eq!(handle, "retrying").send_response("world");
    assert_eq!(
        text(assert_ready!(future.poll())),
        Err("out of retries".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn it_stacks_with_buffer_and_limits() {
    let (service, mut handle) = mock::pair::<bool, &'static str>();
    let service = tower::ServiceBuilder::new()
        .buffer(5)
        .concurrency_limit(5)
        .rate_limit(5, Duration::from_secs(5))
        .layer(RetryLayer::new(Limit(1)))
        .map_response(|answer: &'static str| answer == "world")
        .map_request(|request: &'static str| request == "hello")
        .service(service);
    let answer = tokio::spawn(service.oneshot("hello"));
    assert_request_eq!(handle, true).send_response("world");
    assert!(answer.await.unwrap().unwrap());
}

#[derive(Clone)]
struct RetryErrors;

impl Policy<&'static str, &'static str, BoxError> for RetryErrors {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut &'static str, result: &mut Outcome) -> Option<Ready<()>> {
        result.is_err().then(|| ready(()))
    }

    fn clone_request(&mut self, request: &&'static str) -> Option<&'static str> {
        Some(*request)
    }
}

#[derive(Clone)]
struct Limit(usize);

impl<Req: Clone, Res, E> Policy<Req, Res, E> for Limit {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut Req, result: &mut Result<Res, E>) -> Option<Ready<()>> {
        if result.is_err() && self.0 > 0 {
            self.0 -= 1;
            Some(ready(()))
        } else {
            None
        }
    }

    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }
}

#[derive(Clone)]
struct UnlessErr(&'static str);

impl Policy<&'static str, &'static str, BoxError> for UnlessErr {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut &'static str, result: &mut Outcome) -> Option<Ready<()>> {
        let error = result.as_ref().err()?;
        (error.to_string() != self.0).then(|| ready(()))
    }

    fn clone_request(&mut self, request: &&'static str) -> Option<&'static str> {
        Some(*request)
    }
}

#[derive(Clone)]
struct CannotClone;

impl Policy<&'static str, &'static str, BoxError> for CannotClone {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut &'static str, _: &mut Outcome) -> Option<Ready<()>> {
        unreachable!("asked without a copy")
    }

    fn clone_request(&mut self, _: &&'static str) -> Option<&'static str> {
        None
    }
}

#[derive(Clone)]
struct MutatingPolicy {
    remaining: usize,
}

impl Policy<&'static str, &'static str, BoxError> for MutatingPolicy {
    type Future = Ready<()>;

    fn retry(&mut self, request: &mut &'static str, result: &mut Outcome) -> Option<Ready<()>> {
        if self.remaining == 0 {
            *result = Err("out of retries".into());
            return None;
        }
        self.remaining -= 1;
        *request = "retrying";
        Some(ready(()))
    }

    fn clone_request(&mut self, request: &&'static str) -> Option<&'static str> {
        Some(*request)
    }
}
