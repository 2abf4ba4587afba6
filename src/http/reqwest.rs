//! `Http` over reqwest's own types.

use std::time::Duration;

use reqwest::{Error, Request, Response};

use super::{
    error::{ErrorRef, Fate, Look, Phase},
    exchange::{Exchange, RequestView, ResponseView},
    name,
    rules::Http,
};
use crate::{Attempt, Limits, Protocol, Verdict, observe::RetrySummary};

/// For [`RetryLayer`](crate::RetryLayer) over a `reqwest::Client`.
///
/// A request whose body is a stream cannot be copied: it is sent once.
///
/// reqwest keeps a request's extensions to itself, so a request marks itself by an
/// `Idempotency-Key` only, and stacked layers know each other by the
/// [`attempt_header`](Http::attempt_header). See also
/// [`follows_redirects`](Http::follows_redirects).
///
/// reqwest resends by itself what an HTTP/2 server refused, twice at most and without a wait;
/// `ClientBuilder::retry(reqwest::retry::never())` leaves that to this layer. Its `timeout` covers
/// one attempt.
#[cfg_attr(docsrs, doc(cfg(feature = "reqwest")))]
impl<E, M> Protocol<Request, Response, E> for Http<M>
where
    E: ErrorRef<M>,
{
    fn classify(&self, attempt: &Attempt<'_, Request, Response, E>) -> Verdict {
        let request = attempt.request();
        let exchange = Exchange {
            request: request.map(|request| RequestView {
                method: request.method(),
                path: request.url().path(),
                headers: request.headers(),
                extensions: None,
            }),
            outcome: match attempt.outcome() {
                Ok(response) => Ok(ResponseView {
                    status: response.status(),
                    headers: response.headers(),
                    extensions: response.extensions(),
                }),
                Err(error) => Err(error.error_ref()),
            },
            idempotent: request
                .is_none_or(|request| self.is_idempotent(request.method(), request.headers())),
            number: attempt.number(),
            elapsed: attempt.elapsed(),
        };
        self.judge(&exchange, true)
    }

    fn clone_request(&self, request: &Request) -> Option<Request> {
        request.try_clone()
    }

    fn limits(&self, request: &Request) -> Limits {
        Limits {
            nested: self.is_marked(request.headers()),
            ..Limits::default()
        }
    }

    fn prepare(&self, request: &mut Request, attempt: u32, _: Option<Duration>) {
        self.mark_header(request.headers_mut(), attempt);
    }

    fn timed(&self) -> bool {
        self.has_rule()
    }

    fn error_type(&self, outcome: &Result<Response, E>) -> &'static str {
        match outcome {
            Ok(response) => name::status(response.status()),
            Err(error) => name::error(error.error_ref()),
        }
    }

    fn summarize(&self, response: &mut Response, summary: &RetrySummary) {
        response.extensions_mut().insert(*summary);
    }
}

/// What reqwest itself knows.
pub(super) fn look(error: &Error) -> Look {
    if error.is_connect() {
        // True of any cause: hyper-util's error tells whether it was this request's connect. That
        // its `connect_timeout` was the reason is a type of reqwest's own, as a cause unknown.
        Look::Undecided
    } else if error.is_timeout() && error.is_request() {
        Look::Decided(Fate::PerhapsProcessed)
    } else if error.is_request() {
        // hyper's error in it knows more; over HTTP/3 there is none, but a datagram socket.
        Look::During(Phase::Connected)
    } else {
        // The request could not be built, a redirect was refused, a body could not be read.
        Look::Decided(Fate::Hopeless)
    }
}
