//! Any body and any schedule of its attempts: what a handle is given is what the source held, from
//! the start, and it ends well only where the source did.

#![no_main]

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

use arbitrary::Arbitrary;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::{Body, Frame};
use libfuzzer_sys::fuzz_target;
use tower::{Layer, Service, service_fn};
use tower_retry_layer::replay::{ReplayBody, ReplayLayer};

#[derive(Arbitrary, Debug)]
struct Input {
    limit: Option<u16>,
    steps: Vec<Step>,
    trailers: bool,
    fails: bool,
    schedule: Vec<(Op, u8)>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Step {
    Pending,
    /// This many bytes.
    Data(u16),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Op {
    Copy,
    Poll,
    Drop,
}

/// The script as a body.
struct Source {
    steps: std::vec::IntoIter<Step>,
    trailers: bool,
    fails: bool,
    byte: u8,
}

struct Attempt {
    body: ReplayBody<Source>,
    given: Vec<u8>,
    trailers: bool,
    over: bool,
}

fuzz_target!(|input: Input| {
    let mut whole = Vec::new();
    let mut byte = 0;
    for step in &input.steps {
        if let Step::Data(len) = *step {
            whole.extend(data(len, &mut byte));
        }
    }
    let layer = ReplayLayer::new(input.limit.map_or(usize::MAX, usize::from));
    let source = Source {
        steps: input.steps.into_iter(),
        trailers: input.trailers,
        fails: input.fails,
        byte: 0,
    };
    let mut attempts = vec![Attempt::new(wrap(&layer, source))];
    for (op, at) in input.schedule {
        if attempts.is_empty() {
            break;
        }
        let at = usize::from(at) % attempts.len();
        match op {
            Op::Copy => {
                let copy = attempts[at].body.try_replay();
                attempts.extend(copy.map(Attempt::new));
            }
            Op::Drop => drop(attempts.swap_remove(at)),
            Op::Poll => {
                let attempt = &mut attempts[at];
                if attempt.poll() == Some(true) {
                    assert!(!input.fails, "an error became an end");
                    assert_eq!(attempt.given, whole, "a truncated success");
                    assert_eq!(attempt.trailers, input.trailers);
                }
                assert!(whole.starts_with(&attempt.given));
            }
        }
        assert!(
            input
                .limit
                .is_none_or(|limit| layer.held_bytes() <= usize::from(limit))
        );
    }
    drop(attempts);
    assert_eq!(layer.held_bytes(), 0);
});

fn wrap(layer: &ReplayLayer, source: Source) -> ReplayBody<Source> {
    let echo = service_fn(|request: Request<ReplayBody<Source>>| {
        std::future::ready(Ok::<_, ()>(request.into_body()))
    });
    layer
        .layer(echo)
        .call(Request::new(source))
        .into_inner()
        .unwrap()
}

/// Bytes that tell where they stood.
fn data(len: u16, byte: &mut u8) -> Vec<u8> {
    (0..len)
        .map(|_| {
            *byte = byte.wrapping_add(1);
            *byte
        })
        .collect()
}

impl Attempt {
    fn new(body: ReplayBody<Source>) -> Self {
        Self {
            body,
            given: Vec::new(),
            trailers: false,
            over: false,
        }
    }

    /// `Some` when it ends: whether well.
    fn poll(&mut self) -> Option<bool> {
        if self.over {
            return None;
        }
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(&mut self.body).poll_frame(&mut cx) {
            Poll::Pending => return None,
            Poll::Ready(Some(Ok(frame))) => {
                match frame.into_data() {
                    Ok(data) => self.given.extend(data),
                    Err(_) => self.trailers = true,
                }
                return None;
            }
            Poll::Ready(end) => {
                self.over = true;
                Some(end.is_none())
            }
        }
    }
}

impl Body for Source {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let this = &mut *self;
        match this.steps.next() {
            Some(Step::Pending) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Step::Data(len)) => {
                let data = data(len, &mut this.byte);
                Poll::Ready(Some(Ok(Frame::data(data.into()))))
            }
            None if std::mem::take(&mut this.trailers) => {
                Poll::Ready(Some(Ok(Frame::trailers(HeaderMap::new()))))
            }
            None if std::mem::take(&mut this.fails) => {
                Poll::Ready(Some(Err(std::io::Error::other("script"))))
            }
            None => Poll::Ready(None),
        }
    }
}
