//! What a request that succeeds at once pays, beside the bare service and `tower::retry`.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    hint::black_box,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use criterion::Criterion;
use tower::{
    Layer, Service,
    layer::util::Identity,
    retry::budget::{Budget as _, TpsBudget as TowerTps},
};
use tower_retry_layer::{
    RetryLayer, StandardPolicy,
    budget::{TokenBudget, TpsBudget},
    observe::on_finish,
    on_error,
};

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

/// Retries every error; without a budget the least that a policy can do.
#[derive(Clone)]
struct Tower {
    budget: Option<Arc<TowerTps>>,
}

impl<Req: Clone, Res, E> tower::retry::Policy<Req, Res, E> for Tower {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut Req, result: &mut Result<Res, E>) -> Option<Ready<()>> {
        let budget = self.budget.as_deref();
        match result {
            Ok(_) => {
                if let Some(budget) = budget {
                    budget.deposit();
                }
                None
            }
            Err(_) => budget
                .is_none_or(|budget| budget.withdraw())
                .then(|| ready(())),
        }
    }

    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }
}

fn call<S>(service: &mut S, request: u64) -> u64
where
    S: Service<u64, Response = u64, Error = Infallible>,
{
    let mut cx = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut cx).is_ready());
    match pin!(service.call(request)).as_mut().poll(&mut cx) {
        Poll::Ready(Ok(response)) => response,
        _ => unreachable!("the service answers at once"),
    }
}

fn success<S>(criterion: &mut Criterion, name: &str, bare: S)
where
    S: Service<u64, Response = u64, Error = Infallible> + Clone + 'static,
{
    let mut group = criterion.benchmark_group(format!("success/{name}"));
    let mut bench = |name: &str, mut service: Box<dyn FnMut(u64) -> u64>| {
        group.bench_function(name, |bencher| {
            bencher.iter(|| assert_eq!(service(black_box(7)), 7));
        });
    };
    macro_rules! service {
        ($layer:expr) => {{
            let mut service = $layer.layer(bare.clone());
            Box::new(move |request| call(&mut service, request))
        }};
    }
    let tower = |budget| tower::retry::RetryLayer::new(Tower { budget });
    let ours = || StandardPolicy::new(on_error());
    bench("bare", service!(Identity::new()));
    bench("tower", service!(tower(None)));
    bench(
        "tower_tps",
        service!(tower(Some(Arc::new(TowerTps::default())))),
    );
    bench(
        "ours_token",
        service!(RetryLayer::new(ours().budget(TokenBudget::default()))),
    );
    bench(
        "ours_tps",
        service!(RetryLayer::new(ours().budget(TpsBudget::default()))),
    );
    bench(
        "ours_unlimited",
        service!(RetryLayer::new(ours().without_budget())),
    );
    let observed = ours().observe(on_finish(|event| {
        black_box(event.attempts);
    }));
    bench("ours_observed", service!(RetryLayer::new(observed)));
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let mut criterion = Criterion::default().configure_from_args();
    success(&mut criterion, "nothing", Echo);
    success(&mut criterion, "client", Client(Arc::new(0)));
    criterion.final_summary();
}
