//! `RetryLayer`: puts retries around a service.

use tower_layer::Layer;

use crate::service::Retry;

/// Wraps services so that their failed requests are sent again as a policy decides.
///
/// A clone, and every service that it makes, starts from the same policy and shares what the policy
/// shares: for a [`StandardPolicy`](crate::StandardPolicy) that is the budget. One budget for each
/// thing that can fail on its own: make a layer per upstream, not per request.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_retry_layer::{RetryLayer, StandardPolicy, on_error};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let service = ServiceBuilder::new()
///     .layer(RetryLayer::new(StandardPolicy::new(on_error())))
///     .service(service_fn(async |n: u32| Ok::<_, Infallible>(n + 1)));
/// assert_eq!(service.oneshot(1).await, Ok(2));
/// # });
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a layer does nothing until it is given a service"]
pub struct RetryLayer<P> {
    policy: P,
}

impl<P> RetryLayer<P> {
    /// A layer whose sessions start from clones of `policy`.
    pub fn new(policy: P) -> Self {
        Self { policy }
    }

    /// The policy that sessions are cloned from.
    pub fn policy(&self) -> &P {
        &self.policy
    }
}

impl<P: Clone, S> Layer<S> for RetryLayer<P> {
    type Service = Retry<P, S>;

    fn layer(&self, service: S) -> Self::Service {
        Retry::new(self.policy.clone(), service)
    }
}
