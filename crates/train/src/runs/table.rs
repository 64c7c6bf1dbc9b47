use std::collections::BTreeSet;
use std::fmt;

use kiln_store::AlignedTable;

use super::record::{RunRecord, RunState};
use super::setting::are_equal_settings;
use crate::metric::kind::Metric;

/// Settings that name the folder of a run or the form of its lines, in which every two runs may differ.
const NOT_COMPARED: [&str; 4] = ["out", "resume", "continue", "log-format"];

/// Runs beside each other: the settings in which they differ, their metric and time, the best first.
///
/// Runs by the same metric are neighbours, in the order of its value on the validation split; runs without a value come last.
///
/// ```no_run
/// use kiln_train::{RunRecord, RunTable, find_runs};
/// let runs = find_runs("runs")?.into_iter().map(RunRecord::read).collect::<Result<Vec<_>, _>>()?;
/// println!("{}", RunTable::new(runs));
/// # Ok::<(), kiln_train::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct RunTable {
    /// The runs, the best first.
    pub runs: Vec<RunRecord>,
    /// The names of the settings that not all runs have with the same value.
    pub differing: Vec<String>,
}

impl RunTable {
    /// Compares runs.
    pub fn new(mut runs: Vec<RunRecord>) -> Self {
        runs.sort_by(|one, other| {
            let metric = one.metric();
            let order = metric.name().cmp(other.metric().name());
            let values = [one.best_value(), other.best_value()];
            let is_before = metric.is_better(values[0], values[1]);
            let is_after = metric.is_better(values[1], values[0]);
            order.then(is_after.cmp(&is_before)).then_with(|| one.folder.cmp(&other.folder))
        });
        let names: BTreeSet<&String> = runs.iter().flat_map(|run| run.settings.keys()).collect();
        let mut differing = Vec::new();
        for name in names {
            let mut values = runs.iter().map(|run| run.settings.get(name).map_or("", String::as_str));
            let first = values.next().unwrap_or_default();
            let differs = values.any(|value| !are_equal_settings(value, first));
            if differs && !NOT_COMPARED.contains(&name.as_str()) {
                differing.push(name.clone());
            }
        }
        Self { runs, differing }
    }

    /// Returns the metric of all runs; `None` if they have several.
    pub(crate) fn metric(&self) -> Option<Metric> {
        let first = self.runs.first().map(RunRecord::metric)?;
        self.runs.iter().all(|run| run.metric() == first).then_some(first)
    }

    /// Returns the headings of the columns: those of the result, then the differing settings.
    pub(crate) fn headings(&self) -> Vec<String> {
        let metric = self.metric().map_or_else(String::new, |metric| format!(" {metric}"));
        let mut headings = vec!["run".to_owned(), format!("validation{metric}"), format!("test{metric}")];
        if self.metric().is_none() {
            headings.insert(1, "metric".to_owned());
        }
        headings.extend(["best epoch", "epochs", "time", "state"].map(str::to_owned));
        headings.extend(self.differing.iter().cloned());
        headings
    }

    /// Returns the cells of a run. What it does not have is empty.
    pub(crate) fn cells(&self, run: &RunRecord) -> Vec<String> {
        let score = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.4}"));
        let best = run.best_epoch().map_or_else(String::new, |row| row.epoch.to_string());
        let mut cells =
            vec![run.folder.display().to_string(), score(run.best_value()), score(run.test_value())];
        if self.metric().is_none() {
            cells.insert(1, run.metric().to_string());
        }
        let has_stopped_early = run.summary.as_ref().is_some_and(|summary| summary.stopped_early);
        let state = match run.state {
            RunState::Finished if has_stopped_early => "stopped early",
            state => state.name(),
        };
        let time = format!("{:.1} s", run.seconds());
        cells.extend([best, run.epochs.len().to_string(), time, state.to_owned()]);
        cells.extend(self.differing.iter().map(|name| run.settings.get(name).cloned().unwrap_or_default()));
        cells
    }
}

/// Writes the table with columns of equal widths, a line per run.
impl fmt::Display for RunTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.runs.iter().map(|run| self.cells(run)).collect();
        AlignedTable { headings: self.headings(), rows }.fmt(f)
    }
}
