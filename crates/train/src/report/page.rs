//! `report.html`: a run on one self-contained page.

use std::collections::BTreeMap;

use super::classes::{self, ClassNames};
use super::html::{
    cell, count, duration, escape, memory, rounded, row, score, score_or_undefined, table, text_cell,
};
use super::links::LinkReport;
use super::stages;
use super::targets::TargetReport;
use crate::error::Result;
use crate::metric::confusion::ConfusionMatrix;
use crate::metric::kind::Metric;
use crate::report::curves::Curves;
use crate::run::metrics_file::EpochRow;
use crate::run::summary::Summary;

/// The note on the losses of a regression.
const SCALED_LOSSES: &str = "<p class=\"note\">Losses are those of standardised targets, metrics are in the units of the targets.</p>\n";

const STYLE: &str = include_str!("page.css");

/// The content security policy: the page can load nothing and run no scripts; only its inline style applies.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The content of a run's report page: `config.json`, `metrics.jsonl`, `summary.json` and the confusion matrix.
#[derive(Debug, Clone)]
pub struct ReportPage {
    /// The title, such as the model and the dataset.
    pub title: String,
    /// The settings of the run, by name.
    pub config: BTreeMap<String, String>,
    /// The lines of `metrics.jsonl`.
    pub epochs: Vec<EpochRow>,
    /// The result of the run.
    pub summary: Summary,
    /// The confusion matrix of the test split; `None` for tasks without classes.
    pub confusion: Option<ConfusionMatrix>,
    /// The target values and outputs of the test split; `None` for class labels and links.
    pub targets: Option<TargetReport>,
    /// The scores of the test split's links and negatives; `None` for tasks without links.
    pub links: Option<LinkReport>,
    /// The classes' names, by class; a class without a name is shown by its number.
    pub class_names: Vec<String>,
}

impl ReportPage {
    /// Renders the page as one HTML document that contains its style and drawings, has no scripts, and is well-formed
    /// XML. Equal runs give identical bytes. The page loads no resources. Names are escaped; as a second protection
    /// against markup in them, the content security policy forbids scripts and resources.
    ///
    /// # Errors
    /// Returns [`crate::RunError::Drawing`] if the curves cannot be drawn.
    pub fn to_html(&self) -> Result<String> {
        let mut page = String::new();
        page.push_str(&section("Learning curves", &self.curves()?));
        page.push_str(&section("Where the time went", &stages::section(&self.epochs, &self.config)));
        if let Some(matrix) = self.confusion.as_ref().filter(|matrix| 0 < matrix.margins().n_classes()) {
            let names = ClassNames(&self.class_names);
            page.push_str(&section("Confusion on the test split", &classes::confusion(matrix, names)));
            page.push_str(&section("Classes", &classes::scores(matrix, names)));
        }
        if let Some(targets) = &self.targets {
            page.push_str(&section(targets.title(), &targets.to_html(ClassNames(&self.class_names))?));
        }
        if let Some(links) = &self.links {
            page.push_str(&section("Scores of links and negatives on the test split", &links.to_html()?));
        }
        page.push_str(&section("Epochs", &self.epochs()));
        page.push_str(&section("Configuration", &self.configuration()));
        Ok(document("training run", &self.title, &self.tiles(), &page))
    }

    /// Renders the results, one number per tile.
    fn tiles(&self) -> String {
        let of = &self.summary;
        let best = match of.metric {
            _ if of.best_epoch == 0 => "no epoch was completed".to_owned(),
            _ if !of.has_validation() => "the last one: no validation split".to_owned(),
            Metric::Accuracy => format!("validation accuracy {}", score(of.val_accuracy)),
            metric => format!("validation {} {}", escape(metric.name()), score_or_undefined(of.val_metric)),
        };
        let epochs = format!("{} trained{}", count_of(of.n_epochs as u64, "epoch"), escape(&of.end()));
        let mapped = format!("anonymous, and {} of mapped files", memory(of.peak_rss_mapped_bytes));
        let hash = match of.weights_hash.as_str() {
            "" => "none".to_owned(),
            hash => format!("<code>sha256 {}</code>", escape(hash)),
        };
        let not_finite = match of.test_not_finite {
            0 => String::new(),
            n => tile("", "not finite", &count_of(n, "item"), "of the test split, which count in no metric"),
        };
        let peak_memory = match of.peak_rss_anon_bytes {
            // It is not known without /proc.
            0 => String::new(),
            n_bytes => tile("", "peak memory", &memory(n_bytes), &mapped),
        };
        let loss = of.loss.as_ref().map_or_else(String::new, |name| tile("", "loss", &escape(name), ""));
        let tiles = [
            self.metric_tiles(),
            not_finite,
            loss,
            tile("", "best epoch", &count(of.best_epoch as u64), &best),
            tile("", "time", &duration(of.seconds), &epochs),
            peak_memory,
            tile("wide", "weights of the best epoch", &hash, ""),
        ];
        format!("<dl class=\"tiles\">\n{}</dl>\n", tiles.concat())
    }

