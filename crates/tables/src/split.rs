//! The split of nodes.

use crate::hash::{hash_bytes, mix};
use crate::spec::SplitSpec;
use crate::table::Cell;
use crate::times::TimeReader;

/// The names of the parts in a column.
const PARTS: [&str; 3] = ["train", "val", "test"];

impl SplitSpec {
    /// Returns the columns of the split.
    pub(crate) fn columns(&self) -> Vec<&str> {
        match self {
            Self::Column { column } | Self::Steps { column, .. } => vec![column],
            Self::Time(split) => vec![&split.column],
            Self::Masks { .. } => self.masks().into_iter().map(|(_, column)| column).collect(),
            Self::Random { .. } => Vec::new(),
        }
    }

    /// Returns the part and the column of each mask.
    fn masks(&self) -> Vec<(usize, &str)> {
        let Self::Masks { train, val, test } = self else { return Vec::new() };
        let columns = [Some(train), val.as_ref(), test.as_ref()];
        columns.into_iter().enumerate().filter_map(|(part, column)| Some((part, column?.as_str()))).collect()
    }

    /// Returns the part of a row: 0 for training, 1 for validation and 2 for test. `cells` are the values of the split's columns. The
    /// error has the position of the column and the expected value.
    pub(crate) fn part_of(
        &self,
        cells: &[Cell<'_>],
        key: &str,
    ) -> Result<Option<usize>, (usize, &'static str)> {
        match self {
            Self::Masks { .. } => self.masked_part(cells),
            _ => self
                .part_of_cell(cells.first().unwrap_or(&Cell::Missing), key)
                .map_err(|expected| (0, expected)),
        }
    }

    /// Returns the part whose mask is true.
    fn masked_part(&self, cells: &[Cell<'_>]) -> Result<Option<usize>, (usize, &'static str)> {
        let mut found = None;
        for (position, ((part, _), cell)) in self.masks().into_iter().zip(cells).enumerate() {
            let is_in = match cell.value() {
                Cell::Missing | Cell::Bool(false) | Cell::Int(0) => false,
                Cell::Bool(true) | Cell::Int(1) => true,
                Cell::Float(value) if value == 0.0 || value == 1.0 => value == 1.0,
                _ => return Err((position, "true, false, 1, 0 or a missing value")),
            };
            if is_in && found.replace(part).is_some() {
                return Err((position, "false, because the row is in the part of another mask"));
            }
        }
        Ok(found)
    }

    fn part_of_cell(&self, cell: &Cell<'_>, key: &str) -> Result<Option<usize>, &'static str> {
        match self {
            // `part_of` has the masks of all columns.
            Self::Masks { .. } => Ok(None),
            Self::Column { .. } => {
                let mut buffer = String::new();
                let Some(name) = cell.text(&mut buffer)? else { return Ok(None) };
                let part = PARTS.iter().position(|part| *part == name);
                part.map(Some).ok_or("train, val, test or a missing value")
            }
            Self::Steps { val_from, test_from, .. } => {
                let step = match cell.value() {
                    Cell::Missing => return Ok(None),
                    Cell::Int(step) => step,
                    // Integers with missing values become floating-point numbers in pandas.
                    Cell::Float(step) if step.fract() == 0.0 => step as i128,
                    _ => return Err("an integer or a missing value"),
                };
                let is_from = |first: &i64| i128::from(*first) <= step;
                Ok(Some(usize::from(is_from(val_from)) + usize::from(is_from(test_from))))
            }
            Self::Random { seed, train, val, test } => {
                // The upper 53 bits as a number from 0 to 1.
                let draw = (mix(hash_bytes(key.as_bytes()) ^ mix(*seed)) >> 11) as f64 / (1_u64 << 53) as f64;
                let ends = [*train, train + val, train + val + test];
                Ok(ends.iter().position(|end| draw < *end))
            }
            Self::Time(spec) => {
                let Some(time) = TimeReader::new(&spec.time()).read(cell)? else { return Ok(None) };
                // The check of a spec requires borders, and quantiles became borders.
                Ok(spec.split().and_then(|split| split.part_of(time)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{TimeBorder, TimeSplitSpec, TimeUnit};
    use crate::table::text_cell;

    #[test]
    fn random_parts_have_their_shares() {
        let split = SplitSpec::Random { seed: 7, train: 0.5, val: 0.2, test: 0.1 };
        let mut counts = [0_i32; 4];
        for key in 0..10_000 {
            let part = split.part_of(&[], &key.to_string()).unwrap();
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
                split.part_of(&[], &key) != other.part_of(&[], &key)
            }),
            "the seed should change the parts"
        );
    }

    #[test]
    fn times_are_compared_with_the_bounds() {
        let border = |text: &str| Some(TimeBorder::Text(text.to_owned()));
        let split = SplitSpec::Time(TimeSplitSpec {
            column: "at".into(),
            unit: TimeUnit::Seconds,
            zone: None,
            train: border("2023-06-01"),
            val: border("2024-01-01"),
            test: border("2024-02-01"),
            quantiles: None,
        });
        let part = |text: &str| split.part_of(&[Cell::Text(text)], "");
        assert_eq!(part("2023-05-31"), Ok(None));
        assert_eq!(part("2023-06-01"), Ok(Some(0)));
        assert_eq!(part("2023-12-31T23:59:59"), Ok(Some(0)));
        assert_eq!(part("2024-01-01"), Ok(Some(1)));
        assert_eq!(part("2024-02-01"), Ok(Some(2)));
        assert_eq!(split.part_of(&[Cell::Missing], ""), Ok(None));
        assert!(part("soon").is_err());
    }

    #[test]
    fn masks_and_steps_have_one_part() {
        let masks = SplitSpec::Masks { train: "a".into(), val: None, test: Some("b".into()) };
        let part = |train: &str, test: &str| masks.part_of(&[text_cell(train), text_cell(test)], "");
        for (train, test, expected) in [
            ("True", "False", Ok(Some(0))),
            ("0", "1", Ok(Some(2))),
            ("0.0", "", Ok(None)),
            ("", "1.0", Ok(Some(2))),
            ("true", "TRUE", Err(1)),
            ("yes", "", Err(0)),
            ("", "2", Err(1)),
        ] {
            assert_eq!(part(train, test).map_err(|(position, _)| position), expected, "{train}, {test}");
        }
        let steps = SplitSpec::Steps { column: "step".into(), val_from: 35, test_from: 40 };
        for (step, expected) in [
            (Cell::Int(-1), Ok(Some(0))),
            (Cell::Int(34), Ok(Some(0))),
            (Cell::Float(35.0), Ok(Some(1))),
            (Cell::Text("39"), Ok(Some(1))),
            (Cell::Int(i128::MAX), Ok(Some(2))),
            (Cell::Missing, Ok(None)),
            (Cell::Float(35.5), Err(())),
            (Cell::Bool(true), Err(())),
        ] {
            assert_eq!(steps.part_of(std::slice::from_ref(&step), "").map_err(drop), expected, "{step:?}");
        }
    }
}
