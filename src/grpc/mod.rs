//! gRPC: what may be sent again, when, and what the server is told of it.
//!
//! [`Grpc`] holds the rules, those of gRPC's own retries ([proposal A6]);
//! [`StandardPolicy::grpc`](crate::StandardPolicy::grpc) is the policy that starts from them. They are
//! written against `http`'s types, so they fit under every gRPC client that is a tower service, and
//! nothing here is tonic's.
//!
//! # Under a tonic client
//!
//! The client's code stays as it is; only the channel that it is given changes:
//!
//! ```
//! use http::Request;
//! use tonic::{body::Body, transport::Endpoint};
//! use tonic_health::pb::health_client::HealthClient;
//! use tower::ServiceBuilder;
//! use tower_retry_layer::{RetryLayer, StandardPolicy, replay::ReplayLayer};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let channel = Endpoint::from_static("http://inventory:50051").connect_lazy();
//! let channel = ServiceBuilder::new()
//!     .layer(ReplayLayer::default()) // records each request while it is sent
//!     .layer(RetryLayer::new(StandardPolicy::grpc()))
//!     .map_request(|request: Request<_>| request.map(Body::new)) // what the channel takes
//!     .service(channel);
//! let _client = HealthClient::new(channel);
//! # });
//! ```
//!
//! What is to be new on each attempt, such as a token in the metadata, goes below the retry layer,
//! and so does a [`PeekTrailersLayer`], for servers that put the status of a failed call into
//! trailers. An attempt that an interceptor down there refuses counts as one, and is judged by the
//! code that it refused with. To write down the channel's type, box it:
//! `tower::util::BoxCloneSyncService`, over which a client is `Sync` as it is over tonic's channel.
//!
//! A call is retried until its response begins. Errors that come after a message of a stream are
//! the caller's, and so is a request that outgrew the recording. Calls in both directions are no
//! exception: what was sent is recorded until the response's head comes, which commits. To the
//! budget, a response that has begun is a success; a failure in trailers that no
//! [`PeekTrailersLayer`] looked at deposits like one.
//!
//! # Deadlines
//!
//! The client's timeout, [`total_timeout`](crate::StandardPolicy::total_timeout) and the extension
//! [`Deadline`](crate::http::Deadline) bound the session, the earliest of them counts, and every
//! attempt carries what is left of it as `grpc-timeout`. The server heeds that, and so does the timer
//! of tonic's channel. So over gRPC they do end an attempt in flight, which the retry layer by
//! itself never does.
//!
//! # A service config
//!
//! What A6 takes from a service config is set on the policy. Differences are on purpose, and named:
//!
//! | key | setter | |
//! |---|---|---|
//! | `maxAttempts` | [`max_attempts`](crate::StandardPolicy::max_attempts) | 3 unless set; A6's clients cut it to 5 |
//! | `initialBackoff`, `maxBackoff`, `backoffMultiplier` | [`backoff`](crate::StandardPolicy::backoff) | 50 ms, 20 s and 2 unless set; no delay is above the maximum, where A6's may be by a fifth |
//! | (the jitter of A6, ±20 %) | [`Jitter::Proportional`](crate::backoff::Jitter::Proportional)`(0.2)` | full jitter unless set: it spreads clients better for the same number of calls |
//! | `retryableStatusCodes` | [`Grpc::retry_code`], [`Grpc::retry_code_for`] | `UNAVAILABLE` unless set |
//! | `retryThrottling` | [`budget`](crate::StandardPolicy::budget) with a [`RetryThrottle`](crate::budget::RetryThrottle) | a [`TokenBudget`](crate::budget::TokenBudget) unless set: it bounds retries, the throttle stops them |
//! | `timeout` | [`total_timeout`](crate::StandardPolicy::total_timeout) | see [Deadlines](#deadlines) |
//!
//! ```
//! use std::time::Duration;
//! use tower_retry_layer::{
//!     StandardPolicy,
//!     backoff::{ExponentialBackoffMaker, Jitter, Seeds},
//!     budget::RetryThrottle,
//!     grpc::{Code, Grpc},
//! };
//!
//! let (initial, max) = (Duration::from_millis(100), Duration::from_secs(1));
//! let jitter = Jitter::Proportional(0.2);
//! let rules: Grpc = Grpc::default().retry_code(Code::ResourceExhausted);
//! let _policy = StandardPolicy::new(rules)
//!     .max_attempts(4)
//!     .backoff(ExponentialBackoffMaker::new(initial, max, jitter, Seeds::random())?.with_factor(1.5)?)
//!     .budget(RetryThrottle::new(10, 0.1)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [proposal A6]: https://github.com/grpc/proposal/blob/master/A6-client-retries.md

mod call;
mod code;
mod end;
mod error;
mod peek;
mod peek_body;
mod protocol;
mod pushback;
mod rules;
mod timeout;

pub use self::{
    call::Call,
    code::Code,
    peek::{PeekFuture, PeekTrailers, PeekTrailersLayer},
    peek_body::PeekBody,
    rules::Grpc,
};
