//! Uploads over real connections: edge cases 26, 27, 31, 32 and 40.

use std::{
    convert::Infallible,
    future::poll_fn,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::{HeaderMap, Request, Response, StatusCode, Version, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};
use tower_retry_layer::replay::ReplayBody;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Upload = StreamBody<stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;
type UploadClient = Client<HttpConnector, ReplayBody<Upload>>;

const MEBIBYTE: usize = 1 << 20;

/// How the server answers an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// 503 after the first piece. The rest is neither read nor refused.
    Early,
    /// 503 after the whole body.
    Late,
    Ok,
}

/// What the server saw of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    key: Option<String>,
    length: Option<String>,
    coding: Option<String>,
    /// Of the whole body, where it was read.
    hash: Option<u64>,
    trailers: Option<HeaderMap>,
}

#[tokio::test]
async fn case_26_an_upload_arrives_after_early_and_late_failures_over_http_1() {
    upload_arrives(Version::HTTP_11, false).await;
    upload_arrives(Version::HTTP_11, true).await;
}

#[tokio::test]
async fn case_26_an_upload_arrives_after_early_and_late_failures_over_http_2() {
    upload_arrives(Version::HTTP_2, false).await;
    upload_arrives(Version::HTTP_2, true).await;
}

#[tokio::test]
async fn case_26_an_abandoned_upload_over_http_1_does_not_end_as_if_it_were_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = client(Version::HTTP_11);
    let pieces = pieces();
    // The source stops halfway until the first attempt is known to have been abandoned.
    let (resume, resumed) = tokio::sync::oneshot::channel::<()>();
    let (half, rest) = (pieces[..9].to_vec(), pieces[9..].to_vec());
    let resumed = stream::once(async { drop(resumed.await) }).filter_map(async |()| None);
    let frames = stream::iter(frames(half))
        .chain(resumed)
        .chain(stream::iter(frames(rest)));
    let body = ReplayBody::new(StreamBody::new(frames.boxed()), usize::MAX);

    let server = tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        let mut seen = vec![0; 200];
        first.read_exact(&mut seen).await.unwrap();
        first.write_all(UNAVAILABLE).await.unwrap();
        let (second, _) = listener.accept().await.unwrap();
        let second = tokio::spawn(raw_request(second, OK));
        // All that the client sends on the first connection, until it closes it.
        let _ = first.read_to_end(&mut seen).await;
        resume.send(()).unwrap();
        (seen, second.await.unwrap())
    });
    let copy = body.try_replay().unwrap();
    let request = |body| {
        Request::put(format!("http://{address}/"))
            .body(body)
            .unwrap()
    };
    let failed = client.request(request(body)).await.unwrap();
    assert_eq!(failed.status(), StatusCode::SERVICE_UNAVAILABLE);
    let done = client.request(request(copy)).await.unwrap();
    assert_eq!(done.status(), StatusCode::OK);

    let (abandoned, whole) = server.await.unwrap();
    assert_eq!(whole.data(), pieces.concat());
    // It breaks off, and up to there it was framed as the attempt that arrived.
    let whole = whole.encoded();
    assert!(whole.starts_with(&abandoned) && abandoned.len() < whole.len() - b"0\r\n\r\n".len());
}

#[tokio::test]
async fn case_27_a_refused_stream_and_a_closing_connection_leave_the_upload_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (io, _) = listener.accept().await.unwrap();
        let mut refusing = h2::server::handshake(io).await.unwrap();
        let (_, mut respond) = refusing.accept().await.unwrap().unwrap();
        respond.send_reset(h2::Reason::REFUSED_STREAM);
        let _ = refusing.accept().await.map(|next| next.map(drop));
        refusing.abrupt_shutdown(h2::Reason::NO_ERROR);
        let _ = poll_fn(|cx| refusing.poll_closed(cx)).await;
        drop(refusing);

        let (io, _) = listener.accept().await.unwrap();
        let mut accepting = h2::server::handshake(io).await.unwrap();
        let (request, mut respond) = accepting.accept().await.unwrap().unwrap();
        let driver = tokio::spawn(async move { poll_fn(|cx| accepting.poll_closed(cx)).await });
        let mut body = request.into_body();
        let mut all = Vec::new();
        while let Some(data) = body.data().await {
            let data = data.unwrap();
            body.flow_control().release_capacity(data.len()).unwrap();
            all.extend_from_slice(&data);
        }
        respond.send_response(Response::new(()), true).unwrap();
        driver.abort();
        all
    });

    let client = client(Version::HTTP_2);
    let mut failures = 0;
    let mut body = upload(pieces());
    let response = loop {
        let copy = body.try_replay().unwrap();
        let request = Request::put(format!("http://{address}/"))
            .body(body)
            .unwrap();
        match client.request(request).await {
            Ok(response) => break Some(response),
            Err(_) if failures < 4 => failures += 1,
            Err(_) => break None,
        }
        assert!(copy.can_replay());
        body = copy;
    };
    assert!(failures >= 2);
    assert_eq!(server.await.unwrap(), pieces().concat());
    // The server may be gone before its answer is.
    drop(response);
}

