//! A client in trouble, as its log and its Prometheus page tell it.
//!
//! `cargo run --example observe --features metrics,tracing`

use std::{
    error::Error,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_retry_layer::{
    Attempt, Protocol, RetryLayer, StandardPolicy, Verdict,
    backoff::{ExponentialBackoffMaker, Jitter, Seeds},
    budget::TokenBudget,
    observe::{Metrics, RetrySummary, Tracing},
};

/// What the server answers, one send after another; 0 is a cut connection.
const ANSWERS: [u16; 14] = [
    200, // healthy
    503, 0, 200, // a blip
    421, 200, // certainly not processed
    429, 200, // come back in an hour
    500, // hopeless
    503, 503, 503, // down
    503, // still down, and the budget is empty
    200,
];

/// A status, and what it took to get it.
struct Answer {
    status: u16,
    summary: Option<RetrySummary>,
}

/// The protocol of these answers.
struct Statuses;

impl Protocol<&'static str, Answer, &'static str> for Statuses {
    fn classify(&self, attempt: &Attempt<'_, &'static str, Answer, &'static str>) -> Verdict {
        match attempt.outcome().as_ref().map(|answer| answer.status) {
            Ok(421) => Verdict::Unprocessed,
            Ok(429) => Verdict::RetryAfter(Duration::from_secs(3_600)),
            Ok(500) => Verdict::Stop,
            Ok(503) | Err(_) => Verdict::Retry,
            Ok(_) => Verdict::Success,
        }
    }

    fn clone_request(&self, request: &&'static str) -> Option<&'static str> {
        Some(request)
    }

    fn error_type(&self, outcome: &Result<Answer, &'static str>) -> &'static str {
        match outcome.as_ref().map(|answer| answer.status) {
            Ok(421) => "421",
            Ok(429) => "429",
            Ok(500) => "500",
            Ok(503) => "503",
            Ok(_) => "_OTHER",
            Err(error) => error,
        }
    }

    fn summarize(&self, answer: &mut Answer, summary: &RetrySummary) {
        answer.summary = Some(*summary);
    }
}

// The clock is paused: the waits pass at once.
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .without_time()
        .init();
    let mut prometheus = PrometheusBuilder::new();
    for metric in Metrics::TABLE {
        if !metric.buckets.is_empty() {
            let name = Matcher::Full(metric.name.to_owned());
            prometheus = prometheus.set_buckets_for_metric(name, metric.buckets)?;
        }
    }
    let prometheus = prometheus.install_recorder()?;

    let (min, max) = (Duration::from_millis(50), Duration::from_secs(20));
    let backoff = ExponentialBackoffMaker::new(min, max, Jitter::Full, Seeds::from_seed(1))?;
    let policy = StandardPolicy::new(Statuses)
        .name("search")
        .backoff(backoff)
        .budget(TokenBudget::new(5, 0.1)?)
        .observe(Tracing)
        .observe(Metrics::new());

    let sent = AtomicUsize::new(0);
    let mut client =
        RetryLayer::new(policy).layer(service_fn(async |_: &'static str| {
            match ANSWERS[sent.fetch_add(1, Ordering::Relaxed)] {
                0 => Err("connection_reset"),
                status => Ok(Answer {
                    status,
                    summary: None,
                }),
            }
        }));
    while sent.load(Ordering::Relaxed) < ANSWERS.len() {
        let answer = client.ready().await?.call("/").await?;
        match answer.summary {
            Some(summary) => println!("      {} with {summary:?}", answer.status),
            None => println!("      {}", answer.status),
        }
    }

    println!("\n{}", prometheus.render());
    Ok(())
}
