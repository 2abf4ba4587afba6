//! `TokenBudget`: a bucket of retries that successes fill.
use super::Budget;
/// A bucket of retries that successes fill.
#[derive(Debug, Default)]
pub struct TokenBudget {}
impl Budget for TokenBudget {
    fn deposit(&self) {}
    fn withdraw(&self) -> bool {
        true
    }
}
