//! What fails on a connection: the errors of hyper and h2 themselves, each from a real one.

use std::{
    error::Error,
    io::{self, ErrorKind},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use bytes::Bytes;
use h2::Reason;
use http::{Request, Response};
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tower_retry_layer::{Attempt, Protocol, Verdict, http::Http};

use crate::support_http::{OK, classify, connect_error, read_request, request};

type BoxError = Box<dyn Error + Send + Sync>;

/// Who makes the connection; the last is h2 without hyper around it.
const CLIENTS: [Who; 3] = [Who::Http1, Who::Http2, Who::H2];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Http1,
    Http2,
    H2,
}

/// A client's end that fails with this error, once there is one, in place of what came.
struct Broken {
    stream: DuplexStream,
    error: Arc<Mutex<Option<io::Error>>>,
}

#[tokio::test]
async fn a_request_that_was_still_queued_is_unprocessed() {
    for who in [Who::Http1, Who::Http2] {
        let outcome = Err(canceled(who).await);
        assert_eq!(classify("GET", &outcome), Verdict::Unprocessed, "{who:?}");
        assert_eq!(classify("POST", &outcome), Verdict::Unprocessed, "{who:?}");
    }
}

#[tokio::test]
async fn behind_redirects_what_was_refused_may_be_a_later_hop() {
    let outcome = Err::<Response<()>, _>(canceled(Who::Http1).await);
    let seen = |method: &str, http: Http| {
        let request = Request::builder().method(method).body(()).unwrap();
        http.classify(&Attempt::new(Some(&request), &outcome, 1))
    };
    let follows = || Http::new().follows_redirects(true);
    assert_eq!(seen("POST", follows()), Verdict::Stop);
    assert_eq!(seen("GET", follows()), Verdict::Unprocessed);
    let stays = follows().follows_redirects(false);
    assert_eq!(seen("POST", stays), Verdict::Unprocessed);
}

#[tokio::test]
async fn a_connection_that_is_closed_before_it_takes_the_request_has_not_sent_it() {
    let (stream, _theirs) = tokio::io::duplex(1024);
    let (mut http1, connection) = http1(stream).await;
    drop(connection);
    let (stream, _theirs) = tokio::io::duplex(1024);
    let (mut http2, connection) = http2(stream).await;
    drop(connection);
    for error in [
        http1.ready().await.unwrap_err(),
        http2.ready().await.unwrap_err(),
    ] {
        assert!(error.is_closed());
        let outcome = Err(error);
        assert_eq!(classify("GET", &outcome), Verdict::Retry);
        assert_eq!(classify("POST", &outcome), Verdict::Retry);
    }
}

#[tokio::test]
async fn a_connection_that_breaks_under_the_request_has_perhaps_sent_it() {
    for who in CLIENTS {
        for kind in [
            ErrorKind::ConnectionReset,
            ErrorKind::BrokenPipe,
            ErrorKind::TimedOut,
        ] {
            let outcome = Err(broken(who, kind.into()).await);
            assert_eq!(
                classify("GET", &outcome),
                Verdict::Retry,
                "{who:?} {kind:?}"
            );
            assert_eq!(
                classify("POST", &outcome),
                Verdict::Stop,
                "{who:?} {kind:?}"
            );
        }
    }
    // What the transport itself finds wrong, as TLS does, is hopeless.
    let outcome = Err(broken(Who::Http1, ErrorKind::InvalidData.into()).await);
    assert_eq!(classify("GET", &outcome), Verdict::Stop);
}

