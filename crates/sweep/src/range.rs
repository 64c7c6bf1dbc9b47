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
    /// True if both limits are whole numbers: so are the draws.
    is_whole: bool,
}

impl Range {
    pub(crate) fn new(spec: &RangeSpec) -> Result<Self, String> {
        let is_whole = [&spec.min, &spec.max].into_iter().all(|limit| limit.is_i64() || limit.is_u64());
        let [min, max] = [&spec.min, &spec.max].map(|limit| limit.as_f64().unwrap_or_default());
        if max <= min {
            return Err(format!("is a range from {} to {}, expected min below max", spec.min, spec.max));
        }
        if spec.scale == Scale::Log && min <= 0.0 {
            return Err(format!("is a range from {} with the scale log, expected min above 0", spec.min));
        }
        Ok(Self { min, max, scale: spec.scale, is_whole })
    }

    /// Returns the value at a position from 0 to 1, with four significant digits unless it is a whole number.
    pub(crate) fn value_at(&self, position: f64) -> String {
        // Each whole number, also the first and the last, has the same width.
        let margin = if self.is_whole { 0.5 } else { 0.0 };
        let [low, high] = [self.min - margin, self.max + margin];
        let value = match self.scale {
            Scale::Linear => low + position * (high - low),
            Scale::Log => (low.ln() + position * (high.ln() - low.ln())).exp(),
        };
        if self.is_whole {
            return format!("{:.0}", value.round().clamp(self.min, self.max));
        }
        let rounded = format!("{value:.3e}").parse().unwrap_or(value);
        Value::from(rounded.clamp(self.min, self.max)).to_string()
    }
}
