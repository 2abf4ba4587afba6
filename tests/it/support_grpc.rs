//! tonic's client with retries, over a network in memory: against a scripted HTTP/2 server, or
//! against one of tonic's.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::{Buf, BufMut, Bytes};
use h2::{Reason, SendStream, server::SendResponse};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tokio::{io::DuplexStream, time::Instant};
use tonic::{
    body::Body,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    transport::{Channel, Endpoint},
};
use tower::{ServiceBuilder, util::BoxCloneService};
use tower_retry_layer::{
    RetryLayer, StandardPolicy,
    backoff::{MakeBackoff, Schedule},
    grpc::{Grpc, PeekTrailersLayer},
    replay::ReplayLayer,
};

use crate::support_http::{Net, leave};

/// A message of the health service that says that all is well, as it is framed.
pub(crate) const SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 1];

pub(crate) type Headers = &'static [(&'static str, &'static str)];

/// What a generated client is given in place of a channel.
pub(crate) type Stack = BoxCloneService<Request<Body>, Response<Body>, tonic::transport::Error>;

/// Three attempts, a second apart, whatever the budget.
pub(crate) fn policy() -> StandardPolicy<Grpc, Schedule> {
    StandardPolicy::grpc()
        .backoff(Schedule::new([Duration::from_secs(1)]).unwrap())
        .without_budget()
}

/// The stack that users build.
pub(crate) fn stack<M>(net: &Net, policy: StandardPolicy<Grpc, M>) -> Stack
where
    M: MakeBackoff + Send + Sync + 'static,
    M::Backoff: Send,
{
    let service = ServiceBuilder::new()
        .layer(ReplayLayer::default())
        .layer(RetryLayer::new(policy))
        .map_request(|request: Request<_>| request.map(Body::new))
        .service(channel(net));
    BoxCloneService::new(service)
}

/// The same, with a look at the first frame of each response.
pub(crate) fn peeking<M>(net: &Net, policy: StandardPolicy<Grpc, M>, max_wait: Duration) -> Stack
where
    M: MakeBackoff + Send + Sync + 'static,
    M::Backoff: Send,
{
    let service = ServiceBuilder::new()
        .map_response(|response: Response<_>| response.map(Body::new))
        .layer(ReplayLayer::default())
        .layer(RetryLayer::new(policy))
        .layer(PeekTrailersLayer::new(max_wait))
        .map_request(|request: Request<_>| request.map(Body::new))
        .service(channel(net));
    BoxCloneService::new(service)
}

pub(crate) fn channel(net: &Net) -> Channel {
    Endpoint::from_static("http://in.memory").connect_with_connector_lazy(net.clone())
}

/// What the server does with one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    /// It reads so many bytes first; `usize::MAX`: all of them.
    reads: usize,
    answer: Answer,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// A head and nothing else: gRPC's Trailers-Only, or a proxy's word.
    Head(u16, Headers),
    /// A head, so many messages, and then an end.
    Body(usize, End),
    /// No head.
    Reset(Reason),
    /// GOAWAY with this reason and the last stream's id in place of a head.
    GoAway(Reason, u32),
    /// The connection is cut.
    Cut,
    /// Nothing, for as long as the client waits.
    Silence,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Trailers(Headers),
    Reset(Reason),
}

pub(crate) const OK: Answer = Answer::Body(1, End::Trailers(&[("grpc-status", "0")]));
pub(crate) const UNAVAILABLE: Answer = Answer::Head(200, &[("grpc-status", "14")]);
pub(crate) const INTERNAL: Answer = Answer::Head(200, &[("grpc-status", "13")]);

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) headers: HeaderMap,
    /// As much as was read before it was answered.
    pub(crate) body: Vec<u8>,
}

/// An HTTP/2 server: the n-th request that arrives gets the n-th reply, and the last reply again
/// and again.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) net: Net,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// Messages as bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Raw;

// === impl Reply ===

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self {
            reads: usize::MAX,
            answer,
        }
    }
}

impl Answer {
    /// The same answer after so many bytes of the request.
    pub(crate) fn after(self, reads: usize) -> Reply {
        Reply {
            reads,
            answer: self,
        }
    }
}

// === impl Seen ===

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        Some(self.headers.get(name)?.to_str().unwrap())
    }
}

// === impl Server ===

