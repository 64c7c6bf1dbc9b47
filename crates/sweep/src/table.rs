use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use kiln_store::AlignedTable;
use kiln_train::{MeanAndDeviation, Metric, RunRecord, RunState, RunTable};

use crate::error::Error;
use crate::plan::Flags;
use crate::record::SweepRun;

/// A run of a sweep and its result.
#[derive(Debug, Clone)]
pub struct SweepRow {
    /// The run.
    pub run: SweepRun,
    /// The record in its folder; `None` before its first checkpoint.
    pub record: Option<RunRecord>,
    /// The reason if the run has failed.
    pub failure: Option<String>,
}

impl SweepRow {
    /// Returns the state of the run, a word: `waiting`, `failed`, or that of its folder.
    pub fn state(&self) -> &'static str {
        match (&self.failure, &self.record) {
            _ if self.finished().is_some() => RunState::Finished.name(),
            (Some(_), _) => "failed",
            (None, None) => "waiting",
            (None, Some(record)) => record.state.name(),
        }
    }

    /// Returns the record of a run that has finished.
    fn finished(&self) -> Option<&RunRecord> {
        self.record.as_ref().filter(|record| record.state == RunState::Finished)
    }
}

/// The runs of a cell, which differ in their seeds only.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepCell {
    /// The number of the cell, from 1.
    pub number: usize,
    /// The values of the settings that the sweep varies.
    pub settings: Vec<String>,
    /// The number of runs.
    pub n_runs: usize,
    /// The number of runs that have finished. The other fields are about them.
    pub n_finished: usize,
    /// The metric that selects the best epoch; `None` before a run has finished.
    pub metric: Option<Metric>,
    /// The mean and the sample deviation of the metric on the validation split; `None` if a run has no value.
    pub validation: Option<MeanAndDeviation>,
    /// The same on the test split.
    pub test: Option<MeanAndDeviation>,
    /// The mean time of all epochs of a run, in seconds; NaN without runs.
    pub seconds: f64,
}

/// The cells of a sweep, the best first: by the mean of the metric on the validation split. Cells by the same metric are neighbours, and
/// those without a mean come last.
#[derive(Debug, Clone)]
pub struct SweepTable {
    /// The names of the settings that the sweep varies, except the seed.
    pub varied: Vec<String>,
    /// The cells, the best first.
    pub cells: Vec<SweepCell>,
    /// The runs in the order of the plan.
    pub rows: Vec<SweepRow>,
}

impl SweepTable {
    /// Groups runs by their cells.
    pub(crate) fn new(varied: Vec<String>, rows: Vec<SweepRow>) -> Self {
        let mut of_cells: BTreeMap<usize, Vec<&SweepRow>> = BTreeMap::new();
        for row in &rows {
            of_cells.entry(row.run.cell).or_default().push(row);
        }
        let mut cells: Vec<SweepCell> = Vec::new();
        for (number, of_cell) in of_cells {
            cells.push(SweepCell::new(number, &varied, &of_cell));
        }
        cells.sort_by(|one, other| {
            let means = [one, other].map(|cell| cell.validation.map(|validation| validation.mean));
            let metric = one.metric.or(other.metric).unwrap_or(Metric::Accuracy);
            let is_before = metric.is_better(means[0], means[1]);
            let is_after = metric.is_better(means[1], means[0]);
            let names = [one, other].map(|cell| cell.metric.map(Metric::name));
            // A cell without a metric has no finished run.
            let order = names[0].is_none().cmp(&names[1].is_none()).then(names[0].cmp(&names[1]));
            order.then(is_after.cmp(&is_before)).then(one.number.cmp(&other.number))
        });
        Self { varied, cells, rows }
    }

    /// Returns the metric of all cells that have one; `None` if they have several.
    fn metric(&self) -> Option<Metric> {
        let mut metrics = self.cells.iter().filter_map(|cell| cell.metric);
        let first = metrics.next()?;
        metrics.all(|metric| metric == first).then_some(first)
    }

    /// Returns the cells as texts: the settings, the number of runs, mean and deviation of the metric, and the time.
    pub fn to_text(&self) -> AlignedTable {
        let metric = self.metric();
        let has_several = metric.is_none() && self.cells.iter().any(|cell| cell.metric.is_some());
        let suffix = metric.map_or_else(String::new, |metric| format!(" {metric}"));
        let mut headings = vec!["cell".to_owned()];
        headings.extend(self.varied.iter().cloned());
        headings.push("runs".to_owned());
        if has_several {
            headings.push("metric".to_owned());
        }
        headings.extend([format!("validation{suffix}"), format!("test{suffix}"), "time".to_owned()]);
        let rows = self.cells.iter().map(|cell| cell.to_texts(has_several)).collect();
        AlignedTable { headings, rows }
    }