#[tokio::test]
async fn case_31_the_framing_of_an_unknown_length_is_equal_on_every_attempt() {
    let [first, second, third] = raw_attempts(|| upload(pieces()), None).await;
    assert_eq!(first.framing(), Some("transfer-encoding: chunked"));
    assert_eq!(first.chunks.len(), pieces().len());
    assert_eq!(first, second);
    assert_eq!(first, third);
    assert_eq!(first.data(), pieces().concat());
}

#[tokio::test]
async fn case_31_the_framing_of_a_known_length_is_equal_on_every_attempt() {
    let make = || {
        let sized = Sized(upload_body(pieces()), MEBIBYTE as u64);
        ReplayBody::new(sized, usize::MAX)
    };
    let [first, second, third] = raw_attempts(make, None).await;
    assert_eq!(first.framing(), Some("content-length: 1048576"));
    assert_eq!(first, second);
    assert_eq!(first, third);
    assert_eq!(first.data(), pieces().concat());
}

#[tokio::test]
async fn case_31_trailers_are_sent_on_every_attempt() {
    let make = || {
        let trailers = HeaderMap::from_iter([(header::ETAG, "42".parse().unwrap())]);
        let frames = frames(pieces()).chain([Ok(Frame::trailers(trailers))]);
        ReplayBody::new(StreamBody::new(stream::iter(frames).boxed()), usize::MAX)
    };
    let [first, second, third] = raw_attempts(make, Some("etag")).await;
    assert_eq!(first.trailers, ["etag: 42"]);
    assert_eq!(first, second);
    assert_eq!(first, third);
}

#[tokio::test]
async fn case_32_trailers_survive_being_wrapped_again() {
    let steps = [
        crate::replay_support::data("a"),
        crate::replay_support::trailers(),
    ];
    let first = ReplayBody::new(crate::replay_support::halting(&steps), usize::MAX);
    let second = first.try_replay().unwrap();
    let third = second.try_replay().unwrap();
    let first = axum::body::Body::new(first).collect().await.unwrap();
    let second = tonic::body::Body::new(second).collect().await.unwrap();
    let third = tonic::body::Body::new(axum::body::Body::new(third));
    let third = third.collect().await.unwrap();
    for collected in [first, second, third] {
        let trailers = collected.trailers().unwrap();
        assert_eq!(trailers.get_all("x-checksum").iter().count(), 2);
        assert_eq!(collected.to_bytes(), "a");
    }
}

#[tokio::test]
async fn case_40_a_large_failed_response_does_not_starve_the_retry() {
    let large = Bytes::from(vec![7; 100_000]);
    let server = Server::start(
        Version::HTTP_2,
        [Answer::Late, Answer::Early, Answer::Ok],
        large.clone(),
    )
    .await;
    // One window of 64 KiB for the whole connection, which the failed responses fill.
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .http2_initial_stream_window_size(65_535)
        .http2_initial_connection_window_size(65_535)
        .build_http();
    let response = send(&client, server.request(upload(pieces())))
        .await
        .unwrap();
    assert_eq!(response.collect().await.unwrap().to_bytes(), large);
    assert_eq!(server.seen().len(), 3);
}

