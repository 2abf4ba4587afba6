//! `Grpc` over `http::Request` and `http::Response`, and the policy that starts from it.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, Response};
use tokio::time::Instant;

use super::{
    call::{Call, RequestView},
    code::Code,
    end::End,
    rules::Grpc,
    timeout::{self, GRPC_TIMEOUT},
};
use crate::{
    Attempt, Limits, Protocol, StandardPolicy, Verdict,
    http::{ErrorRef, ReplayableBody, RetryAttempt, name, request},
    observe::RetrySummary,
};

/// A6: the number of attempts before this one.
const PREVIOUS_ATTEMPTS: HeaderName = HeaderName::from_static("grpc-previous-rpc-attempts");

// === impl StandardPolicy ===

impl<M> StandardPolicy<Grpc<M>> {
    /// The policy for gRPC: the rules of [`Grpc`], and the defaults above.
    ///
    /// Proposal A6 has no defaults of its own: each number comes from a service config. The
    /// [module docs](crate::grpc#a-service-config) say which setter stands for which key.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{convert::Infallible, sync::atomic::{AtomicU32, Ordering}};
    /// use http::{Request, Response};
    /// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
    /// use tower_retry_layer::{RetryLayer, StandardPolicy};
    ///
    /// static SENT: AtomicU32 = AtomicU32::new(0);
    ///
    /// let mut channel = ServiceBuilder::new()
    ///     .layer(RetryLayer::new(StandardPolicy::grpc()))
    ///     .service(service_fn(async |_: Request<String>| {
    ///         let down = SENT.fetch_add(1, Ordering::Relaxed) == 0;
    ///         let status = if down { "14" } else { "0" };
    ///         Ok::<_, Infallible>(Response::builder().header("grpc-status", status).body(()).unwrap())
    ///     }));
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
    /// let response = channel.ready().await.unwrap().call(Request::new(String::new())).await.unwrap();
    /// assert_eq!(response.headers()["grpc-status"], "0");
    /// assert_eq!(SENT.load(Ordering::Relaxed), 2);
    /// # });
    /// ```
    pub fn grpc() -> Self {
        Self::new(Grpc::new())
    }
}

// === impl Grpc ===

impl<B, C, E, M> Protocol<Request<B>, Response<C>, E> for Grpc<M>
where
    B: ReplayableBody,
    E: ErrorRef<M>,
{
    fn classify(&self, attempt: &Attempt<'_, Request<B>, Response<C>, E>) -> Verdict {
        self.judge(&Call {
            request: attempt.request().map(|request| RequestView {
                path: request.uri().path(),
                headers: request.headers(),
                extensions: request.extensions(),
            }),
            outcome: match attempt.outcome() {
                Ok(response) => Ok(response.headers()),
                Err(error) => Err(error.error_ref()),
            },
            end: match attempt.outcome() {
                Ok(response) => End::of_response(response),
                Err(error) => End::of_error(error.error_ref()),
            },
            number: attempt.number(),
            elapsed: attempt.elapsed(),
        })
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
        // Read here and nowhere else: what `prepare` writes over it is what is left of it.
        if let Some(timeout) = timeout::timeout(request.headers()) {
            // One beyond the range of the clock is none.
            let deadline = Instant::now().checked_add(timeout);
            limits.deadline = [limits.deadline, deadline].into_iter().flatten().min();
        }
        limits
    }

    fn prepare(&self, request: &mut Request<B>, attempt: u32, remaining: Option<Duration>) {
        request.extensions_mut().insert(RetryAttempt(attempt));
        let headers = request.headers_mut();
        match attempt.saturating_sub(1) {
            // A call that is passed on may carry those of another.
            0 => drop(headers.remove(PREVIOUS_ATTEMPTS)),
            previous => drop(headers.insert(PREVIOUS_ATTEMPTS, HeaderValue::from(previous))),
        }
        if let Some(remaining) = remaining {
            headers.insert(GRPC_TIMEOUT, timeout::header(remaining));
        }
    }

    fn timed(&self) -> bool {
        self.has_rule()
    }

    fn error_type(&self, outcome: &Result<Response<C>, E>) -> &'static str {
        match outcome {
            Ok(response) => End::of_response(response)
                .code()
                .unwrap_or(Code::Ok)
                .as_str(),
            Err(error) => name::error(error.error_ref()),
        }
    }

    fn summarize(&self, response: &mut Response<C>, summary: &RetrySummary) {
        response.extensions_mut().insert(*summary);
    }
}
