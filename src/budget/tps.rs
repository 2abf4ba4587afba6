//! `TpsBudget`: a sliding window of retries per second.
use super::Budget;
/// A sliding window of retries per second.
#[derive(Debug, Default)]
pub struct TpsBudget {}
impl Budget for TpsBudget {
    fn deposit(&self) {}
    fn withdraw(&self) -> bool {
        true
    }
}
