//! An axis of a chart: where its ticks are, and how values lie between them.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

#[derive(Clone)]
pub(crate) struct Axis {
    pub(crate) name: &'static str,
    pub(crate) ticks: Vec<f64>,
    /// Where it begins and ends, as a rule at the first and the last tick.
    pub(crate) ends: (f64, f64),
    pub(crate) scale: Scale,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    Linear,
    Log,
}

// === impl Axis ===

impl Axis {
    pub(crate) fn linear(name: &'static str, ticks: impl IntoIterator<Item = f64>) -> Self {
        let ticks: Vec<f64> = ticks.into_iter().collect();
        let ends = ticks.first().zip(ticks.last());
        Self {
            name,
            ends: ends.map_or((0.0, 1.0), |(first, last)| (*first, *last)),
            ticks,
            scale: Scale::Linear,
        }
    }

    pub(crate) fn log(name: &'static str, ticks: impl IntoIterator<Item = f64>) -> Self {
        Self {
            scale: Scale::Log,
            ..Self::linear(name, ticks)
        }
    }

    /// Goes on beyond its ticks.
    pub(crate) fn between(self, low: f64, high: f64) -> Self {
        Self {
            ends: (low, high),
            ..self
        }
    }

    /// Four round steps of whole numbers from zero that hold `highest`.
    pub(crate) fn up_to(name: &'static str, highest: u64) -> Self {
        let decades = (0..18).map(|power| 10_f64.powi(power));
        let step = decades
            .flat_map(|decade| [decade, 2.0 * decade, 2.5 * decade, 5.0 * decade])
            .filter(|step| step.fract() == 0.0)
            .find(|step| 4.0 * step >= highest as f64)
            .unwrap_or(1e18);
        Self::linear(name, (0..=4).map(|tick| step * f64::from(tick)))
    }

    fn at(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Log => value.ln(),
        }
    }

    /// A tick's value as text.
    pub(crate) fn label(value: &f64) -> String {
        match *value {
            value if value >= 1e6 => format!("{} M", short(value / 1e6)),
            value if value >= 1e3 => format!("{} k", short(value / 1e3)),
            value => short(value),
        }
    }
}

/// The ticks are where they were put, and what lies beyond the ends is drawn at the end.
impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let Range { start, end } = self.range();
        let (start, end) = (self.at(start), self.at(end));
        let part = (self.at(*value).clamp(start, end) - start) / (end - start);
        limit.0 + (part * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.ends.0..self.ends.1
    }
}

/// At most two decimals, and none that are zero.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}
