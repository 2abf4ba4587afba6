//! `ReplayableBody`: bodies that can be sent twice.

use std::borrow::Cow;

use bytes::{Buf, Bytes};
use http_body_util::{
    Either, Empty, Full, Limited,
    combinators::{MapErr, MapFrame},
};

use crate::replay::ReplayBody;

/// A request body that can be sent again from its beginning.
///
/// [`Http`](super::Http) asks it for a copy before each attempt that another could follow. Bodies
/// that are held in memory copy themselves, cheaply where they share their bytes. A streaming or a
/// boxed body cannot: put a [`ReplayLayer`](crate::replay::ReplayLayer) above the retry layer, which
/// records it while it is sent.
///
/// # Examples
///
/// ```
/// use http_body_util::Full;
/// use tower_retry_layer::http::ReplayableBody;
///
/// let body = Full::new(bytes::Bytes::from_static(b"again"));
/// assert!(body.try_replay().is_some());
/// ```
///
/// A body of your own that may refuse:
///
/// ```
/// use tower_retry_layer::http::ReplayableBody;
///
/// enum Upload {
///     Memory(bytes::Bytes),
///     Socket(std::net::TcpStream),
/// }
///
/// impl ReplayableBody for Upload {
///     fn try_replay(&self) -> Option<Self> {
///         match self {
///             Self::Memory(bytes) => Some(Self::Memory(bytes.clone())),
///             Self::Socket(_) => None,
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the request body `{Self}` cannot be sent twice",
    label = "a retry would have nothing to send",
    note = "put `ReplayLayer::new(max_bytes)` from `tower_retry_layer::replay` above the retry layer: it records the body while it is sent",
    note = "a body that is held in memory is one that can, such as `http_body_util::Full<Bytes>`"
)]
pub trait ReplayableBody: Sized {
    /// A copy that yields the same frames from the first on. `None`: this one is sent once.
    fn try_replay(&self) -> Option<Self>;

    /// Whether this copy can still be sent: what it is recorded from may have outgrown its limit.
    ///
    /// Asked of the copy after a failure that allows a retry. Default: `true`.
    fn can_replay(&self) -> bool {
        true
    }

    /// Takes the place of the attempts before this copy, which is about to be sent in a retry: a
    /// body that they share with it must not be read for them any more. Says whether this copy can
    /// be sent.
    ///
    /// Called when a retry is decided, before its wait; a copy of this one is made after it. Default:
    /// nothing, and `true`.
    fn take_over(&self) -> bool {
        true
    }
}

// What is held in memory: a clone is the whole body.
macro_rules! by_clone {
    ($($body:ty),+ $(,)?) => {$(
        impl ReplayableBody for $body {
            fn try_replay(&self) -> Option<Self> {
                Some(self.clone())
            }
        }
    )+};
}

by_clone!(
    (),
    Bytes,
    String,
    Vec<u8>,
    &'static str,
    &'static [u8],
    Cow<'static, str>,
    Cow<'static, [u8]>,
);

impl<D: Buf + Clone> ReplayableBody for Full<D> {
    fn try_replay(&self) -> Option<Self> {
        Some(self.clone())
    }
}

impl<D> ReplayableBody for Empty<D> {
    fn try_replay(&self) -> Option<Self> {
        Some(Self::new())
    }
}

impl<B: ReplayableBody> ReplayableBody for Option<B> {
    fn try_replay(&self) -> Option<Self> {
        match self {
            Some(body) => body.try_replay().map(Some),
            None => Some(None),
        }
    }

    fn can_replay(&self) -> bool {
        self.as_ref().is_none_or(B::can_replay)
    }

    fn take_over(&self) -> bool {
        self.as_ref().is_none_or(B::take_over)
    }
}

impl<B: ReplayableBody> ReplayableBody for Box<B> {
    fn try_replay(&self) -> Option<Self> {
        (**self).try_replay().map(Box::new)
    }

    fn can_replay(&self) -> bool {
        (**self).can_replay()
    }

    fn take_over(&self) -> bool {
        (**self).take_over()
    }
}

impl<L: ReplayableBody, R: ReplayableBody> ReplayableBody for Either<L, R> {
    fn try_replay(&self) -> Option<Self> {
        match self {
            Self::Left(body) => body.try_replay().map(Self::Left),
            Self::Right(body) => body.try_replay().map(Self::Right),
        }
    }

    fn can_replay(&self) -> bool {
        match self {
            Self::Left(body) => body.can_replay(),
            Self::Right(body) => body.can_replay(),
        }
    }

    fn take_over(&self) -> bool {
        match self {
            Self::Left(body) => body.take_over(),
            Self::Right(body) => body.take_over(),
        }
    }
}

impl<B> ReplayableBody for ReplayBody<B> {
    fn try_replay(&self) -> Option<Self> {
        Self::try_replay(self)
    }

    fn can_replay(&self) -> bool {
        Self::can_replay(self)
    }

    fn take_over(&self) -> bool {
        Self::take_over(self)
    }
}

// The combinators keep their parts to themselves, so their own `Clone` copies them; the bound on
// the inner body keeps out one whose clone would share a stream.
impl<B: ReplayableBody + Clone> ReplayableBody for Limited<B> {
    fn try_replay(&self) -> Option<Self> {
        Some(self.clone())
    }
}

macro_rules! combinator {
    ($($combinator:ident),+) => {$(
        impl<B: ReplayableBody + Clone, F: Clone> ReplayableBody for $combinator<B, F> {
            fn try_replay(&self) -> Option<Self> {
                Some(self.clone())
            }
        }
    )+};
}

combinator!(MapErr, MapFrame);
