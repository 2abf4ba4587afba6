//! `Keyed`: a budget for each key, so that one bad upstream does not starve the others.

use std::{
    borrow::Borrow,
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

/// A budget for each key, such as a host or an upstream, made when the key is first seen.
///
/// With one budget for all, an upstream that fails spends the retries of those that do not.
///
/// The number of keys is limited, as host names may come from outside. Keys beyond the limit share
/// one more budget, so their retries stay bounded and the memory does too. A key keeps its budget
/// until it is [removed](Self::remove): forgetting one by itself would give a failing upstream a
/// full budget again.
///
/// This is not itself a [`Budget`](super::Budget), whose methods see no key: ask for the budget of
/// a key where the key is known and share it with what sends there.
///
/// # Examples
///
/// ```
/// use tower_retry_layer::budget::{Budget, Keyed, TokenBudget};
///
/// let budgets = Keyed::new(1_000, TokenBudget::default);
/// while budgets.get("bad.example").withdraw() {}
/// assert_eq!(budgets.get("bad.example").balance(), 0);
/// assert_eq!(budgets.get("good.example").balance(), 100);
/// ```
pub struct Keyed<K, B> {
    limit: usize,
    make: Box<dyn Fn() -> B + Send + Sync>,
    budgets: RwLock<HashMap<K, Arc<B>>>,
    /// For the keys beyond the limit.
    shared: Arc<B>,
}

impl<K, B> Keyed<K, B> {
    /// Budgets from `make`, for at most `limit` keys and one for the rest. With a limit of zero all
    /// keys share that one.
    ///
    /// `make` is called once at once and then once for a new key; rarely more often, when threads
    /// meet a new key together.
    pub fn new(limit: usize, make: impl Fn() -> B + Send + Sync + 'static) -> Self {
        Self {
            limit,
            shared: Arc::new(make()),
            make: Box::new(make),
            budgets: RwLock::default(),
        }
    }

    /// The number of keys that have a budget of their own.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether no key has a budget of its own.
    pub fn is_empty(&self) -> bool {
        self.read().is_empty()
    }

    // A map is whole at every point where a key's own code may panic, so a poisoned lock is sound.

    fn read(&self) -> RwLockReadGuard<'_, HashMap<K, Arc<B>>> {
        self.budgets.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<K, Arc<B>>> {
        self.budgets.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash, B> Keyed<K, B> {
    /// The budget of `key`, the same one every time; the shared one for a new key at the limit.
    pub fn get<Q>(&self, key: &Q) -> Arc<B>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        let budgets = self.read();
        if let Some(budget) = budgets.get(key) {
            return budget.clone();
        }
        if budgets.len() >= self.limit {
            return self.shared.clone();
        }
        drop(budgets);
        // Foreign code runs without the lock: it may take its time, or ask here for another key.
        let budget = Arc::new((self.make)());
        let key = key.to_owned();

        let mut budgets = self.write();
        // Other threads may have come first, with this key or up to the limit.
        if budgets.len() >= self.limit && !budgets.contains_key::<K>(&key) {
            return self.shared.clone();
        }
        budgets.entry(key).or_insert(budget).clone()
    }

    /// Forgets a key and gives its budget back to whoever asks. The key may come again, with a new
    /// budget.
    pub fn remove<Q>(&self, key: &Q) -> Option<Arc<B>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.write().remove(key)
    }
}

impl<K: fmt::Debug, B: fmt::Debug> fmt::Debug for Keyed<K, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed")
            .field("limit", &self.limit)
            .field("budgets", &*self.read())
            .field("shared", &self.shared)
            .finish()
    }
}
