//! `Window`: deposits and withdrawals of the last ten ticks.
//!
//! # Invariants
//!
//! 1. What happens in tick `j` counts while the present tick is at most `j + 9`.
//! 2. Of a slot's deposits no more is consumed than they are worth, and of the reserve no more is
//!    spent than there is. So the balance is never negative: what was lent against a deposit leaves
//!    the window together with it.
//! 3. `dry` holds the seal of a refusal, and with that tick and these deposits every withdrawal
//!    would be refused.
//!
//! The tick is an argument throughout; a caller that was suspended may come with an old one.

use super::sync::{AtomicU64, Mutex, MutexGuard, Relaxed};

/// Parts of a retry that are told apart.
pub(super) const RETRY: u32 = 10_000;

/// Ticks in a window.
pub(super) const SLOTS: usize = 10;

/// Bits of a slot's word that count its deposits; the tick has the others.
///
/// That is 67 million deposits in a tick, and ticks that repeat after 2^38: with the shortest tick,
/// a millisecond, after 8.7 years.
const COUNT_BITS: u32 = 26;
const TICK_MASK: u64 = u64::MAX >> COUNT_BITS;

/// How far a slot's tick may be ahead of a thread that was suspended in the middle of a deposit: a
/// million ticks, 17 minutes at the shortest. What seems to be further ahead lies behind: nobody
/// has used the slot for long.
const MAX_AHEAD: u64 = 1 << 20;

/// Deposits after which a slot takes no more. The bits above leave room for every thread that has
/// checked this and not yet added.
const COUNT_LIMIT: u64 = 1 << (COUNT_BITS - 1);

/// Not the seal of any refusal: its lower half is larger than ten slots can count.
const NO_SEAL: u64 = u64::MAX;

pub(super) struct Window {
    slots: [AtomicU64; SLOTS],
    /// Tells a withdrawal that would be refused so, without the lock.
    dry: AtomicU64,
    ledger: Mutex<Ledger>,
    per_deposit: u64,
    reserve: u64,
}

/// What was lent in the window that ends with `tick`, by slot.
struct Ledger {
    tick: u64,
    /// Lent against the deposits of the slot.
    consumed: [u64; SLOTS],
    /// Lent in the slot against the reserve.
    spent: [u64; SLOTS],
}

// === impl Window ===

impl Window {
    /// `per_deposit` and `reserve` in parts of a retry, at most 2^30 and 2^63.
    pub(super) fn new(per_deposit: u64, reserve: u64) -> Self {
        Self {
            slots: std::array::from_fn(|_| AtomicU64::new(0)),
            dry: AtomicU64::new(NO_SEAL),
            ledger: Mutex::new(Ledger {
                tick: 0,
                consumed: [0; SLOTS],
                spent: [0; SLOTS],
            }),
            per_deposit,
            reserve,
        }
    }

    pub(super) fn per_deposit(&self) -> u64 {
        self.per_deposit
    }

    pub(super) fn reserve(&self) -> u64 {
        self.reserve
    }

    /// Counts a deposit, without a lock.
    #[inline]
    pub(super) fn deposit(&self, tick: u64) {
        let slot = &self.slots[slot_of(tick, 0)];
        let mut word = slot.load(Relaxed);
        while tick_in(word) != tick & TICK_MASK {
            // Suspended for a whole window: the slot has gone to a later tick, and a deposit of
            // this one counts no more.
            if is_later(tick_in(word), tick) {
                return;
            }
            match slot.compare_exchange_weak(word, first_of(tick), Relaxed, Relaxed) {
                Ok(_) => return,
                Err(found) => word = found,
            }
        }
        if count_in(word) < COUNT_LIMIT {
            // Adding cannot fail where a compare-and-swap would have to try again. Should the slot
            // go to a later tick in between, the deposit counts as one of that tick, which has
            // then begun: it was made while this call ran.
            slot.fetch_add(1, Relaxed);
        }
    }

    /// Takes one retry: the oldest deposits first, as they leave first, then the reserve.
    pub(super) fn withdraw(&self, tick: u64) -> bool {
        if self.dry.load(Relaxed) == seal(tick, &self.counts(tick)) {
            return false; // invariant 3
        }
        let mut ledger = self.lock();
        let tick = ledger.advance(tick);
        let counts = self.counts(tick);
        let mut left = u64::from(RETRY);
        if self.balance_in(&ledger, &counts) < left {
            self.dry.store(seal(tick, &counts), Relaxed);
            return false;
        }
        for slot in oldest_first(tick) {
            let part = self.unspent(&ledger, &counts, slot).min(left);
            ledger.consumed[slot] += part;
            left -= part;
        }
        ledger.spent[slot_of(tick, 0)] += left;
        true
    }

