//! What the algorithms share between threads, in one place so that a model checker can stand in.

pub(super) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering::Relaxed},
};
