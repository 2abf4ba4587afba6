//! Settings as floats, amounts as integers: where the one becomes the other.

use super::InvalidBudget;

/// `value` in units of `1 / scale`, rounded to the nearest; what is too large for a `u64` becomes
/// its maximum.
///
/// # Errors
///
/// NaN, infinite, negative, and what is above zero but rounds to it: that would silently mean never.
pub(super) fn to_units(
    setting: &'static str,
    value: f32,
    scale: u32,
) -> Result<u64, InvalidBudget> {
    let refuse = |reason| Err(InvalidBudget::new(setting, reason));
    if value.is_nan() {
        return refuse("must not be NaN");
    }
    if value < 0.0 {
        return refuse("must not be negative");
    }
    if value.is_infinite() {
        return refuse("must be finite");
    }
    // A cast from float to integer saturates.
    let units = (f64::from(value) * f64::from(scale)).round() as u64;
    if units == 0 && value > 0.0 {
        return refuse("is so small that it rounds to zero");
    }
    Ok(units)
}

/// `units` of `1 / scale` as a float, for people to read.
pub(super) fn to_float(units: u64, scale: u32) -> f64 {
    units as f64 / f64::from(scale)
}
