//! Both ways between this crate's traits and tower's.

use std::future::{Ready, ready};

use tokio::time::Instant;
use tokio_test::{assert_pending, task::spawn};
use tower::{Service, ServiceBuilder, ServiceExt, retry as theirs};
use tower_retry_layer::{
    RetryLayer, StandardPolicy,
    backoff::{
        ExponentialBackoff, ExponentialBackoffMaker, Jitter, MakeBackoff as _, Seeds, backoff_fn,
    },
    budget::{TokenBudget, TpsBudget, Unlimited},
    compat::TowerPolicy,
    observe::StopReason,
    on_error,
};

use crate::support::{Counts, Event, Events, Ledger, Scripted, delays, ms};

fn policy(
    events: &Events,
    ledger: &Ledger,
) -> StandardPolicy<tower_retry_layer::OnError, tower_retry_layer::backoff::Schedule> {
    StandardPolicy::new(on_error())
        .backoff(delays(&[100]))
        .budget(ledger.clone())
        .observe(events.clone())
}

#[tokio::test(start_paused = true)]
async fn the_standard_policy_decides_the_same_under_towers_layer() {
    for (outcomes, reason, granted, deposits) in [
        (&[Ok(1)][..], StopReason::Success, 0, 1),
        (&[Err(()), Ok(2)], StopReason::Success, 1, 1),
        (&[Err(()), Err(()), Ok(3)], StopReason::Success, 2, 1),
        (&[Err(()); 3], StopReason::AttemptsExhausted, 2, 0),
    ] {
        let (events, ledger) = (Events::default(), Ledger::new(10));
        let service = Scripted::new(move |call, _: &u32| outcomes[call as usize - 1]);
        let seen = service.handle();
        let start = Instant::now();
        let service = ServiceBuilder::new()
            .retry(policy(&events, &ledger))
            .service(service);
        assert_eq!(service.oneshot(0).await, *outcomes.last().unwrap());
        assert_eq!(seen.calls(), outcomes.len());
        let millis = 100 * (outcomes.len() as u64 - 1);
        let told = Event::Finished {
            attempts: outcomes.len() as u32,
            transparent: 0,
            total_delay: ms(millis),
            elapsed: ms(millis),
            reason,
        };
        assert_eq!(events.take().last(), Some(&told));
        assert_eq!(start.elapsed(), ms(millis));
        let Counts {
            granted: lent,
            deposits: put,
            ..
        } = ledger.counts();
        assert_eq!((lent, put), (granted, deposits));
    }
}

