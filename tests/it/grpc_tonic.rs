//! tonic's own client and server, with its health service: the client's code is what it was.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::Stream;
use tokio::time::Instant;
use tonic::{
    Code, Request, Response, Status,
    codec::CompressionEncoding,
    codegen::{Body, StdError},
    metadata::MetadataMap,
    transport::Endpoint,
};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse,
    health_client::HealthClient,
    health_server::{Health, HealthServer},
};
use tower::ServiceBuilder;
use tower_retry_layer::{
    RetryLayer,
    backoff::Schedule,
    grpc::{Grpc, PeekTrailersLayer},
    observe::{StopReason, on_retry},
    replay::ReplayLayer,
};

use crate::{
    support::{Events, ms},
    support_grpc::{channel, peeking, policy, stack, tonic_net},
    support_http::Net,
};

const SECOND: Duration = Duration::from_secs(1);

type Failure = fn() -> Status;

/// A health service that fails so many calls, and keeps what it saw.
#[derive(Clone)]
struct Flaky {
    failures: Arc<AtomicUsize>,
    failure: Failure,
    seen: Arc<Mutex<Vec<(MetadataMap, String)>>>,
}

#[tokio::test(start_paused = true)]
async fn a_client_that_knows_nothing_of_it_is_carried_through() {
    let service = Flaky::new(2, || Status::unavailable("starting"));
    let net = service.net();
    // The same code over both.
    let bare = ask(HealthClient::new(channel(&net))).await;
    assert_eq!(bare.unwrap_err().code(), Code::Unavailable);
    let retried = ask(HealthClient::new(stack(&net, policy()))).await;
    assert_eq!(retried.unwrap(), 1);
    assert_eq!(service.calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_last_status_comes_through_whole() {
    let service = Flaky::new(9, || {
        let mut status =
            Status::with_details(Code::Unavailable, "no way", Bytes::from_static(b"why"));
        status
            .metadata_mut()
            .insert("mine", "kept".parse().unwrap());
        status
    });
    let mut client = HealthClient::new(stack(&service.net(), policy()));
    let status = client
        .check(HealthCheckRequest::default())
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "no way")
    );
    assert_eq!(status.details(), b"why");
    assert_eq!(status.metadata().get("mine").unwrap(), "kept");
    assert_eq!(service.calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn every_code_of_a_handler_is_retried_or_not() {
    const FAILURES: [Failure; 16] = [
        || Status::cancelled(""),
        || Status::unknown(""),
        || Status::invalid_argument(""),
        || Status::deadline_exceeded(""),
        || Status::not_found(""),
        || Status::already_exists(""),
        || Status::permission_denied(""),
        || Status::resource_exhausted(""),
        || Status::failed_precondition(""),
        || Status::aborted(""),
        || Status::out_of_range(""),
        || Status::unimplemented(""),
        || Status::internal(""),
        || Status::unavailable(""),
        || Status::data_loss(""),
        || Status::unauthenticated(""),
    ];
    for failure in FAILURES {
        let code = failure().code();
        let service = Flaky::new(1, failure);
        let result = ask(HealthClient::new(stack(&service.net(), policy()))).await;
        let retried = code == Code::Unavailable;
        assert_eq!(result.is_ok(), retried, "{code:?}");
        assert_eq!(service.calls(), 1 + usize::from(retried), "{code:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_sees_the_attempts_counted_and_the_timeout_fall() {
    let service = Flaky::new(3, || Status::unavailable(""));
    let mut client = HealthClient::new(stack(&service.net(), policy().max_attempts(4)));
    let mut request = Request::new(HealthCheckRequest::default());
    request.set_timeout(20 * SECOND);
    client.check(request).await.unwrap();
    let seen = service.seen.lock().unwrap();
    let header = |name: &str| -> Vec<_> {
        let values = seen.iter().map(|(metadata, _)| metadata.get(name));
        values
            .map(|value| value.map(|it| it.to_str().unwrap()))
            .collect()
    };
    let previous = header("grpc-previous-rpc-attempts");
    assert_eq!(previous, [None, Some("1"), Some("2"), Some("3")]);
    let timeouts = ["20000000u", "19000000u", "18000000u", "17000000u"];
    assert_eq!(header("grpc-timeout"), timeouts.map(Some));
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_push_back() {
    let service = Flaky::new(1, || {
        let mut status = Status::unavailable("");
        let metadata = status.metadata_mut();
        metadata.insert("grpc-retry-pushback-ms", "250".parse().unwrap());
        status
    });
    let started = Instant::now();
    let result = ask(HealthClient::new(stack(&service.net(), policy()))).await;
    assert_eq!((result.unwrap(), started.elapsed()), (1, ms(250)));
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_first_item_is_an_error_is_retried_where_someone_looks() {
    // tonic's server sends a head at once and the error in trailers.
    for (wait, requests) in [(None, 1), (Some(Duration::ZERO), 2), (Some(SECOND), 2)] {
        let service = Flaky::new(1, || Status::unavailable("starting"));
        let net = service.net();
        let stack = match wait {
            None => stack(&net, policy()),
            Some(wait) => peeking(&net, policy(), wait),
        };
        let mut client = HealthClient::new(stack);
        let response = client.watch(HealthCheckRequest::default()).await.unwrap();
        let first = response.into_inner().message().await;
        assert_eq!(first.is_ok(), requests == 2, "{wait:?}");
        if let Err(status) = first {
            assert_eq!(
                (status.code(), status.message()),
                (Code::Unavailable, "starting")
            );
        }
        assert_eq!(service.calls(), requests, "{wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_interceptor_above_may_refuse_or_pass_on() {
    let service = Flaky::new(1, || Status::unavailable(""));
    // Not boxed: the body is a `PeekBody`, which the interceptor makes one of if it refuses.
    let stack = ServiceBuilder::new()
        .layer(ReplayLayer::default())
        .layer(RetryLayer::new(policy()))
        .layer(PeekTrailersLayer::new(SECOND))
        .map_request(|request: http::Request<_>| request.map(tonic::body::Body::new))
        .service(channel(&service.net()));
    for (refuses, code, calls) in [(true, Code::Aborted, 0), (false, Code::Ok, 2)] {
        let interceptor = move |request: Request<()>| match refuses {
            true => Err(Status::aborted("not today")),
            false => Ok(request),
        };
        let mut client = HealthClient::with_interceptor(stack.clone(), interceptor);
        let result = client.check(HealthCheckRequest::default()).await;
        let seen = result.err().map_or(Code::Ok, |status| status.code());
        assert_eq!((seen, service.calls()), (code, calls));
    }
}

#[tokio::test(start_paused = true)]
async fn peeked_trailers_come_through_whole() {
    let service = Flaky::new(9, || {
        let details = Bytes::from_static(b"why");
        Status::with_details(Code::FailedPrecondition, "not yet", details)
    });
    let mut client = HealthClient::new(peeking(&service.net(), policy(), SECOND));
    let response = client.watch(HealthCheckRequest::default()).await.unwrap();
    let status = response.into_inner().message().await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::FailedPrecondition, "not yet")
    );
    assert_eq!(status.details(), b"why");
    assert_eq!(service.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_compressed_message_is_understood_on_every_attempt() {
    let service = Flaky::new(2, || Status::unavailable(""));
    let server = HealthServer::new(service.clone())
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
    let mut client = HealthClient::new(stack(&tonic_net(server), policy()))
        .send_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Gzip);
    let name = "a service ".repeat(100);
    let request = HealthCheckRequest {
        service: name.clone(),
    };
    client.check(request).await.unwrap();
    let seen = service.seen.lock().unwrap();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|(_, service)| *service == name));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_restarts_costs_no_call() {
    let service = Flaky::new(0, || Status::unavailable(""));
    let net = service.net();
    let events = Events::default();
    let client = HealthClient::new(stack(&net, policy().observe(events.clone())));
    assert_eq!(ask(client.clone()).await.unwrap(), 1);
    net.set_up(false);
    let call = tokio::spawn(ask(HealthClient::new(stack(&net, policy()))));
    tokio::time::sleep(ms(500)).await;
    net.set_up(true);
    assert_eq!(call.await.unwrap().unwrap(), 1);
    assert_eq!(ask(client).await.unwrap(), 1);
    assert_eq!(events.reasons(), [StopReason::Success; 2]);
    assert_eq!(service.calls(), 3);
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_that_is_not_there_yet_costs_no_call() {
    use std::os::unix::net::UnixListener;

    let path = std::env::temp_dir().join(format!("retry-layer-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let (made, listener) = tokio::sync::mpsc::unbounded_channel();
    let (at, tries) = (path.clone(), Arc::new(AtomicUsize::new(0)));
    let tried = tries.clone();
    // It is made once the call has been told twice that it is not there.
    let policy = policy().backoff(Schedule::new([ms(1)]).unwrap());
    let policy = policy.observe(on_retry(move |event| {
        assert_eq!(event.error_type, "connect");
        if tried.fetch_add(1, Ordering::SeqCst) == 1 {
            let _ = made.send(UnixListener::bind(&at).unwrap());
        }
    }));
    let service = Flaky::new(0, || Status::unavailable(""));
    let health = HealthServer::new(service.clone());
    let server = tokio::spawn(async move {
        let mut listener = listener;
        let listener = listener.recv().await.unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::UnixListener::from_std(listener).unwrap();
        let incoming = futures_util::stream::unfold(listener, |listener| async {
            Some((listener.accept().await.map(|(stream, _)| stream), listener))
        });
        let server = tonic::transport::Server::builder().add_service(health);
        server.serve_with_incoming(incoming).await
    });
    let channel = Endpoint::from_shared(format!("unix://{}", path.display())).unwrap();
    let stack = ServiceBuilder::new()
        .layer(ReplayLayer::default())
        .layer(RetryLayer::new(policy))
        .map_request(|request: http::Request<_>| request.map(tonic::body::Body::new))
        .service(channel.connect_lazy());
    let result = ask(HealthClient::new(stack)).await;
    server.abort();
    let _ = std::fs::remove_file(&path);
    assert_eq!(result.unwrap(), 1);
    assert_eq!((tries.load(Ordering::SeqCst), service.calls()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn one_method_may_be_retried_on_more_than_another() {
    let rules = Grpc::new().retry_code_for(
        "/grpc.health.v1.Health/Check",
        tower_retry_layer::grpc::Code::Aborted,
    );
    let policy = tower_retry_layer::StandardPolicy::new(rules);
    let service = Flaky::new(1, || Status::aborted(""));
    let net = service.net();
    assert_eq!(
        ask(HealthClient::new(stack(&net, policy.clone())))
            .await
            .unwrap(),
        1
    );
    let service = Flaky::new(1, || Status::aborted(""));
    let mut client = HealthClient::new(peeking(&service.net(), policy, SECOND));
    let response = client.watch(HealthCheckRequest::default()).await.unwrap();
    let status = response.into_inner().message().await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
}

/// What a user's code looks like, generic as generated clients are.
async fn ask<T>(mut client: HealthClient<T>) -> Result<i32, Status>
where
    T: tonic::client::GrpcService<tonic::body::Body>,
    T::Error: Into<StdError>,
    T::ResponseBody: Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as Body>::Error: Into<StdError> + Send,
{
    let response = client.check(HealthCheckRequest::default()).await?;
    Ok(response.into_inner().status)
}

// === impl Flaky ===

impl Flaky {
    fn new(failures: usize, failure: Failure) -> Self {
        Self {
            failures: Arc::new(AtomicUsize::new(failures)),
            failure,
            seen: Arc::default(),
        }
    }

    fn net(&self) -> Net {
        tonic_net(HealthServer::new(self.clone()))
    }

    fn calls(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    fn next(&self, request: Request<HealthCheckRequest>) -> Result<HealthCheckResponse, Status> {
        let (metadata, _, message) = request.into_parts();
        self.seen.lock().unwrap().push((metadata, message.service));
        let left = self
            .failures
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        match left {
            Ok(_) => Err((self.failure)()),
            Err(_) => Ok(HealthCheckResponse { status: 1 }),
        }
    }
}

#[tonic::async_trait]
impl Health for Flaky {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.next(request).map(Response::new)
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    /// One item: the state, or the error.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let item = self.next(request);
        Ok(Response::new(Box::pin(futures_util::stream::iter([item]))))
    }
}
