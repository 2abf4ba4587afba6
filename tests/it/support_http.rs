//! Servers, networks and clients for the tests of HTTP.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{Connected, Connection, HttpConnector},
    },
    rt::{TokioExecutor, TokioIo},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tower_retry_layer::{
    Attempt, Protocol, StandardPolicy, Verdict,
    backoff::Schedule,
    http::{ErrorRef, Http},
    observe::{Finished, Observe, Retrying, StopReason},
};

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
pub(crate) const UNAVAILABLE: &str =
    "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy";

/// Three attempts, a millisecond apart, whatever the budget.
pub(crate) fn quick<M>() -> StandardPolicy<Http<M>, Schedule> {
    with(Http::new())
}

pub(crate) fn with<P>(protocol: P) -> StandardPolicy<P, Schedule> {
    let delays = Schedule::new([Duration::from_millis(1)]).unwrap();
    StandardPolicy::new(protocol)
        .backoff(delays)
        .without_budget()
}

/// What the policy told its observer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Events>>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    pub(crate) delays: Vec<Duration>,
    pub(crate) ends: Vec<(StopReason, u32, u32)>,
}

/// A server of raw HTTP/1.1 on loopback: the n-th request that arrives gets the n-th reply, and
/// the last reply again and again. It ends with its value.
pub(crate) struct RawServer {
    pub(crate) addr: SocketAddr,
    script: Arc<Script>,
    task: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    /// These bytes; the connection stays open.
    Keep(&'static str),
    /// These bytes; the connection is closed.
    Close(&'static str),
    /// No byte; the connection stays open.
    Silence,
}

struct Script {
    replies: Vec<Reply>,
    next: AtomicUsize,
    heads: Mutex<Vec<String>>,
    connections: AtomicUsize,
}

/// Listens on a port that was taken and refused connections until now.
pub(crate) struct Refusing(tokio::net::TcpSocket);

/// A network in memory, which the paused clock suits: a server task for each connection.
#[derive(Clone)]
pub(crate) struct Net {
    up: Arc<AtomicBool>,
    serve: Arc<dyn Fn(DuplexStream) + Send + Sync>,
}

pub(crate) struct Pipe(TokioIo<DuplexStream>);

pub(crate) type HyperClient<C = HttpConnector> = Client<C, Full<Bytes>>;

pub(crate) fn http1() -> HyperClient {
    Client::builder(TokioExecutor::new()).build_http()
}

pub(crate) fn http2() -> HyperClient {
    Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http()
}

pub(crate) fn request(method: &str, uri: impl ToString) -> http::Request<Full<Bytes>> {
    http::Request::builder()
        .method(method)
        .uri(uri.to_string())
        .body(Full::from(if method == "POST" { "body" } else { "" }))
        .unwrap()
}

/// hyper-util's error of a request whose connector fails in this way.
pub(crate) async fn connect_error(error: io::Error) -> hyper_util::client::legacy::Error {
    let error = Arc::new(Mutex::new(Some(error)));
    let connector = tower::service_fn(move |_: Uri| {
        std::future::ready(Err::<Pipe, _>(error.lock().unwrap().take().unwrap()))
    });
    let client: HyperClient<_> = Client::builder(TokioExecutor::new()).build(connector);
    let result = client.request(request("GET", "http://in.memory/")).await;
    let error = result.unwrap_err();
    assert!(error.is_connect());
    error
}

/// The verdict on the first attempt of a request that has no mark.
pub(crate) fn classify<E, M>(method: &str, outcome: &Result<http::Response<()>, E>) -> Verdict
where
    E: ErrorRef<M>,
{
    let request = http::Request::builder().method(method).body(()).unwrap();
    Http::<M>::new().classify(&Attempt::new(Some(&request), outcome, 1))
}

// === impl Log ===

impl Log {
    pub(crate) fn events(&self) -> Events {
        self.0.lock().unwrap().clone()
    }
}

impl Observe for Log {
    fn retrying(&self, event: &Retrying<'_>) {
        self.0.lock().unwrap().delays.push(event.delay);
    }

    fn finished(&self, event: &Finished<'_>) {
        let end = (event.reason, event.attempts, event.transparent);
        self.0.lock().unwrap().ends.push(end);
    }
}

// === impl RawServer ===

impl RawServer {
    pub(crate) async fn start(replies: impl Into<Vec<Reply>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::serve(listener, replies)
    }

    fn serve(listener: TcpListener, replies: impl Into<Vec<Reply>>) -> Self {
        let addr = listener.local_addr().unwrap();
        let script = Arc::new(Script {
            replies: replies.into(),
            next: AtomicUsize::new(0),
            heads: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let shared = script.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let script = shared.clone();
                connections.spawn(async move { script.answer(stream).await });
            }
        });
        Self { addr, script, task }
    }

    pub(crate) fn uri(&self) -> String {
        format!("http://{}/", self.addr)
    }

    /// The heads of the requests that arrived.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.script.heads.lock().unwrap().clone()
    }