#[tokio::test(start_paused = true)]
async fn the_total_timeout_counts_from_the_call_under_towers_layer() {
    let (events, ledger) = (Events::default(), Ledger::new(10));
    let service = Scripted::timed(|_, _: &u32| (ms(400), Err::<(), _>(())));
    let seen = service.handle();
    let policy = policy(&events, &ledger)
        .max_attempts(9)
        .total_timeout(ms(1_000));
    let mut service = ServiceBuilder::new().retry(policy).service(service);
    for session in 1..=3 {
        let start = Instant::now();
        service.ready().await.unwrap().call(0).await.unwrap_err();
        assert_eq!((seen.calls(), start.elapsed()), (2 * session, ms(900)));
    }
    assert_eq!(events.reasons(), [StopReason::DeadlineExceeded; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_session_dropped_under_towers_layer_is_refunded_and_told() {
    let (events, ledger) = (Events::default(), Ledger::new(10));
    let service = Scripted::new(|_, _: &u32| Err::<(), _>(()));
    let service = ServiceBuilder::new()
        .retry(policy(&events, &ledger))
        .service(service);
    let mut future = spawn(service.oneshot(0));
    assert_pending!(future.poll());
    drop(future);
    assert_eq!(events.reasons(), [StopReason::Cancelled]);
    assert_eq!(ledger.counts().refunds, 1);
}

#[tokio::test(start_paused = true)]
async fn retries_are_marked_under_towers_layer_with_the_time_left() {
    use tower_retry_layer::{Attempt, Protocol, Verdict};

    /// Writes its marks into the request.
    struct Marks;
    type Marked = (u32, Option<std::time::Duration>);
    impl Protocol<Marked, (), ()> for Marks {
        fn classify(&self, attempt: &Attempt<'_, Marked, (), ()>) -> Verdict {
            if attempt.outcome().is_ok() {
                Verdict::Success
            } else {
                Verdict::Retry
            }
        }
        fn clone_request(&self, request: &Marked) -> Option<Marked> {
            Some(*request)
        }
        fn prepare(&self, request: &mut Marked, attempt: u32, left: Option<std::time::Duration>) {
            *request = (attempt, left);
        }
    }
    let service = Scripted::new(|call, _: &Marked| if call < 3 { Err(()) } else { Ok(()) });
    let seen = service.handle();
    let policy = StandardPolicy::new(Marks)
        .backoff(delays(&[100]))
        .total_timeout(ms(1_000));
    ServiceBuilder::new()
        .retry(policy)
        .service(service)
        .oneshot((0, None))
        .await
        .unwrap();
    assert_eq!(
        seen.requests(),
        [(0, None), (2, Some(ms(900))), (3, Some(ms(800)))]
    );
}

// A wrapper may copy requests itself and forward `retry` alone.
#[test]
fn limits_are_read_under_towers_layer_without_a_copy_too() {
    use tower_retry_layer::{Attempt, Limits, Protocol, Verdict};

    /// Every request forbids retries.
    struct Once;
    impl Protocol<u32, (), ()> for Once {
        fn classify(&self, _: &Attempt<'_, u32, (), ()>) -> Verdict {
            Verdict::Retry
        }
        fn clone_request(&self, request: &u32) -> Option<u32> {
            Some(*request)
        }
        fn limits(&self, _: &u32) -> Limits {
            let mut limits = Limits::default();
            limits.no_retry = true;
            limits
        }
    }
    let mut policy = StandardPolicy::new(Once).without_budget();
    let wait = theirs::Policy::retry(&mut policy, &mut 0, &mut Err::<(), _>(()));
    assert!(wait.is_none());
}

// The copy may lack the mark that says so: it is read before the copy is made.
#[cfg(feature = "http")]
#[tokio::test(start_paused = true)]
async fn a_standard_policy_under_towers_layer_lets_an_outer_layer_retry() {
    use std::convert::Infallible;

    let service = Scripted::new(|_, _: &http::Request<String>| {
        let mut response = http::Response::new(());
        *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        Ok::<_, Infallible>(response)
    });
    let seen = service.handle();
    let service = ServiceBuilder::new()
        .layer(RetryLayer::new(StandardPolicy::http().without_budget()))
        .retry(StandardPolicy::http().without_budget())
        .service(service);
    let response = service
        .oneshot(http::Request::new(String::new()))
        .await
        .unwrap();
    assert_eq!((response.status().as_u16(), seen.calls()), (503, 3));
}

#[tokio::test(start_paused = true)]
async fn a_policy_written_for_tower_sits_in_this_layer() {
    /// Uses budget and backoff through tower's traits alone.
    #[derive(Clone)]
    struct Theirs {
        budget: std::sync::Arc<TokenBudget>,
        backoff: ExponentialBackoff,
    }

    impl<Res, E> theirs::Policy<u32, Res, E> for Theirs {
        type Future = tokio::time::Sleep;

        fn retry(&mut self, _: &mut u32, result: &mut Result<Res, E>) -> Option<Self::Future> {
            use theirs::{backoff::Backoff, budget::Budget};
            if result.is_ok() {
                self.budget.deposit();
                return None;
            }
            self.budget.withdraw().then(|| self.backoff.next_backoff())
        }

        fn clone_request(&mut self, request: &u32) -> Option<u32> {
            Some(*request)
        }
    }

    let maker = ExponentialBackoffMaker::new(ms(10), ms(40), Jitter::None, Seeds::random());
    let maker = maker.unwrap();
    let budget = std::sync::Arc::new(TokenBudget::new(3, 0.5).unwrap());
    let policy = Theirs {
        budget: budget.clone(),
        backoff: maker.make_backoff(),
    };
    let service = Scripted::new(|call, _: &u32| if call < 3 { Err(()) } else { Ok(call) });
    let seen = service.handle();
    let start = Instant::now();
    let layer = RetryLayer::new(TowerPolicy::new(policy));
    let service = ServiceBuilder::new().layer(layer).service(service);
    assert_eq!(service.oneshot(0).await, Ok(3));
    assert_eq!(seen.times(start), [ms(0), ms(10), ms(30)]);
    assert_eq!(budget.balance(), 1, "3 less 2 and a half");
}

#[tokio::test(start_paused = true)]
async fn every_maker_and_budget_is_towers_too() {
    async fn first(mut maker: impl theirs::backoff::MakeBackoff) -> u128 {
        use theirs::backoff::Backoff;
        let start = Instant::now();
        maker.make_backoff().next_backoff().await;
        start.elapsed().as_millis()
    }
    assert_eq!(first(delays(&[30])).await, 30);
    assert_eq!(first(backoff_fn(|_| ms(40))).await, 40);
    assert!(first(ExponentialBackoffMaker::default()).await <= 50);

    fn lends(budget: impl theirs::budget::Budget) -> bool {
        budget.deposit();
        budget.withdraw()
    }
    assert!(lends(TokenBudget::default()) && lends(TpsBudget::default()) && lends(Unlimited));
}

#[test]
fn a_policy_comes_back_out_of_its_adapter() {
    #[derive(Clone)]
    struct Never;
    impl theirs::Policy<u32, u32, ()> for Never {
        type Future = Ready<()>;
        fn retry(&mut self, _: &mut u32, _: &mut Result<u32, ()>) -> Option<Ready<()>> {
            Some(ready(()))
        }
        fn clone_request(&mut self, _: &u32) -> Option<u32> {
            None
        }
    }
    let Never = TowerPolicy::new(Never).into_inner();
}
