//! What `ReplayBody` costs: 64 MiB through it and through the bare body, in turns.
//!
//! `copied`: the reader copies each frame once, the least that any transport does. `wire`: hyper
//! sends over loopback to a server that discards. The two sides of a comparison alternate and each
//! pair gives a ratio, so what else the machine does falls on both; the median is printed.

use std::{
    cell::RefCell,
    convert::Infallible,
    hint::black_box,
    pin::Pin,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::body::Body as Bare;
use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::Runtime,
};
use tower::{Layer, Service, service_fn};
use tower_retry_layer::replay::{ReplayBody, ReplayLayer};

/// The size of an HTTP/2 DATA frame unless negotiated otherwise.
const FRAME: usize = 16 * 1024;
const ALL: usize = 64 * 1024 * 1024;
const REQUEST: usize = 64 * 1024;

type Kept = Option<ReplayBody<Bare>>;

fn main() {
    copied();
    wire();
}

fn copied() {
    // One buffer for both sides: where it lies decides how fast it is copied to.
    let buffer = &RefCell::new(vec![0; FRAME]);
    let giving_up = ReplayLayer::new(REQUEST);
    let recording = ReplayLayer::new(2 * REQUEST);

    compare(
        "copied: one body, no copy kept",
        200,
        || {
            assert_eq!(copy(bare(ALL), &mut buffer.borrow_mut()), ALL);
        },
        || {
            let (body, _) = replayed(&giving_up, ALL, false);
            assert_eq!(copy(body, &mut buffer.borrow_mut()), ALL);
        },
    );
    compare(
        "copied: one body, recording given up",
        200,
        || {
            assert_eq!(copy(bare(ALL), &mut buffer.borrow_mut()), ALL);
        },
        || {
            let (body, kept) = replayed(&giving_up, ALL, true);
            assert_eq!(copy(body, &mut buffer.borrow_mut()), ALL);
            assert!(kept.is_some_and(|kept| !kept.can_replay()));
        },
    );
    compare(
        "copied: 1024 requests, recorded",
        200,
        || {
            for _ in 0..ALL / REQUEST {
                assert_eq!(copy(bare(REQUEST), &mut buffer.borrow_mut()), REQUEST);
            }
        },
        || {
            for _ in 0..ALL / REQUEST {
                let (body, kept) = replayed(&recording, REQUEST, true);
                assert_eq!(copy(body, &mut buffer.borrow_mut()), REQUEST);
                assert!(kept.is_some_and(|kept| kept.can_replay()));
            }
        },
    );
}

fn wire() {
    let runtime = Runtime::new().unwrap();
    let mut bare = runtime.block_on(connect());
    let mut wrapped = runtime.block_on(connect());
    let giving_up = ReplayLayer::new(REQUEST);
    let recording = ReplayLayer::new(2 * REQUEST);

    compare(
        "wire: one body, recording given up",
        60,
        || {
            runtime.block_on(send(&mut bare, boxed(ALL)));
        },
        || {
            let (body, kept) = replayed(&giving_up, ALL, true);
            runtime.block_on(send(&mut wrapped, body));
            assert!(kept.is_some_and(|kept| !kept.can_replay()));
        },
    );
    compare(
        "wire: 1024 requests, recorded",
        60,
        || {
            for _ in 0..ALL / REQUEST {
                runtime.block_on(send(&mut bare, boxed(REQUEST)));
            }
        },
        || {
            for _ in 0..ALL / REQUEST {
                let (body, kept) = replayed(&recording, REQUEST, true);
                runtime.block_on(send(&mut wrapped, body));
                assert!(kept.is_some_and(|kept| kept.can_replay()));
            }
        },
    );
}

