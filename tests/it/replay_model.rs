//! Any script, any schedule of attempts: the final one is given what the source held, or refused.

use proptest::prelude::*;
use tower::{Layer, Service, service_fn};
use tower_retry_layer::replay::{ReplayBody, ReplayLayer};

use crate::replay_support::{Scripted, Step, data, halting, poll, recorded, trailers};

/// What happens to the handles, each meant by its place among those that are left.
#[derive(Clone, Debug)]
enum Op {
    Copy(prop::sample::Index),
    Poll(prop::sample::Index, usize),
    TakeOver(prop::sample::Index),
    Drop(prop::sample::Index),
}

/// A handle with what it was given so far.
struct Attempt {
    body: ReplayBody<Scripted>,
    given: Vec<Step>,
    serial: usize,
    began: bool,
    over: bool,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_schedule_makes_a_truncated_body_that_looks_whole(
        steps in script(),
        ops in prop::collection::vec(op(), 0..40),
        limit in prop_oneof![Just(usize::MAX), 0_usize..1_000],
        aloud in any::<bool>(),
    ) {
        let layer = ReplayLayer::new(limit);
        let source = if aloud { halting(&steps).aloud() } else { halting(&steps) };
        let probe = source.probe();
        let mut attempts = vec![Attempt::new(wrap(&layer, source), 0)];
        // The newest that has begun, and the newest that has taken over.
        let (mut handles, mut newest, mut heir) = (1, None, None);
        for op in ops {
            match op {
                Op::Copy(at) => {
                    let attempt = at.get(&attempts);
                    let copy = attempt.body.try_replay();
                    prop_assert_eq!(copy.is_some(), attempt.body.can_replay());
                    attempts.extend(copy.map(|body| Attempt::new(body, handles)));
                    handles += 1;
                }
                Op::Poll(at, polls) => {
                    let at = at.index(attempts.len());
                    newest = newest.max(Some(attempts[at].serial));
                    let reads = probe.polls();
                    for _ in 0..polls {
                        attempts[at].poll(&steps)?;
                    }
                    if Some(attempts[at].serial) < heir {
                        prop_assert!(attempts[at].over, "an attempt that was given up goes on");
                        prop_assert_eq!(probe.polls(), reads);
                    }
                }
                Op::TakeOver(at) => {
                    let Attempt { body, began, serial, .. } = at.get(&attempts);
                    let (reads, held) = (probe.polls(), layer.held_bytes());
                    let promised = body.can_replay();
                    let able = body.take_over();
                    prop_assert_eq!(probe.polls(), reads);
                    prop_assert_eq!(body.can_replay(), promised);
                    if !began {
                        prop_assert_eq!(able, promised);
                        if able {
                            heir = heir.max(Some(*serial));
                            prop_assert_eq!(layer.held_bytes(), held);
                        }
                    }
                }
                Op::Drop(at) => {
                    if attempts.len() > 1 {
                        let at = at.index(attempts.len());
                        attempts.remove(at);
                    }
                }
            }
            // A handle that has begun, or taken over, makes all that are older void.
            let may_begin = |attempt: &&Attempt| {
                !attempt.began && Some(attempt.serial) > newest && Some(attempt.serial) >= heir
            };
            let copies = attempts.iter().filter(may_begin).count();
            let fails = steps.contains(&Step::Fail);
            if limit == usize::MAX && !fails {
                // Nothing but the end of all copies ends a recording without limits.
                prop_assert!(attempts.iter().filter(may_begin).all(|a| a.body.can_replay()));
            }
            prop_assert!(layer.held_bytes() <= limit);
            if copies == 0 {
                let read = attempts.iter().filter(|attempt| !attempt.over).count();
                prop_assert!(read > 0 || layer.held_bytes() == 0);
            }
        }

        // The newest handle is the one that a policy would send.
        let mut last = attempts.pop().unwrap();
        let whole = recorded(&steps);
        let fails = whole.iter().position(|step| *step == Step::Fail);
        let (began, promised) = (last.began, last.body.can_replay());
        if !last.over {
            last.finish(&steps)?;
            let given = recorded(&last.given);
            match (last.error(), fails) {
                (None, fails) => {
                    prop_assert_eq!(fails, None);
                    prop_assert_eq!(given, whole);
                }
                (Some(error), Some(at)) if error.is_source() => {
                    prop_assert!(given == whole[..at] || given.is_empty());
                }
                (Some(error), _) => {
                    prop_assert!(began || !promised, "{error}");
                    let took_over = heir == Some(last.serial) && newest < heir;
                    prop_assert!(began || !took_over, "{error}");
                    prop_assert!(error.is_superseded() || error.is_not_replayable());
                }
            }
        }
        drop((last, attempts));
        prop_assert_eq!(layer.held_bytes(), 0);
        prop_assert!(probe.is_dropped());
    }
}

