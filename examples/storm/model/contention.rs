//! Contention: many clients update one row with a version, the simulation of the article
//! ["Exponential Backoff And Jitter"][aws] and of its `aws-arch-backoff-simulator`.
//!
//! All clients start at once and each must write once: read, write with the version that was read,
//! and after a write that came too late wait and start over. Every message takes |N(10 ms, 2 ms)|.
//!
//! [aws]: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/

use std::{cmp::Reverse, collections::BinaryHeap};

use tower_retry_layer::backoff::{Backoff, MakeBackoff, MakeRng, Rng, Seeds, SessionRng};

use super::{Waits, law::Law};

/// Mean and standard deviation of a message's way.
const WAY: f64 = 10e6;
const WAY_DEVIATION: f64 = 2e6;

/// The mean of a number of runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mean {
    /// Until the last client has written, in milliseconds.
    pub(crate) time: f64,
    /// Writes attempted.
    pub(crate) calls: f64,
    /// The standard errors of both.
    pub(crate) time_error: f64,
    pub(crate) calls_error: f64,
}

/// Lets `clients` contend `repetitions` times.
pub(crate) fn mean(law: Law, clients: u32, repetitions: u32, seed: u64) -> Mean {
    let mut dice = Seeds::from_seed(seed).make_rng();
    let (mut times, mut calls) = (Moments::default(), Moments::default());
    for _ in 0..repetitions {
        let (time, writes) = run(&law.waits(dice.next_u64()), clients, &mut dice);
        times.add(time as f64 / 1e6);
        calls.add(f64::from(writes));
    }
    Mean {
        time: times.mean(),
        calls: calls.mean(),
        time_error: times.error(),
        calls_error: calls.error(),
    }
}

/// One run: nanoseconds until the last client has written, and writes attempted.
fn run(waits: &Waits, clients: u32, dice: &mut SessionRng) -> (u64, u32) {
    let mut events: BinaryHeap<Reverse<Event>> = (0..clients)
        .map(|client| Reverse(Event::read(way(dice), client)))
        .collect();
    // A client draws its first wait, and makes its backoff, at its first failure.
    let mut backoffs: Vec<Option<_>> = (0..clients).map(|_| None).collect();
    let (mut version, mut writes, mut last) = (0, 0, 0);
    while let Some(Reverse(event)) = events.pop() {
        let back = event.at + way(dice);
        let client = event.client;
        match event.version {
            None => events.push(Reverse(Event {
                at: back + way(dice),
                version: Some(version),
                client,
            })),
            Some(read) => {
                writes += 1;
                if read == version {
                    version += 1;
                    last = last.max(back);
                } else {
                    let backoff =
                        backoffs[client as usize].get_or_insert_with(|| waits.make_backoff());
                    let wait = backoff.next_delay().as_nanos() as u64;
                    events.push(Reverse(Event::read(back + wait + way(dice), client)));
                }
            }
        }
    }
    (last, writes)
}

/// A message arrives at the server.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    /// Nanoseconds since the start.
    at: u64,
    client: u32,
    /// The version to replace; `None` reads it.
    version: Option<u32>,
}

impl Event {
    fn read(at: u64, client: u32) -> Self {
        Self {
            at,
            client,
            version: None,
        }
    }
}

/// The time that a message takes, in nanoseconds (Box and Muller).
fn way(dice: &mut impl Rng) -> u64 {
    let radius = (-2.0 * (1.0 - dice.next_f64()).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * dice.next_f64()).cos();
    (WAY + WAY_DEVIATION * normal).abs() as u64
}

#[derive(Default)]
struct Moments {
    count: f64,
    sum: f64,
    squares: f64,
}

// === impl Moments ===

impl Moments {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        self.sum += value;
        self.squares += value * value;
    }

    fn mean(&self) -> f64 {
        self.sum / self.count
    }

    /// The standard error of the mean.
    fn error(&self) -> f64 {
        let variance = self.squares / self.count - self.mean().powi(2);
        (variance.max(0.0) / (self.count - 1.0).max(1.0)).sqrt()
    }
}
