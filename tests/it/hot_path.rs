//! hot_path
