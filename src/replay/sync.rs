//! The two primitives that a recording stands on, in one place: `tests/loom_replay.rs` compiles the
//! files beside this one against loom's.

pub(super) use std::sync::{Arc, Mutex};
