//! Checks of targets, splits and times, which node types, relations and task tables have.

use std::collections::BTreeSet;

use super::place::At;
use super::{SplitSpec, TargetSpec, TimeBorder, TimeQuantiles, TimeSplitSpec, TimeUnit, offset_of};
use crate::Result;

/// The maximum number of columns of a table that a spec names.
pub(super) const MAX_COLUMNS: usize = 4096;

pub(super) fn check_name<'n>(at: &At<'_>, name: &'n str, names: &mut BTreeSet<&'n str>) -> Result<()> {
    at.require(!name.is_empty(), "a name", "empty")?;
    at.require(names.insert(name), "a name that occurs once", format!("{name:?}, which occurs twice"))
}

/// Checks the target and the split of a node type or of a relation.
pub(super) fn check_target(
    at: &At<'_>,
    target: Option<&TargetSpec>,
    split: Option<&SplitSpec>,
) -> Result<()> {
    if let Some(TargetSpec::Regression { columns }) = target {
        at.child("target.regression.columns").count(columns.len(), MAX_COLUMNS)?;
    }
    if let Some(TargetSpec::MultiLabel { separator, .. }) = target {
        check_separator(&at.child("target.multi_label.separator"), separator.as_deref())?;
    }
    let expected = "none, because there is no target";
    at.child("split").require(split.is_none() || target.is_some(), expected, "a split")?;
    split.map_or(Ok(()), |split| check_split(&at.child("split"), split))
}

pub(super) fn check_separator(at: &At<'_>, separator: Option<&str>) -> Result<()> {
    at.require(separator != Some(""), "a text, such as ';'", "empty")
}

fn check_split(at: &At<'_>, split: &SplitSpec) -> Result<()> {
    match split {
        SplitSpec::Column { .. } => Ok(()),
        SplitSpec::Masks { .. } => {
            let columns = split.columns();
            let n_columns = columns.iter().collect::<BTreeSet<_>>().len();
            let expected = "a column of its own for each part";
            at.child("masks").require(n_columns == columns.len(), expected, "a column of two parts")
        }
        SplitSpec::Steps { val_from, test_from, .. } => {
            let expected = "a step that is not before val_from";
            at.child("steps.test_from").require(val_from <= test_from, expected, test_from)
        }
        SplitSpec::Random { train, val, test, .. } => {
            for (key, share) in [("random.train", train), ("random.val", val), ("random.test", test)] {
                at.child(key).require((0.0..=1.0).contains(share), "a number from 0 to 1", share)?;
            }
            let sum = train + val + test;
            // The tolerance is above the rounding of decimal shares such as 0.7 + 0.2 + 0.1.
            at.child("random").require(sum <= 1.0 + 1e-9, "shares with a sum of at most 1", sum)
        }
        SplitSpec::Time(split) => check_time_split(&at.child("time"), split),
    }
}

/// Checks the borders of a split by time.
fn check_time_split(at: &At<'_>, split: &TimeSplitSpec) -> Result<()> {
    let TimeSplitSpec { unit, zone, train, val, test, quantiles, .. } = split;
    let offset = check_zone(at, zone.as_deref())?;
    if let Some(TimeQuantiles { val: share, test: test_share }) = quantiles {
        let are_ascending = 0.0 < *share && share <= test_share && *test_share < 1.0;
        let expected = "shares with 0 < val <= test < 1";
        at.child("quantiles").require(are_ascending, expected, format!("{share} and {test_share}"))?;
        let expected = "none beside `quantiles`";
        for (key, border) in [("train", train), ("val", val), ("test", test)] {
            at.child(key).require(border.is_none(), expected, "a time")?;
        }
        return Ok(());
    }
    let expected = match unit {
        TimeUnit::Integer => "an integer, because `unit` is integer",
        _ => "a time, such as 2024-01-01 or 2024-01-01T12:00:00Z",
    };
    let mut times = [None; 3];
    for (time, (key, border)) in times.iter_mut().zip([("train", train), ("val", val), ("test", test)]) {
        *time = border.as_ref().and_then(|border| border.time(*unit, offset));
        let is_needed = key != "train" || border.is_some();
        let found = border
            .as_ref()
            .map_or_else(|| "missing".to_owned(), |border| format!("{:?}", border.to_string()));
        at.child(key).require(time.is_some() || !is_needed, expected, found)?;
    }
    let [of_train, of_val, of_test] = times;
    let shown = |border: &Option<TimeBorder>| border.as_ref().map_or_else(String::new, TimeBorder::to_string);
    at.child("train").require(
        of_train.is_none_or(|train| Some(train) < of_val),
        "a time before val",
        shown(train),
    )?;
    at.child("test").require(of_val <= of_test, "a time that is not before val", shown(test))
}

/// Checks that a zone is an offset from UTC, and returns it in minutes.
pub(super) fn check_zone(at: &At<'_>, zone: Option<&str>) -> Result<i64> {
    let offset = offset_of(zone);
    let expected = "an offset from UTC, such as +01:00: a zone with daylight saving time has two, so write the offset into the \
                    values, or the column in UTC";
    at.child("zone").require(offset.is_some(), expected, format!("{:?}", zone.unwrap_or_default()))?;
    Ok(offset.unwrap_or_default())
}
