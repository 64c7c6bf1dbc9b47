//! The section on several labels per item (precision-recall curves) or on regression (predictions against targets).

use kiln_feature::TargetKind;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::classes::ClassNames;
use super::html::{cell, count, row, score_or_undefined, table};
use crate::error::{Error, Result, RunError};
use crate::evaluate::evaluation::Evaluation;
use crate::evaluate::target_values::TargetAndOutput;
use crate::metric::kind::Metric;
use crate::metric::ranking::{PrecisionRecall, precision_recall_curve};
use crate::metric::stats::MetricStats;

/// The maximum number of columns that are drawn: those with the most positives, or with the most targets.
const N_DRAWN: usize = 6;

/// The maximum number of columns in the table.
const N_SCORED: usize = 200;

/// The maximum number of points of a chart. Further points are left out evenly.
const N_POINTS: usize = 1000;

/// The width and height of a chart, of which three are in a row.
const SIDE: u32 = 300;

const COLOR: RGBColor = RGBColor(0x1b, 0x6c, 0xa8);

/// The target values and outputs of a test split, as the report page shows them.
#[derive(Debug, Clone)]
pub struct TargetReport {
    kind: TargetKind,
    /// True if losses are those of standardised targets.
    pub(super) is_scaled: bool,
    columns: Vec<ColumnReport>,
}

/// One column of the target values.
#[derive(Debug, Clone)]
struct ColumnReport {
    column: usize,
    n_targets: usize,
    /// The number of items that have the label; the number of targets for regression.
    n_positive: usize,
    scores: Vec<Option<f64>>,
    /// The points of the chart: target and output, or recall and precision.
    points: Vec<(f64, f64)>,
}

impl TargetReport {
    /// Returns the report of target values; `None` for class labels and links, or without items.
    pub fn of(evaluation: &Evaluation) -> Option<Self> {
        let kind = evaluation.kind();
        let is_of_values = matches!(kind, TargetKind::MultiLabel | TargetKind::Regression);
        let has_values = is_of_values && 0 < evaluation.n_outputs();
        has_values.then(|| Self {
            kind,
            is_scaled: evaluation.objective().target_scaler().is_some(),
            columns: (0..evaluation.n_outputs())
                .map(|column| ColumnReport::of(column, kind, &evaluation.column(column)))
                .collect(),
        })
    }

    /// Returns the title of the section.
    pub(super) fn title(&self) -> &'static str {
        match self.kind {
            TargetKind::Regression => "Predictions against targets on the test split",
            _ => "Precision and recall on the test split",
        }
    }

    /// Renders the charts and a table of the columns' scores.
    pub(super) fn to_html(&self, names: ClassNames<'_>) -> Result<String> {
        let mut drawn: Vec<&ColumnReport> = self.columns.iter().filter(|of| !of.points.is_empty()).collect();
        drawn.sort_by_key(|of| std::cmp::Reverse(of.n_positive));
        drawn.truncate(N_DRAWN);
        drawn.sort_by_key(|of| of.column);
        let mut html = String::new();
        if !drawn.is_empty() {
            let svg = self.to_svg(&drawn, names)?;
            let label = self.title();
            html = format!("<figure class=\"curves\" role=\"img\" aria-label=\"{label}\">\n{svg}</figure>\n");
        }
        if drawn.len() < self.columns.len() {
            let n_drawn = drawn.len();
            let n_columns = count(self.columns.len() as u64);
            html += &format!("<p class=\"note\">{n_drawn} of {n_columns} columns are drawn.</p>\n");
        }
        let head: &[&str] = match self.kind {
            TargetKind::Regression => &["column", "targets", "RMSE", "MAE", "R²"],
            _ => &["label", "known", "positive", "F1", "ROC-AUC", "average precision"],
        };
        let rows = self.columns.iter().take(N_SCORED).map(|of| {
            let mut cells = cell(&count(of.n_targets as u64));
            if self.kind == TargetKind::MultiLabel {
                cells += &cell(&count(of.n_positive as u64));
            }
            let scores = of.scores.iter().map(|&score| cell(&score_or_undefined(score)));
            row(&names.html(of.column as u32), &(cells + &scores.collect::<String>()))
        });
        Ok(html + &table("full scores", head, rows))
    }

    fn to_svg(&self, drawn: &[&ColumnReport], names: ClassNames<'_>) -> Result<String> {
        let mut svg = String::new();
        self.draw(drawn, names, &mut svg)
            .map_err(|error| Error::Run(RunError::Drawing { reason: error.to_string() }))?;
        Ok(svg)
    }

    fn draw(
        &self,
        drawn: &[&ColumnReport],
        names: ClassNames<'_>,
        svg: &mut String,
    ) -> std::result::Result<(), Box<dyn std::error::Error>> {
        let n_rows = drawn.len().div_ceil(3);
        let canvas = SVGBackend::with_string(svg, (3 * SIDE, n_rows as u32 * SIDE)).into_drawing_area();
        canvas.fill(&WHITE)?;
        for (area, of) in canvas.split_evenly((n_rows, 3)).iter().zip(drawn) {
            let title = names.plain(of.column as u32);
            match self.kind {
                TargetKind::Regression => of.scatter(area, &title)?,
                _ => of.curve(area, &title)?,
            }
        }
        canvas.present()?;
        Ok(())
    }
}

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

