use std::collections::BTreeMap;
use std::fs;

use crate::error::{Error, Result};
use crate::evaluate::metrics::ConfusionMatrix;
use crate::report::page::ReportPage;
use crate::run::folder::RunFolder;
use crate::run::summary::Summary;

impl RunFolder {
    /// Writes `report.html`: the run as its files have it, with what it said of the test split.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::BadFile`] or [`Error::Drawing`].
    pub fn write_report(
        &self,
        title: &str,
        summary: &Summary,
        confusion: ConfusionMatrix,
        class_names: &[String],
    ) -> Result<()> {
        let page = ReportPage {
            title: title.to_owned(),
            config: self.config()?,
            epochs: self.epochs().to_vec(),
            summary: summary.clone(),
            confusion: Some(confusion),
            class_names: class_names.to_vec(),
        };
        self.write("report.html", page.to_html()?.as_bytes())
    }

    /// What stands in `config.json`, a setting an entry.
    fn config(&self) -> Result<BTreeMap<String, String>> {
        let path = self.path().join("config.json");
        let text = fs::read_to_string(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
        let config = serde_json::from_str::<BTreeMap<String, serde_json::Value>>(&text);
        let config = config.map_err(|error| Error::BadFile { path, reason: error.to_string() })?;
        let plain = |value: serde_json::Value| match value {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        Ok(config.into_iter().map(|(name, value)| (name, plain(value))).collect())
    }
}
