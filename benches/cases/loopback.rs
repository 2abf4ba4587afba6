//! Clients and a server on loopback: the time for one request, with some of them under way at once.

use std::{
    convert::Infallible,
    net::SocketAddr,
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use ::http::{Request, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    client::legacy::{Client, Error},
    rt::{TokioExecutor, TokioIo},
};
use reqwest_retry::{RetryTransientMiddleware, policies::ExponentialBackoff};
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    task::LocalSet,
};
use tower::{Layer, Service, ServiceExt, layer::util::Identity};
use tower_retry_layer::{RetryLayer, StandardPolicy};

use super::{Group, Tower};

/// Requests that are under way at once, each on a connection of its own.
const AT_ONCE: u64 = 8;

const HELLO: &str = "hello";

pub(super) fn groups() -> Vec<Group> {
    let server = serve();
    vec![over_hyper(server), over_reqwest(server)]
}

fn over_hyper(server: SocketAddr) -> Group {
    let runtime = Rc::new(runtime());
    let client = || Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let tower = tower::retry::RetryLayer::new(Tower { budget: None });
    let ours = RetryLayer::new(StandardPolicy::http());
    let mut group = Group::new("hyper on loopback");
    group.timed(
        "bare",
        hyper(runtime.clone(), server, Identity::new().layer(client())),
    );
    group.timed(
        "tower",
        hyper(runtime.clone(), server, tower.layer(client())),
    );
    group.timed("ours", hyper(runtime.clone(), server, ours.layer(client())));
    group
}

fn over_reqwest(server: SocketAddr) -> Group {
    let runtime = Rc::new(runtime());
    let client = || {
        let client = reqwest::Client::builder().no_proxy();
        client.retry(reqwest::retry::never()).build().unwrap()
    };
    let mut group = Group::new("reqwest on loopback");
    let bare = client();
    group.timed(
        "bare",
        reqwest(runtime.clone(), server, move |request| {
            bare.execute(request)
        }),
    );
    let policy = ExponentialBackoff::builder().build_with_max_retries(2);
    let theirs = reqwest_middleware::ClientBuilder::new(client())
        .with(RetryTransientMiddleware::new_with_policy(policy))
        .build();
    group.timed(
        "reqwest-retry",
        reqwest(runtime.clone(), server, move |request| {
            let theirs = theirs.clone();
            async move { theirs.execute(request).await }
        }),
    );
    let ours = RetryLayer::new(StandardPolicy::http()).layer(client());
    group.timed(
        "ours",
        reqwest(runtime.clone(), server, move |request| {
            ours.clone().oneshot(request)
        }),
    );
    group
}

fn hyper<S>(runtime: Rc<Runtime>, server: SocketAddr, service: S) -> impl FnMut(u64) -> Duration
where
    S: Service<Request<Full<Bytes>>, Response = Response<Incoming>, Error = Error>,
    S: Clone + 'static,
{
    let url = format!("http://{server}/");
    clients(runtime, move || {
        let request = Request::get(&*url).body(Full::default()).unwrap();
        let answer = service.clone().oneshot(request);
        async move {
            let body = answer.await.unwrap().into_body();
            assert_eq!(body.collect().await.unwrap().to_bytes(), HELLO);
        }
    })
}

fn reqwest<A, E>(
    runtime: Rc<Runtime>,
    server: SocketAddr,
    send: impl Fn(reqwest::Request) -> A + 'static,
) -> impl FnMut(u64) -> Duration
where
    A: Future<Output = Result<reqwest::Response, E>> + 'static,
    E: std::fmt::Debug,
{
    let url: reqwest::Url = format!("http://{server}/").parse().unwrap();
    clients(runtime, move || {
        let answer = send(reqwest::Request::new(reqwest::Method::GET, url.clone()));
        async move {
            let answer = answer.await.unwrap();
            assert_eq!(answer.bytes().await.unwrap(), HELLO);
        }
    })
}

/// Sends so many requests, some of them at once.
fn clients<A: Future<Output = ()> + 'static>(
    runtime: Rc<Runtime>,
    send: impl Fn() -> A + 'static,
) -> impl FnMut(u64) -> Duration {
    let send = Rc::new(send);
    move |requests| {
        let local = LocalSet::new();
        for client in 0..AT_ONCE {
            let send = send.clone();
            let share = requests / AT_ONCE + u64::from(client < requests % AT_ONCE);
            local.spawn_local(async move {
                for _ in 0..share {
                    send().await;
                }
            });
        }
        let start = Instant::now();
        runtime.block_on(local);
        start.elapsed()
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Starts a server on a thread of its own; it ends with the process.
fn serve() -> SocketAddr {
    let runtime = runtime();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        runtime.block_on(async {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let hello = async |_: Request<Incoming>| {
                    Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(HELLO)))
                };
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(hello));
                tokio::spawn(connection);
            }
        })
    });
    address
}
