use std::fmt;

use serde::Deserialize;
use serde_json::{Number, Value};

/// A range of numbers in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RangeSpec {
    /// The smallest value.
    min: Number,
    /// The largest value.
    max: Number,
    /// The distribution of the draws.
    #[serde(default)]
    scale: Scale,
}

/// The distribution of the draws from a range.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scale {
    /// Uniform.
    #[default]
    Linear,
    /// The logarithm is uniform.
    Log,
}

/// A range of numbers from which values are drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    min: f64,
    max: f64,
    scale: Scale,
    /// The limits if both are whole numbers: so are the draws.
    whole: Option<[i128; 2]>,
}

impl Range {
    pub(crate) fn new(spec: &RangeSpec) -> Result<Self, String> {
        let [whole_min, whole_max] = [&spec.min, &spec.max].map(whole_number);
        let [min, max] = [&spec.min, &spec.max].map(|limit| limit.as_f64().unwrap_or_default());
        if max <= min {
            return Err(format!("is a range from {} to {}, expected min below max", spec.min, spec.max));
        }
        if spec.scale == Scale::Log && min <= 0.0 {
            return Err(format!("is a range from {} with the scale log, expected min above 0", spec.min));
        }
        let whole = whole_min.zip(whole_max).map(|(min, max)| [min, max]);
        Ok(Self { min, max, scale: spec.scale, whole })
    }

    /// Returns the value at a position from 0 to 1, with four significant digits unless it is a whole number.
    pub(crate) fn value_at(&self, position: f64) -> String {
        // Each whole number, also the first and the last, has the same width.
        let margin = if self.whole.is_some() { 0.5 } else { 0.0 };
        let [low, high] = [self.min - margin, self.max + margin];
        let value = match self.scale {
            Scale::Linear => low + position * (high - low),
            Scale::Log => (low.ln() + position * (high.ln() - low.ln())).exp(),
        };
        if let Some([min, max]) = self.whole {
            return (value.round() as i128).clamp(min, max).to_string();
        }
        let rounded = format!("{value:.3e}").parse().unwrap_or(value);
        // The sum of both zeros is the positive one.
        Value::from(rounded.clamp(self.min, self.max) + 0.0).to_string()
    }
}

/// Writes the limits and the scale, such as `0.0001 to 0.1 (log)`.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.whole {
            Some([min, max]) => write!(f, "{min} to {max}")?,
            None => write!(f, "{:?} to {:?}", self.min, self.max)?,
        }
        match self.scale {
            Scale::Linear => Ok(()),
            Scale::Log => write!(f, " (log)"),
        }
    }
}

fn whole_number(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}
