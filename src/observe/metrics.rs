//! `Metrics`: counters, histograms and a gauge through the `metrics` facade.

use std::sync::atomic::{AtomicBool, Ordering};

use ::metrics::{
    SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

use super::{DelaySource, Finished, Observe, Retrying, StopReason};

const REQUESTS: Metric = Metric {
    name: "tower_retry_requests_total",
    kind: "counter",
    unit: "requests",
    labels: &["name", "outcome", "reason", "retried"],
    buckets: &[],
    help: "Requests that ended, by why there was no further retry.",
};
const RETRIES: Metric = Metric {
    name: "tower_retry_retries_total",
    kind: "counter",
    unit: "retries",
    labels: &["name", "error_type", "delay_source"],
    buckets: &[],
    help: "Retries that were decided on, by what failed and who chose the delay.",
};
const ATTEMPTS: Metric = Metric {
    name: "tower_retry_attempts",
    kind: "histogram",
    unit: "sends",
    labels: &["name"],
    buckets: ATTEMPT_BUCKETS,
    help: "Sends of one request, the first and those that are not counted as attempts included.",
};
const DELAY: Metric = Metric {
    name: "tower_retry_delay_seconds",
    kind: "histogram",
    unit: "seconds",
    labels: &["name"],
    buckets: SECOND_BUCKETS,
    help: "The wait before one retry.",
};
const ELAPSED: Metric = Metric {
    name: "tower_retry_elapsed_seconds",
    kind: "histogram",
    unit: "seconds",
    labels: &["name", "retried"],
    buckets: SECOND_BUCKETS,
    help: "From the first send of a request to its end, waits included.",
};
const BUDGET: Metric = Metric {
    name: "tower_retry_budget_balance",
    kind: "gauge",
    unit: "retries",
    labels: &["name"],
    buckets: &[],
    help: "Retries that the budget could lend; of a gRPC throttle, its tokens.",
};

/// Up to the five attempts that gRPC allows at most (proposal A6), and then coarsely.
const ATTEMPT_BUCKETS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0];

/// From milliseconds to 20 s, the default backoff's longest delay, and on to 66 s, the default cap on
/// hints with its jitter.
const SECOND_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 66.0,
];

/// Counts and measures every decision through the `metrics` facade.
///
/// # Metrics
///
/// This table is [`Metrics::TABLE`].
///
/// | name | kind | unit | labels | what |
/// |---|---|---|---|---|
/// | `tower_retry_requests_total` | counter | requests | `name`, `outcome`, `reason`, `retried` | Requests that ended, by why there was no further retry. |
/// | `tower_retry_retries_total` | counter | retries | `name`, `error_type`, `delay_source` | Retries that were decided on, by what failed and who chose the delay. |
/// | `tower_retry_attempts` | histogram | sends | `name` | Sends of one request, the first and those that are not counted as attempts included. |
/// | `tower_retry_delay_seconds` | histogram | seconds | `name` | The wait before one retry. |
/// | `tower_retry_elapsed_seconds` | histogram | seconds | `name`, `retried` | From the first send of a request to its end, waits included. |
/// | `tower_retry_budget_balance` | gauge | retries | `name` | Retries that the budget could lend; of a gRPC throttle, its tokens. |
///
/// # Labels
///
/// All are bounded, `name` and `error_type` as far as you bound them.
///
/// | label | values |
/// |---|---|
/// | `name` | [`StandardPolicy::name`](crate::StandardPolicy::name): one for each client or upstream |
/// | `outcome` | `success`, `failure`, `cancelled`, `nested` |
/// | `reason` | [`StopReason::as_str`]; it says the outcome, too, unless the request is nested |
/// | `retried` | `true`, `false`: whether anything was sent again |
/// | `error_type` | [`Protocol::error_type`](crate::Protocol::error_type) |
/// | `delay_source` | [`DelaySource::as_str`] |
///
/// A retry at once (`transparent`) has no wait to measure. A request that a retry layer above
/// retries is counted with the outcome `nested` and not measured: the layer above does both. The
/// gauge tells what the budget holds after each decision; [`Unlimited`](crate::budget::Unlimited)
/// has none.
///
/// # Recorders
///
/// The recorder of the moment is used, each time; install yours before the first request, as the
/// descriptions are registered then. An exporter that wants buckets finds fitting ones in
/// [`Metric::buckets`].
///
/// # Examples
///
/// ```
/// use tower_retry_layer::{StandardPolicy, observe::Metrics, on_error};
/// let _policy = StandardPolicy::new(on_error()).name("search").observe(Metrics::new());
///
/// assert!(Metrics::TABLE.iter().all(|metric| metric.name.starts_with("tower_retry_")));
/// ```
#[derive(Debug, Default)]
pub struct Metrics {
    described: AtomicBool,
}

