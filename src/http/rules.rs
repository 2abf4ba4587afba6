//! `Http`: the rules of HTTP and how they are set.

use std::{
    fmt,
    marker::PhantomData,
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::{
    error::{Fate, Typed, fate},
    exchange::{Exchange, ResponseView},
    idempotency_key::has_key,
    retry_after::retry_after,
};
use crate::Verdict;

/// RFC 9110, section 9.2.2.
const IDEMPOTENT: [Method; 6] = [
    Method::GET,
    Method::HEAD,
    Method::OPTIONS,
    Method::TRACE,
    Method::PUT,
    Method::DELETE,
];

/// "Try again later", said by the server or by what stands before it.
const RETRIED: [StatusCode; 5] = [
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
];

type Rule = Arc<dyn Fn(&Exchange<'_>, Verdict) -> Verdict + Send + Sync>;

/// The [`Protocol`](crate::Protocol) of HTTP requests and responses: what may be sent again, and when.
///
/// | | default |
/// |---|---|
/// | idempotent | GET, HEAD, OPTIONS, TRACE, PUT, DELETE; any request with an `Idempotency-Key` header that is not blank, or the extension [`Idempotent`](super::Idempotent) |
/// | retried, if idempotent | 408, 429, 502, 503, 504; a reset or cut connection; a timeout |
/// | retried whatever the method | what was certainly not processed: no connection (of whatever cause, except those below), a refused stream, GOAWAY |
/// | success | every other status below 500 |
/// | stop | 500 (see [`server_errors`](Self::server_errors)), 501, 505, the other 5xx; a connect that fails of a bad certificate, a bad URL or a missing permission; a failing body; an error of unknown kind |
///
/// Of a retried response the headers `retry-after-ms` and `Retry-After` name the delay: see
/// [`retry_after`].
///
/// An idempotent request is sent again by itself more than once here, which RFC 9110 (section
/// 9.2.2) advises clients against; the attempt limit and the budget are what make it sound.
///
/// Errors are told apart by their types, through all their causes, never by their text. The types
/// of hyper, hyper-util and h2 ask for the feature `hyper`, reqwest's for `reqwest`; without them
/// only `std::io::Error` and the timeouts of tower and tokio are known.
///
/// Where hyper-util's client or reqwest's says that it was connecting, nothing was sent, whatever the
/// cause. So a bad certificate uses up the attempts where native TLS reports it, by an error of its
/// own; that of rustls is `InvalidData`, and a stop.
///
/// A bare `ConnectionRefused` means no connection, too: it is what a service of one's own hands on
/// from `connect`. A datagram socket (QUIC, UDP) has it of what was sent before, perhaps acted on:
/// such a service should report `ConnectionReset`, as which it counts on a connection of hyper's.
/// The same goes for `NotFound`: the path of a Unix socket that is not there yet, which tonic's
/// channel hands on as it is. A service that opens files of its own should say it in another way.
///
/// `M` is inferred from the service's error type and stands for how its causes are reached. Where
/// a type must be written, it is `Http` for an error that is `std::error::Error`, and
/// [`Http<Boxed>`](super::Boxed) below tower's `Timeout` or `Buffer`.
///
/// # Examples
///
/// ```
/// use http::{Method, StatusCode};
/// use tower_retry_layer::{StandardPolicy, Verdict, http::Http};
///
/// let rules: Http = Http::default()
///     .server_errors()
///     .without_method(Method::PUT)
///     // A conflict passes, but only the key makes it safe to ask again.
///     .classify_with(|seen, default| {
///         let keyed = seen.request_headers().is_some_and(|it| it.contains_key("idempotency-key"));
///         match seen.status() {
///             Some(StatusCode::CONFLICT) if keyed => Verdict::Retry,
///             _ => default,
///         }
///     });
/// let _policy = StandardPolicy::new(rules);
/// ```
#[must_use = "rules do nothing until a policy is made of them"]
pub struct Http<M = Typed> {
    statuses: Vec<StatusCode>,
    methods: Vec<Method>,
    rule: Option<Rule>,
    nested: bool,
    attempt_header: Option<HeaderName>,
    /// `None`: hyper's client does not, reqwest's does.
    redirects: Option<bool>,
    _error: PhantomData<fn() -> M>,
}

// === impl Http ===

impl<M> Http<M> {
    /// The rules of the table above.
    pub fn new() -> Self {
        Self {
            statuses: RETRIED.to_vec(),
            methods: IDEMPOTENT.to_vec(),
            rule: None,
            nested: false,
            attempt_header: None,
            redirects: None,
            _error: PhantomData,
        }
    }

    /// Also retries this status.
    pub fn retry_status(mut self, status: StatusCode) -> Self {
        if !self.statuses.contains(&status) {
            self.statuses.push(status);
        }
        self
    }

    /// Does not retry this status.
    pub fn without_status(mut self, status: StatusCode) -> Self {
        self.statuses.retain(|it| *it != status);
        self
    }

    /// Also retries 500.
    ///
    /// It is off by default: more often than not the same request fails the same way again, and
    /// the retry only adds load. 501 and 505 say so themselves and stay out.
    pub fn server_errors(self) -> Self {
        self.retry_status(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Counts this method among the idempotent ones.
    pub fn retry_method(mut self, method: Method) -> Self {
        if !self.methods.contains(&method) {
            self.methods.push(method);
        }
        self
    }

    /// Does not count this method among the idempotent ones. A request of it is still sent again
    /// when it was certainly not processed, or when it carries a mark of its own.
    pub fn without_method(mut self, method: Method) -> Self {
        self.methods.retain(|it| it != method);
        self
    }

    /// Has `rule` look at every attempt and its verdict; what it returns is the verdict.
    ///
    /// It sees a success as well. A rule that asks for a retry answers for it: check
    /// [`Exchange::is_idempotent`]. A second rule is asked after the first.
    pub fn classify_with<F>(mut self, rule: F) -> Self
    where
        F: Fn(&Exchange<'_>, Verdict) -> Verdict + Send + Sync + 'static,
    {
        self.rule = Some(match self.rule.take() {
            Some(first) => Arc::new(move |seen, verdict| rule(seen, first(seen, verdict))),
            None => Arc::new(rule),
        });
        self
    }

    /// Whether to retry a request that a retry layer above retries too. Default: `false`.
    ///
    /// Stacked layers multiply: three of three attempts each send 27. The layer above marks every
    /// attempt with [`RetryAttempt`](super::RetryAttempt), and one that meets the mark passes through. Over reqwest,
    /// which keeps its extensions to itself, the mark is the
    /// [`attempt_header`](Self::attempt_header) if one is set.
    pub fn nested(mut self, nested: bool) -> Self {
        self.nested = nested;
        self
    }

    /// Sends the attempt's number, from 1, in this header. Default: not sent.
    pub fn attempt_header(mut self, name: HeaderName) -> Self {
        self.attempt_header = Some(name);
        self
    }

    /// Whether the client below follows redirects by itself. Default: no for `http::Request`, yes
    /// for reqwest, whose client does unless it is built with `redirect::Policy::none()`.
    ///
    /// If it does, a failed connect may be that of a later hop, when a first server has already
    /// acted on the request; then only an idempotent request is sent again.
    pub fn follows_redirects(mut self, follows: bool) -> Self {
        self.redirects = Some(follows);
        self
    }

    /// The verdict, by the table and then by the user's rule.
    pub(super) fn judge(&self, exchange: &Exchange<'_>, redirects: bool) -> Verdict {
        let verdict = match &exchange.outcome {
            Ok(response) => self.judge_response(response, exchange.idempotent),
            Err(error) => self.judge_error(fate(*error), exchange.idempotent, redirects),
        };
        match &self.rule {
            Some(rule) => rule(exchange, verdict),
            None => verdict,
        }
    }

    fn judge_response(&self, response: &ResponseView<'_>, idempotent: bool) -> Verdict {
        let status = response.status;
        if self.statuses.contains(&status) {
            if !idempotent {
                return Verdict::Stop;
            }
            // The policy has its own cap, and reports that it was applied.
            return match retry_after(response.headers, SystemTime::now(), Duration::MAX) {
                Some(delay) => Verdict::RetryAfter(delay),
                None => Verdict::Retry,
            };
        }
        // A status that the user took off the list is no success for that.
        if status.as_u16() < 500 && !RETRIED.contains(&status) {
            Verdict::Success
        } else {
            Verdict::Stop
        }
    }

    fn judge_error(&self, fate: Fate, idempotent: bool, redirects: bool) -> Verdict {
        let redirects = self.redirects.unwrap_or(redirects);
        match fate {
            Fate::NeverSent if idempotent || !redirects => Verdict::Retry,
            Fate::Refused if idempotent || !redirects => Verdict::Unprocessed,
            Fate::PerhapsProcessed if idempotent => Verdict::Retry,
            _ => Verdict::Stop,
        }
    }

    pub(super) fn is_idempotent(&self, method: &Method, headers: &HeaderMap) -> bool {
        self.methods.contains(method) || has_key(headers)
    }

    pub(super) fn has_rule(&self) -> bool {
        self.rule.is_some()
    }

    pub(super) fn mark_header(&self, headers: &mut HeaderMap, attempt: u32) {
        if let Some(name) = &self.attempt_header {
            headers.insert(name, HeaderValue::from(attempt));
        }
    }

    pub(super) fn retries_nested(&self) -> bool {
        self.nested
    }

    /// Whether a layer above, set up with the same header, has marked these.
    #[cfg(feature = "reqwest")]
    pub(super) fn is_marked(&self, headers: &HeaderMap) -> bool {
        !self.nested
            && self
                .attempt_header
                .as_ref()
                .is_some_and(|name| headers.contains_key(name))
    }
}

impl<M> Default for Http<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M> Clone for Http<M> {
    fn clone(&self) -> Self {
        Self {
            statuses: self.statuses.clone(),
            methods: self.methods.clone(),
            rule: self.rule.clone(),
            nested: self.nested,
            attempt_header: self.attempt_header.clone(),
            redirects: self.redirects,
            _error: PhantomData,
        }
    }
}

impl<M> fmt::Debug for Http<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("statuses", &self.statuses)
            .field("methods", &self.methods)
            .field("rule", &self.rule.is_some())
            .field("nested", &self.nested)
            .field("attempt_header", &self.attempt_header)
            .field("redirects", &self.redirects)
            .finish()
    }
}