impl Server {
    pub(crate) fn new(replies: impl IntoIterator<Item = impl Into<Reply>>) -> Self {
        let replies: Arc<[Reply]> = replies.into_iter().map(Into::into).collect();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let shared = seen.clone();
        let net = Net::new(move |stream| serve(stream, replies.clone(), shared.clone()));
        Self { net, seen }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn requests(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// The values of one header, request by request.
    pub(crate) fn headers(&self, name: &str) -> Vec<Option<String>> {
        let seen = self.seen();
        seen.iter()
            .map(|it| it.header(name).map(Into::into))
            .collect()
    }

    /// The waits between requests.
    pub(crate) fn waits(&self) -> Vec<Duration> {
        let seen = self.seen();
        seen.windows(2).map(|two| two[1].at - two[0].at).collect()
    }
}

fn reply(replies: &[Reply], number: usize) -> Reply {
    replies[number.min(replies.len() - 1)]
}

async fn serve(stream: DuplexStream, replies: Arc<[Reply]>, seen: Arc<Mutex<Vec<Seen>>>) {
    let next = reply(&replies, seen.lock().unwrap().len());
    if let Answer::GoAway(reason, last) = next.answer {
        let note = || {
            seen.lock().unwrap().push(Seen {
                at: Instant::now(),
                headers: HeaderMap::new(),
                body: Vec::new(),
            })
        };
        return leave(stream, reason, last, note).await;
    }
    let (cut, cutting) = tokio::sync::watch::channel(());
    let connection = async {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((request, respond))) = connection.accept().await {
            let number = {
                let mut seen = seen.lock().unwrap();
                seen.push(Seen {
                    at: Instant::now(),
                    headers: request.headers().clone(),
                    body: Vec::new(),
                });
                seen.len() - 1
            };
            let (reply, seen, cut) = (reply(&replies, number), seen.clone(), cut.clone());
            tokio::spawn(async move {
                let body = read(request.into_body(), reply.reads).await;
                seen.lock().unwrap()[number].body = body.0;
                answer(respond, reply.answer, &cut).await;
                drop(body.1); // a stream that is let go of is reset
            });
        }
    };
    let mut cutting = cutting;
    cutting.mark_unchanged();
    tokio::select! {
        () = connection => {}
        _ = cutting.changed() => {}
    }
}

async fn read(mut body: h2::RecvStream, bytes: usize) -> (Vec<u8>, h2::RecvStream) {
    let mut read = Vec::new();
    while read.len() < bytes {
        let Some(Ok(data)) = body.data().await else {
            break;
        };
        body.flow_control().release_capacity(data.len()).unwrap();
        read.extend(data);
    }
    (read, body)
}

async fn answer(
    mut respond: SendResponse<Bytes>,
    answer: Answer,
    cut: &tokio::sync::watch::Sender<()>,
) {
    match answer {
        Answer::Head(status, headers) => {
            let mut response = Response::builder().status(status).body(()).unwrap();
            *response.headers_mut() = map(headers);
            respond.send_response(response, true).unwrap();
        }
        Answer::Body(messages, end) => {
            let mut body = respond.send_response(head(), false).unwrap();
            for _ in 0..messages {
                body.send_data(Bytes::from_static(SERVING), false).unwrap();
            }
            finish(body, end).await;
        }
        Answer::Reset(reason) => respond.send_reset(reason),
        Answer::GoAway(..) => unreachable!("only as the first of a connection"),
        Answer::Cut => {
            cut.send(()).unwrap();
            std::future::pending().await // letting go of the stream would reset it
        }
        Answer::Silence => std::future::pending().await,
    }
}

async fn finish(mut body: SendStream<Bytes>, end: End) {
    match end {
        End::Trailers(headers) => body.send_trailers(map(headers)).unwrap(),
        End::Reset(reason) => {
            // What was sent before is to arrive before.
            tokio::time::sleep(Duration::from_millis(1)).await;
            body.send_reset(reason);
        }
    }
}

pub(crate) fn head() -> Response<()> {
    let head = Response::builder().header("content-type", "application/grpc");
    head.body(()).unwrap()
}

pub(crate) fn map(headers: Headers) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let value = HeaderValue::from_static(value);
        map.append(HeaderName::from_static(name), value);
    }
    map
}

/// tonic's own server in memory, a new one for each connection.
pub(crate) fn tonic_net<S>(service: S) -> Net
where
    S: tonic::codegen::Service<
            Request<Body>,
            Response = Response<Body>,
            Error = std::convert::Infallible,
            Future: Send,
        > + tonic::server::NamedService
        + Clone
        + Send
        + Sync
        + 'static,
{
    Net::new(move |stream| {
        let service = service.clone();
        async move {
            let incoming = futures_util::stream::iter([Ok::<_, io::Error>(stream)]);
            let server = tonic::transport::Server::builder().add_service(service);
            server.serve_with_incoming(incoming).await.unwrap();
        }
    })
}

// === impl Raw ===

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = tonic::Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), tonic::Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = tonic::Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, tonic::Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// Opens a call of raw messages in both directions.
pub(crate) async fn streaming<T>(
    stack: T,
    messages: impl futures_util::Stream<Item = Bytes> + Send + 'static,
) -> Result<tonic::Response<tonic::Streaming<Bytes>>, tonic::Status>
where
    T: tonic::client::GrpcService<Body>,
    T::ResponseBody: http_body::Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as http_body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut client = tonic::client::Grpc::new(stack);
    client
        .ready()
        .await
        .map_err(|_| tonic::Status::internal("not ready"))?;
    let path = http::uri::PathAndQuery::from_static("/test.Raw/Both");
    client
        .streaming(tonic::Request::new(messages), path, Raw)
        .await
}

/// Runs all tasks to where they wait for something other than time.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}
