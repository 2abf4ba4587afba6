//! What a session takes: the size of its future, and what a million of them waiting add to the
//! process.

use std::{
    future::{Future, Ready, ready},
    mem::size_of,
    pin::Pin,
    process::Command,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::time::Sleep;
use tower::{
    Layer, Service,
    retry::{
        backoff::{Backoff, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff},
        future::ResponseFuture as TowerFuture,
    },
    util::rng::HasherRng,
};
use tower_retry_layer::{OnError, RetryLayer, StandardPolicy, future::ResponseFuture, on_error};

/// Set in the process that measures: whose sessions.
pub(crate) const CHILD: &str = "RATIOS_WAITING";

const SESSIONS: usize = 1_000_000;

type Standard = StandardPolicy<OnError>;

pub(crate) fn print() {
    println!("| memory | ours | against | ratio | target |");
    println!("|---|---|---|---|---|");
    compare(
        "`ResponseFuture` with the same policy, bytes",
        ("ours", size_of::<ResponseFuture<Standard, Down, u64>>()),
        ("tower's", size_of::<TowerFuture<Standard, Down, u64>>()),
        "≤ 1",
    );
    match in_child("ours").zip(in_child("tower's")) {
        None => println!("| a waiting session | skipped: no /proc/self/status | | | |"),
        Some((ours, theirs)) => compare(
            "a waiting session of a million, bytes",
            ("ours", ours),
            ("tower, ExponentialBackoff", theirs),
            "< 400 bytes",
        ),
    }
    println!();
}

/// What the child process does, and prints.
pub(crate) fn measure(ours: bool) {
    let bytes = if ours {
        let policy = StandardPolicy::new(on_error()).without_budget();
        waiting(RetryLayer::new(policy).layer(Down))
    } else {
        waiting(tower::retry::RetryLayer::new(TowerPolicy::default()).layer(Down))
    };
    println!("{}", bytes.unwrap_or(0));
}

/// Measures in a process of its own, where nothing was freed that could be used again.
fn in_child(who: &str) -> Option<usize> {
    let mut child = Command::new(std::env::current_exe().ok()?);
    let output = child.env(CHILD, who).output().ok()?;
    let bytes = String::from_utf8(output.stdout).ok()?.trim().parse().ok()?;
    (bytes > 0).then_some(bytes)
}

fn compare(what: &str, ours: (&str, usize), theirs: (&str, usize), target: &str) {
    let ratio = ours.1 as f64 / theirs.1 as f64;
    println!(
        "| {what} | {} {} | {} {} | {ratio:.2} | {target} |",
        ours.0, ours.1, theirs.0, theirs.1
    );
}

/// The bytes that a session adds to the process while it waits. `None`: no way to tell.
fn waiting<S>(mut service: S) -> Option<usize>
where
    S: Service<u64>,
    S::Future: Unpin,
{
    let mut cx = Context::from_waker(Waker::noop());
    let mut sessions = Vec::with_capacity(SESSIONS);
    let before = resident()?;
    for request in 0..SESSIONS as u64 {
        assert!(service.poll_ready(&mut cx).is_ready());
        let mut session = service.call(request);
        assert!(Pin::new(&mut session).poll(&mut cx).is_pending());
        sessions.push(session);
    }
    let after = resident()?;
    drop(sessions);
    Some(after.saturating_sub(before) / SESSIONS)
}

/// The process's memory in bytes.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kilobytes: usize = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Fails at once.
#[derive(Clone)]
struct Down;

impl Service<u64> for Down {
    type Response = u64;
    type Error = ();
    type Future = Ready<Result<u64, ()>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: u64) -> Self::Future {
        ready(Err(()))
    }
}

/// What tower's documentation shows: attempts and an exponential backoff. Its timer is boxed, as it
/// must be where a future shall be `Unpin`.
#[derive(Clone)]
struct TowerPolicy {
    left: u32,
    backoff: ExponentialBackoff,
}

impl Default for TowerPolicy {
    fn default() -> Self {
        let (min, max) = (Duration::from_millis(50), Duration::from_secs(20));
        let maker = ExponentialBackoffMaker::new(min, max, 0.5, HasherRng::default());
        Self {
            left: 2,
            backoff: maker.unwrap().make_backoff(),
        }
    }
}

impl<Res, E> tower::retry::Policy<u64, Res, E> for TowerPolicy {
    type Future = Pin<Box<Sleep>>;

    fn retry(&mut self, _: &mut u64, result: &mut Result<Res, E>) -> Option<Self::Future> {
        result.as_ref().err()?;
        self.left = self.left.checked_sub(1)?;
        Some(Box::pin(self.backoff.next_backoff()))
    }

    fn clone_request(&mut self, request: &u64) -> Option<u64> {
        Some(*request)
    }
}
