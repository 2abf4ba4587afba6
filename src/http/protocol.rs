//! `Http` over `http::Request` and `http::Response`, and the policy that starts from it.

use std::time::Duration;

use http::{Request, Response};

use super::{
    body::ReplayableBody,
    error::ErrorRef,
    exchange::{Exchange, RequestView, ResponseView},
    name,
    request::{self, Idempotent, RetryAttempt},
    rules::Http,
};
use crate::{Attempt, Limits, Protocol, StandardPolicy, Verdict, observe::RetrySummary};

// === impl StandardPolicy ===

impl<M> StandardPolicy<Http<M>> {
    /// The policy for HTTP: the rules of [`Http`], and the defaults above.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use http::{Request, Response, StatusCode};
    /// use tower::{Service, ServiceBuilder, service_fn};
    /// use tower_retry_layer::{RetryLayer, StandardPolicy};
    ///
    /// static SENT: AtomicU32 = AtomicU32::new(0);
    ///
    /// let mut client = ServiceBuilder::new()
    ///     .layer(RetryLayer::new(StandardPolicy::http()))
    ///     .service(service_fn(async |_: Request<String>| {
    ///         let down = SENT.fetch_add(1, Ordering::Relaxed) == 0;
    ///         let status = if down { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    ///         Response::builder().status(status).body(())
    ///     }));
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # futures_util::future::poll_fn(|cx| client.poll_ready(cx)).await.unwrap();
    /// let response = client.call(Request::new(String::new())).await.unwrap();
    /// assert_eq!(response.status(), StatusCode::OK);
    /// assert_eq!(SENT.load(Ordering::Relaxed), 2);
    /// # });
    /// ```
    pub fn http() -> Self {
        Self::new(Http::new())
    }
}

// === impl Http ===

impl<B, C, E, M> Protocol<Request<B>, Response<C>, E> for Http<M>
where
    B: ReplayableBody,
    E: ErrorRef<M>,
{
    fn classify(&self, attempt: &Attempt<'_, Request<B>, Response<C>, E>) -> Verdict {
        let request = attempt.request();
        let exchange = Exchange {
            request: request.map(|request| RequestView {
                method: request.method(),
                path: request.uri().path(),
                headers: request.headers(),
                extensions: Some(request.extensions()),
            }),
            outcome: match attempt.outcome() {
                Ok(response) => Ok(ResponseView {
                    status: response.status(),
                    headers: response.headers(),
                    extensions: response.extensions(),
                }),
                Err(error) => Err(error.error_ref()),
            },
            // Nothing can follow: the verdict serves the accounts, and a failure is one.
            idempotent: request.is_none_or(|request| {
                self.is_idempotent(request.method(), request.headers())
                    || request.extensions().get::<Idempotent>().is_some()
            }),
            number: attempt.number(),
            elapsed: attempt.elapsed(),
        };
        self.judge(&exchange, false)
    }

    fn clone_request(&self, request: &Request<B>) -> Option<Request<B>> {
        request::copy(request)
    }

    fn can_replay(&self, copy: &Request<B>) -> bool {
        copy.body().can_replay()
    }

    fn take_over(&self, copy: &Request<B>) -> bool {
        copy.body().take_over()
    }

    fn limits(&self, request: &Request<B>) -> Limits {
        let mut limits = request::limits(request.extensions());
        limits.nested &= !self.retries_nested();
        limits
    }

    fn prepare(&self, request: &mut Request<B>, attempt: u32, _: Option<Duration>) {
        request.extensions_mut().insert(RetryAttempt(attempt));
        self.mark_header(request.headers_mut(), attempt);
    }

    fn timed(&self) -> bool {
        self.has_rule()
    }

    fn error_type(&self, outcome: &Result<Response<C>, E>) -> &'static str {
        match outcome {
            Ok(response) => name::status(response.status()),
            Err(error) => name::error(error.error_ref()),
        }
    }

    fn summarize(&self, response: &mut Response<C>, summary: &RetrySummary) {
        response.extensions_mut().insert(*summary);
    }
}