    /// Returns the runs with their settings and states, for a list of what a sweep would do.
    pub fn list_runs(&self) -> AlignedTable {
        let mut headings = vec!["run".to_owned(), "state".to_owned()];
        headings.extend(self.varied.iter().cloned());
        headings.push("seed".to_owned());
        let mut rows = Vec::new();
        for row in &self.rows {
            let mut cells = vec![row.run.name.clone(), row.state().to_owned()];
            let settings = self.varied.iter().map(String::as_str).chain(["seed"]);
            cells.extend(settings.map(|flag| row.run.flags.get(flag).cloned().unwrap_or_default()));
            rows.push(cells);
        }
        AlignedTable { headings, rows }
    }

    /// Writes `sweep.html` and, with the feature `tables`, `sweep.parquet` to the folder of the sweep. Returns their paths.
    ///
    /// # Errors
    /// Returns the errors of [`write_page`](Self::write_page) and of `write_rows`.
    pub fn write_files(&self, folder: &Path) -> Result<Vec<PathBuf>, Error> {
        let page = folder.join("sweep.html");
        self.write_page(&page)?;
        #[cfg_attr(not(feature = "tables"), allow(unused_mut, reason = "there is one file"))]
        let mut files = vec![page];
        #[cfg(feature = "tables")]
        {
            let rows = folder.join("sweep.parquet");
            self.write_rows(&rows)?;
            files.push(rows);
        }
        Ok(files)
    }

    /// Writes the cells, the runs and their curves as one self-contained page.
    ///
    /// # Errors
    /// Returns [`Error::Page`] if the page cannot be written.
    pub fn write_page(&self, file: &Path) -> Result<(), Error> {
        let records = self.rows.iter().filter_map(|row| row.record.clone()).collect();
        Ok(RunTable::new(records).write_page_with_tables(&[("Cells", &self.to_text())], file)?)
    }
}

/// Writes the cells with columns of equal widths.
impl fmt::Display for SweepTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_text().fmt(f)
    }
}

impl SweepCell {
    fn new(number: usize, varied: &[String], rows: &[&SweepRow]) -> Self {
        let flags = rows.first().map(|row| &row.run.flags);
        let finished: Vec<&RunRecord> = rows.iter().filter_map(|row| row.finished()).collect();
        let seconds = finished.iter().map(|record| record.seconds());
        Self {
            number,
            settings: varied.iter().map(|flag| value_of(flags, flag)).collect(),
            n_runs: rows.len(),
            n_finished: finished.len(),
            metric: finished.first().map(|record| record.metric()),
            validation: mean_of(&finished, RunRecord::best_value),
            test: mean_of(&finished, RunRecord::test_value),
            seconds: MeanAndDeviation::estimate(seconds).mean,
        }
    }

    fn to_texts(&self, has_metric: bool) -> Vec<String> {
        let mut texts = vec![self.number.to_string()];
        texts.extend(self.settings.iter().cloned());
        texts.push(match self.n_finished == self.n_runs {
            true => self.n_runs.to_string(),
            false => format!("{} of {}", self.n_finished, self.n_runs),
        });
        if has_metric {
            texts.push(self.metric.map_or_else(String::new, |metric| metric.to_string()));
        }
        texts.extend([self.validation, self.test].map(|value| self.describe(value)));
        texts.push(if self.n_finished == 0 { String::new() } else { format!("{:.1} s", self.seconds) });
        texts
    }

    fn describe(&self, value: Option<MeanAndDeviation>) -> String {
        match value {
            _ if self.n_finished == 0 => String::new(),
            None => "none".to_owned(),
            Some(MeanAndDeviation { mean, deviation }) if deviation.is_nan() => format!("{mean:.4} ± –"),
            Some(MeanAndDeviation { mean, deviation }) => format!("{mean:.4} ± {deviation:.4}"),
        }
    }
}

/// Returns the value of a flag, empty without it.
fn value_of(flags: Option<&Flags>, flag: &str) -> String {
    flags.and_then(|flags| flags.get(flag)).cloned().unwrap_or_default()
}

/// Returns the mean and the sample deviation of a value of runs; `None` if one of them has none: a mean of the others would hide a run that
/// has diverged.
fn mean_of(runs: &[&RunRecord], value: impl Fn(&RunRecord) -> Option<f64>) -> Option<MeanAndDeviation> {
    let values: Option<Vec<f64>> = runs.iter().map(|run| value(run)).collect();
    let values = values.filter(|values| !values.is_empty())?;
    Some(MeanAndDeviation::estimate(values.into_iter()))
}
