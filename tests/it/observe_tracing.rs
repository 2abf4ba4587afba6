//! `Tracing`: levels, fields, and silence where nobody listens.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
};

use tower_retry_layer::{
    Verdict,
    observe::{StopReason, Tracing},
};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

use crate::{
    support::ms,
    support_observe::{EVERY_REASON, Request, busy, end_by, fine, policy, reply, script, send},
};

/// Keeps the events of a level or above.
#[derive(Clone)]
struct Captured {
    least: Level,
    lines: Arc<Mutex<Vec<Line>>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Line {
    level: Level,
    target: String,
    fields: BTreeMap<String, String>,
}

fn captured(least: Level) -> Captured {
    Captured {
        least,
        lines: Arc::default(),
    }
}

/// The fields of a line, the message among them.
fn fields(fields: &[(&str, &str)]) -> BTreeMap<String, String> {
    fields
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn every_end_is_one_line_of_its_level() {
    for reason in EVERY_REASON {
        let log = captured(Level::TRACE);
        let guard = tracing::subscriber::set_default(log.clone());
        end_by(reason, policy(Tracing)).await;
        drop(guard);
        let lines = log.take();
        let (last, retries) = lines.split_last().unwrap();
        for line in retries {
            assert_eq!(line.level, Level::DEBUG);
            assert!(!line.fields.contains_key("retry.reason"));
        }
        let level = match reason {
            StopReason::AttemptsExhausted
            | StopReason::BudgetExhausted
            | StopReason::DeadlineExceeded
            | StopReason::NotReady => Level::WARN,
            StopReason::Nested => Level::TRACE,
            _ => Level::DEBUG,
        };
        assert_eq!(last.level, level, "{reason}");
        assert_eq!(last.fields["retry.reason"], reason.as_str());
        assert!(lines.iter().all(|line| line.target == "tower_retry_layer"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_and_an_end_have_these_fields_and_no_others() {
    let log = captured(Level::DEBUG);
    let guard = tracing::subscriber::set_default(log.clone());
    let service = script(vec![busy(), reply(Verdict::Pushback(ms(2_000)), "429")]);
    let policy = policy(Tracing)
        .max_server_delay(ms(1_500))
        .total_timeout(ms(2_000));
    let policy = policy.max_attempts(2);
    send(policy.clone(), service, Request::default())
        .await
        .unwrap();
    let service = script(vec![reply(Verdict::Pushback(ms(2_000)), "429"), fine()]);
    send(policy, service, Request::default()).await.unwrap();
    drop(guard);
    let lines: Vec<_> = log.take().into_iter().map(|line| line.fields).collect();
    let expected = [
        fields(&[
            ("message", "attempt failed, retrying"),
            ("retry.name", "checkout"),
            ("retry.attempt", "1"),
            ("retry.delay", "0.1"),
            ("retry.delay_source", "backoff"),
            ("retry.clamped", "false"),
            ("retry.elapsed", "0"),
            ("http.request.resend_count", "1"),
            ("error.type", "503"),
        ]),
        fields(&[
            ("message", "gave up"),
            ("retry.name", "checkout"),
            ("retry.attempts", "2"),
            ("retry.transparent", "0"),
            ("retry.total_delay", "0.1"),
            ("retry.elapsed", "0.1"),
            ("retry.reason", "attempts_exhausted"),
            ("retry.nested", "false"),
            ("http.request.resend_count", "1"),
            ("error.type", "429"),
        ]),
        fields(&[
            ("message", "attempt failed, retrying"),
            ("retry.name", "checkout"),
            ("retry.attempt", "1"),
            ("retry.delay", "1.5"),
            ("retry.delay_source", "server_clamped"),
            ("retry.clamped", "true"),
            ("retry.elapsed", "0"),
            ("http.request.resend_count", "1"),
            ("error.type", "429"),
        ]),
        fields(&[
            ("message", "succeeded after retries"),
            ("retry.name", "checkout"),
            ("retry.attempts", "2"),
            ("retry.transparent", "0"),
            ("retry.total_delay", "1.5"),
            ("retry.elapsed", "1.5"),
            ("retry.reason", "success"),
            ("retry.nested", "false"),
            ("http.request.resend_count", "1"),
        ]),
    ];
    assert_eq!(lines, expected);
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_once_has_no_resend_count() {
    let log = captured(Level::TRACE);
    let guard = tracing::subscriber::set_default(log.clone());
    send(policy(Tracing), script(vec![fine()]), Request::default())
        .await
        .unwrap();
    drop(guard);
    let [line] = &log.take()[..] else {
        panic!("not one line")
    };
    assert_eq!(line.level, Level::TRACE, "a healthy client is silent");
    assert_eq!(line.fields["message"], "succeeded");
    assert!(!line.fields.contains_key("http.request.resend_count"));
    assert!(!line.fields.contains_key("error.type"));
}

#[tokio::test(start_paused = true)]
async fn transparent_retries_and_nested_layers_are_visible_as_such() {
    let log = captured(Level::TRACE);
    let guard = tracing::subscriber::set_default(log.clone());
    let service = script(vec![reply(Verdict::Unprocessed, "refused"), fine()]);
    send(policy(Tracing), service, Request::default())
        .await
        .unwrap();
    let mut nested = Request::default();
    nested.limits.nested = true;
    send(policy(Tracing), script(vec![fine()]), nested)
        .await
        .unwrap();
    drop(guard);
    let lines = log.take();
    assert_eq!(lines[0].fields["retry.delay_source"], "transparent");
    assert_eq!(lines[0].fields["http.request.resend_count"], "1");
    assert_eq!(lines[1].fields["retry.attempts"], "1");
    assert_eq!(lines[1].fields["retry.transparent"], "1");
    assert_eq!(lines[1].fields["http.request.resend_count"], "1");
    assert_eq!(lines[2].fields["retry.nested"], "true");
    assert_eq!(lines[2].fields["message"], "left to the layer above");
    assert_eq!((lines.len(), lines[2].level), (3, Level::TRACE));
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_of_warnings_sees_the_end_alone() {
    let log = captured(Level::WARN);
    let guard = tracing::subscriber::set_default(log.clone());
    end_by(StopReason::AttemptsExhausted, policy(Tracing)).await;
    drop(guard);
    let lines = log.take();
    assert_eq!((lines.len(), lines[0].level), (1, Level::WARN));
}

// === impl Captured ===

impl Captured {
    fn take(&self) -> Vec<Line> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }
}

impl Subscriber for Captured {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tower_retry_layer" && *metadata.level() <= self.least
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = BTreeMap::new();
        event.record(&mut Text(&mut fields));
        self.lines.lock().unwrap().push(Line {
            level: *event.metadata().level(),
            target: event.metadata().target().to_owned(),
            fields,
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Fields as text.
struct Text<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().to_owned(), value.to_string());
    }
}
