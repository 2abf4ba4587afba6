//! backoff_statistics
