//! `Wait`: the time between two attempts.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::Sleep;

pin_project! {
    /// The wait of a [`StandardPolicy`](crate::StandardPolicy) before a retry.
    ///
    /// It holds a timer and nothing else: a budget's withdrawal is the session's to give back.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Wait {
        // `None` for a retry at once, which needs no timer.
        #[pin]
        sleep: Option<Sleep>,
    }
}

impl Wait {
    pub(super) fn new(delay: Duration) -> Self {
        Self {
            sleep: (!delay.is_zero()).then(|| tokio::time::sleep(delay)),
        }
    }
}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.project().sleep.as_pin_mut() {
            Some(sleep) => sleep.poll(cx),
            None => Poll::Ready(()),
        }
    }
}
