//! What a transport error says about the request: by type, through the whole chain of causes.

use std::{
    error::Error,
    io::{self, ErrorKind},
};

/// A chain longer than this is cut: no real one is, and one that loops must end.
pub(super) const MAX_DEPTH: usize = 32;

type Cause = dyn Error + 'static;

/// The error of hyper-util's connector, which has no public name.
#[cfg(feature = "hyper")]
type ConnectorError = <hyper_util::client::legacy::connect::HttpConnector as tower_service::Service<
    http::Uri,
>>::Error;

/// Errors whose causes can be looked at: any `E: Error`, and the boxed error of tower's `Timeout`
/// and `Buffer`, which is none.
///
/// `M` keeps the two apart; it is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an error whose cause can be told",
    note = "it is `std::error::Error + 'static`, or `Box<dyn std::error::Error + Send + Sync>`"
)]
pub trait ErrorRef<M> {
    /// The error itself, for downcasts.
    fn error_ref(&self) -> &(dyn Error + 'static);
}

/// The service's error is a type of its own. See [`ErrorRef`].
#[derive(Clone, Copy, Debug)]
pub struct Typed {
    _priv: (),
}

/// The service's error is `Box<dyn Error + Send + Sync>`. See [`ErrorRef`].
#[derive(Clone, Copy, Debug)]
pub struct Boxed {
    _priv: (),
}

/// What became of the request, as far as an error tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It never left: sending it again later is safe whatever it is.
    NeverSent,
    /// The server certainly did not act on it and may do so at once, on another connection.
    #[cfg_attr(
        not(feature = "hyper"),
        expect(dead_code, reason = "only HTTP clients tell")
    )]
    Refused,
    /// It was on its way when something broke or took too long.
    PerhapsProcessed,
    /// Sending it again does not mend this, or nobody knows what this is.
    Hopeless,
}

/// Reads the fate of the request from an error and its causes, from the outside in. The first that
/// decides counts.
pub(super) fn fate(error: &Cause) -> Fate {
    decide(error).0
}

/// The fate, and the cause that decided it. `None`: none did.
pub(crate) fn decide(error: &Cause) -> (Fate, Option<&Cause>) {
    let mut phase = None;
    let mut next = Some(error);
    for _ in 0..MAX_DEPTH {
        let Some(error) = next else { break };
        let decided = match look(error) {
            Look::Decided(fate) => Some(fate),
            Look::During(seen) => {
                // What an established connection failed of may itself be a client's error, about a
                // connect of its own: the outermost speaks of this request.
                phase.get_or_insert(seen);
                None
            }
            Look::Io(kind) => match phase {
                Some(Phase::Connecting) => connect_kind(kind),
                Some(Phase::Connected) => stream_kind(kind, Fate::PerhapsProcessed),
                None => stream_kind(kind, Fate::NeverSent),
            },
            Look::Undecided => None,
        };
        match (decided, phase) {
            (Some(Fate::Hopeless), _) => return (Fate::Hopeless, Some(error)),
            // Whatever broke before there was a connection, the request was not sent.
            (Some(_), Some(Phase::Connecting)) => return (Fate::NeverSent, Some(error)),
            (Some(fate), _) => return (fate, Some(error)),
            (None, _) => next = cause(error),
        }
    }
    match phase {
        // Nor does it take a known cause to say so. Of the requests that wait for one HTTP/2
        // connect of hyper-util's, only the one that makes it is told the cause. What no retry
        // mends is among the unknown too, such as a bad certificate as native TLS reports it: the
        // policy's limits are there for that.
        Some(Phase::Connecting) => (Fate::NeverSent, None),
        _ => (Fate::Hopeless, None),
    }
}

/// What one link of the chain says.
pub(super) enum Look {
    Decided(Fate),
    /// Where all that follows happened.
    #[cfg_attr(
        not(feature = "hyper"),
        expect(dead_code, reason = "only HTTP clients tell")
    )]
    During(Phase),
    Io(ErrorKind),
    Undecided,
}

#[derive(Clone, Copy)]
#[cfg_attr(
    not(feature = "hyper"),
    expect(dead_code, reason = "only HTTP clients tell")
)]
pub(super) enum Phase {
    /// Before there was a connection.
    Connecting,
    /// On the connection, or so far as one can tell.
    Connected,
}

fn look(error: &Cause) -> Look {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return Look::Io(error.kind());
    }
    if error.is::<tower::timeout::error::Elapsed>() || error.is::<tokio::time::error::Elapsed>() {
        return Look::Decided(Fate::PerhapsProcessed);
    }
    look_client(error)
}

#[cfg(not(feature = "hyper"))]
fn look_client(_: &Cause) -> Look {
    Look::Undecided
}