#[tokio::test]
async fn on_a_connection_a_refusal_is_that_of_a_datagram_socket() {
    for kind in [
        ErrorKind::ConnectionRefused,
        ErrorKind::AddrInUse,
        ErrorKind::AddrNotAvailable,
        ErrorKind::NotFound,
    ] {
        // Straight from `connect`, as in a service of one's own.
        let bare = Err(io::Error::from(kind));
        assert_eq!(classify("POST", &bare), Verdict::Retry, "{kind:?}");
        for who in CLIENTS {
            let outcome = Err(broken(who, kind.into()).await);
            assert_eq!(
                classify("GET", &outcome),
                Verdict::Retry,
                "{who:?} {kind:?}"
            );
            assert_eq!(
                classify("POST", &outcome),
                Verdict::Stop,
                "{who:?} {kind:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_connection_that_breaks_of_another_clients_connect_was_one() {
    let other = connect_error(ErrorKind::ConnectionRefused.into()).await;
    // h2 keeps no more than the text of what is inside of an I/O error.
    let outcome = Err(broken(Who::Http1, io::Error::other(other)).await);
    assert_eq!(classify("GET", &outcome), Verdict::Retry);
    assert_eq!(classify("POST", &outcome), Verdict::Stop);
}

#[tokio::test]
async fn what_this_side_says_is_not_the_peers_word() {
    // A body that ends with a reason.
    for reason in (0..=0xd).map(Reason::from) {
        let outcome = Err(h2::Error::from(reason));
        assert_eq!(classify("GET", &outcome), Verdict::Stop, "{reason:?}");
    }
    // A peer that breaks the protocol: data of the connection itself.
    const DATA: [u8; 10] = [0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
    theirs.write_all(&SETTINGS).await.unwrap();
    let (client, connection) = h2::client::handshake(ours).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let (response, _) = client.send_request(Request::new(()), true).unwrap();
    theirs.write_all(&DATA).await.unwrap();
    let error = response.await.unwrap_err();
    assert!(error.is_library() && error.is_go_away(), "{error:?}");
    let outcome = Err(error);
    assert_eq!(classify("GET", &outcome), Verdict::Stop);
    assert_eq!(classify("POST", &outcome), Verdict::Stop);
    drop(theirs);
}

/// The error of a request whose connection is gone before it was taken.
async fn canceled(who: Who) -> hyper::Error {
    let (stream, _theirs) = tokio::io::duplex(1024);
    let error = if who == Who::Http1 {
        let (mut client, connection) = http1(stream).await;
        drop(connection);
        client.send_request(get()).await.unwrap_err()
    } else {
        let (mut client, connection) = http2(stream).await;
        drop(connection);
        client.send_request(get()).await.unwrap_err()
    };
    assert!(error.is_canceled(), "{error:?}");
    error
}

/// The error of a request whose connection breaks in this way once the server has it.
async fn broken(who: Who, error: io::Error) -> BoxError {
    let kind = format!("{:?}", error.kind());
    let (stream, mut theirs) = tokio::io::duplex(64 * 1024);
    let slot = Arc::new(Mutex::new(None));
    let ours = Broken {
        stream,
        error: slot.clone(),
    };
    let server = tokio::spawn(async move {
        if who == Who::Http1 {
            read_request(&mut theirs).await.unwrap();
            *slot.lock().unwrap() = Some(error);
            theirs.write_all(OK.as_bytes()).await.unwrap();
            let _ = theirs.read(&mut [0]).await;
        } else {
            let mut server = h2::server::handshake(theirs).await.unwrap();
            let (_, mut respond) = server.accept().await.unwrap().unwrap();
            *slot.lock().unwrap() = Some(error);
            respond.send_response(Response::new(()), true).unwrap();
            let _ = server.accept().await;
        }
    });
    let error: BoxError = match who {
        Who::Http1 => {
            let (mut client, connection) = http1(ours).await;
            tokio::spawn(connection);
            client.send_request(get()).await.unwrap_err().into()
        }
        Who::Http2 => {
            let (mut client, connection) = http2(ours).await;
            tokio::spawn(connection);
            client.send_request(get()).await.unwrap_err().into()
        }
        Who::H2 => {
            let (client, connection) = h2::client::handshake(ours).await.unwrap();
            tokio::spawn(connection);
            let mut client = client.ready().await.unwrap();
            let (response, _) = client.send_request(get().map(drop), true).unwrap();
            response.await.unwrap_err().into()
        }
    };
    server.await.unwrap();
    assert!(format!("{error:?}").contains(&kind), "{error:?}");
    error
}

type Http1<S> = hyper::client::conn::http1::Connection<TokioIo<S>, Full<Bytes>>;
type Http2<S> = hyper::client::conn::http2::Connection<TokioIo<S>, Full<Bytes>, TokioExecutor>;

async fn http1<S>(
    stream: S,
) -> (
    hyper::client::conn::http1::SendRequest<Full<Bytes>>,
    Http1<S>,
)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    handshake.await.unwrap()
}

async fn http2<S>(
    stream: S,
) -> (
    hyper::client::conn::http2::SendRequest<Full<Bytes>>,
    Http2<S>,
)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let executor = TokioExecutor::new();
    let handshake = hyper::client::conn::http2::handshake(executor, TokioIo::new(stream));
    handshake.await.unwrap()
}

fn get() -> Request<Full<Bytes>> {
    request("GET", "http://in.memory/")
}

// === impl Broken ===

impl AsyncRead for Broken {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(error) = self.error.lock().unwrap().take() {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Broken {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
