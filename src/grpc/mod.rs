//! gRPC: what may be sent again, when, and what the server is told of it.
//!
//! [`Grpc`] holds the rules, those of gRPC's own retries ([proposal A6]);
//! [`StandardPolicy::grpc`](crate::StandardPolicy::grpc) is the policy that starts from them. They are
//! written against `http`'s types, so they fit under every gRPC client that is a tower service, and
//! nothing here is tonic's.
//!
//! # Under a tonic client
//!
//! ```ignore
//! let channel = ServiceBuilder::new()
//!     .layer(ReplayLayer::default())          // records each request while it is sent
//!     .layer(RetryLayer::new(StandardPolicy::grpc()))
//!     .map_request(|request: Request<_>| request.map(tonic::body::Body::new))
//!     .service(channel);
//! let client = HealthClient::new(channel);
//! ```
//!
//! What is to be new on each attempt, such as a token in the metadata, goes below the retry layer.
//! So does a [`PeekTrailersLayer`], for servers that put the status of a failed call into trailers.
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
//! | `timeout` | [`total_timeout`](crate::StandardPolicy::total_timeout) | |
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
