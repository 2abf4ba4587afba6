//! `Metrics`: the documented table is what is emitted, and each end is counted once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use metrics::{Unit, set_default_local_recorder};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tower::{Layer, ServiceExt};
use tower_retry_layer::{
    RetryLayer, Verdict,
    budget::{Budget, TokenBudget},
    observe::{Metric, Metrics, StopReason},
};

use crate::{
    support::{Scripted, ms},
    support_observe::{
        EVERY_REASON, Reply, Request, busy, end_by, fine, outcome, policy, reply, script, send,
    },
};

/// A series as Prometheus writes it, and its value.
type Series = BTreeMap<String, DebugValue>;

fn series(snapshotter: &Snapshotter) -> Series {
    let snapshot = snapshotter.snapshot().into_vec();
    snapshot
        .into_iter()
        .map(|(key, _, _, value)| {
            let labels: Vec<_> = key
                .key()
                .labels()
                .map(|label| format!("{}={}", label.key(), label.value()))
                .collect();
            (
                format!("{}{{{}}}", key.key().name(), labels.join(",")),
                value,
            )
        })
        .collect()
}

fn of<'a>(series: &'a Series, name: &str) -> Vec<(&'a str, &'a DebugValue)> {
    series
        .iter()
        .filter(|(key, _)| key.starts_with(&format!("{name}{{")))
        .map(|(key, value)| (key.as_str(), value))
        .collect()
}

fn samples(values: &[f64]) -> DebugValue {
    DebugValue::Histogram(values.iter().copied().map(Into::into).collect())
}

