//! Runs on all processors, with a bar that says how far they are.

use std::{
    num::NonZero,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use indicatif::{ProgressBar, ProgressStyle};

/// Does each of the jobs once; the results are in the jobs' order.
///
/// A job depends on nothing but itself, so the results do not depend on the processors.
pub(crate) fn each<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let bar = ProgressBar::new(jobs.len() as u64).with_style(
        ProgressStyle::with_template("{bar:40} {pos} of {len} runs, {elapsed}")
            .expect("the template is valid"),
    );
    let next = AtomicUsize::new(0);
    let results = Mutex::new(jobs.iter().map(|_| None).collect::<Vec<_>>());
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..workers.min(jobs.len()) {
            scope.spawn(|| {
                while let Some((index, job)) = take(&next, jobs) {
                    let result = work(job);
                    results.lock().unwrap()[index] = Some(result);
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let results = results.into_inner().unwrap();
    let done = results
        .into_iter()
        .map(|result| result.expect("all jobs are done"));
    done.collect()
}

fn take<'a, J>(next: &AtomicUsize, jobs: &'a [J]) -> Option<(usize, &'a J)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    jobs.get(index).map(|job| (index, job))
}
