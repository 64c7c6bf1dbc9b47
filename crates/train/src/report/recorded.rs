//! The report page of a run from the files in its folder.

use std::path::{Path, PathBuf};

use kiln_feature::{TargetKind, TargetScaler};
use kiln_nn::TargetLoss;
use kiln_store::csv::{fields, lines};
use kiln_store::whole_file::{read_text, read_whole, write_whole};

use crate::error::{Error, Result, RunError};
use crate::evaluate::evaluation::Evaluation;
use crate::evaluate::validation::Validation;
use crate::metric::confusion::ConfusionMatrix;
use crate::report::page::ReportPage;
use crate::report::targets::TargetReport;
use crate::run::summary::{Best, FitReport, Summary};
use crate::runs::record::{RunRecord, RunState};
use crate::saved::info::{ModelInfo, ModelInputs};
use crate::saved::model_file::{MODEL_FILE, MOST_MODEL_BYTES};
use crate::step::memory::MemoryUse;
use crate::step::task::metric_sums::MetricSums;
use crate::step::task::objective::Objective;
use crate::step::task::task_objective::TaskObjective;
use crate::step::weights::hash;

/// The page of a run that has ended, which the run wrote itself.
const PAGE: &str = "report.html";

impl RunRecord {
    /// Writes the report page of the run to `file`, by default to `report.html` in its folder, and returns its path. The page of a
    /// finished run is that which the run wrote, except that for links, the scores of negatives are in no other file of the
    /// folder. The page of another run has the epochs so far.
    ///
    /// ```no_run
    /// use kiln_train::RunRecord;
    /// let page = RunRecord::read("runs/train-001")?.write_report(None)?;
    /// println!("{}", page.display());
    /// # Ok::<(), kiln_train::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`RunError::Io`] if a file cannot be read or written, [`RunError::BadFile`] if it is damaged or if the page in the
    /// folder has scores that would be lost, and [`RunError::Drawing`] if the curves cannot be drawn.
    pub fn write_report(&self, file: Option<&Path>) -> Result<PathBuf> {
        let own = self.folder.join(PAGE);
        let path = file.map_or_else(|| own.clone(), Path::to_owned);
        let inputs = self.inputs()?;
        let is_of_links = inputs.as_ref().is_some_and(|inputs| inputs.targets == TargetKind::Links);
        if path == own && is_of_links && self.state == RunState::Finished && own.exists() {
            let reason = "this page has the scores of negatives, which the other files of the run lack: it is kept; name another \
                file for a page without them";
            return Err(Error::Run(RunError::BadFile { path, reason: reason.to_owned() }));
        }
        let page = self.to_page(inputs.as_ref())?.to_html()?;
        write_whole(&path, page.as_bytes())
            .map_err(|source| Error::Run(RunError::Io { path: path.clone(), source }))?;
        Ok(path)
    }

    /// Returns the content of the page.
    fn to_page(&self, inputs: Option<&ModelInputs>) -> Result<ReportPage> {
        let name =
            inputs.map_or_else(|| self.folder.display().to_string(), |inputs| inputs.data_name.clone());
        // Runs of the program have its flags.
        let is_of_program = self.settings.contains_key("task") && inputs.is_some();
        let mut page = ReportPage {
            title: if is_of_program { format!("kiln train on {name}") } else { name },
            config: self.settings.clone(),
            epochs: self.epochs.clone(),
            summary: self.summary.clone().map_or_else(|| self.summary_so_far(), Ok)?,
            confusion: None,
            targets: None,
            links: None,
            class_names: inputs.map(|inputs| inputs.class_names.clone()).unwrap_or_default(),
        };
        let path = self.folder.join("test_predictions.csv");
        if let Some(inputs) = inputs.filter(|_| path.is_file()) {
            let text =
                read_text(&path).map_err(|source| Error::Run(RunError::Io { path: path.clone(), source }))?;
            let bad = |reason: String| Error::Run(RunError::BadFile { path: path.clone(), reason });
            match inputs.targets {
                TargetKind::Classes => {
                    page.confusion = Some(read_confusion(&text, inputs.n_outputs).map_err(bad)?);
                }
                TargetKind::MultiLabel | TargetKind::Regression => {
                    page.targets = TargetReport::of(&read_targets(&text, inputs).map_err(bad)?);
                }
                TargetKind::Links => {}
            }
        }
        Ok(page)
    }

    /// Returns the inputs of the model; `None` for a run without a description of its model.
    fn inputs(&self) -> Result<Option<ModelInputs>> {
        let path = self.folder.join(MODEL_FILE);
        if !path.is_file() {
            return Ok(None);
        }
        let bytes = read_whole(&path, MOST_MODEL_BYTES)
            .map_err(|source| Error::Run(RunError::Io { path: path.clone(), source }))?;
        Ok(Some(ModelInfo::parse(&bytes, &path)?.inputs))
    }

