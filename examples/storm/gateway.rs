//! `storm gateway`: a real server on loopback, real clients, and an outage.

use std::{
    collections::BTreeSet,
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Path, State},
    http::{Request, Response, StatusCode},
    routing::get,
};
use clap::Args;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, Error},
    rt::TokioExecutor,
};
use tokio::{
    net::TcpListener,
    sync::oneshot,
    task::{JoinHandle, JoinSet},
};
use tower::{Layer, ServiceExt};
use tower_retry_layer::{
    RetryLayer,
    backoff::Seeds,
    http::Http,
    observe::{Finished, Observe, Retrying},
};

use crate::{
    Failed,
    axis::Axis,
    chart::{COLOURS, Chart, Key, Mark, Panel, steps},
    model::{Arrivals, Strategy},
    output::{Output, duration},
    table::{Cell, Table},
};

#[derive(Args)]
pub(crate) struct Gateway {
    /// Clients of each strategy, each with connections of its own.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=500))]
    #[arg(allow_negative_numbers = true)]
    callers: u32,
    /// How long the server answers 503, from the first call on.
    #[arg(long, default_value = "700ms", value_parser = duration, allow_hyphen_values = true)]
    outage: Duration,
    /// Show the attempts of one caller of each strategy.
    #[arg(long)]
    trace: bool,
    #[command(flatten)]
    output: Output,
}

impl Gateway {
    pub(crate) fn run(&self) -> Result<String, Failed> {
        let files = self.output.open()?;
        let runtime = tokio::runtime::Runtime::new()?;
        let mut storms = Vec::new();
        // One after another: at the same time they would disturb each other.
        for strategy in Strategy::ALL {
            storms.push(runtime.block_on(self.storm(strategy))?);
        }
        let traces: String = Strategy::ALL
            .iter()
            .zip(&storms)
            .filter(|_| self.trace)
            .map(|(strategy, storm)| format!("{}, one caller:\n{}\n", strategy.name(), storm.trace))
            .collect();
        let table = self.table(&storms);
        files.write(&table, || self.chart(&storms))?;
        Ok(format!(
            "A server on loopback answers 503 for {:?} from the first call on; {} clients a strategy.\n\n\
             {traces}{table}",
            self.outage, self.callers
        ))
    }

    async fn storm(&self, strategy: Strategy) -> Result<Log, Failed> {
        let server = Server::start(self.outage).await?;
        let mut policy = strategy.policy(Http::new(), Seeds::random());
        // `StandardPolicy::http()` as it comes; the others are compared by their waits alone.
        if strategy != Strategy::Default {
            policy = policy.without_budget();
        }
        let screen = Screen::default();
        let mut callers = JoinSet::new();
        for caller in 0..self.callers {
            let policy = match caller {
                0 => policy.clone().observe(screen.clone()),
                _ => policy.clone(),
            };
            let client = Client::builder(TokioExecutor::new()).build_http::<String>();
            let service = RetryLayer::new(policy).layer(client);
            let uri = format!("http://{}/{caller}", server.address);
            callers.spawn(service.oneshot(Request::get(uri).body(String::new())?));
        }
        // What came of them is the server's to say.
        while let Some(ended) = callers.join_next().await {
            let _: Outcome = ended?;
        }
        let trace = std::mem::take(&mut *screen.0.lock().unwrap());
        Ok(Log {
            trace,
            ..server.stop().await?
        })
    }

    fn table(&self, storms: &[Log]) -> Table {
        let mut table = Table::new(&[
            "strategy",
            ">attempts",
            ">each",
            ">worst 200 ms",
            ">retries in 10 ms",
            ">last success, ms",
            "all through|lost",
        ]);
        for (strategy, log) in Strategy::ALL.iter().zip(storms) {
            let attempts = log.arrivals.total();
            table.row([
                Cell::text(strategy.name()),
                Cell::count(attempts),
                Cell::decimal(attempts as f64 / f64::from(self.callers), 1),
                Cell::count(log.arrivals.worst(0, 200)),
                Cell::count(log.retries.worst(0, 10)),
                Cell::maybe(log.last_success.map(|at| at.as_secs_f64() * 1e3), 0),
                Cell::through(u64::from(self.callers) - log.served.len() as u64),
            ]);
        }
        table
    }

