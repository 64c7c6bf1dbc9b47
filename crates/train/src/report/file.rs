use std::collections::BTreeMap;

use kiln_feature::TargetKind;
use kiln_store::whole_file::read_text;

use crate::error::{Error, Result, RunError};
use crate::evaluate::evaluation::Evaluation;
use crate::report::links::LinkReport;
use crate::report::page::ReportPage;
use crate::report::targets::TargetReport;
use crate::run::folder::RunFolder;
use crate::run::summary::Summary;

impl RunFolder {
    /// Writes `report.html` from the files of the run, the summary and the evaluation of the test split.
    ///
    /// # Errors
    /// Returns [`RunError::Io`] if a file cannot be read or written, [`RunError::BadFile`] for a `config.json` that
    /// cannot be parsed, or [`RunError::Drawing`] if the curves cannot be drawn.
    pub fn write_report(
        &self,
        title: &str,
        summary: &Summary,
        test: &Evaluation,
        class_names: &[String],
    ) -> Result<()> {
        let page = ReportPage {
            title: title.to_owned(),
            config: self.config()?,
            epochs: self.epochs().to_vec(),
            summary: summary.clone(),
            confusion: (test.kind() == TargetKind::Classes).then(|| test.confusion_matrix()),
            targets: TargetReport::of(test),
            links: LinkReport::of(test),
            class_names: class_names.to_vec(),
        };
        self.write("report.html", page.to_html()?.as_bytes())
    }

    /// Reads the settings in `config.json`, with each value as text.
    fn config(&self) -> Result<BTreeMap<String, String>> {
        let path = self.path().join("config.json");
        let text =
            read_text(&path).map_err(|source| Error::Run(RunError::Io { path: path.clone(), source }))?;
        let config = serde_json::from_str::<BTreeMap<String, serde_json::Value>>(&text);
        let config =
            config.map_err(|error| Error::Run(RunError::BadFile { path, reason: error.to_string() }))?;
        let plain = |value: serde_json::Value| match value {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        Ok(config.into_iter().map(|(name, value)| (name, plain(value))).collect())
    }
}
