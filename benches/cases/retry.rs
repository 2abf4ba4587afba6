//! A call that fails once and is retried at once.

use std::{
    future::{Ready, ready},
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use tower::{Layer, Service, retry::budget::TpsBudget as TowerTps};
use tower_retry_layer::{
    RetryLayer, StandardPolicy,
    backoff::Schedule,
    budget::{TokenBudget, TpsBudget},
    on_error,
};

use super::{Group, Tower, call};

const MINUTE: Duration = Duration::from_secs(60);

pub(super) fn group() -> Group {
    let tower = |budget| tower::retry::RetryLayer::new(Tower { budget });
    let at_once = Schedule::new([Duration::ZERO]).unwrap();
    let ours = || StandardPolicy::new(on_error()).backoff(at_once.clone());
    // Each success pays for a retry, so that no budget ever runs dry.
    let theirs = Some(Arc::new(TowerTps::new(MINUTE, 10, 1.0)));
    let (token, tps) = (TokenBudget::new(100, 1.0), TpsBudget::new(MINUTE, 10, 1.0));
    let mut group = Group::new("retry at once");
    group.case("tower", answers(tower(None).layer(Flaky::default())));
    group.case(
        "tower, TpsBudget",
        answers(tower(theirs).layer(Flaky::default())),
    );
    for (name, policy) in [
        ("ours, no budget", ours().without_budget()),
        ("ours", ours().budget(token.unwrap())),
        ("ours, TpsBudget", ours().budget(tps.unwrap())),
    ] {
        group.case(
            name,
            answers(RetryLayer::new(policy).layer(Flaky::default())),
        );
    }
    group
}

fn answers(mut service: impl Service<u64, Response = u64, Error = ()>) -> impl FnMut() {
    move || assert_eq!(call(&mut service, black_box(7)), Ok(7))
}

/// Fails every other call.
#[derive(Clone, Default)]
struct Flaky(Arc<AtomicU64>);

impl Service<u64> for Flaky {
    type Response = u64;
    type Error = ();
    type Future = Ready<Result<u64, ()>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Self::Future {
        ready(if self.0.fetch_add(1, Relaxed) % 2 == 0 {
            Err(())
        } else {
            Ok(request)
        })
    }
}
