//! Random numbers: a stream of its own for every session.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// A source of random numbers for one session.
///
/// [`Seeds`] makes good ones; implement it to bring your own generator, or to inject known numbers
/// in a test.
///
/// # Examples
///
/// ```
/// use tower_retry_layer::backoff::Rng;
///
/// struct Middle;
///
/// impl Rng for Middle {
///     fn next_u64(&mut self) -> u64 {
///         1 << 63
///     }
/// }
///
/// assert_eq!(Middle.next_f64(), 0.5);
/// ```
pub trait Rng {
    /// The next 64 random bits.
    fn next_u64(&mut self) -> u64;

    /// The next number in `[0, 1)`, from the upper 53 bits of [`next_u64`](Self::next_u64).
    ///
    /// One that gives a number outside of that range is read as the nearest number inside, NaN as
    /// zero.
    fn next_f64(&mut self) -> f64 {
        unit(self.next_u64())
    }
}

/// Makes each session a generator of its own.
///
/// Every closure that returns a generator is one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not make random number generators",
    note = "use `Seeds::random()`, `Seeds::from_seed(..)`, or a closure that returns an `Rng`"
)]
pub trait MakeRng {
    /// The generator of one session.
    type Rng: Rng;

    /// A generator whose numbers no other session gets.
    fn make_rng(&self) -> Self::Rng;
}

/// A new seed for every session, shared by clones.
///
/// # Examples
///
/// ```
/// use tower_retry_layer::backoff::{MakeRng, Rng, Seeds};
///
/// let numbers = |seeds: &Seeds| [seeds.make_rng().next_u64(), seeds.make_rng().next_u64()];
/// let [first, second] = numbers(&Seeds::from_seed(7));
/// assert_ne!(first, second);
/// assert_eq!(numbers(&Seeds::from_seed(7)), [first, second]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Seeds {
    // `Some` where the run shall be reproducible: the state of the seed stream.
    stream: Option<Arc<AtomicU64>>,
}

/// The generator that [`Seeds`] makes: small and fast, not fit for secrets.
#[derive(Clone)]
pub struct SessionRng {
    inner: fastrand::Rng,
}

// The odd number nearest to 2^64 divided by the golden ratio, the increment of SplitMix64 (Steele,
// Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A number in `[0, 1)` from a generator of the thread.
pub(super) fn thread_unit() -> f64 {
    fastrand::f64()
}

// The upper bits: in simple generators the lower ones are the weaker. 53 are all that an `f64` in
// `[0, 1)` can hold, so the product is exact and below 1.
fn unit(bits: u64) -> f64 {
    const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
    (bits >> 11) as f64 * STEP
}

// The output function of SplitMix64, cited above: a bijection, so no two sessions of a run get the
// same seed.
fn mix(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

// === impl Seeds ===

impl Seeds {
    /// Seeds that differ from session to session, thread to thread and process to process.
    pub fn random() -> Self {
        Self { stream: None }
    }

    /// A reproducible stream of seeds: the nth session that draws from it, or from a clone, gets
    /// the nth.
    ///
    /// For tests and simulations. In production equal seeds in many processes send their retries
    /// at the same moments.
    pub fn from_seed(seed: u64) -> Self {
        Self {
            stream: Some(Arc::new(AtomicU64::new(seed))),
        }
    }
}

impl MakeRng for Seeds {
    type Rng = SessionRng;

    fn make_rng(&self) -> SessionRng {
        let inner = match &self.stream {
            None => fastrand::Rng::new(),
            // Relaxed: each session needs a value of its own, and nothing is published with it.
            Some(stream) => {
                fastrand::Rng::with_seed(mix(stream.fetch_add(GOLDEN, Ordering::Relaxed)))
            }
        };
        SessionRng { inner }
    }
}

impl<F, R> MakeRng for F
where
    F: Fn() -> R,
    R: Rng,
{
    type Rng = R;

    fn make_rng(&self) -> R {
        self()
    }
}

impl<M: MakeRng + ?Sized> MakeRng for Arc<M> {
    type Rng = M::Rng;

    fn make_rng(&self) -> M::Rng {
        (**self).make_rng()
    }
}

// === impl SessionRng ===

impl Rng for SessionRng {
    fn next_u64(&mut self) -> u64 {
        self.inner.u64(..)
    }
}

impl fmt::Debug for SessionRng {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionRng").finish_non_exhaustive()
    }
}

// === pointers ===

impl<R: Rng + ?Sized> Rng for &mut R {
    fn next_u64(&mut self) -> u64 {
        (**self).next_u64()
    }

    fn next_f64(&mut self) -> f64 {
        (**self).next_f64()
    }
}

impl<R: Rng + ?Sized> Rng for Box<R> {
    fn next_u64(&mut self) -> u64 {
        (**self).next_u64()
    }

    fn next_f64(&mut self) -> f64 {
        (**self).next_f64()
    }
}