    /// Returns the summary of a run that has written none.
    fn summary_so_far(&self) -> Result<Summary> {
        let peak = self.epochs.iter().map(|row| row.peak_rss_anon_bytes).max().unwrap_or(0);
        let fit = FitReport {
            n_epochs: self.epochs.len(),
            interrupted: true,
            peak_memory: MemoryUse { anon_bytes: peak, ..MemoryUse::default() },
            ..FitReport::default()
        };
        let elapsed = std::time::Duration::try_from_secs_f64(self.seconds()).unwrap_or_default();
        let Some(row) = self.best_epoch() else {
            return Ok(Summary::summarize_interrupted(None, &fit, elapsed));
        };
        let weights = self.folder.join("best.safetensors");
        let weights_hash = match weights.is_file() {
            true => hash(
                &read_whole(&weights, u64::MAX)
                    .map_err(|source| Error::Run(RunError::Io { path: weights, source }))?,
            ),
            false => String::new(),
        };
        let validation = Validation {
            sums: MetricSums::default(),
            metric: self.metric(),
            value: Self::value_of(row),
            wall: None,
        };
        let summary = Summary::summarize_interrupted(
            Some(&Best::new(row.epoch, validation, weights_hash)),
            &fit,
            elapsed,
        );
        // The sums of the validation are in no file: its accuracy is.
        let val_accuracy =
            if row.val_accuracy.is_nan() { row.val_metric.unwrap_or(f64::NAN) } else { row.val_accuracy };
        Ok(Summary { val_accuracy, ..summary })
    }
}

/// Reads the confusion matrix of the lines `item,...,label,predicted`. Items without a prediction are left out.
fn read_confusion(text: &str, n_classes: usize) -> std::result::Result<ConfusionMatrix, String> {
    let mut matrix = ConfusionMatrix::new(n_classes);
    let n_columns = n_columns_of(text);
    for (position, line) in lines(text).enumerate().skip(1) {
        let bad = || {
            format!("line {}: expected `item,label,predicted` with classes below {n_classes}", position + 1)
        };
        let fields: Vec<&str> = fields(line).collect();
        let [_, .., label, predicted] = fields[..] else { return Err(bad()) };
        if fields.len() != n_columns {
            return Err(bad());
        }
        if predicted.is_empty() {
            continue;
        }
        let class = |text: &str| text.parse().ok().filter(|class| (*class as usize) < n_classes);
        let (Some(label), Some(predicted)) = (class(label), class(predicted)) else { return Err(bad()) };
        matrix.add(label, predicted);
    }
    Ok(matrix)
}

/// Returns the number of columns of a file. Those of edges have the ends between the item and its targets.
fn n_columns_of(text: &str) -> usize {
    lines(text).next().map_or(0, |header| fields(header).count())
}

/// Reads the targets and the outputs of the lines `item,...,target_0,...,output_0,...`. An empty field is NaN.
fn read_targets(text: &str, inputs: &ModelInputs) -> std::result::Result<Evaluation, String> {
    let n_outputs = inputs.n_outputs;
    let objective = match inputs.targets {
        TargetKind::Regression => Objective::Regression(TargetLoss::SquaredError),
        _ => Objective::MultiLabel,
    };
    let scaler: Option<TargetScaler> = inputs.target_scaler.clone();
    let mut evaluation = Evaluation::new(TaskObjective::from(objective).with_target_scaler(scaler));
    evaluation.n_outputs = n_outputs;
    let n_columns = n_columns_of(text);
    for (position, line) in lines(text).enumerate().skip(1) {
        let bad = || {
            format!("line {}: expected an item, {n_outputs} targets and {n_outputs} outputs", position + 1)
        };
        let fields: Vec<&str> = fields(line).collect();
        let n_others = fields.len().checked_sub(2 * n_outputs).filter(|n_others| 0 < *n_others);
        let n_others = n_others.filter(|_| fields.len() == n_columns).ok_or_else(bad)?;
        evaluation.items.push(fields[0].parse().map_err(|_| bad())?);
        let numbers = fields[n_others..].iter().map(|field| parse_number(field));
        let numbers: Vec<f32> = numbers.collect::<Option<_>>().ok_or_else(bad)?;
        evaluation.values.extend(&numbers[..n_outputs]);
        evaluation.outputs.extend(&numbers[n_outputs..]);
    }
    Ok(evaluation)
}

fn parse_number(text: &str) -> Option<f32> {
    if text.is_empty() { Some(f32::NAN) } else { text.parse().ok() }
}
