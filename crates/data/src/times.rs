//! The times of nodes and edges, splits by time, and graphs of what was known before a time.

mod cut;
mod dataset;
mod error;
mod message_times;
mod order;
mod stored_order;
mod time_split;

use std::fmt;
use std::sync::Arc;

use kiln_graph::{ColumnValues, EdgeColumn, EdgeColumns, EdgeTimes, NodeTypes, SharedArray};
use serde::{Deserialize, Serialize};

use crate::calendar::{YEARS, parse_time, write_time};

pub(crate) use self::cut::with_times_of_loops;
pub use self::error::TimeError;
pub(crate) use self::message_times::MessageTimes;
pub use self::stored_order::StoredOrders;
pub use self::time_split::TimeSplit;

/// The times of the nodes of a set, the meaning of all its times, and its split by time. The times of edges are the column
/// [`EdgeColumns::TIMES`] of their relation. All times of a set are comparable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatasetTimes {
    /// What the numbers are.
    pub kind: TimeKind,
    /// The time of each node, by type, `[n_types]`: one number per node of the type, `[n_nodes_of_type]`; `None` for a type
    /// without times, whose nodes always existed. Empty if no type has times.
    pub nodes: Vec<Option<SharedArray<i64>>>,
    /// The split of the nodes or links by time, which limits the edges that pass messages; `None` for another split.
    pub split: Option<TimeSplit>,
    /// The orders of the edges by time that the folder of the set stores; none for a set that was not opened from one.
    pub orders: StoredOrders,
}

/// The meaning of times.
///
/// ```
/// use kiln_data::TimeKind;
/// let date = TimeKind::Date.parse("2026-03-01")?;
/// assert_eq!(TimeKind::Date.text(date).to_string(), "2026-03-01");
/// assert_eq!(TimeKind::Integer.parse("-7")?, -7);
/// # Ok::<(), kiln_data::TimeError>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeKind {
    /// Any ascending numbers, such as steps.
    #[default]
    Integer,
    /// Microseconds since 1970-01-01 UTC.
    Date,
}

/// A time as text: a date such as `2026-03-01` or `2026-03-01T12:30:00Z`, or a number.
#[derive(Debug, Clone, Copy)]
pub struct TimeText {
    kind: TimeKind,
    time: i64,
}

impl TimeKind {
    /// Parses a time: an integer, or a date with an optional time of day and offset from UTC.
    ///
    /// # Errors
    /// Returns [`TimeError::NoTime`] for another text.
    pub fn parse(self, text: &str) -> std::result::Result<i64, TimeError> {
        let time = match self {
            Self::Integer => text.trim().parse().ok(),
            Self::Date => parse_time(text).filter(|time| YEARS.contains(time)),
        };
        time.ok_or_else(|| TimeError::NoTime { text: text.to_owned(), expected: self.expected() })
    }

    /// Parses a length of time: a number in the unit of integers, or a number with `d`, `h`, `m` or `s` for days, hours,
    /// minutes or seconds between dates, such as `30d`.
    ///
    /// ```
    /// use kiln_data::TimeKind;
    /// assert_eq!(TimeKind::Integer.parse_length("30")?, 30);
    /// assert_eq!(TimeKind::Date.parse_length("2h")?, 7_200_000_000);
    /// # Ok::<(), kiln_data::TimeError>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`TimeError::NoTime`] for another text, and for 0.
    pub fn parse_length(self, text: &str) -> std::result::Result<u64, TimeError> {
        let trimmed = text.trim();
        let (number, unit) = match self {
            Self::Integer => (trimmed, 1),
            Self::Date => {
                let n_digits = trimmed.len().saturating_sub(1);
                let (number, unit) = trimmed.split_at_checked(n_digits).unwrap_or_default();
                let seconds = match unit {
                    "d" => 86_400,
                    "h" => 3_600,
                    "m" => 60,
                    "s" => 1,
                    _ => 0,
                };
                (number, seconds * 1_000_000)
            }
        };
        let length = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        length.filter(|length| *length != 0).ok_or_else(|| TimeError::NoTime {
            text: text.to_owned(),
            expected: match self {
                Self::Integer => "a positive number in the unit of the times of this set, which are integers",
                Self::Date => {
                    "a positive number of days, hours, minutes or seconds, such as 30d, 12h, 15m or 90s"
                }
            },
        })
    }

    /// Parses a window of time: a length as [`TimeKind::parse_length`] parses, or `all`, which is `None`.
    ///
    /// ```
    /// use kiln_data::TimeKind;
    /// assert_eq!(TimeKind::Date.parse_window("2m")?, Some(120_000_000));
    /// assert_eq!(TimeKind::Date.parse_window("all")?, None);
    /// # Ok::<(), kiln_data::TimeError>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`TimeKind::parse_length`].
    pub fn parse_window(self, text: &str) -> std::result::Result<Option<u64>, TimeError> {
        match text.trim() {
            "all" => Ok(None),
            length => self.parse_length(length).map(Some),
        }
    }

    /// Returns the text of a time, which [`TimeKind::parse`] reads.
    pub fn text(self, time: i64) -> TimeText {
        TimeText { kind: self, time }
    }

    fn expected(self) -> &'static str {
        match self {
            Self::Integer => "an integer, because the times of this set are integers",
            Self::Date => "a date such as 2026-03-01, or 2026-03-01T12:30:00+02:00, of the years 1 to 9999",
        }
    }
}

impl fmt::Display for TimeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TimeKind::Date if YEARS.contains(&self.time) => {
                let mut text = String::new();
                write_time(self.time, &mut text);
                f.write_str(&text)
            }
            _ => write!(f, "{}", self.time),
        }
    }
}

impl DatasetTimes {
    /// The time of an edge or a node that was always known, such as an added self loop.
    pub const ALWAYS: i64 = EdgeTimes::ALWAYS;

    /// The time of an edge or a node that is never known, because its time is missing: it passes no messages.
    pub const NEVER: i64 = EdgeTimes::NEVER;

    /// Returns true if there is nothing to record: no node times, no split, and integers.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the times of the nodes of a type; `None` if they have no times.
    pub fn node_times(&self, node_type: usize) -> Option<&SharedArray<i64>> {
        self.nodes.get(node_type)?.as_ref()
    }

    /// Returns whether each node of these types is before a time, by node; `None` if no type has times.
    pub fn nodes_before(&self, types: &NodeTypes, time: i64) -> Option<Arc<[bool]>> {
        if self.nodes.iter().all(Option::is_none) {
            return None;
        }
        let mut are_known = Vec::new();
        for node_type in 0..types.n_types() {
            match self.node_times(node_type) {
                Some(times) => are_known.extend(times.iter().map(|of_node| *of_node < time)),
                None => are_known.resize(are_known.len() + types.range(node_type).len(), true),
            }
        }
        Some(are_known.into())
    }
}

/// Returns the times of the edges in their columns; `None` if they have none.
pub(crate) fn times_of(columns: &EdgeColumns) -> Option<&SharedArray<i64>> {
    match columns.get(EdgeColumns::TIMES).map(EdgeColumn::values) {
        Some(ColumnValues::I64(times)) => Some(times),
        _ => None,
    }
}

/// Returns the first and the last of some times, without [`DatasetTimes::ALWAYS`] and [`DatasetTimes::NEVER`]; `None` if there are none.
pub(crate) fn range_of(times: &[i64]) -> Option<[i64; 2]> {
    let known = || times.iter().filter(|time| ![DatasetTimes::ALWAYS, DatasetTimes::NEVER].contains(time));
    Some([*known().min()?, *known().max()?])
}
