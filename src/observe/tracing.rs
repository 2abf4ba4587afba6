//! `Tracing`: every decision as a structured event.

use super::{DelaySource, Finished, Observe, Retrying, StopReason};

/// The target of all events, to filter by.
const TARGET: &str = "tower_retry_layer";

/// Logs every decision through `tracing`, one structured event each.
///
/// The target is `tower_retry_layer`. An event whose level nobody listens to is not constructed.
///
/// # Levels
///
/// | what | level |
/// |---|---|
/// | a retry follows | `DEBUG` |
/// | success after retries; not retryable, not replayable, refused by the server, cancelled | `DEBUG` |
/// | gave up: attempts, budget or deadline exhausted, service not ready | `WARN` |
/// | success at once; whatever becomes of a request that a layer above retries | `TRACE` |
///
/// So a healthy client is silent at `DEBUG`, and at `WARN` speaks where its own settings, or its
/// service's state, kept a failure from being sent again.
///
/// # Fields
///
/// Named after OpenTelemetry where it has a name. Durations are in seconds.
///
/// | field | on | what |
/// |---|---|---|
/// | `retry.name` | all | the policy's name |
/// | `retry.attempt` | retries | the attempt that failed, from 1 |
/// | `retry.attempts` | ends | attempts sent |
/// | `retry.transparent` | ends | retries sent without being counted |
/// | `retry.delay` | retries | the wait that follows |
/// | `retry.delay_source` | retries | `backoff`, `server`, `server_clamped`, `transparent` |
/// | `retry.clamped` | retries | the server's hint was cut |
/// | `retry.total_delay` | ends | all waits |
/// | `retry.elapsed` | all | since the session began |
/// | `retry.reason` | ends | [`StopReason::as_str`] |
/// | `retry.nested` | ends | a layer above retries this request |
/// | `http.request.resend_count` | all | of the send that follows, or of the last one; absent where nothing was sent again |
/// | `error.type` | all | what failed, see [`Protocol::error_type`](crate::Protocol::error_type); absent after a success |
///
/// # Examples
///
/// ```
/// use tower_retry_layer::{StandardPolicy, observe::Tracing, on_error};
/// let _policy = StandardPolicy::new(on_error()).name("search").observe(Tracing);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracing;

impl Observe for Tracing {
    fn retrying(&self, event: &Retrying<'_>) {
        tracing::debug!(
            target: TARGET,
            {
                retry.name = event.name,
                retry.attempt = event.attempt,
                retry.delay = event.delay.as_secs_f64(),
                retry.delay_source = event.source.as_str(),
                retry.clamped = event.source == DelaySource::Server { clamped: true },
                retry.elapsed = event.elapsed.as_secs_f64(),
                http.request.resend_count = event.resend,
                "error.type" = event.error_type,
            },
            "attempt failed, retrying"
        );
    }

    fn finished(&self, event: &Finished<'_>) {
        // A level is part of what `tracing` keeps for each place in the code.
        macro_rules! log {
            ($level:ident, $message:literal) => {
                tracing::$level!(
                    target: TARGET,
                    {
                        retry.name = event.name,
                        retry.attempts = event.attempts,
                        retry.transparent = event.transparent,
                        retry.total_delay = event.total_delay.as_secs_f64(),
                        retry.elapsed = event.elapsed.as_secs_f64(),
                        retry.reason = event.reason.as_str(),
                        retry.nested = event.nested,
                        http.request.resend_count = resend_count(event),
                        "error.type" = event.error_type,
                    },
                    $message
                )
            };
        }
        match event.reason {
            _ if event.nested => log!(trace, "left to the layer above"),
            StopReason::Success if event.resends() == 0 => log!(trace, "succeeded"),
            StopReason::Success => log!(debug, "succeeded after retries"),
            StopReason::AttemptsExhausted
            | StopReason::BudgetExhausted
            | StopReason::DeadlineExceeded
            | StopReason::NotReady => log!(warn, "gave up"),
            StopReason::Cancelled => log!(debug, "cancelled"),
            StopReason::NotRetryable
            | StopReason::NotReplayable
            | StopReason::ServerRefused
            | StopReason::Nested => log!(debug, "not retried"),
        }
    }
}

/// Absent on what was sent once, as OpenTelemetry has it.
fn resend_count(event: &Finished<'_>) -> Option<u32> {
    Some(event.resends()).filter(|resends| *resends > 0)
}
