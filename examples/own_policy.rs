//! A policy written by hand, on this crate's budget and backoff.
//!
//! ```text
//! cargo run --example own_policy
//! ```
//!
//! The budget holds two retries and gets half of one for each request that succeeds. A line is a
//! request: what became of it, how often it was sent, and how many whole retries are left. The one
//! that is dropped while it waits for its retry gives back what it took.

use std::{cell::Cell, future::ready, sync::Arc, time::Duration};

use tokio::time::{Sleep, timeout};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_retry_layer::{
    Policy, RetryLayer,
    backoff::{Backoff, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff},
    budget::{Budget, TokenBudget},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Busy;

/// At most three retries, if the budget lends them. A request's session is a clone of it.
#[derive(Clone)]
struct WhenBusy {
    budget: Arc<dyn Budget>,
    backoff: ExponentialBackoff,
    // The budget lent a retry that is not sent yet; never true of what is cloned.
    borrowed: bool,
}

impl<Req: Clone, Res> Policy<Req, Res, Busy> for WhenBusy {
    type Future = Sleep;

    fn retry(&mut self, _: &mut Req, result: &mut Result<Res, Busy>) -> Option<Sleep> {
        if result.is_ok() {
            self.budget.deposit();
            return None;
        }
        // The budget is the last to be asked: what it lends is for a retry that nothing else stops.
        self.borrowed = self.backoff.attempt() < 3 && self.budget.withdraw();
        self.borrowed.then(|| self.backoff.next_backoff())
    }

    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }

    /// The wait is over and the retry is sent now: what it cost is spent.
    fn prepare(&mut self, _: &mut Req) {
        self.borrowed = false;
    }
}

impl Drop for WhenBusy {
    fn drop(&mut self) {
        if self.borrowed {
            self.budget.refund();
        }
    }
}

// The clock stands still and jumps from timer to timer: the waits take no time.
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), BoxError> {
    let budget = Arc::new(TokenBudget::new(2, 0.5)?);
    let layer = RetryLayer::new(WhenBusy {
        budget: budget.clone(),
        backoff: ExponentialBackoffMaker::default().make_backoff(),
        borrowed: false,
    });
    for (story, busy, patience, expected) in [
        ("well", 0, 1, ("done", 1, 2)),
        ("busy once", 1, 1, ("done", 2, 1)),
        ("dropped while it waits", 1, 0, ("dropped", 1, 1)),
        ("busy for long", 9, 1, ("given up", 2, 0)),
        ("busy once, no retry left", 1, 1, ("given up", 1, 0)),
        ("well again", 0, 1, ("done", 1, 1)),
    ] {
        let sent = Cell::new(0);
        let service = layer.layer(service_fn(|()| {
            sent.set(sent.get() + 1);
            ready(if sent.get() <= busy {
                Err(Busy)
            } else {
                Ok(())
            })
        }));
        let end = match timeout(Duration::from_secs(patience), service.oneshot(())).await {
            Ok(Ok(())) => "done",
            Ok(Err(Busy)) => "given up",
            Err(_) => "dropped",
        };
        let (sent, left) = (sent.get(), budget.balance());
        println!("{story:<26}{end:<10}sent {sent}, left {left}");
        assert_eq!((end, sent, left), expected);
    }
    Ok(())
}