/// Three attempts at a mebibyte, the first two failed by the server.
async fn upload_arrives(version: Version, trailers: bool) {
    let answers = [Answer::Early, Answer::Late, Answer::Ok];
    let server = Server::start(version, answers, Bytes::new()).await;
    let tail = trailers
        .then(|| HeaderMap::from_iter([(header::ETAG, "42".parse().unwrap())]))
        .map(|map| Ok(Frame::trailers(map)));
    let frames = frames(pieces()).chain(tail);
    let body = StreamBody::new(slowly(frames).boxed());
    let body = ReplayBody::new(body, 2 * MEBIBYTE);

    let response = send(&client(version), server.request(body)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let seen = server.seen();
    let [early, late, ok] = &seen[..] else {
        panic!("not three attempts: {seen:?}");
    };
    assert_eq!(ok.hash, Some(hash(&pieces().concat())));
    assert_eq!(late, ok);
    let unread = Seen {
        hash: None,
        trailers: None,
        ..ok.clone()
    };
    assert_eq!(*early, unread);
    assert_eq!(ok.key.as_deref(), Some("an-upload"));
    assert_eq!(ok.trailers.is_some(), trailers);
}

/// A policy in small: a copy before each attempt, sent when that fails. Three attempts in all.
async fn send(
    client: &UploadClient,
    request: Request<ReplayBody<Upload>>,
) -> Result<Response<Incoming>, BoxError> {
    let copy_of = |request: &Request<ReplayBody<Upload>>| {
        let mut copy = Request::new(request.body().try_replay()?);
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        Some(copy)
    };
    let mut request = request;
    for _ in 0..2 {
        let copy = copy_of(&request);
        let response = client.request(request).await?;
        match copy.filter(|copy| copy.body().can_replay()) {
            Some(copy) if response.status() == StatusCode::SERVICE_UNAVAILABLE => request = copy,
            _ => return Ok(response),
        }
    }
    Ok(client.request(request).await?)
}

fn client<B>(version: Version) -> Client<HttpConnector, B>
where
    B: http_body::Body + Send,
    B::Data: Send,
{
    Client::builder(TokioExecutor::new())
        .http2_only(version == Version::HTTP_2)
        .build_http()
}

fn upload(pieces: Vec<Bytes>) -> ReplayBody<Upload> {
    ReplayBody::new(upload_body(pieces), usize::MAX)
}

fn upload_body(pieces: Vec<Bytes>) -> Upload {
    StreamBody::new(slowly(frames(pieces)).boxed())
}

fn frames(
    pieces: Vec<Bytes>,
) -> impl Iterator<Item = Result<Frame<Bytes>, Infallible>> + Send + 'static {
    pieces.into_iter().map(|piece| Ok(Frame::data(piece)))
}

/// Halts before every frame.
fn slowly<T: Send + 'static>(
    frames: impl Iterator<Item = T> + Send + 'static,
) -> impl Stream<Item = T> + Send + 'static {
    stream::iter(frames).then(async |frame| {
        tokio::task::yield_now().await;
        frame
    })
}

/// A mebibyte in pieces of odd lengths, from one byte to some 60 KiB.
fn pieces() -> Vec<Bytes> {
    let mut rest = Bytes::from_iter((0..MEBIBYTE).map(|at| (at * 31 % 251) as u8));
    let mut len = 1;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        len = (len * 7 + 12_345) % 60_013;
        pieces.push(rest.split_to((len | 1).min(rest.len())));
    }
    pieces
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

// === Server ===

/// A server that answers the attempts in turn.
struct Server {
    address: std::net::SocketAddr,
    state: Arc<ServerState>,
    task: JoinHandle<()>,
}

struct ServerState {
    answers: Mutex<std::vec::IntoIter<Answer>>,
    seen: Mutex<Vec<Seen>>,
    /// Bodies of early answers: dropping one would reset its stream.
    held: Mutex<Vec<Incoming>>,
    body: Bytes,
}

