//! `Policy`: what the state machine asks about every outcome.

use std::future::Future;

/// The decisions of one session, in `tower::retry`'s shape.
///
/// Most users want the ready-made [`StandardPolicy`](crate::StandardPolicy). Write a `Policy` of
/// your own for a rule that it cannot express; one written for tower compiles with this import in
/// place of tower's.
///
/// The policy given to [`RetryLayer`](crate::RetryLayer) is a prototype: it is cloned for every
/// request, and only the clone is asked anything. What a session changes in its policy dies with
/// the session.
///
/// # Examples
///
/// At most two retries, half a second apart:
///
/// ```
/// use std::time::Duration;
/// use tokio::time::Sleep;
/// use tower_retry_layer::Policy;
///
/// #[derive(Clone)]
/// struct TwoRetries {
///     left: u8,
/// }
///
/// impl<Req: Clone, Res, E> Policy<Req, Res, E> for TwoRetries {
///     type Future = Sleep;
///
///     fn retry(&mut self, _: &mut Req, result: &mut Result<Res, E>) -> Option<Sleep> {
///         if result.is_ok() {
///             return None;
///         }
///         self.left = self.left.checked_sub(1)?;
///         Some(tokio::time::sleep(Duration::from_millis(500)))
///     }
///
///     fn clone_request(&mut self, request: &Req) -> Option<Req> {
///         Some(request.clone())
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let mut policy = TwoRetries { left: 2 };
/// let mut failed: Result<(), &str> = Err("down");
/// assert!(policy.retry(&mut "request", &mut failed).is_some());
/// assert!(policy.retry(&mut "request", &mut failed).is_some());
/// assert!(policy.retry(&mut "request", &mut failed).is_none());
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a retry policy for requests of type `{Req}`",
    label = "does not decide about `Result<{Res}, {E}>` of a `{Req}`",
    note = "a `StandardPolicy<P>` is one where `P` is a `Protocol<{Req}, {Res}, {E}>`; `on_error()` and `classify_fn(..)` ask for a request that is `Clone`",
    note = "below a tower `Timeout` or `Buffer` the error type is `Box<dyn Error + Send + Sync>`"
)]
pub trait Policy<Req, Res, E> {
    /// The wait before a retry.
    type Future: Future<Output = ()>;

    /// Decides about an outcome for which a copy of the request was kept.
    ///
    /// `Some(wait)` sends `request`, the copy, again once `wait` is over. `None` ends the session
    /// and the caller gets `result`. Both may be changed here: a changed request is what is sent,
    /// a changed result is what the caller sees.
    fn retry(&mut self, request: &mut Req, result: &mut Result<Res, E>) -> Option<Self::Future>;

    /// Copies the request before an attempt is sent. `None`: this attempt is the last.
    fn clone_request(&mut self, request: &Req) -> Option<Req>;

    /// Marks the request right before each attempt is sent, the first included.
    ///
    /// It runs after the wait and before [`clone_request`](Self::clone_request), on a service that
    /// is ready. By default it does nothing. A policy that wraps another forwards this and
    /// [`end`](Self::end), too.
    fn prepare(&mut self, request: &mut Req) {
        let _ = request;
    }

    /// Sees the outcome of a session that ends without [`retry`](Self::retry) being asked.
    ///
    /// By default it does nothing. A session that is dropped ends with the policy's own `Drop`.
    fn end(&mut self, result: &mut Result<Res, E>, why: End) {
        let _ = (result, why);
    }
}

/// Why a session ended without its policy being asked for a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// No copy of the request was kept, so the attempt was the last whatever came of it.
    NoCopy,
    /// The service did not become ready for the retry. The result is the readiness error: tower's
    /// contract says that such a service is gone.
    NotReady,
}

// The same forwarding for every owning pointer through which `&mut self` can be reached.
macro_rules! forward {
    ($pointer:ty) => {
        impl<Req, Res, E, P> Policy<Req, Res, E> for $pointer
        where
            P: Policy<Req, Res, E> + ?Sized,
        {
            type Future = P::Future;

            fn retry(
                &mut self,
                request: &mut Req,
                result: &mut Result<Res, E>,
            ) -> Option<P::Future> {
                (**self).retry(request, result)
            }

            fn clone_request(&mut self, request: &Req) -> Option<Req> {
                (**self).clone_request(request)
            }

            fn prepare(&mut self, request: &mut Req) {
                (**self).prepare(request);
            }

            fn end(&mut self, result: &mut Result<Res, E>, why: End) {
                (**self).end(result, why);
            }
        }
    };
}

forward!(&mut P);
forward!(Box<P>);