/// A row of [`Metrics::TABLE`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Metric {
    /// The whole name: an exporter need not add a unit or `_total`.
    pub name: &'static str,
    /// `counter`, `histogram` or `gauge`.
    pub kind: &'static str,
    /// `seconds`, or what is counted.
    pub unit: &'static str,
    /// All its labels; each series has them all.
    pub labels: &'static [&'static str],
    /// Upper bounds for the buckets of a histogram, in its unit; empty for all else.
    pub buckets: &'static [f64],
    /// What it tells.
    pub help: &'static str,
}

// === impl Metrics ===

impl Metrics {
    /// All that is emitted.
    pub const TABLE: &'static [Metric] = &[REQUESTS, RETRIES, ATTEMPTS, DELAY, ELAPSED, BUDGET];

    /// An observer for one policy or for many: share it in an `Arc`, or make one for each.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the table's descriptions, once: not before the first event, as the recorder may
    /// be installed after the policy is made.
    fn describe(&self) {
        if self.described.load(Ordering::Relaxed) || self.described.swap(true, Ordering::Relaxed) {
            return;
        }
        for metric in Self::TABLE {
            // The facade has a word for few of the units.
            let unit = match metric.unit {
                "seconds" => Unit::Seconds,
                _ => Unit::Count,
            };
            match metric.kind {
                "counter" => describe_counter!(metric.name, unit, metric.help),
                "histogram" => describe_histogram!(metric.name, unit, metric.help),
                _ => describe_gauge!(metric.name, unit, metric.help),
            }
        }
    }
}

impl Observe for Metrics {
    fn retrying(&self, event: &Retrying<'_>) {
        self.describe();
        let name = SharedString::from_shared(event.name.into());
        counter!(
            RETRIES.name,
            "name" => name.clone(),
            "error_type" => event.error_type,
            "delay_source" => event.source.as_str(),
        )
        .increment(1);
        if event.source != DelaySource::Transparent {
            histogram!(DELAY.name, "name" => name.clone()).record(event.delay.as_secs_f64());
        }
        if let Some(level) = event.budget.get() {
            gauge!(BUDGET.name, "name" => name).set(level);
        }
    }

    fn finished(&self, event: &Finished<'_>) {
        self.describe();
        let name = SharedString::from_shared(event.name.into());
        let sends = event.resends().saturating_add(1);
        let retried = if sends > 1 { "true" } else { "false" };
        counter!(
            REQUESTS.name,
            "name" => name.clone(),
            "outcome" => outcome(event),
            "reason" => event.reason.as_str(),
            "retried" => retried,
        )
        .increment(1);
        if event.nested {
            return;
        }
        histogram!(ATTEMPTS.name, "name" => name.clone()).record(f64::from(sends));
        histogram!(ELAPSED.name, "name" => name.clone(), "retried" => retried)
            .record(event.elapsed.as_secs_f64());
        if let Some(level) = event.budget.get() {
            gauge!(BUDGET.name, "name" => name).set(level);
        }
    }
}

fn outcome(event: &Finished<'_>) -> &'static str {
    match event.reason {
        _ if event.nested => "nested",
        StopReason::Success => "success",
        StopReason::Cancelled => "cancelled",
        _ => "failure",
    }
}
