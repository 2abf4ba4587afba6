//! tower_compat
