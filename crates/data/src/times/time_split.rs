use kiln_graph::ItemId;
use serde::{Deserialize, Serialize};

use super::{DatasetTimes, TimeError, TimeKind, range_of};
use crate::Split;

/// A split of items by their times. Items before `val` are for training, those from `val` on and before `test` for validation,
/// and those from `test` on for test, so that an item with the time of a border is in the later part. With `train`, items before
/// it are in no part: they are the history of the training items. An item whose time is missing is in no part, too.
///
/// ```
/// use kiln_data::{TimeKind, TimeSplit};
/// use kiln_graph::NodeId;
/// let split = TimeSplit::new(Some(10), 20, 30)?;
/// let items = [5, 10, 19, 20, 30, 31].into_iter().enumerate().map(|(node, time)| (NodeId(node as u32), time));
/// let parts = split.divide(items, TimeKind::Integer)?;
/// assert_eq!(parts.parts().map(|(_, nodes)| nodes.len()), [2, 1, 2]);
/// // The first time that is too late for the messages of each phase.
/// assert_eq!(split.cuts(), [10, 20, 30]);
/// # Ok::<(), kiln_data::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeSplit {
    /// The first time of training items; `None` if all items before `val` are for training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train: Option<i64>,
    /// The first time of validation items.
    pub val: i64,
    /// The first time of test items; that of the validation items if no item is for validation.
    pub test: i64,
}

impl TimeSplit {
    /// Creates a split from its borders.
    ///
    /// # Errors
    /// Returns [`TimeError::Order`] unless `train` is before `val`, and `val` not after `test`.
    pub fn new(train: Option<i64>, val: i64, test: i64) -> Result<Self, TimeError> {
        let split = Self { train, val, test };
        split.check()?;
        Ok(split)
    }

    /// Returns the split whose validation part begins at the quantile `val` of the times and whose test part begins at the
    /// quantile `test`; missing times are not counted. Items with the time of a border are in the later part, so earlier parts may be smaller than their shares.
    ///
    /// ```
    /// use kiln_data::TimeSplit;
    /// let times: Vec<i64> = (0..100).collect();
    /// assert_eq!(TimeSplit::from_quantiles(&times, 0.8, 0.9)?, TimeSplit::new(None, 80, 90)?);
    /// # Ok::<(), kiln_data::TimeError>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`TimeError::Quantiles`] unless `0 < val <= test < 1`, and [`TimeError::NoTimes`] if there are no times.
    pub fn from_quantiles(times: &[i64], val: f64, test: f64) -> Result<Self, TimeError> {
        // A comparison with NaN is false.
        if !(0.0 < val && val <= test && test < 1.0) {
            return Err(TimeError::Quantiles { val, test });
        }
        let mut sorted: Vec<i64> =
            times.iter().copied().filter(|time| *time != DatasetTimes::NEVER).collect();
        sorted.sort_unstable();
        let [val, test] =
            [val, test].map(|share| sorted.get((sorted.len() as f64 * share).floor() as usize).copied());
        match (val, test) {
            (Some(val), Some(test)) => Self::new(None, val, test),
            _ => Err(TimeError::NoTimes { items: "0 items".to_owned() }),
        }
    }

    /// Checks the order of the borders.
    pub(crate) fn check(&self) -> Result<(), TimeError> {
        let is_ordered = self.train.is_none_or(|train| train < self.val) && self.val <= self.test;
        if is_ordered {
            return Ok(());
        }
        let train = self.train.map_or_else(String::new, |train| format!("train at {train}, "));
        Err(TimeError::Order { got: format!("{train}val at {} and test at {}", self.val, self.test) })
    }

    /// Returns the part of an item: 0 for training, 1 for validation and 2 for test; `None` for one before the training part, and
    /// for one whose time is missing ([`DatasetTimes::NEVER`]).
    pub fn part_of(&self, time: i64) -> Option<usize> {
        if time == DatasetTimes::NEVER || self.train.is_some_and(|train| time < train) {
            return None;
        }
        Some(usize::from(self.val <= time) + usize::from(self.test <= time))
    }

    /// Returns the first time that is too late for the messages of training, validation and test. Messages pass over edges
    /// before it ([`Dataset::graph_before`](crate::Dataset::graph_before)).
    pub fn cuts(&self) -> [i64; 3] {
        [self.train.unwrap_or(self.val), self.val, self.test]
    }

    /// Divides items, each with its time. Each part keeps the order of the items. `kind` is that of the times, for messages.
    ///
    /// # Errors
    /// Returns [`TimeError::EmptyPart`] if no item is in a part. The validation part is empty on purpose if `val` equals `test`.
    pub fn divide<I: ItemId>(
        &self,
        items: impl IntoIterator<Item = (I, i64)>,
        kind: TimeKind,
    ) -> Result<Split<I>, TimeError> {
        let mut parts: [Vec<I>; 3] = Default::default();
        let mut times = Vec::new();
        for (item, time) in items {
            times.push(time);
            if let Some(part) = self.part_of(time) {
                parts[part].push(item);
            }
        }
        self.check_parts(parts.each_ref().map(Vec::len), range_of(&times), kind)?;
        let [train, val, test] = parts.map(Into::into);
        Ok(Split { train, val, test })
    }

    /// Checks that each part has items. `range` are the first and the last time of the items.
    ///
    /// # Errors
    /// Returns the error of [`TimeSplit::divide`].
    pub fn check_parts(
        &self,
        n_items: [usize; 3],
        range: Option<[i64; 2]>,
        kind: TimeKind,
    ) -> Result<(), TimeError> {
        let val = kind.text(self.val);
        let test = kind.text(self.test);
        let train = match self.train {
            Some(train) => format!("from {} on and before {val}", kind.text(train)),
            None => format!("before {val}"),
        };
        let ranges = [train, format!("from {val} on and before {test}"), format!("from {test} on")];
        for ((part, n_items), range_of_part) in ["train", "val", "test"].into_iter().zip(n_items).zip(ranges)
        {
            if n_items != 0 || (part == "val" && self.val == self.test) {
                continue;
            }
            let times = match range {
                Some([first, last]) => format!("{} to {}", kind.text(first), kind.text(last)),
                None => "none".to_owned(),
            };
            return Err(TimeError::EmptyPart { part, range: range_of_part, times });
        }
        Ok(())
    }
}