impl Server {
    async fn start(version: Version, answers: impl Into<Vec<Answer>>, body: Bytes) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(ServerState {
            answers: Mutex::new(answers.into().into_iter()),
            seen: Mutex::default(),
            held: Mutex::default(),
            body,
        });
        let shared = state.clone();
        let task = tokio::spawn(async move {
            // Dropped with the task, and the connections with it.
            let mut connections = JoinSet::new();
            loop {
                let (io, _) = listener.accept().await.unwrap();
                let state = shared.clone();
                let service =
                    hyper::service::service_fn(move |request| answer(state.clone(), request));
                connections.spawn(async move {
                    let io = TokioIo::new(io);
                    let _ = if version == Version::HTTP_2 {
                        let builder =
                            hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        builder.serve_connection(io, service).await
                    } else {
                        let builder = hyper::server::conn::http1::Builder::new();
                        builder.serve_connection(io, service).await
                    };
                });
            }
        });
        Self {
            address,
            state,
            task,
        }
    }

    fn request<B>(&self, body: B) -> Request<B> {
        Request::post(format!("http://{}/", self.address))
            .header("idempotency-key", "an-upload")
            .header(header::TRAILER, "etag")
            .body(body)
            .unwrap()
    }

    fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(
    state: Arc<ServerState>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let answer = state.answers.lock().unwrap().next().unwrap();
    let header = |name: &str| {
        let value = request.headers().get(name)?;
        Some(value.to_str().unwrap().to_owned())
    };
    let mut seen = Seen {
        key: header("idempotency-key"),
        length: header("content-length"),
        coding: header("transfer-encoding"),
        hash: None,
        trailers: None,
    };
    let mut body = request.into_body();
    if answer == Answer::Early {
        let first = body.frame().await.unwrap()?;
        assert!(first.is_data());
        state.held.lock().unwrap().push(body);
    } else {
        let collected = body.collect().await?;
        seen.trailers = collected.trailers().cloned();
        seen.hash = Some(hash(&collected.to_bytes()));
    }
    state.seen.lock().unwrap().push(seen);
    let mut response = Response::new(Full::new(state.body.clone()));
    if answer != Answer::Ok {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    Ok(response)
}

// === the wire itself ===

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const UNAVAILABLE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";

/// One HTTP/1.1 request as it was on the wire.
#[derive(Debug, PartialEq, Eq)]
struct Raw {
    head: Vec<String>,
    /// One chunk where the length is known.
    chunks: Vec<Vec<u8>>,
    trailers: Vec<String>,
}

impl Raw {
    fn framing(&self) -> Option<&str> {
        let mut lines = self.head.iter().map(String::as_str);
        lines.rfind(|line| {
            line.starts_with("content-length") || line.starts_with("transfer-encoding")
        })
    }

    fn data(&self) -> Vec<u8> {
        self.chunks.concat()
    }

    /// As it was on the wire, of a chunked request without trailers.
    fn encoded(&self) -> Vec<u8> {
        let mut bytes = self.head.join("\r\n").into_bytes();
        bytes.extend_from_slice(b"\r\n\r\n");
        for chunk in &self.chunks {
            bytes.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        bytes
    }
}

/// The same upload three times, each captured in full.
async fn raw_attempts<B>(make: impl Fn() -> ReplayBody<B>, trailer: Option<&str>) -> [Raw; 3]
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let mut seen = Vec::new();
        for _ in 0..3 {
            let (io, _) = listener.accept().await.unwrap();
            seen.push(raw_request(io, OK).await);
        }
        <[Raw; 3]>::try_from(seen).unwrap()
    });
    let client = client(Version::HTTP_11);
    let mut body = make();
    for _ in 0..3 {
        let copy = body.try_replay().unwrap();
        let mut request = Request::put(format!("http://{address}/"))
            .body(body)
            .unwrap();
        if let Some(name) = trailer {
            let value = name.parse().unwrap();
            request.headers_mut().insert(header::TRAILER, value);
        }
        assert_eq!(
            client.request(request).await.unwrap().status(),
            StatusCode::OK
        );
        body = copy;
    }
    server.await.unwrap()
}

/// Reads one request, answers it and closes the connection.
async fn raw_request(mut io: TcpStream, response: &[u8]) -> Raw {
    let head = lines(&mut io).await;
    let length = head
        .iter()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut raw = Raw {
        chunks: Vec::new(),
        trailers: Vec::new(),
        head: head.clone(),
    };
    if let Some(length) = length {
        let mut data = vec![0; length.parse().unwrap()];
        io.read_exact(&mut data).await.unwrap();
        raw.chunks.push(data);
    } else {
        loop {
            let size = usize::from_str_radix(&line(&mut io).await, 16).unwrap();
            if size == 0 {
                break;
            }
            let mut data = vec![0; size];
            io.read_exact(&mut data).await.unwrap();
            assert_eq!(line(&mut io).await, "");
            raw.chunks.push(data);
        }
        raw.trailers = lines(&mut io).await;
    }
    io.write_all(response).await.unwrap();
    raw
}

/// Lines up to an empty one.
async fn lines(io: &mut TcpStream) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        match line(io).await {
            line if line.is_empty() => return lines,
            line => lines.push(line),
        }
    }
}

async fn line(io: &mut TcpStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(io.read_u8().await.unwrap());
    }
    line.truncate(line.len() - 2);
    String::from_utf8(line).unwrap()
}

/// A body of which the length is known.
struct Sized(Upload, u64);

impl http_body::Body for Sized {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        std::pin::Pin::new(&mut self.get_mut().0).poll_frame(cx)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.1)
    }
}