#[cfg(feature = "hyper")]
fn look_client(error: &Cause) -> Look {
    let decided = |fate: Option<Fate>| fate.map_or(Look::During(Phase::Connected), Look::Decided);
    #[cfg(feature = "reqwest")]
    if let Some(error) = error.downcast_ref::<reqwest::Error>() {
        return super::reqwest::look(error);
    }
    if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
        return if error.is_connect() {
            Look::During(Phase::Connecting)
        } else {
            Look::Undecided // hyper's error in it knows more
        };
    }
    if let Some(error) = error.downcast_ref::<ConnectorError>() {
        // Met without the client's error around it in tonic's channel, among others. It has no
        // cause only where it does not take the URL.
        return match error.source() {
            Some(_) => Look::During(Phase::Connecting),
            None => Look::Decided(Fate::Hopeless),
        };
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        return decided(hyper_error(error));
    }
    if let Some(error) = error.downcast_ref::<h2::Error>() {
        return decided(h2_error(error));
    }
    Look::Undecided
}

#[cfg(feature = "hyper")]
fn hyper_error(error: &hyper::Error) -> Option<Fate> {
    if error.is_canceled() {
        // Was waiting for its turn on a connection that is gone; the cause is that connection's.
        Some(Fate::Refused)
    } else if error.is_user() || error.is_parse() {
        // The request's own body failed, or the answer is not HTTP.
        Some(Fate::Hopeless)
    } else if error.is_closed() {
        Some(Fate::NeverSent)
    } else if error.is_incomplete_message() || error.is_timeout() {
        // An idle connection that the server closed looks the same as one cut after the request
        // was acted on (hyper#2136).
        Some(Fate::PerhapsProcessed)
    } else {
        None
    }
}

#[cfg(feature = "hyper")]
fn h2_error(error: &h2::Error) -> Option<Fate> {
    use h2::Reason;

    let reason = error.reason()?; // none: an I/O error, which is the cause, or misuse
    if !error.is_remote() {
        // This side gave up on a peer that broke the protocol, or a body ended with a reason.
        return Some(Fate::Hopeless);
    }
    // h2 gives a GOAWAY to the streams above its last id, and to requests that it has not begun;
    // the others go on, and end with an I/O error if the connection does not last (RFC 9113, 8.7).
    // A server that names an error is not asked again at once.
    Some(match (error.is_go_away(), reason) {
        (true, Reason::NO_ERROR) | (false, Reason::REFUSED_STREAM) => Fate::Refused,
        (true, _) => Fate::NeverSent,
        (
            false,
            Reason::NO_ERROR
            | Reason::INTERNAL_ERROR
            | Reason::CANCEL
            | Reason::STREAM_CLOSED
            | Reason::SETTINGS_TIMEOUT
            | Reason::CONNECT_ERROR
            | Reason::ENHANCE_YOUR_CALM,
        ) => Fate::PerhapsProcessed,
        _ => Fate::Hopeless,
    })
}

/// The next cause inwards. An `io::Error` and an `h2::Error` leave their own inside out of
/// `source`.
pub(super) fn cause(error: &Cause) -> Option<&Cause> {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return error.get_ref().map(|inner| inner as &Cause);
    }
    #[cfg(feature = "hyper")]
    if let Some(error) = error.downcast_ref::<h2::Error>() {
        return error.get_io().map(|inner| inner as &Cause);
    }
    error.source()
}

fn connect_kind(kind: ErrorKind) -> Option<Fate> {
    match kind {
        // A TLS library reports a bad certificate as invalid data.
        ErrorKind::InvalidData
        | ErrorKind::InvalidInput
        | ErrorKind::PermissionDenied
        | ErrorKind::Unsupported => Some(Fate::Hopeless),
        // A wrapper: the cause may know more, such as a TLS library's refusal.
        ErrorKind::Other => None,
        // Among them a name that does not resolve: the standard library tells a resolver that is
        // down from a name that does not exist by text only.
        _ => Some(Fate::NeverSent),
    }
}

/// `refused` is for the kinds in which a stream's `connect` and `bind` fail, and nothing that is
/// done to a stream later.
///
/// A service of one's own hands on what its `connect` says. A client says so itself where it is
/// connecting; of a connection they are the word of a datagram socket (QUIC), which hears of a port
/// that is closed after it has sent, perhaps for long.
fn stream_kind(kind: ErrorKind, refused: Fate) -> Option<Fate> {
    match kind {
        ErrorKind::ConnectionRefused
        | ErrorKind::AddrInUse
        | ErrorKind::AddrNotAvailable
        // The path of a Unix socket that its server has not made yet, or has taken away.
        | ErrorKind::NotFound => Some(refused),
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::NotConnected
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof
        | ErrorKind::WriteZero
        | ErrorKind::TimedOut
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown => Some(Fate::PerhapsProcessed),
        ErrorKind::Other => None,
        _ => Some(Fate::Hopeless),
    }
}

// === impl ErrorRef ===

impl<E: Error + 'static> ErrorRef<Typed> for E {
    fn error_ref(&self) -> &(dyn Error + 'static) {
        self
    }
}

impl ErrorRef<Boxed> for Box<dyn Error + Send + Sync> {
    fn error_ref(&self) -> &(dyn Error + 'static) {
        &**self
    }
}
