//! Eight callers, one server, an outage of 700 ms: everybody gets through.
//!
//! ```text
//! cargo run --example quickstart
//! ```
//!
//! From the first request on the server answers 503 for 700 ms. A line is an attempt: when its
//! outcome came, whose it was, what came back, and how long the caller waits and who says so. At
//! the end the server tells what it counted. The exit status says whether everybody got through.

use std::{
    collections::BTreeSet,
    fmt,
    process::ExitCode,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Path, State},
    routing::get,
};
use http_body_util::Empty;
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::{net::TcpListener, sync::oneshot, task::JoinSet};
use tower::{BoxError, ServiceBuilder, ServiceExt, timeout::TimeoutLayer};
use tower_retry_layer::{
    RetryLayer, StandardPolicy,
    backoff::{ExponentialBackoffMaker, Jitter, Seeds},
    observe::{Finished, Observe, Retrying},
};

const CALLERS: usize = 8;
const OUTAGE: Duration = Duration::from_millis(700);
const WINDOW: Duration = Duration::from_millis(200);

#[tokio::main]
async fn main() -> Result<ExitCode, BoxError> {
    // Of delays of 100, 200, 400 and 800 ms, equal jitter keeps at least one half: the fifth attempt
    // comes after the outage.
    let (min, max) = (Duration::from_millis(100), Duration::from_secs(1));
    let backoff = ExponentialBackoffMaker::new(min, max, Jitter::Equal, Seeds::random())?;
    let policy = StandardPolicy::http().max_attempts(6).backoff(backoff);

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let log = Arc::new(Mutex::new(Log::default()));
    let router = Router::new().route("/{caller}", get(answer));
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, router.with_state(log.clone()))
        .with_graceful_shutdown(async { stopped.await.unwrap_or_default() });
    let server = tokio::spawn(server.into_future());

    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let start = Instant::now();
    let mut callers = JoinSet::new();
    for caller in 1..=CALLERS {
        let came = Arc::default();
        let screen = Screen {
            caller,
            start,
            came: Arc::clone(&came),
        };
        let service = ServiceBuilder::new()
            // All callers share one policy and its budget; the screen is each one's own.
            .layer(RetryLayer::new(policy.clone().observe(screen)))
            // From here on, what each attempt goes through.
            .map_result(move |outcome| note(&came, outcome))
            .layer(TimeoutLayer::new(Duration::from_secs(1)))
            .service(client.clone());
        let request = Request::get(format!("http://{address}/{caller}")).body(Empty::new())?;
        callers.spawn(service.oneshot(request));
    }
    while let Some(ended) = callers.join_next().await {
        // The screen has shown how; whether all is well is the server's to say.
        let _: Outcome = ended?;
    }

    let _ = stop.send(());
    server.await??;
    let log = log.lock().unwrap();
    println!("\n{log}");
    Ok(match log.served.len() {
        CALLERS => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

type Outcome = Result<Response<Incoming>, BoxError>;

/// Prints what one caller meets.
struct Screen {
    caller: usize,
    start: Instant,
    // What the last attempt came to: events tell of decisions, not of responses.
    came: Arc<Mutex<String>>,
}

fn note(came: &Mutex<String>, outcome: Outcome) -> Outcome {
    *came.lock().unwrap() = match &outcome {
        Ok(response) => response.status().to_string(),
        Err(error) => error.to_string(),
    };
    outcome
}

impl Screen {
    fn line(&self, attempt: u32, next: &str) {
        let (time, caller) = (self.start.elapsed().as_millis(), self.caller);
        let came = self.came.lock().unwrap();
        println!("{time:>5} ms  caller {caller}  attempt {attempt}  {came:<23}  {next}");
    }
}

impl Observe for Screen {
    fn retrying(&self, event: &Retrying<'_>) {
        let (delay, source) = (event.delay.as_millis(), event.source);
        self.line(event.attempt, &format!("waits {delay:>3} ms ({source:?})"));
    }

    fn finished(&self, event: &Finished<'_>) {
        self.line(event.attempts, event.reason.as_str());
    }
}

/// What the server counts.
#[derive(Default)]
struct Log {
    attempts: Vec<Instant>,
    served: BTreeSet<usize>,
}

async fn answer(State(log): State<Arc<Mutex<Log>>>, Path(caller): Path<usize>) -> StatusCode {
    let mut log = log.lock().unwrap();
    log.attempts.push(Instant::now());
    if log.attempts[0].elapsed() < OUTAGE {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    log.served.insert(caller);
    StatusCode::OK
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, served) = (self.attempts.len(), self.served.len());
        let within = |from: &Instant| {
            let window = *from..*from + WINDOW;
            self.attempts
                .iter()
                .filter(|at| window.contains(at))
                .count()
        };
        let worst = self.attempts.iter().map(within).max().unwrap_or(0);
        let window = WINDOW.as_millis();
        writeln!(
            f,
            "the server counted {all} attempts, {worst} in the worst {window} ms,"
        )?;
        write!(f, "and served {served} of {CALLERS} callers")
    }
}