fn script() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => "[a-z]{1,9}".prop_map(data),
        2 => Just(data("")),
        1 => (1_020_usize..1_030).prop_map(|len| data(vec![b'x'; len])),
    ];
    let end = prop_oneof![
        4 => Just(vec![]),
        3 => Just(vec![trailers()]),
        1 => Just(vec![trailers(), Step::Fail]),
        2 => Just(vec![Step::Fail]),
    ];
    (prop::collection::vec(step, 0..8), end).prop_map(|(mut steps, end)| {
        steps.extend(end);
        steps
    })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => any::<prop::sample::Index>().prop_map(Op::Copy),
        6 => (any::<prop::sample::Index>(), 1_usize..6).prop_map(|(at, polls)| Op::Poll(at, polls)),
        2 => any::<prop::sample::Index>().prop_map(Op::TakeOver),
        2 => any::<prop::sample::Index>().prop_map(Op::Drop),
    ]
}

fn wrap(layer: &ReplayLayer, body: Scripted) -> ReplayBody<Scripted> {
    let echo = service_fn(|request: http::Request<ReplayBody<Scripted>>| {
        std::future::ready(Ok::<_, ()>(request.into_body()))
    });
    let call = layer.layer(echo).call(http::Request::new(body));
    call.into_inner().unwrap()
}

// === impl Attempt ===

impl Attempt {
    fn new(body: ReplayBody<Scripted>, serial: usize) -> Self {
        Self {
            body,
            given: Vec::new(),
            serial,
            began: false,
            over: false,
        }
    }

    fn poll(&mut self, steps: &[Step]) -> Result<(), TestCaseError> {
        let waker = std::task::Waker::noop();
        self.began = true;
        match poll(&mut self.body, waker) {
            None => {}
            Some(None) => {
                prop_assert_eq!(
                    recorded(&self.given),
                    recorded(steps),
                    "a truncated success"
                );
                self.over = true;
            }
            Some(Some(Err(_))) => self.over = true,
            Some(Some(Ok(frame))) => {
                self.given.push(match frame.into_data() {
                    Ok(data) => Step::Data(data),
                    Err(_) => trailers(),
                });
                let whole = recorded(steps);
                let given = recorded(&self.given);
                prop_assert!(whole.starts_with(&given), "{:?} of {:?}", given, whole);
            }
        }
        Ok(())
    }

    /// Reads to the end. Every `Pending` of a halting source is followed by a step, so a reader
    /// that needs more polls than that is stuck.
    fn finish(&mut self, steps: &[Step]) -> Result<(), TestCaseError> {
        for _ in 0..3 * (steps.len() + 2) {
            if self.over {
                return Ok(());
            }
            self.poll(steps)?;
        }
        prop_assert!(self.over, "a reader is stuck");
        Ok(())
    }

    /// Repeated on every poll, so it can be asked for afterwards.
    fn error(&mut self) -> Option<tower_retry_layer::replay::ReplayError> {
        match poll(&mut self.body, std::task::Waker::noop()) {
            Some(Some(Err(error))) => Some(error),
            _ => None,
        }
    }
}
