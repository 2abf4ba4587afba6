//! `Grpc`: the rules of gRPC and how they are set.

use std::{fmt, marker::PhantomData, sync::Arc};

use super::{call::Call, code::Code, end::End, pushback::Pushback};
use crate::{Verdict, http::Typed};

type Rule = Arc<dyn Fn(&Call<'_>, Verdict) -> Verdict + Send + Sync>;

/// The [`Protocol`](crate::Protocol) of gRPC calls: what may be sent again, and when.
///
/// | the call ended with | verdict |
/// |---|---|
/// | `OK` | success |
/// | a response that has begun: headers without a `grpc-status` | success: what follows is the caller's, nothing is sent again (A6: committed). It deposits like one, even if its trailers tell of a failure that nobody peeked at |
/// | `UNAVAILABLE`, and what [`retry_code`](Self::retry_code) adds | retry, after the server's pushback if there is one |
/// | a pushback that says no, whatever the code | no retry; the throttle counts it |
/// | any other code | stop: neither a deposit nor, for a [`RetryThrottle`](crate::budget::RetryThrottle), a failure |
/// | an error, certainly not processed: no connection, a refused stream, GOAWAY | once more at once, uncounted; then retry |
/// | an error, perhaps processed | as the code that it stands for: see below |
///
/// gRPC does not say which methods may be sent twice, and `UNAVAILABLE` does not say that the
/// server did nothing. [`retry_code_for`](Self::retry_code_for) names methods one by one.
///
/// # The code of a response
///
/// It is the `grpc-status` of the response's head, or of trailers that came in place of a message
/// where a [`PeekTrailersLayer`](super::PeekTrailersLayer) looks at them. An answer without one whose
/// HTTP status is not 200 comes from a proxy: 429, 502, 503 and 504 are `UNAVAILABLE`, 401
/// `UNAUTHENTICATED`, 403 `PERMISSION_DENIED`, 404 `UNIMPLEMENTED`, 400 `INTERNAL`, the others
/// `UNKNOWN`, and its `Retry-After` is heeded. Messages and details are never read.
///
/// # The code of an error
///
/// | error | code |
/// |---|---|
/// | a connection that broke, or was left by the server under the call | `UNAVAILABLE` |
/// | a timeout of tower or tokio | `DEADLINE_EXCEEDED` |
/// | a stream that the server reset | `CANCELLED`, `RESOURCE_EXHAUSTED`, `PERMISSION_DENIED` or `INTERNAL`, as HTTP/2's reason says |
/// | any other | `UNKNOWN` |
///
/// Errors are told apart by their types, through all their causes, never by their text. So
/// tonic's own timeout, which is not known here, stops the session; what it enforces is most often
/// the deadline of the whole call.
///
/// # Metadata
///
/// - `grpc-retry-pushback-ms` of a failed call: a number is exactly the delay, cut to
///   [`max_server_delay`](crate::StandardPolicy::max_server_delay), and the backoff starts over. A
///   negative or unreadable one, or two of them, forbid the retry.
/// - `grpc-previous-rpc-attempts` is 1 on the first retry and so on, and taken off the first attempt.
/// - `grpc-timeout` is read once, as the deadline of the whole session; `total_timeout` and the
///   extension [`Deadline`](crate::http::Deadline) count as well if they are earlier. Each attempt
///   carries what is left, rounded down, in place of all such fields: it is never larger than
///   before, and equal where its unit hides the difference, which above 27.7 hours is a second or
///   more. Of several fields the first that can be read counts.
///
/// The extensions [`NoRetry`](crate::http::NoRetry), [`MaxAttempts`](crate::http::MaxAttempts) and
/// [`RetryAttempt`](crate::http::RetryAttempt) mean what they mean for HTTP. With tonic they are put
/// into `tonic::Request::extensions_mut`.
///
/// `M` is inferred, as for [`Http`](crate::http::Http).
///
/// # Examples
///
/// ```
/// use tower_retry_layer::{StandardPolicy, Verdict, grpc::{Code, Grpc}};
///
/// let rules: Grpc = Grpc::default()
///     .retry_code(Code::ResourceExhausted)
///     .retry_code_for("/bank.Accounts/GetBalance", Code::DeadlineExceeded)
///     // An answer of this service that is none of its failures.
///     .classify_with(|call, default| match call.code() {
///         Some(Code::NotFound) => Verdict::Success,
///         _ => default,
///     });
/// let _policy = StandardPolicy::new(rules);
/// ```
#[must_use = "rules do nothing until a policy is made of them"]
pub struct Grpc<M = Typed> {
    codes: Codes,
    methods: Vec<(Box<str>, Codes)>,
    rule: Option<Rule>,
    nested: bool,
    _error: PhantomData<fn() -> M>,
}

/// A set of codes, a bit each. Never `Ok`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Codes(u32);

// === impl Grpc ===

impl<M> Grpc<M> {
    /// The rules of the tables above.
    pub fn new() -> Self {
        Self {
            codes: Codes::NONE.with(Code::Unavailable),
            methods: Vec::new(),
            rule: None,
            nested: false,
            _error: PhantomData,
        }
    }

    /// Also retries this code, whatever the method. [`Code::Ok`] has no effect.
    pub fn retry_code(mut self, code: Code) -> Self {
        self.codes = self.codes.with(code);
        self
    }

    /// Does not retry this code, but for the methods that
    /// [`retry_code_for`](Self::retry_code_for) names. A call that was certainly not processed is
    /// still sent again.
    pub fn without_code(mut self, code: Code) -> Self {
        self.codes = self.codes.without(code);
        self
    }

    /// Also retries this code of one method, as in `/grpc.health.v1.Health/Check`.
    pub fn retry_code_for(mut self, method: impl Into<String>, code: Code) -> Self {
        let method = method.into().into_boxed_str();
        match self.methods.iter_mut().find(|(name, _)| *name == method) {
            Some((_, codes)) => *codes = codes.with(code),
            None => self.methods.push((method, Codes::NONE.with(code))),
        }
        self
    }

    /// Has `rule` look at every attempt and its verdict; what it returns is the verdict.
    ///
    /// It sees a success as well. A second rule is asked after the first.
    pub fn classify_with<F>(mut self, rule: F) -> Self
    where
        F: Fn(&Call<'_>, Verdict) -> Verdict + Send + Sync + 'static,
    {
        self.rule = Some(match self.rule.take() {
            Some(first) => Arc::new(move |call, verdict| rule(call, first(call, verdict))),
            None => Arc::new(rule),
        });
        self
    }

    /// Whether to retry a call that a retry layer above retries too. Default: `false`, see
    /// [`Http::nested`](crate::http::Http::nested).
    pub fn nested(mut self, nested: bool) -> Self {
        self.nested = nested;
        self
    }

    /// The verdict, by the table and then by the user's rule.
    pub(super) fn judge(&self, call: &Call<'_>) -> Verdict {
        let retry = |code| self.is_retried(call.path(), code);
        let verdict = match call.end {
            End::Open | End::Code(Code::Ok, _) => Verdict::Success,
            End::Unprocessed => Verdict::Unprocessed,
            // Whatever the code: A6's throttle counts it.
            End::Code(_, Some(Pushback::Never)) => Verdict::ServerRefused,
            End::Code(code, _) | End::Http(code, _) if !retry(code) => Verdict::Stop,
            End::Code(_, Some(Pushback::After(delay))) => Verdict::Pushback(delay),
            End::Http(_, Some(delay)) => Verdict::RetryAfter(delay),
            End::Code(_, None) | End::Http(_, None) => Verdict::Retry,
        };
        match &self.rule {
            Some(rule) => rule(call, verdict),
            None => verdict,
        }
    }

    pub(super) fn has_rule(&self) -> bool {
        self.rule.is_some()
    }

    pub(super) fn retries_nested(&self) -> bool {
        self.nested
    }

    fn is_retried(&self, path: Option<&str>, code: Code) -> bool {
        // Without a copy the method is not known and nothing can follow, most often since this was
        // the last attempt: then the code of any method is taken for a failure that was retried.
        self.codes.contains(code)
            || self.methods.iter().any(|(method, codes)| {
                codes.contains(code) && path.is_none_or(|path| path == &**method)
            })
    }
}

impl<M> Default for Grpc<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M> Clone for Grpc<M> {
    fn clone(&self) -> Self {
        Self {
            codes: self.codes,
            methods: self.methods.clone(),
            rule: self.rule.clone(),
            nested: self.nested,
            _error: PhantomData,
        }
    }
}

impl<M> fmt::Debug for Grpc<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grpc")
            .field("codes", &self.codes)
            .field("methods", &self.methods)
            .field("rule", &self.rule.is_some())
            .field("nested", &self.nested)
            .finish()
    }
}

// === impl Codes ===

impl Codes {
    const NONE: Self = Self(0);

    fn with(self, code: Code) -> Self {
        match code {
            Code::Ok => self,
            _ => Self(self.0 | 1 << code as u8),
        }
    }

    fn without(self, code: Code) -> Self {
        Self(self.0 & !(1 << code as u8))
    }

    fn contains(self, code: Code) -> bool {
        self.0 & (1 << code as u8) != 0
    }
}

impl fmt::Debug for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let codes = (0..17).map(Code::from).filter(|code| self.contains(*code));
        f.debug_set().entries(codes).finish()
    }
}
