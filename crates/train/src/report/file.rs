use kiln_feature::TargetKind;

use crate::error::Result;
use crate::evaluate::evaluation::Evaluation;
use crate::report::links::LinkReport;
use crate::report::page::ReportPage;
use crate::report::targets::TargetReport;
use crate::run::folder::RunFolder;
use crate::run::summary::Summary;
use crate::runs::setting::read_settings;

impl RunFolder {
    /// Writes `report.html` from the files of the run, the summary and the evaluation of the test split.
    ///
    /// # Errors
    /// Returns [`crate::RunError::Io`] if a file cannot be read or written, [`crate::RunError::BadFile`] for a `config.json` that
    /// cannot be parsed, or [`crate::RunError::Drawing`] if the curves cannot be drawn.
    pub fn write_report(
        &self,
        title: &str,
        summary: &Summary,
        test: &Evaluation,
        class_names: &[String],
    ) -> Result<()> {
        let page = ReportPage {
            title: title.to_owned(),
            config: read_settings(self.path())?,
            epochs: self.epochs().to_vec(),
            summary: summary.clone(),
            confusion: (test.kind() == TargetKind::Classes).then(|| test.confusion_matrix()),
            targets: TargetReport::of(test),
            links: LinkReport::of(test),
            class_names: class_names.to_vec(),
        };
        self.write("report.html", page.to_html()?.as_bytes())
    }
}