    /// Renders the metrics of the test split: three of labels, or all of regression or links, and the metric that selected the
    /// best epoch.
    fn metric_tiles(&self) -> String {
        let of = &self.summary;
        let named = |&(metric, value): &(Metric, Option<f64>)| {
            let class = if metric == of.metric { "first" } else { "" };
            tile(class, &format!("test {}", escape(metric.name())), &score_or_undefined(value), "")
        };
        if of.interrupted {
            return tile("first", "test", "none", "the run was interrupted");
        }
        if !of.has_test() {
            return tile("first", "test", "none", "the test split has no items");
        }
        if !of.is_of_labels() {
            return of.test_metrics.iter().map(named).collect();
        }
        let shown = [Metric::Accuracy, Metric::F1Macro, Metric::RocAuc];
        let other =
            of.test_metrics.iter().filter(|(metric, _)| *metric == of.metric && !shown.contains(metric));
        let class = |metric| if of.metric == metric { "first" } else { "" };
        let tiles = [
            other.map(named).collect(),
            tile(class(Metric::Accuracy), "test accuracy", &score(of.test_accuracy), ""),
            tile(class(Metric::F1Macro), "test macro F1", &score_or_undefined(of.test_f1_macro), ""),
            tile(class(Metric::RocAuc), "test ROC-AUC", &score_or_undefined(of.test_roc_auc), ""),
        ];
        tiles.concat()
    }

    fn curves(&self) -> Result<String> {
        if self.epochs.is_empty() {
            return Ok("<p class=\"note\">No epoch was recorded.</p>\n".into());
        }
        let svg = Curves::of(&self.epochs).to_svg()?;
        let label = match self.summary.metric {
            Metric::Accuracy => "loss and accuracy over the epochs, also in the table of epochs",
            _ => "loss and metric over the epochs, also in the table of epochs",
        };
        let note = match &self.targets {
            Some(targets) if targets.is_scaled => SCALED_LOSSES,
            _ => "",
        };
        Ok(format!("<figure class=\"curves\" role=\"img\" aria-label=\"{label}\">\n{svg}</figure>\n{note}"))
    }

    fn epochs(&self) -> String {
        if self.epochs.is_empty() {
            return "<p class=\"note\">No epoch was recorded.</p>\n".into();
        }
        let metric = match self.summary.metric {
            Metric::Accuracy => String::new(),
            metric => format!("validation {}", escape(metric.name())),
        };
        let has_accuracy = self.summary.is_of_labels();
        let has_validation = self.summary.has_validation();
        let columns = [
            ("epoch", true),
            ("training loss", true),
            ("training accuracy", has_accuracy),
            ("validation loss", has_validation),
            ("validation accuracy", has_validation && has_accuracy),
            (&metric, has_validation && !metric.is_empty()),
            ("steps", true),
            ("time", true),
            ("seeds/s", true),
            ("peak memory", true),
        ];
        let is_shown = columns.map(|(_, is_shown)| is_shown);
        let head: Vec<&str> =
            columns.iter().filter(|(_, is_shown)| *is_shown).map(|(name, _)| *name).collect();
        let best = self.summary.best_epoch;
        table("full", &head, self.epochs.iter().map(|epoch| epoch_row(epoch, best, &is_shown[1..])))
    }

    fn configuration(&self) -> String {
        if self.config.is_empty() {
            return "<p class=\"note\">No settings were recorded.</p>\n".into();
        }
        table(
            "full config",
            &["name", "value"],
            self.config.iter().map(|(name, value): (&String, &String)| {
                row(&escape(name), &text_cell(&format!("<code>{}</code>", escape(value))))
            }),
        )
    }
}

/// Renders an epoch as a row of the table, with the cells of the columns that are shown.
fn epoch_row(epoch: &EpochRow, best_epoch: usize, is_shown: &[bool]) -> String {
    let cells = [
        score(epoch.train_loss),
        score(epoch.train_accuracy),
        score(epoch.val_loss),
        score(epoch.val_accuracy),
        score_or_undefined(epoch.val_metric),
        count(epoch.n_steps as u64),
        duration(epoch.seconds),
        rounded(epoch.seeds_per_second),
        memory(epoch.peak_rss_anon_bytes),
    ];
    let cells = cells.iter().zip(is_shown).filter(|(_, is_shown)| **is_shown);
    let cells: String = cells.map(|(text, _)| cell(text)).collect();
    let mark = if epoch.epoch == best_epoch { "<span class=\"mark\">best</span>" } else { "" };
    row(&format!("{}{mark}", epoch.epoch), &cells)
}

/// Renders a document with the style of all pages. The title is text, the end of the header and the sections are HTML.
pub(super) fn document(kind: &str, title: &str, header: &str, sections: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
        <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\"/>\n\
        <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
        <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n\
        <p class=\"kind\">{kind}</p>\n<h1>{title}</h1>\n{header}</header>\n<main>\n{sections}</main>\n</body>\n</html>\n"
    )
}

pub(super) fn section(title: &str, html: &str) -> String {
    format!("<section>\n<h2>{title}</h2>\n{html}</section>\n")
}

fn tile(class: &str, name: &str, value: &str, remark: &str) -> String {
    let remark = if remark.is_empty() { String::new() } else { format!("<small>{remark}</small>") };
    format!("<div class=\"{class}\"><dt>{name}</dt><dd>{value}{remark}</dd></div>\n")
}

fn count_of(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}
