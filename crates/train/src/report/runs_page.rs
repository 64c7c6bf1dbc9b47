//! Several runs on one page: a table, and their curves together.

use std::path::Path;

use kiln_store::AlignedTable;
use kiln_store::whole_file::write_whole;
use plotters::style::{Color, HSLColor, RGBColor};

use super::curves::{Chart, Line, draw_charts};
use super::html::{escape, row, table, text_cell};
use super::page::{document, section};
use crate::error::{Error, Result, RunError};
use crate::run::metrics_file::EpochRow;
use crate::runs::record::RunRecord;
use crate::runs::table::RunTable;

/// The maximum number of runs whose curves are drawn: more colours cannot be told apart.
const MAX_DRAWN: usize = 20;

impl RunTable {
    /// Writes the runs as one self-contained page: the table, with the colour of each run, and the curves of the best 20.
    ///
    /// # Errors
    /// Returns [`RunError::Io`] if the file cannot be written, and [`RunError::Drawing`] if the curves cannot be drawn.
    pub fn write_page(&self, file: &Path) -> Result<()> {
        self.write_page_with_tables(&[], file)
    }

    /// Same as [`write_page`](Self::write_page), but other tables with their titles precede the table of the runs.
    ///
    /// ```
    /// use kiln_store::AlignedTable;
    /// use kiln_train::RunTable;
    /// let folder = tempfile::tempdir()?;
    /// let cells = AlignedTable { headings: vec!["lr".into()], rows: vec![vec!["0.01".into()]] };
    /// let page = folder.path().join("sweep.html");
    /// RunTable::new(Vec::new()).write_page_with_tables(&[("Cells", &cells)], &page)?;
    /// assert!(std::fs::read_to_string(page)?.contains("<h2>Cells</h2>"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`write_page`](Self::write_page).
    pub fn write_page_with_tables(&self, tables: &[(&str, &AlignedTable)], file: &Path) -> Result<()> {
        let page = self.render(tables)?;
        write_whole(file, page.as_bytes())
            .map_err(|source| Error::Run(RunError::Io { path: file.to_owned(), source }))
    }

    /// Renders the page. Equal runs give identical bytes.
    ///
    /// # Errors
    /// Returns [`RunError::Drawing`] if the curves cannot be drawn.
    pub fn to_html(&self) -> Result<String> {
        self.render(&[])
    }

    fn render(&self, tables: &[(&str, &AlignedTable)]) -> Result<String> {
        let n_runs = self.runs.len();
        let title = format!("{n_runs} training run{}", if n_runs == 1 { "" } else { "s" });
        let mut body: String = tables.iter().map(|(title, table)| section(title, &to_html(table))).collect();
        body += &section("Runs", &self.rows());
        body += &section("Learning curves", &self.curves()?);
        Ok(document("training runs", &title, "", &body))
    }

    fn rows(&self) -> String {
        let headings: Vec<String> = self.headings().iter().map(|heading| escape(heading)).collect();
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        let rows = self.runs.iter().enumerate().map(|(position, run)| {
            let cells = self.cells(run);
            let swatch = if position < MAX_DRAWN { swatch(position) } else { String::new() };
            let others: String = cells[1..].iter().map(|text| text_cell(&escape(text))).collect();
            row(&format!("{swatch}{}", escape(&cells[0])), &others)
        });
        table("full", &headings, rows)
    }

    fn curves(&self) -> Result<String> {
        let drawn = &self.runs[..self.runs.len().min(MAX_DRAWN)];
        if drawn.iter().all(|run| run.epochs.is_empty()) {
            return Ok("<p class=\"note\">No epoch was recorded.</p>\n".into());
        }
        let losses = lines(drawn, |run| run.epochs.iter().map(|row| (row.epoch, row.train_loss)).collect());
        let values = lines(drawn, |run| run.epochs.iter().map(value_at).collect());
        let metric = self.metric().map_or_else(|| "metric".to_owned(), |metric| metric.to_string());
        let charts = [
            Chart { title: "mean training loss".to_owned(), legend: None, lines: losses },
            Chart { title: format!("validation {metric}"), legend: None, lines: values },
        ];
        let svg = draw_charts(&charts)?;
        let note = match drawn.len() < self.runs.len() {
            true => format!("<p class=\"note\">The curves of the first {MAX_DRAWN} runs of the table.</p>\n"),
            false => String::new(),
        };
        let label = "training loss and validation metric of each run over its epochs";
        Ok(format!("<figure class=\"curves\" role=\"img\" aria-label=\"{label}\">\n{svg}</figure>\n{note}"))
    }
}

/// Renders a table of texts.
fn to_html(aligned: &AlignedTable) -> String {
    let headings: Vec<String> = aligned.headings.iter().map(|heading| escape(heading)).collect();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let rows = aligned.rows.iter().map(|cells| {
        let others: String = cells[1..].iter().map(|text| text_cell(&escape(text))).collect();
        row(&escape(&cells[0]), &others)
    });
    table("full", &headings, rows)
}

fn lines(runs: &[RunRecord], points: impl Fn(&RunRecord) -> Vec<(usize, f64)>) -> Vec<Line> {
    let mut lines = Vec::new();
    for (position, run) in runs.iter().enumerate() {
        lines.push(Line { name: "", color: color(position), points: points(run) });
    }
    lines
}

/// Returns an epoch and the value of its metric, NaN if it is undefined.
fn value_at(row: &EpochRow) -> (usize, f64) {
    (row.epoch, RunRecord::value_of(row).unwrap_or(f64::NAN))
}

/// Returns the colour of a run by its position: hues that are far from those before it.
fn color(position: usize) -> RGBColor {
    // Multiples of the golden section divide a circle evenly.
    let hue = (position as f64 * 0.618_034) % 1.0;
    let lightness = [0.42, 0.58][position % 2];
    let (r, g, b) = HSLColor(hue, 0.65, lightness).rgb();
    RGBColor(r, g, b)
}

fn swatch(position: usize) -> String {
    let RGBColor(r, g, b) = color(position);
    format!("<span class=\"swatch\" style=\"background: #{r:02x}{g:02x}{b:02x}\"></span>")
}
