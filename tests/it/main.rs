//! The integration tests, in one binary: on two cores the saved links matter.

mod backoff;
mod backoff_statistics;
mod budget;
mod budget_keyed;
mod budget_throttle;
mod budget_token;
mod budget_tps;
#[cfg(feature = "grpc")]
mod grpc_peek;
#[cfg(feature = "grpc")]
mod grpc_rules;
#[cfg(feature = "grpc")]
mod grpc_tonic;
#[cfg(feature = "grpc")]
mod grpc_vectors;
#[cfg(feature = "grpc")]
mod grpc_wire;
mod hot_path;
#[cfg(feature = "hyper")]
mod http_client;
#[cfg(feature = "hyper")]
mod http_connect;
#[cfg(feature = "hyper")]
mod http_connection;
#[cfg(feature = "hyper")]
mod http_h2;
#[cfg(feature = "http")]
mod http_idempotency_key;
#[cfg(feature = "hyper")]
mod http_replay;
#[cfg(feature = "reqwest")]
mod http_reqwest;
#[cfg(feature = "http")]
mod http_retry_after;
#[cfg(feature = "http")]
mod http_rules;
#[cfg(feature = "hyper")]
mod http_timed;
mod machine;
mod machine_model;
mod machine_tower;
mod observe;
#[cfg(feature = "http")]
mod observe_http;
#[cfg(feature = "metrics")]
mod observe_metrics;
#[cfg(feature = "tracing")]
mod observe_tracing;
#[cfg(feature = "http")]
mod replay_attempts;
#[cfg(feature = "http")]
mod replay_limits;
#[cfg(feature = "http")]
mod replay_model;
#[cfg(feature = "http")]
mod replay_retry;
#[cfg(feature = "http")]
mod replay_support;
#[cfg(feature = "http")]
mod replay_take_over;
#[cfg(feature = "http")]
mod replay_wire;
mod soak;
mod standard;
mod standard_model;
mod storm;
mod support;
#[cfg(feature = "grpc")]
mod support_grpc;
#[cfg(feature = "hyper")]
mod support_http;
mod support_observe;
#[cfg(feature = "tower")]
mod tower_compat;
mod types;
