//! `Exchange`: a request and its outcome, without their types.

use std::{error::Error, fmt, time::Duration};

use http::{Extensions, HeaderMap, Method, StatusCode};

/// One attempt as [`Http::classify_with`](super::Http::classify_with) shows it: what the request
/// was and what came of it, whatever the types of bodies and errors.
pub struct Exchange<'a> {
    pub(super) request: Option<RequestView<'a>>,
    pub(super) outcome: Result<ResponseView<'a>, &'a (dyn Error + 'static)>,
    pub(super) idempotent: bool,
    pub(super) number: u32,
    pub(super) elapsed: Duration,
}

#[derive(Clone, Copy)]
pub(super) struct RequestView<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) headers: &'a HeaderMap,
    /// `None` for reqwest, which keeps them to itself.
    pub(super) extensions: Option<&'a Extensions>,
}

#[derive(Clone, Copy)]
pub(super) struct ResponseView<'a> {
    pub(super) status: StatusCode,
    pub(super) headers: &'a HeaderMap,
    pub(super) extensions: &'a Extensions,
}

impl<'a> Exchange<'a> {
    /// The request's method. `None`, as everywhere about the request: no copy of it was kept, so
    /// nothing can follow and the verdict only serves the accounts.
    pub fn method(&self) -> Option<&'a Method> {
        Some(self.request?.method)
    }

    /// The path of the request's URI.
    pub fn path(&self) -> Option<&'a str> {
        Some(self.request?.path)
    }

    /// The request's headers.
    pub fn request_headers(&self) -> Option<&'a HeaderMap> {
        Some(self.request?.headers)
    }

    /// The request's extensions. Always `None` for reqwest, which keeps them to itself.
    ///
    /// What the user put there is always among them. The layer's own mark,
    /// [`RetryAttempt`](super::RetryAttempt), may not be: the copy of a request that carries nothing
    /// else goes without until it is sent. [`number`](Self::number) is what tells the attempt.
    pub fn request_extensions(&self) -> Option<&'a Extensions> {
        self.request?.extensions
    }

    /// Whether the request may be sent twice: see [`Http`](super::Http). True where no copy of it
    /// was kept.
    pub fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// The response's status. `None`: there is none, but an [`error`](Self::error).
    pub fn status(&self) -> Option<StatusCode> {
        Some(self.outcome.ok()?.status)
    }

    /// The response's headers.
    pub fn headers(&self) -> Option<&'a HeaderMap> {
        Some(self.outcome.ok()?.headers)
    }

    /// The response's extensions.
    pub fn extensions(&self) -> Option<&'a Extensions> {
        Some(self.outcome.ok()?.extensions)
    }

    /// The error, if there is no response.
    pub fn error(&self) -> Option<&'a (dyn Error + 'static)> {
        self.outcome.err()
    }

    /// The attempt's number, from 1.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The time since the session began, waits included.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }
}

impl fmt::Debug for Exchange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("method", &self.method())
            .field("status", &self.status())
            .field("error", &self.error())
            .field("idempotent", &self.idempotent)
            .field("number", &self.number)
            .field("elapsed", &self.elapsed)
            .finish_non_exhaustive()
    }
}
