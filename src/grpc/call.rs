//! `Call`: a call and how it ended, without the types of bodies and errors.

use std::{error::Error, fmt, time::Duration};

use http::{Extensions, HeaderMap};

use super::{code::Code, end::End};

/// One attempt of a call as [`Grpc::classify_with`](super::Grpc::classify_with) shows it.
pub struct Call<'a> {
    pub(super) request: Option<RequestView<'a>>,
    pub(super) outcome: Result<&'a HeaderMap, &'a (dyn Error + 'static)>,
    pub(super) end: End,
    pub(super) number: u32,
    pub(super) elapsed: Duration,
}

#[derive(Clone, Copy)]
pub(super) struct RequestView<'a> {
    pub(super) path: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) extensions: &'a Extensions,
}

impl<'a> Call<'a> {
    /// The method, as in `/grpc.health.v1.Health/Check`. `None`, as everywhere about the request: no
    /// copy of it was kept, so nothing can follow and the verdict only serves the accounts.
    pub fn path(&self) -> Option<&'a str> {
        Some(self.request?.path)
    }

    /// The request's headers, which are its metadata.
    pub fn request_headers(&self) -> Option<&'a HeaderMap> {
        Some(self.request?.headers)
    }

    /// The request's extensions.
    pub fn request_extensions(&self) -> Option<&'a Extensions> {
        Some(self.request?.extensions)
    }

    /// How it ended: the code of the response, or the one that its status or the error stands for.
    ///
    /// `None`: the response has begun, and its code comes after its messages.
    pub fn code(&self) -> Option<Code> {
        self.end.code()
    }

    /// The response's headers.
    pub fn headers(&self) -> Option<&'a HeaderMap> {
        self.outcome.ok()
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

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("path", &self.path())
            .field("code", &self.code())
            .field("error", &self.error())
            .field("number", &self.number)
            .field("elapsed", &self.elapsed)
            .finish_non_exhaustive()
    }
}
