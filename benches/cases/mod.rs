//! What is compared: named cases in groups, each checking its answer as it goes.

use std::{
    future::{Ready, ready},
    hint::black_box,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use tower::{
    Service,
    retry::budget::{Budget, TpsBudget},
};

mod backoff;
mod budget;
mod http;
mod loopback;
mod retry;
mod success;

/// Cases that are compared with each other.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) cases: Vec<Case>,
}

pub(crate) struct Case {
    pub(crate) name: String,
    run: Box<dyn FnMut(u64) -> Duration>,
}

/// All of them. Some need the runtime that the caller has entered.
pub(crate) fn groups() -> Vec<Group> {
    let mut groups = success::groups();
    groups.push(retry::group());
    groups.extend(budget::groups());
    groups.extend(backoff::groups());
    groups.extend(http::groups());
    groups.extend(loopback::groups());
    groups
}

// === impl Group, Case ===

impl Group {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            cases: Vec::new(),
        }
    }

    /// Something to do once.
    ///
    /// It is called through a pointer: inlined into the loop, a service that does nothing would be
    /// no call at all.
    fn case(&mut self, name: impl Into<String>, work: impl FnMut() + 'static) {
        let mut work: Box<dyn FnMut()> = Box::new(work);
        self.timed(name, move |times| {
            let start = Instant::now();
            for _ in 0..times {
                black_box(&mut work)();
            }
            start.elapsed()
        });
    }

    /// Something that is done so many times and tells how long it took.
    fn timed(&mut self, name: impl Into<String>, run: impl FnMut(u64) -> Duration + 'static) {
        self.cases.push(Case {
            name: name.into(),
            run: Box::new(run),
        });
    }
}

impl Case {
    /// The time for doing it so often.
    pub(crate) fn run(&mut self, times: u64) -> Duration {
        (self.run)(times)
    }
}

// === what the cases share ===

/// tower's retries: of every error, and without a budget the least that a policy can do.
#[derive(Clone)]
struct Tower {
    budget: Option<Arc<TpsBudget>>,
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

/// The answer of a service that never waits.
fn call<S, Req>(service: &mut S, request: Req) -> Result<S::Response, S::Error>
where
    S: Service<Req>,
{
    let mut cx = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut cx).is_ready());
    match pin!(service.call(request)).as_mut().poll(&mut cx) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("the service answers at once"),
    }
}
