//! Callers as tasks on tokio's paused clock.

use std::{future::Future, time::Duration};

use tokio::{task::JoinSet, time::Instant};

/// Runs on a clock that stands still while somebody works and jumps when all wait.
///
/// One thread, so the same seeds give the same run.
pub(crate) fn on_virtual_clock<T>(run: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without input and output needs no resources")
        .block_on(run)
}

/// Calls in flight, and when each of them ended.
pub(crate) struct Calls {
    start: Instant,
    tasks: JoinSet<(bool, Duration)>,
}

impl Calls {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            tasks: JoinSet::new(),
        }
    }

    /// Sends a call; its end is known from [`ended`](Self::ended).
    pub(crate) fn send<R, E>(&mut self, call: impl Future<Output = Result<R, E>> + Send + 'static) {
        let start = self.start;
        self.tasks
            .spawn(async move { (call.await.is_ok(), start.elapsed()) });
    }

    /// How many calls were lost, and when the last one got through.
    pub(crate) async fn ended(mut self) -> (u64, Option<Duration>) {
        let (mut lost, mut last) = (0, None);
        while let Some(ended) = self.tasks.join_next().await {
            match ended.expect("callers do not panic") {
                (true, at) => last = last.max(Some(at)),
                (false, _) => lost += 1,
            }
        }
        (lost, last)
    }
}
