//! What threads share, named once: the model checker's types take its place in `tests/loom.rs`.

pub(super) use std::sync::{
    Mutex, MutexGuard,
    atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};
