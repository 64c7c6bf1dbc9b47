//! The runs of a sweep as a Parquet file.

use std::fs;
use std::io;
use std::path::Path;

use kiln_store::whole_file::UNFINISHED;
use kiln_tables::{OutputColumn, RowWriter};
use kiln_train::RunRecord;

use crate::error::{Error, io_error};
use crate::table::{SweepRow, SweepTable};

/// The values of a flag in all runs: numbers if all are, otherwise texts.
enum Setting<'a> {
    Numbers(Vec<Option<f64>>),
    Texts(Vec<Option<&'a str>>),
}

impl<'a> Setting<'a> {
    fn new(rows: &'a [SweepRow], flag: &str) -> Self {
        let texts: Vec<Option<&str>> =
            rows.iter().map(|row| row.run.flags.get(flag).map(String::as_str)).collect();
        let numbers: Vec<Option<f64>> = texts.iter().map(|text| text.and_then(exact_number)).collect();
        let is_number = texts.iter().zip(&numbers).all(|(text, number)| text.is_some() == number.is_some());
        if is_number { Self::Numbers(numbers) } else { Self::Texts(texts) }
    }

    fn column(&self) -> OutputColumn<'_> {
        match self {
            Self::Numbers(numbers) => OutputColumn::OptionalF64(numbers),
            Self::Texts(texts) => OutputColumn::OptionalText(texts),
        }
    }
}

/// Parses a number that a double holds; `None` for texts and for larger whole numbers, such as some seeds.
fn exact_number(text: &str) -> Option<f64> {
    let is_large = text.parse::<i128>().is_ok_and(|whole| 1 << f64::MANTISSA_DIGITS < whole.abs());
    text.parse().ok().filter(|_| !is_large)
}

impl SweepTable {
    /// Writes a row for each run in the order of the plan: `run` and `cell`, the settings that the sweep varies and the seed by the names of
    /// their flags, `state`, `metric_name`, `validation` and `test` (the metric in the best epoch), `best_epoch`, `n_epochs`, `seconds` and
    /// `failure`. Settings are numbers if all of them are, otherwise texts. What a run does not have is null.
    ///
    /// # Errors
    /// Returns [`Error::Rows`] and [`Error::Io`] if the file cannot be written.
    pub fn write_rows(&self, file: &Path) -> Result<(), Error> {
        // Another process never sees a part of the file.
        let mut unfinished = file.as_os_str().to_owned();
        unfinished.push(UNFINISHED);
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error(unfinished)(error)),
            _ => {}
        }
        let mut writer = RowWriter::create(&unfinished)?;
        self.write_columns(&mut writer)?;
        writer.finish()?;
        fs::rename(&unfinished, file).map_err(io_error(file))
    }

    fn write_columns(&self, writer: &mut RowWriter) -> Result<(), Error> {
        let rows = &self.rows;
        let names: Vec<&str> = rows.iter().map(|row| row.run.name.as_str()).collect();
        let numbers: Vec<u32> = rows.iter().map(|row| row.run.cell as u32).collect();
        let flags: Vec<&str> = self.varied.iter().map(String::as_str).chain(["seed"]).collect();
        let settings: Vec<Setting<'_>> = flags.iter().map(|flag| Setting::new(rows, flag)).collect();
        let states: Vec<&str> = rows.iter().map(SweepRow::state).collect();
        let metrics: Vec<Option<&str>> = self.collect_values(|record| Some(record.metric().name()));
        let validations = self.collect_values(RunRecord::best_value);
        let tests = self.collect_values(RunRecord::test_value);
        let best_epochs = self.collect_values(|record| record.best_epoch().map(|row| row.epoch as u32));
        let n_epochs = self.collect_values(|record| Some(record.epochs.len() as u32));
        let seconds = self.collect_values(|record| Some(record.seconds()));
        let failures: Vec<Option<&str>> = rows.iter().map(|row| row.failure.as_deref()).collect();
        let mut columns = vec![("run", OutputColumn::Text(&names)), ("cell", OutputColumn::U32(&numbers))];
        columns.extend(flags.iter().copied().zip(settings.iter().map(Setting::column)));
        columns.extend([
            ("state", OutputColumn::Text(&states)),
            ("metric_name", OutputColumn::OptionalText(&metrics)),
            ("validation", OutputColumn::OptionalF64(&validations)),
            ("test", OutputColumn::OptionalF64(&tests)),
            ("best_epoch", OutputColumn::OptionalU32(&best_epochs)),
            ("n_epochs", OutputColumn::OptionalU32(&n_epochs)),
            ("seconds", OutputColumn::OptionalF64(&seconds)),
            ("failure", OutputColumn::OptionalText(&failures)),
        ]);
        Ok(writer.write(&columns)?)
    }

    /// Returns a value of each run that has a record.
    fn collect_values<T>(&self, value: impl Fn(&RunRecord) -> Option<T>) -> Vec<Option<T>> {
        self.rows.iter().map(|row| row.record.as_ref().and_then(&value)).collect()
    }
}