/// Times both sides in turns, and prints the median of the throughput ratios.
fn compare(name: &str, pairs: usize, mut bare: impl FnMut(), mut replay: impl FnMut()) {
    let mut times = Vec::new();
    for pair in 0..pairs + 2 {
        let (one, two) = if pair % 2 == 0 {
            let one = time(&mut bare);
            (one, time(&mut replay))
        } else {
            let two = time(&mut replay);
            (time(&mut bare), two)
        };
        // The first two warm up.
        if pair >= 2 {
            times.push((one, two));
        }
    }
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let seconds = |pick: fn(&(Duration, Duration)) -> Duration| {
        middle(times.iter().map(|pair| pick(pair).as_secs_f64()).collect())
    };
    let rate = |seconds: f64| ALL as f64 / seconds / f64::from(1 << 20);
    let ratio = middle(
        times
            .iter()
            .map(|(one, two)| one.as_secs_f64() / two.as_secs_f64())
            .collect(),
    );
    println!(
        "{name:40} bare {:7.0} MiB/s   replay {:7.0} MiB/s   ratio {ratio:.3}",
        rate(seconds(|pair| pair.0)),
        rate(seconds(|pair| pair.1)),
    );
}

fn time(work: &mut impl FnMut()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// A body as it comes in a request.
fn bare(len: usize) -> Bare {
    black_box(http::Request::new(boxed(len))).into_body()
}

/// A body as the layer makes it, and the copy that a policy keeps.
fn replayed(layer: &ReplayLayer, len: usize, keep: bool) -> (ReplayBody<Bare>, Kept) {
    let echo = service_fn(|request: http::Request<ReplayBody<Bare>>| {
        std::future::ready(Ok::<_, Infallible>(request.into_body()))
    });
    let call = layer.layer(echo).call(http::Request::new(boxed(len)));
    let Ok(body) = call.into_inner();
    let kept = keep.then(|| body.try_replay().unwrap());
    (body, kept)
}

/// A stream of which the length is known to this file alone.
struct Frames {
    rest: Bytes,
}

/// The first `len` bytes of 64 MiB, more than caches hold. Boxed, as streaming bodies mostly are.
fn boxed(len: usize) -> axum::body::Body {
    static DATA: LazyLock<Bytes> = LazyLock::new(|| vec![7; ALL].into());
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let at = NEXT.fetch_add(len, Ordering::Relaxed) % ALL;
    axum::body::Body::new(Frames {
        rest: DATA.slice(at..at + len),
    })
}

fn copy<B: Body<Data = Bytes> + Unpin>(mut body: B, buffer: &mut [u8]) -> usize {
    let cx = &mut Context::from_waker(std::task::Waker::noop());
    let mut len = 0;
    while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(cx) {
        let data = frame.into_data().unwrap_or_default();
        buffer[..data.len()].copy_from_slice(&data);
        black_box(&*buffer);
        len += data.len();
    }
    len
}

async fn send<B: Body + 'static>(sender: &mut SendRequest<B>, body: B) {
    sender.ready().await.unwrap();
    let request = http::Request::put("/").body(body).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), http::StatusCode::OK);
}

/// A connection to a server that discards what it reads and answers where a request ends.
async fn connect<B>() -> SendRequest<B>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut io, _) = listener.accept().await.unwrap();
        let mut buffer = vec![0; 256 * 1024];
        // The last chunk, the start of which may have come with the read before. Nothing else in
        // a stream of sevens looks like it.
        const LAST: &[u8] = b"\r\n0\r\n\r\n";
        let mut kept = 0;
        while let Ok(len @ 1..) = io.read(&mut buffer[kept..]).await {
            let end = kept + len;
            kept = end.min(LAST.len());
            buffer.copy_within(end - kept..end, 0);
            if &buffer[..kept] == LAST {
                kept = 0;
                let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                io.write_all(response).await.unwrap();
            }
        }
    });
    let io = tokio::net::TcpStream::connect(address).await.unwrap();
    io.set_nodelay(true).unwrap();
    let io = TokioIo::new(io);
    let (sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    sender
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let len = FRAME.min(self.rest.len());
        Poll::Ready((len > 0).then(|| Ok(Frame::data(self.rest.split_to(len)))))
    }
}