impl ColumnReport {
    fn of(column: usize, kind: TargetKind, pairs: &[TargetAndOutput]) -> Self {
        let targets: Vec<f32> = pairs.iter().map(|pair| pair.target).collect();
        let outputs: Vec<f32> = pairs.iter().map(|pair| pair.output).collect();
        let metrics: &[Metric] = match kind {
            TargetKind::Regression => &[Metric::Rmse, Metric::Mae, Metric::R2],
            _ => &[Metric::F1Micro, Metric::RocAuc, Metric::AveragePrecision],
        };
        let is_positive: Vec<bool> = targets.iter().map(|&target| target > 0.5).collect();
        let points: Vec<(f64, f64)> = match kind {
            TargetKind::Regression => pairs.iter().map(|p| (p.target.into(), p.output.into())).collect(),
            _ => {
                let scores: Vec<f64> = outputs.iter().map(|&output| output.into()).collect();
                let curve = precision_recall_curve(&scores, &is_positive);
                curve.iter().map(|&PrecisionRecall { precision, recall }| (recall, precision)).collect()
            }
        };
        let n_positive = match kind {
            TargetKind::Regression => pairs.len(),
            _ => is_positive.iter().filter(|is_positive| **is_positive).count(),
        };
        let scores = metrics
            .iter()
            .map(|&metric| {
                let mut stats = MetricStats::new(metric, kind, 1).ok()?;
                stats.add_targets(&targets, &outputs);
                stats.value()
            })
            .collect();
        Self { column, n_targets: pairs.len(), n_positive, scores, points: thinned(points) }
    }

    fn scatter(&self, area: &DrawingArea<SVGBackend<'_>, Shift>, title: &str) -> Drawn {
        let values = || self.points.iter().flat_map(|&(target, output)| [target, output]);
        let low = values().fold(f64::INFINITY, f64::min);
        let high = values().fold(f64::NEG_INFINITY, f64::max);
        let margin = (high - low).max(0.01) * 0.05;
        let range = low - margin..high + margin;
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 14))
            .margin(8)
            .x_label_area_size(34)
            .y_label_area_size(46)
            .build_cartesian_2d(range.clone(), range)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc("target").y_desc("output").x_labels(5).y_labels(5).light_line_style(WHITE).draw()?;
        chart.draw_series(LineSeries::new([(low, low), (high, high)], BLACK.stroke_width(1)))?;
        let dots = self.points.iter().map(|&point| Circle::new(point, 2, COLOR.mix(0.5).filled()));
        chart.draw_series(dots)?;
        Ok(())
    }

    fn curve(&self, area: &DrawingArea<SVGBackend<'_>, Shift>, title: &str) -> Drawn {
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 14))
            .margin(8)
            .x_label_area_size(34)
            .y_label_area_size(46)
            .build_cartesian_2d(0.0..1.0, 0.0..1.02)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc("recall").y_desc("precision").x_labels(5).y_labels(5).light_line_style(WHITE).draw()?;
        chart.draw_series(LineSeries::new(self.points.iter().copied(), COLOR.stroke_width(2)))?;
        Ok(())
    }
}

/// Returns at most [`N_POINTS`] of the finite points, evenly chosen, with the first and the last.
fn thinned(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.retain(|(x, y)| x.is_finite() && y.is_finite());
    let n = points.len();
    if n <= N_POINTS {
        return points;
    }
    (0..N_POINTS).map(|i| points[i * (n - 1) / (N_POINTS - 1)]).collect()
}
