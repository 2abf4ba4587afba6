//! What a request that succeeds at once pays, beside the bare service and `tower::retry`.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    hint::black_box,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tower::{Layer, Service, layer::util::Identity, retry::budget::TpsBudget as TowerTps};
use tower_retry_layer::{
    RetryLayer, StandardPolicy, budget::TpsBudget, observe::on_finish, on_error,
};

use super::{Group, Tower, call};

pub(super) fn groups() -> Vec<Group> {
    vec![
        group("success", Echo),
        group("success of a client", Client(Arc::new(0))),
    ]
}

fn group<S>(name: &'static str, bare: S) -> Group
where
    S: Service<u64, Response = u64, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let tower = |budget| tower::retry::RetryLayer::new(Tower { budget });
    let ours = || StandardPolicy::new(on_error());
    let observed = ours().observe(on_finish(|event| {
        black_box(event.attempts);
    }));
    let resilience = tower_resilience_retry::RetryLayer::builder()
        .max_attempts(3)
        .build();
    let mut group = Group::new(name);
    group.case("bare", answers(Identity::new().layer(bare.clone())));
    group.case("tower", answers(tower(None).layer(bare.clone())));
    let budget = Some(Arc::new(TowerTps::default()));
    group.case(
        "tower, TpsBudget",
        answers(tower(budget).layer(bare.clone())),
    );
    group.case("tower-resilience", answers(resilience.layer(bare.clone())));
    for (name, policy) in [
        ("ours", ours()),
        ("ours, TpsBudget", ours().budget(TpsBudget::default())),
        ("ours, no budget", ours().without_budget()),
        ("ours, observed", observed),
    ] {
        group.case(name, answers(RetryLayer::new(policy).layer(bare.clone())));
    }
    group
}

/// One call of the service, and its answer checked.
fn answers<S>(mut service: S) -> impl FnMut()
where
    S: Service<u64, Response = u64, Error = Infallible>,
{
    move || assert_eq!(call(&mut service, black_box(7)), Ok(7))
}

/// Answers at once, as cheaply as a service can.
#[derive(Clone)]
struct Echo;

impl Service<u64> for Echo {
    type Response = u64;
    type Error = Infallible;
    type Future = Ready<Result<u64, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Self::Future {
        ready(Ok(black_box(request)))
    }
}

/// Answers at once, as cheaply as a client does that shares a pool and boxes its futures.
#[derive(Clone)]
struct Client(Arc<u64>);

impl Service<u64> for Client {
    type Response = u64;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<u64, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Self::Future {
        let pool = self.0.clone();
        Box::pin(async move { Ok(black_box(request + *pool)) })
    }
}
