use std::fmt;

use kiln_data::calendar::{YEARS, parse_offset, parse_time_at};
use kiln_data::{TimeKind, TimeSplit};
use serde::{Deserialize, Serialize};

/// The unit of integers that are timestamps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeUnit {
    /// Seconds since 1970.
    #[default]
    Seconds,
    /// Milliseconds since 1970.
    Milliseconds,
    /// Microseconds since 1970.
    Microseconds,
    /// Nanoseconds since 1970.
    Nanoseconds,
    /// Integers that ascend and are no dates, such as steps. Parts of dates have no such unit.
    Integer,
}

/// The column of the times of the nodes of a type or of the edges of a relation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeSpec {
    /// The name of the column, which has dates, timestamps or integers. A row without a time is bad.
    pub column: String,
    /// The unit of columns of integers.
    #[serde(default)]
    pub unit: TimeUnit,
    /// The offset from UTC of texts that state none, such as `+02:00`; UTC by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// A split of nodes by their times: those before `val` for training, from `train` on if it is given, those from `val` on for
/// validation, and those from `test` on for test. Messages of training, validation and test then pass only over edges that
/// were known before `train` (`val` without it), `val` and `test`, and the statistics of transforms are those of rows before `val`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeSplitSpec {
    /// The column of the times. A node without a time is in no part.
    pub column: String,
    /// The unit of columns of integers.
    #[serde(default)]
    pub unit: TimeUnit,
    /// The offset from UTC of texts and borders that state none, such as `+02:00`; UTC by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The first time of the training part; `None` if all nodes before `val` are in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train: Option<TimeBorder>,
    /// The first time of the validation part, such as `2024-01-01`; `None` with quantiles. Earlier specs name it `val_from`.
    #[serde(default, alias = "val_from", skip_serializing_if = "Option::is_none")]
    pub val: Option<TimeBorder>,
    /// The first time of the test part; `None` with quantiles. Earlier specs name it `test_from`.
    #[serde(default, alias = "test_from", skip_serializing_if = "Option::is_none")]
    pub test: Option<TimeBorder>,
    /// The shares of the nodes with targets before the validation part and before the test part, instead of their times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantiles: Option<TimeQuantiles>,
}

/// The quantiles of times at which the parts of a split begin.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeQuantiles {
    /// The share of the nodes before the validation part.
    pub val: f64,
    /// The share of the nodes before the test part.
    pub test: f64,
}

/// A border of a split by time: a date, or an integer for `unit: integer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TimeBorder {
    /// An integer.
    Integer(i64),
    /// A date with an optional time of day and offset, or the text of an integer.
    Text(String),
}

impl fmt::Display for TimeBorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(time) => write!(f, "{time}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl TimeBorder {
    /// Returns the time; `None` if it is none of the kind of a column with this unit and offset.
    pub(crate) fn time(&self, unit: TimeUnit, offset_minutes: i64) -> Option<i64> {
        match (self, unit) {
            (Self::Integer(time), TimeUnit::Integer) => Some(*time),
            (Self::Text(text), TimeUnit::Integer) => text.trim().parse().ok(),
            (Self::Integer(_), _) => None,
            (Self::Text(text), _) => parse_time_at(text, offset_minutes).filter(|time| YEARS.contains(time)),
        }
    }
}

impl TimeUnit {
    /// Returns the meaning of times in this unit.
    pub(crate) fn kind(self) -> TimeKind {
        match self {
            Self::Integer => TimeKind::Integer,
            _ => TimeKind::Date,
        }
    }
}

/// Returns the offset of a zone in minutes east of UTC; `None` for a zone that is no offset.
pub(crate) fn offset_of(zone: Option<&str>) -> Option<i64> {
    zone.map_or(Some(0), parse_offset)
}

impl TimeSplitSpec {
    /// Returns the column of the times.
    pub(crate) fn time(&self) -> TimeSpec {
        TimeSpec { column: self.column.clone(), unit: self.unit, zone: self.zone.clone() }
    }

    /// Returns the borders; `None` for quantiles.
    pub(crate) fn split(&self) -> Option<TimeSplit> {
        let offset = offset_of(self.zone.as_deref())?;
        let time = |border: &TimeBorder| border.time(self.unit, offset);
        let train = self.train.as_ref().and_then(time);
        let val = self.val.as_ref().and_then(time)?;
        let test = self.test.as_ref().and_then(time)?;
        Some(TimeSplit { train, val, test })
    }
}
