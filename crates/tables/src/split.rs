//! The split of nodes.

use crate::calendar::parse_time;
use crate::hash::{hash_bytes, mix};
use crate::spec::SplitSpec;
use crate::table::Cell;
use crate::transform::micros;

/// The names of the parts in a column.
const PARTS: [&str; 3] = ["train", "val", "test"];

impl SplitSpec {
    /// Returns the column of the split.
    pub(crate) fn column(&self) -> Option<&str> {
        match self {
            Self::Column { column } | Self::Time { column, .. } => Some(column),
            Self::Random { .. } => None,
        }
    }

    /// Returns the part of a row: 0 for training, 1 for validation and 2 for test. `cell` is the value of the split's column.
    pub(crate) fn part_of(&self, cell: &Cell<'_>, key: &str) -> Result<Option<usize>, &'static str> {
        match self {
            Self::Column { .. } => {
                let mut buffer = String::new();
                let Some(name) = cell.text(&mut buffer)? else { return Ok(None) };
                let part = PARTS.iter().position(|part| *part == name);
                part.map(Some).ok_or("train, val, test or a missing value")
            }
            Self::Random { seed, train, val, test } => {
                // The upper 53 bits as a number from 0 to 1.
                let draw = (mix(hash_bytes(key.as_bytes()) ^ mix(*seed)) >> 11) as f64 / (1_u64 << 53) as f64;
                let ends = [*train, train + val, train + val + test];
                Ok(ends.iter().position(|end| draw < *end))
            }
            Self::Time { unit, val_from, test_from, .. } => {
                let Some(micros) = micros(cell, *unit)? else { return Ok(None) };
                let is_from = |time: &str| parse_time(time).is_some_and(|time| time <= micros);
                Ok(Some(usize::from(is_from(val_from)) + usize::from(is_from(test_from))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::TimeUnit;

    #[test]
    fn random_parts_have_their_shares() {
        let split = SplitSpec::Random { seed: 7, train: 0.5, val: 0.2, test: 0.1 };
        let mut counts = [0_i32; 4];
        for key in 0..10_000 {
            let part = split.part_of(&Cell::Missing, &key.to_string()).unwrap();
            counts[part.unwrap_or(3)] += 1;
        }
        // Six standard deviations of a binomial count of 10,000 are at most 300.
        for (count, expected) in counts.into_iter().zip([5000, 2000, 1000, 2000]) {
            assert!((count - expected).abs() < 300, "{counts:?}");
        }
        let other = SplitSpec::Random { seed: 8, train: 0.5, val: 0.2, test: 0.1 };
        assert!(
            (0..100).any(|key: i32| {
                let key = key.to_string();
                split.part_of(&Cell::Missing, &key) != other.part_of(&Cell::Missing, &key)
            }),
            "the seed should change the parts"
        );
    }

    #[test]
    fn times_are_compared_with_the_bounds() {
        let val_from = "2024-01-01".to_owned();
        let test_from = "2024-02-01".to_owned();
        let split = SplitSpec::Time { column: "at".into(), unit: TimeUnit::Seconds, val_from, test_from };
        let part = |text: &str| split.part_of(&Cell::Text(text), "");
        assert_eq!(part("2023-12-31T23:59:59"), Ok(Some(0)));
        assert_eq!(part("2024-01-01"), Ok(Some(1)));
        assert_eq!(part("2024-02-01"), Ok(Some(2)));
        assert_eq!(split.part_of(&Cell::Missing, ""), Ok(None));
        assert!(part("soon").is_err());
    }
}
