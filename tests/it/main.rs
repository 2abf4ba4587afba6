//! The integration tests, in one binary: on two cores the saved links matter.