    /// Gives one retry back to what was lent longest ago and is still in the window.
    pub(super) fn refund(&self, tick: u64) {
        let mut ledger = self.lock();
        let tick = ledger.advance(tick);
        let Ledger {
            consumed, spent, ..
        } = &mut *ledger;
        let mut left = u64::from(RETRY);
        for lent in [consumed, spent] {
            for slot in oldest_first(tick) {
                let part = lent[slot].min(left);
                lent[slot] -= part;
                left -= part;
            }
        }
        // With the lock still held, so that no refusal from before is sealed after this.
        self.dry.store(NO_SEAL, Relaxed);
    }

    /// What could be lent, in parts of a retry.
    pub(super) fn balance(&self, tick: u64) -> u64 {
        let mut ledger = self.lock();
        let tick = ledger.advance(tick);
        self.balance_in(&ledger, &self.counts(tick))
    }

    /// No sum here can overflow: ten slots are worth less than 2^60, the reserve at most 2^63.
    fn balance_in(&self, ledger: &Ledger, counts: &[u64; SLOTS]) -> u64 {
        let deposits: u64 = (0..SLOTS)
            .map(|slot| self.unspent(ledger, counts, slot))
            .sum();
        deposits + (self.reserve - ledger.spent.iter().sum::<u64>())
    }

    /// What the deposits of a slot are still worth.
    ///
    /// A slot that another thread has already taken for a later tick counts no deposits here, and
    /// its consumption stays until the ledger gets to that tick.
    fn unspent(&self, ledger: &Ledger, counts: &[u64; SLOTS], slot: usize) -> u64 {
        (counts[slot] * self.per_deposit).saturating_sub(ledger.consumed[slot])
    }

    /// The deposits in the window that ends with `tick`, by slot.
    #[inline]
    fn counts(&self, tick: u64) -> [u64; SLOTS] {
        let now = slot_of(tick, 0);
        std::array::from_fn(|slot| {
            let age = if slot <= now {
                now - slot
            } else {
                now + SLOTS - slot
            };
            let word = self.slots[slot].load(Relaxed);
            let counts = tick_in(word) == tick.wrapping_sub(age as u64) & TICK_MASK;
            if counts { count_in(word) } else { 0 }
        })
    }

    /// A panic elsewhere cannot leave the ledger half written: nothing in here panics.
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

// === impl Ledger ===

impl Ledger {
    /// Forgets what has left the window, in ten steps at most. Returns the tick to go on with.
    fn advance(&mut self, tick: u64) -> u64 {
        let tick = tick.max(self.tick);
        for age in 0..(tick - self.tick).min(SLOTS as u64) {
            let slot = slot_of(tick, age as usize);
            self.consumed[slot] = 0;
            self.spent[slot] = 0;
        }
        self.tick = tick;
        tick
    }
}

/// The slot of the tick `age` ticks before `tick`, `age` below [`SLOTS`].
fn slot_of(tick: u64, age: usize) -> usize {
    ((tick % SLOTS as u64) as usize + SLOTS - age) % SLOTS
}

fn oldest_first(tick: u64) -> impl Iterator<Item = usize> {
    (0..SLOTS).rev().map(move |age| slot_of(tick, age))
}

/// The word of a slot that has just got its first deposit.
fn first_of(tick: u64) -> u64 {
    (tick << COUNT_BITS) | 1
}

fn tick_in(word: u64) -> u64 {
    word >> COUNT_BITS
}

fn count_in(word: u64) -> u64 {
    word & !(u64::MAX << COUNT_BITS)
}

/// Whether the tick of a word lies after `tick`, on a circle of 2^38 ticks.
fn is_later(word_tick: u64, tick: u64) -> bool {
    (1..=MAX_AHEAD).contains(&(word_tick.wrapping_sub(tick) & TICK_MASK))
}

/// Tells apart what a refusal depends on: the tick and how many deposits are in its window.
///
/// Within one tick the number only grows. Ten slots count less than 2^30.
fn seal(tick: u64, counts: &[u64; SLOTS]) -> u64 {
    (tick << 30) | counts.iter().sum::<u64>()
}