#[tokio::test(start_paused = true)]
async fn every_end_is_counted_once() {
    for reason in EVERY_REASON {
        let recorder = DebuggingRecorder::new();
        let guard = set_default_local_recorder(&recorder);
        end_by(reason, policy(Metrics::new())).await;
        drop(guard);
        let series = series(&recorder.snapshotter());
        let (outcome, retried, sends) = match reason {
            StopReason::Success => ("success", true, 2.0),
            StopReason::Cancelled => ("cancelled", false, 1.0),
            StopReason::Nested => ("nested", false, 1.0),
            StopReason::NotReady | StopReason::NotReplayable => ("failure", false, 1.0),
            StopReason::AttemptsExhausted => ("failure", true, 3.0),
            _ => ("failure", true, 2.0),
        };
        let labels = format!("name=checkout,outcome={outcome},reason={reason},retried={retried}");
        let key = format!("tower_retry_requests_total{{{labels}}}");
        let counted = of(&series, "tower_retry_requests_total");
        assert_eq!(counted, [(&*key, &DebugValue::Counter(1))]);
        let attempts = of(&series, "tower_retry_attempts");
        if reason == StopReason::Nested {
            assert_eq!(attempts, [], "the layer above measures");
        } else {
            let key = "tower_retry_attempts{name=checkout}";
            assert_eq!(attempts, [(key, &samples(&[sends]))], "{reason}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_measured_is_what_happened() {
    let recorder = DebuggingRecorder::new();
    let guard = set_default_local_recorder(&recorder);
    let policy = policy(Metrics::new())
        .max_attempts(9)
        .max_server_delay(ms(2_000))
        .budget(TokenBudget::new(10, 0.5).unwrap());
    let replies = vec![
        reply(Verdict::Unprocessed, "refused"),
        busy(),
        reply(Verdict::Pushback(ms(250)), "429"),
        reply(Verdict::Pushback(ms(9_000)), "429"),
        busy(),
        fine(),
    ];
    // Each attempt takes 50 ms, so that the session takes longer than its waits.
    let timed = |replies: Vec<Reply>| {
        Scripted::timed(move |call, _: &Request| {
            (ms(50), outcome(replies[call as usize - 1].clone()))
        })
    };
    send(policy.clone(), timed(replies), Request::default())
        .await
        .unwrap();
    send(policy, timed(vec![fine()]), Request::default())
        .await
        .unwrap();
    drop(guard);
    let expected: Series = [
        (
            "tower_retry_requests_total{name=checkout,outcome=success,reason=success,retried=true}",
            DebugValue::Counter(1),
        ),
        (
            "tower_retry_requests_total{name=checkout,outcome=success,reason=success,retried=false}",
            DebugValue::Counter(1),
        ),
        (
            "tower_retry_retries_total{name=checkout,error_type=refused,delay_source=transparent}",
            DebugValue::Counter(1),
        ),
        (
            "tower_retry_retries_total{name=checkout,error_type=503,delay_source=backoff}",
            DebugValue::Counter(2),
        ),
        (
            "tower_retry_retries_total{name=checkout,error_type=429,delay_source=server}",
            DebugValue::Counter(1),
        ),
        (
            "tower_retry_retries_total{name=checkout,error_type=429,delay_source=server_clamped}",
            DebugValue::Counter(1),
        ),
        (
            "tower_retry_attempts{name=checkout}",
            samples(&[6.0, 1.0]),
        ),
        (
            "tower_retry_delay_seconds{name=checkout}",
            samples(&[0.1, 0.25, 2.0, 0.1]),
        ),
        (
            "tower_retry_elapsed_seconds{name=checkout,retried=true}",
            samples(&[2.75]),
        ),
        (
            "tower_retry_elapsed_seconds{name=checkout,retried=false}",
            samples(&[0.05]),
        ),
        (
            "tower_retry_budget_balance{name=checkout}",
            DebugValue::Gauge(7.0.into()),
        ),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    assert_eq!(series(&recorder.snapshotter()), expected);
}

#[tokio::test(start_paused = true)]
async fn the_table_is_what_is_emitted_and_registered() {
    let recorder = DebuggingRecorder::new();
    let guard = set_default_local_recorder(&recorder);
    for reason in EVERY_REASON {
        let budget = TokenBudget::default();
        end_by(reason, policy(Metrics::new()).budget(budget)).await;
    }
    drop(guard);
    let mut emitted = BTreeSet::new();
    for (key, unit, help, value) in recorder.snapshotter().snapshot().into_vec() {
        let kind = match value {
            DebugValue::Counter(_) => "counter",
            DebugValue::Gauge(_) => "gauge",
            DebugValue::Histogram(_) => "histogram",
        };
        let seconds = unit == Some(Unit::Seconds);
        let labels: Vec<_> = key
            .key()
            .labels()
            .map(|label| label.key().to_owned())
            .collect();
        let name = key.key().name().to_owned();
        emitted.insert((name, kind, seconds, labels, help.unwrap().to_string()));
    }
    let table: BTreeSet<_> = Metrics::TABLE
        .iter()
        .map(|metric| {
            let labels = metric
                .labels
                .iter()
                .map(|label| label.to_string())
                .collect();
            let seconds = metric.unit == "seconds";
            let name = metric.name.to_owned();
            (name, metric.kind, seconds, labels, metric.help.to_owned())
        })
        .collect();
    assert_eq!(emitted, table);
    assert_eq!(table.len(), Metrics::TABLE.len());
}

#[test]
fn the_documentation_shows_the_table() {
    let documented: Vec<_> = include_str!("../../src/observe/metrics.rs")
        .lines()
        .filter(|line| line.starts_with("/// | `tower_retry_"))
        .map(|line| line.trim_start_matches("/// ").to_owned())
        .collect();
    let table: Vec<_> = Metrics::TABLE.iter().map(row).collect();
    assert_eq!(documented, table);
}

fn row(metric: &Metric) -> String {
    let labels: Vec<_> = metric
        .labels
        .iter()
        .map(|label| format!("`{label}`"))
        .collect();
    let Metric {
        name,
        kind,
        unit,
        help,
        ..
    } = metric;
    format!(
        "| `{name}` | {kind} | {unit} | {} | {help} |",
        labels.join(", ")
    )
}

#[test]
fn names_and_buckets_follow_prometheus() {
    for metric in Metrics::TABLE {
        let suffix = match (metric.kind, metric.unit) {
            ("counter", _) => "_total",
            (_, "seconds") => "_seconds",
            _ => "",
        };
        assert!(metric.name.ends_with(suffix), "{metric:?}");
        assert_eq!(metric.kind == "histogram", !metric.buckets.is_empty());
        assert!(metric.buckets.is_sorted_by(|a, b| a < b), "{metric:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_keep_clients_apart() {
    let recorder = DebuggingRecorder::new();
    let guard = set_default_local_recorder(&recorder);
    let metrics = Arc::new(Metrics::new());
    for name in ["search", "checkout", "search"] {
        let policy = policy(metrics.clone()).name(name);
        let service = RetryLayer::new(policy).layer(script(vec![fine()]));
        service.oneshot(Request::default()).await.unwrap();
    }
    drop(guard);
    let series = series(&recorder.snapshotter());
    for (name, count) in [("search", 2), ("checkout", 1)] {
        let labels = format!("name={name},outcome=success,reason=success,retried=false");
        let key = format!("tower_retry_requests_total{{{labels}}}");
        assert_eq!(series[&key], DebugValue::Counter(count));
    }
}

#[tokio::test(start_paused = true)]
async fn the_gauge_follows_the_budget() {
    let recorder = DebuggingRecorder::new();
    let guard = set_default_local_recorder(&recorder);
    let budget = Arc::new(TokenBudget::new(10, 0.5).unwrap());
    let policy = policy(Metrics::new()).budget(budget.clone());
    let mut told = Vec::new();
    for reason in [
        StopReason::AttemptsExhausted,
        StopReason::NotReady,
        StopReason::Success,
    ] {
        end_by(reason, policy.clone()).await;
        let gauge =
            series(&recorder.snapshotter()).remove("tower_retry_budget_balance{name=checkout}");
        assert_eq!(
            gauge,
            Some(DebugValue::Gauge(budget.level().unwrap().into()))
        );
        told.push(budget.level());
    }
    assert_eq!(told, [Some(8.0), Some(8.0), Some(7.5)]);

    // From the retry on, not only from the end.
    let service = RetryLayer::new(policy.clone()).layer(script(vec![busy()]));
    let mut call = tokio_test::task::spawn(service.oneshot(Request::default()));
    tokio_test::assert_pending!(call.poll());
    let gauge =
        || series(&recorder.snapshotter()).remove("tower_retry_budget_balance{name=checkout}");
    assert_eq!(gauge(), Some(DebugValue::Gauge(6.5.into())));
    drop(call);
    assert_eq!(gauge(), Some(DebugValue::Gauge(7.5.into())));
    drop(guard);

    let recorder = DebuggingRecorder::new();
    let guard = set_default_local_recorder(&recorder);
    end_by(StopReason::Success, policy.without_budget()).await;
    drop(guard);
    assert_eq!(
        of(
            &series(&recorder.snapshotter()),
            "tower_retry_budget_balance"
        ),
        []
    );
}
