//! A tower middleware that sends a failed request again, and knows when not to.
//!
//! [`RetryLayer`] wraps any `Service`. After every outcome its [`Policy`] is asked whether and when
//! the request is sent again. The ready-made [`StandardPolicy`] limits attempts, waits with jitter,
//! stays within a budget that all requests share, keeps a deadline, heeds what the server says, and
//! tells an observer what it decided. It is safe before it is configured.
//!
//! # A client
//!
#![cfg_attr(feature = "http", doc = "```")]
#![cfg_attr(not(feature = "http"), doc = "```ignore")]
//! use std::{convert::Infallible, time::Duration};
//! use http::{Request, Response, StatusCode};
//! use http_body_util::Empty;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_retry_layer::{RetryLayer, StandardPolicy};
//!
//! # type Body = Empty<bytes::Bytes>;
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! # let mut calls = 0;
//! # let client = service_fn(move |_: Request<Body>| {
//! #     calls += 1;
//! #     let status = if calls < 3 { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
//! #     std::future::ready(Ok::<_, Infallible>(Response::builder().status(status).body(()).unwrap()))
//! # });
//! # let client = tower::util::BoxCloneService::new(tower::buffer::Buffer::new(client, 8));
//! let client = ServiceBuilder::new()
//!     .layer(RetryLayer::new(StandardPolicy::http()))
//!     .timeout(Duration::from_secs(1)) // of each attempt
//!     .service(client);
//!
//! let request = Request::get("http://inventory/items").body(Body::new()).unwrap();
//! let response = client.oneshot(request).await.unwrap();
//! assert_eq!(response.status(), 200); // after two answers of 503
//! # });
//! ```
//!
//! # A policy of your own
//!
//! [`Policy`] has the shape of `tower::retry::Policy`: one written for tower compiles with this
//! import in its place. Budgets and backoffs are there to build with:
//!
//! ```
//! use std::sync::Arc;
//! use tokio::time::Sleep;
//! use tower_retry_layer::{
//!     Policy, RetryLayer,
//!     backoff::{Backoff, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff},
//!     budget::{Budget, TokenBudget},
//! };
//!
//! #[derive(Clone)] // a clone of the backoff starts over
//! struct OnTimeout {
//!     backoff: ExponentialBackoff,
//!     budget: Arc<dyn Budget>,
//! }
//!
//! impl<Req: Clone, Res> Policy<Req, Res, std::io::Error> for OnTimeout {
//!     type Future = Sleep;
//!
//!     fn retry(&mut self, _: &mut Req, result: &mut std::io::Result<Res>) -> Option<Sleep> {
//!         match result {
//!             Ok(_) => self.budget.deposit(),
//!             Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
//!                 return self.budget.withdraw().then(|| self.backoff.next_backoff());
//!             }
//!             Err(_) => {}
//!         }
//!         None
//!     }
//!
//!     fn clone_request(&mut self, request: &Req) -> Option<Req> {
//!         Some(request.clone())
//!     }
//! }
//!
//! let _layer = RetryLayer::new(OnTimeout {
//!     backoff: ExponentialBackoffMaker::default().make_backoff(),
//!     budget: Arc::new(TokenBudget::default()),
//! });
//! ```
//!
//! # When the compiler finds no method `call` or `oneshot`
//!
//! Write `Service::call(&mut service, request)`, or put `.check_service::<_, Req, Res, Error>()`
//! at the end of a `ServiceBuilder`: then it says what is missing. See [`Retry`].
//!
//! # Features
//!
//! The core builds without any.
//!
//! - `http` (default): [`StandardPolicy`] for `http` requests and responses.
//! - `hyper`: tells apart the errors of hyper, hyper-util and h2.
//! - `reqwest`: the layer over `reqwest::Client`.
//! - `grpc`: [`StandardPolicy`] for gRPC, as for tonic's channels; includes `hyper`.
//! - `tower`: both ways between this crate's traits and `tower::retry`'s.
//! - `tracing`, `metrics`: observers.
//! - `full`: all of them.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod backoff;
pub mod budget;
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub mod compat;
pub mod future;
#[cfg(feature = "grpc")]
#[cfg_attr(docsrs, doc(cfg(feature = "grpc")))]
pub mod grpc;
#[cfg(feature = "http")]
#[cfg_attr(docsrs, doc(cfg(feature = "http")))]
pub mod http;
mod layer;
pub mod observe;
mod policy;
mod protocol;
#[cfg(feature = "http")]
#[cfg_attr(docsrs, doc(cfg(feature = "http")))]
pub mod replay;
mod service;
mod standard;

pub use self::{
    layer::RetryLayer,
    policy::{End, Policy},
    protocol::{Attempt, ClassifyFn, Limits, OnError, Protocol, Verdict, classify_fn, on_error},
    service::Retry,
    standard::{StandardPolicy, Wait},
};