    fn chart(&self, storms: &[Log]) -> Chart {
        const BIN: usize = 20;
        let bins = |log: &Log| log.arrivals.histogram(BIN, 2_000);
        let highest = storms.iter().flat_map(bins).max().unwrap_or(0);
        let y = Axis::up_to("calls in 20 ms", highest);
        let outage = self.outage.as_secs_f64();
        let panels = Strategy::ALL.iter().zip(storms).map(|(strategy, log)| {
            let counts = bins(log).into_iter().map(|count| count as f64);
            let lost = match self.callers - log.served.len() as u32 {
                0 => "all through".to_owned(),
                lost => format!("{lost} LOST"),
            };
            Panel {
                title: format!("{}: {lost}", strategy.name()),
                x: Axis::linear("seconds", [0.0, 0.5, 1.0, 1.5, 2.0]),
                y: y.clone(),
                down: Some((0.0, outage)),
                series: vec![(0, steps(counts, BIN as f64 / 1e3))],
            }
        });
        Chart {
            title: format!("{} clients, a server that is down", self.callers),
            subtitle: "Calls as they arrived at a real server on loopback.".into(),
            columns: 3,
            panel: (300, 200),
            legend: vec![
                Key {
                    name: "arrivals",
                    mark: Mark::Area(COLOURS[0]),
                },
                Key {
                    name: "server down",
                    mark: Mark::Down,
                },
            ],
            panels: panels.collect(),
        }
    }
}

type Outcome = Result<Response<Incoming>, Error>;

/// Writes down what a caller decides, a line each.
#[derive(Clone, Default)]
struct Screen(Arc<Mutex<String>>);

impl Screen {
    fn line(&self, elapsed: Duration, attempt: u32, text: fmt::Arguments<'_>) {
        let elapsed = elapsed.as_millis();
        let line = format!("{elapsed:>6} ms  attempt {attempt:>2}: {text}\n");
        self.0.lock().unwrap().push_str(&line);
    }
}

impl Observe for Screen {
    fn retrying(&self, event: &Retrying<'_>) {
        let delay = event.delay.as_secs_f64() * 1e3;
        let text = format_args!("failed, waits {delay:.1} ms");
        self.line(event.elapsed, event.attempt, text);
    }

    fn finished(&self, event: &Finished<'_>) {
        let text = format_args!("{}", event.reason);
        self.line(event.elapsed, event.attempts, text);
    }
}

/// A server that counts.
struct Server {
    address: SocketAddr,
    log: Arc<Mutex<Log>>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<std::io::Result<()>>,
}

#[derive(Default)]
struct Log {
    outage: Duration,
    first: Option<Instant>,
    came: BTreeSet<u32>,
    served: BTreeSet<u32>,
    arrivals: Arrivals,
    retries: Arrivals,
    last_success: Option<Duration>,
    /// What one of the callers decided.
    trace: String,
}

// === impl Server ===

impl Server {
    async fn start(outage: Duration) -> Result<Self, Failed> {
        let log = Arc::new(Mutex::new(Log {
            outage,
            ..Log::default()
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new().route("/{caller}", get(answer));
        let (stop, stopped) = oneshot::channel::<()>();
        let server = axum::serve(listener, router.with_state(log.clone()))
            .with_graceful_shutdown(async { stopped.await.unwrap_or_default() });
        Ok(Self {
            address,
            log,
            stop,
            serving: tokio::spawn(server.into_future()),
        })
    }

    async fn stop(self) -> Result<Log, Failed> {
        let _ = self.stop.send(());
        self.serving.await??;
        Ok(std::mem::take(&mut *self.log.lock().unwrap()))
    }
}

async fn answer(State(log): State<Arc<Mutex<Log>>>, Path(caller): Path<u32>) -> StatusCode {
    match log.lock().unwrap().serve(caller) {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    }
}

// === impl Log ===

impl Log {
    fn serve(&mut self, caller: u32) -> bool {
        let at = self.first.get_or_insert_with(Instant::now).elapsed();
        self.arrivals.note(at);
        if !self.came.insert(caller) {
            self.retries.note(at);
        }
        let up = at >= self.outage;
        if up {
            self.served.insert(caller);
            self.last_success = Some(at);
        }
        up
    }
}