    pub(crate) fn requests(&self) -> usize {
        self.heads().len()
    }

    pub(crate) fn connections(&self) -> usize {
        self.script.connections.load(Ordering::SeqCst)
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl Script ===

impl Script {
    async fn answer(&self, mut stream: TcpStream) {
        while let Some(head) = read_request(&mut stream).await {
            self.heads.lock().unwrap().push(head);
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            match self.replies[number.min(self.replies.len() - 1)] {
                Reply::Keep(bytes) => stream.write_all(bytes.as_bytes()).await.unwrap(),
                Reply::Close(bytes) => {
                    stream.write_all(bytes.as_bytes()).await.unwrap();
                    return;
                }
                Reply::Silence => {}
            }
        }
    }
}

/// Reads one request, body included, and gives its head. `None`: the client hung up.
pub(crate) async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(head)
}

// === impl Refusing ===

impl Refusing {
    pub(crate) fn new() -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        Self(socket)
    }

    pub(crate) fn uri(&self) -> String {
        format!("http://{}/", self.0.local_addr().unwrap())
    }

    pub(crate) fn listen(self, replies: impl Into<Vec<Reply>>) -> RawServer {
        RawServer::serve(self.0.listen(16).unwrap(), replies)
    }
}

// === impl Net ===

impl Net {
    pub(crate) fn new<F, Fut>(serve: F) -> Self
    where
        F: Fn(DuplexStream) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self {
            up: Arc::new(AtomicBool::new(true)),
            serve: Arc::new(move |stream| {
                tokio::spawn(serve(stream));
            }),
        }
    }

    pub(crate) fn set_up(&self, up: bool) {
        self.up.store(up, Ordering::SeqCst);
    }

    pub(crate) fn client(&self) -> HyperClient<Self> {
        Client::builder(TokioExecutor::new()).build(self.clone())
    }
}

impl tower_service::Service<Uri> for Net {
    type Response = Pipe;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Pipe>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        std::future::ready(if self.up.load(Ordering::SeqCst) {
            let (client, server) = tokio::io::duplex(64 * 1024);
            (self.serve)(server);
            Ok(Pipe::new(client))
        } else {
            Err(io::ErrorKind::ConnectionRefused.into())
        })
    }
}

// === impl Pipe ===

impl Pipe {
    pub(crate) fn new(stream: DuplexStream) -> Self {
        Self(TokioIo::new(stream))
    }
}

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// An HTTP/1.1 server of hyper's on one connection, for as long as `answer` is `Ok`.
pub(crate) async fn serve_http1<S, F, Fut>(stream: S, answer: F)
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Fn(http::Request<hyper::body::Incoming>) -> Fut,
    Fut: Future<Output = io::Result<http::Response<Full<Bytes>>>>,
{
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), hyper::service::service_fn(answer))
        .await;
}

/// Reads up to the first request and answers with GOAWAY, frame by frame: h2's own server counts
/// every stream that it has seen as processed.
pub(crate) async fn leave<S>(mut stream: S, reason: h2::Reason, last: u32, seen: impl FnOnce())
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    const GO_AWAY: u8 = 7;

    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    stream.write_all(&frame(SETTINGS, &[])).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.unwrap();
        if head[3] == HEADERS {
            break;
        }
    }
    seen();
    let mut payload = last.to_be_bytes().to_vec();
    payload.extend(u32::from(reason).to_be_bytes());
    stream.write_all(&frame(GO_AWAY, &payload)).await.unwrap();
    // Whatever the client still sends is read, so that closing is no reset.
    stream.shutdown().await.unwrap();
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
}

/// A frame of the connection: stream 0, no flags (RFC 9113, section 4.1).
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    let mut frame = vec![0, 0, length, kind, 0, 0, 0, 0, 0];
    frame.extend(payload);
    frame
}
