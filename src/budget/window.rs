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
//! 4. When `opened` holds a tick, its slot has that tick or a later one. So an addition to the slot
//!    cannot go to an earlier tick, where a thread with an old clock would lend it, and where it
//!    would be counted again once the slot is taken.
//!
//! The tick is an argument throughout; a caller that was suspended may come with an old one.

use super::sync::{Acquire, AtomicU64, Mutex, MutexGuard, Relaxed, Release};

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
/// added and not yet looked.
const COUNT_LIMIT: u64 = 1 << (COUNT_BITS - 1);

/// Bits of a seal that count deposits: those of ten slots are fewer than 2^30.
const SEAL_BITS: u32 = 30;

/// Not the seal of any refusal: ten slots cannot count so many deposits.
const NO_SEAL: u64 = u64::MAX;

pub(super) struct Window {
    slots: Slots,
    /// The latest tick whose slot is known to have been taken for it.
    opened: AtomicU64,
    /// Tells a withdrawal that would be refused so, without the lock.
    dry: AtomicU64,
    ledger: Mutex<Ledger>,
    per_deposit: u64,
    reserve: u64,
}

/// A word for each slot: its tick and how many deposits were made in it.
///
/// On cache lines of their own, so that deposits and withdrawals do not take them from each other;
/// two lines, as processors fetch them in pairs.
#[repr(align(128))]
struct Slots([AtomicU64; SLOTS]);

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
            slots: Slots(std::array::from_fn(|_| AtomicU64::new(0))),
            // The words of tick 0 are all zeros.
            opened: AtomicU64::new(0),
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
    ///
    /// Within a tick it reads `opened`, which no one writes, and adds to the slot, without reading
    /// that first: threads that share a cache line fetch it once and not twice.
    #[inline]
    pub(super) fn deposit(&self, tick: u64) {
        let slot = &self.slots.0[slot_of(tick)];
        if self.opened.load(Acquire) == tick {
            add_one(slot); // invariant 4
        } else {
            self.open(slot, tick);
        }
    }

    /// Makes the first deposit of a tick, or one more if another thread came first.
    #[cold]
    fn open(&self, slot: &AtomicU64, tick: u64) {
        let mut word = slot.load(Relaxed);
        while !is_at_or_after(tick_in(word), tick) {
            match slot.compare_exchange_weak(word, first_of(tick), Relaxed, Relaxed) {
                Ok(_) => {
                    self.opened.fetch_max(tick, Release);
                    return;
                }
                Err(found) => word = found,
            }
        }
        add_one(slot);
    }

    /// Takes one retry: the oldest deposits first, as they leave first, then the reserve.
    pub(super) fn withdraw(&self, tick: u64) -> bool {
        let dry = self.dry.load(Relaxed);
        // The tick alone tells most seals apart, without a look at the slots.
        if dry >> SEAL_BITS == seal(tick, 0) >> SEAL_BITS
            && dry == seal(tick, self.counts(tick).iter().sum())
        {
            return false; // invariant 3
        }
        let mut ledger = self.lock();
        let tick = ledger.advance(tick);
        let counts = self.counts(tick);
        let unspent = self.unspent(&ledger, &counts);
        let reserve = self.reserve_left(&ledger);
        let mut left = u64::from(RETRY);
        if unspent.iter().sum::<u64>() + reserve < left {
            self.dry.store(seal(tick, counts.iter().sum()), Relaxed);
            return false;
        }
        for slot in oldest_first(tick) {
            let part = unspent[slot].min(left);
            ledger.consumed[slot] += part;
            left -= part;
        }
        ledger.spent[slot_of(tick)] += left;
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
        let unspent = self.unspent(&ledger, &self.counts(tick));
        unspent.iter().sum::<u64>() + self.reserve_left(&ledger)
    }

    // No sum here can overflow: ten slots are worth less than 2^60, the reserve at most 2^63.

    /// What the deposits of each slot are still worth.
    ///
    /// A slot that another thread has already taken for a later tick counts no deposits here, and
    /// its consumption stays until the ledger gets to that tick.
    fn unspent(&self, ledger: &Ledger, counts: &[u64; SLOTS]) -> [u64; SLOTS] {
        std::array::from_fn(|slot| {
            (counts[slot] * self.per_deposit).saturating_sub(ledger.consumed[slot])
        })
    }

    fn reserve_left(&self, ledger: &Ledger) -> u64 {
        self.reserve - ledger.spent.iter().sum::<u64>()
    }

    /// The deposits in the window that ends with `tick`, by slot.
    #[inline]
    fn counts(&self, tick: u64) -> [u64; SLOTS] {
        let now = slot_of(tick);
        std::array::from_fn(|slot| {
            let age = if slot <= now {
                now - slot
            } else {
                now + SLOTS - slot
            };
            let word = self.slots.0[slot].load(Relaxed);
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
        let gone = (tick - self.tick).min(SLOTS as u64) as usize;
        for slot in oldest_first(tick).skip(SLOTS - gone) {
            self.consumed[slot] = 0;
            self.spent[slot] = 0;
        }
        self.tick = tick;
        tick
    }
}

fn slot_of(tick: u64) -> usize {
    (tick % SLOTS as u64) as usize
}

/// The slots of the window that ends with `tick`.
fn oldest_first(tick: u64) -> impl Iterator<Item = usize> {
    let oldest = slot_of(tick) + 1;
    (oldest..SLOTS).chain(0..oldest)
}

/// Adds a deposit to the tick of the slot, whichever that is by now.
///
/// It is the caller's or a later one; then the caller was suspended since it read the clock, and
/// the deposit counts as one of the tick that has begun meanwhile.
#[inline]
fn add_one(slot: &AtomicU64) {
    if count_in(slot.fetch_add(1, Relaxed)) >= COUNT_LIMIT {
        slot.fetch_sub(1, Relaxed);
    }
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

/// Whether the tick of a word is `tick` or a later one, on a circle of 2^38 ticks.
fn is_at_or_after(word_tick: u64, tick: u64) -> bool {
    (word_tick.wrapping_sub(tick) & TICK_MASK) <= MAX_AHEAD
}

/// Tells apart what a refusal depends on: the tick and how many deposits are in its window.
///
/// Within one tick the number only grows.
fn seal(tick: u64, deposits: u64) -> u64 {
    (tick << SEAL_BITS) | deposits
}
