use plotters::coord::Shift;
use plotters::prelude::*;

use crate::error::{Error, Result, RunError};
use crate::metric::kind::Metric;
use crate::run::metrics_file::EpochRow;

/// The plotted values of one epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    epoch: usize,
    train_loss: f64,
    val_loss: f64,
    train_accuracy: f64,
    val_accuracy: f64,
    /// The metric that selects the best epoch; NaN if it is the accuracy.
    val_metric: f64,
}

/// The charts of loss and accuracy over the epochs.
#[derive(Debug)]
pub(crate) struct Curves {
    points: Vec<Point>,
    /// The name of the metric that selects the best epoch; empty if it is the accuracy.
    metric: String,
    higher_is_better: bool,
}

/// A line of a chart: its name in the legend, its colour, and its value in an epoch.
type Series = (&'static str, RGBColor, fn(&Point) -> f64);

const TRAIN: RGBColor = RGBColor(0x1b, 0x6c, 0xa8);
const VALIDATION: RGBColor = RGBColor(0xd1, 0x49, 0x5b);

impl Curves {
    /// Collects the plotted values of these epochs.
    pub(crate) fn of(epochs: &[EpochRow]) -> Self {
        let metric = epochs.last().map_or_else(String::new, |row| row.metric.clone());
        let of_name = metric.parse().map_or(true, Metric::higher_is_better);
        let recorded = epochs.last().and_then(|row| row.higher_is_better);
        let higher_is_better = recorded.unwrap_or(of_name);
        Self {
            points: epochs
                .iter()
                .map(|row: &EpochRow| {
                    let &EpochRow { epoch, train_loss, val_loss, train_accuracy, val_accuracy, .. } = row;
                    let val_metric = row.val_metric.unwrap_or(f64::NAN);
                    Point { epoch, train_loss, val_loss, train_accuracy, val_accuracy, val_metric }
                })
                .collect(),
            metric,
            higher_is_better,
        }
    }

    /// Draws both charts side by side, as SVG.
    ///
    /// # Errors
    /// Returns [`RunError::Drawing`] with the drawing library's error.
    pub(crate) fn to_svg(&self) -> Result<String> {
        let losses: [Series; 2] =
            [("training", TRAIN, |p| p.train_loss), ("validation", VALIDATION, |p| p.val_loss)];
        let accuracies: [Series; 2] =
            [("training", TRAIN, |p| p.train_accuracy), ("validation", VALIDATION, |p| p.val_accuracy)];
        let (title, series): (_, &[Series]) = match self.metric.as_str() {
            "" => ("accuracy", &accuracies),
            metric => (metric, &[("validation", VALIDATION, |p| p.val_metric)]),
        };
        // The legend is where the values of a good model are not.
        let position = match self.higher_is_better {
            false => SeriesLabelPosition::UpperRight,
            true => SeriesLabelPosition::LowerRight,
        };
        draw_charts(&[
            self.chart("mean loss", SeriesLabelPosition::UpperRight, &losses),
            self.chart(title, position, series),
        ])
    }

    fn chart(&self, title: &str, legend: SeriesLabelPosition, series: &[Series]) -> Chart {
        let mut lines = Vec::new();
        for &(name, color, value) in series {
            let points = self.points.iter().map(|point| (point.epoch, value(point))).collect();
            lines.push(Line { name, color, points });
        }
        Chart { title: title.to_owned(), legend: Some(legend), lines }
    }
}

/// A chart of values over epochs.
pub(super) struct Chart {
    pub(super) title: String,
    /// The place of the legend; `None` for a chart whose lines are named elsewhere.
    pub(super) legend: Option<SeriesLabelPosition>,
    pub(super) lines: Vec<Line>,
}

/// A line of a chart.
pub(super) struct Line {
    /// The name in the legend.
    pub(super) name: &'static str,
    pub(super) color: RGBColor,
    /// The epochs and their values, of which those that are not finite are not drawn.
    pub(super) points: Vec<(usize, f64)>,
}

/// Draws two charts side by side, as SVG.
///
/// # Errors
/// Returns [`RunError::Drawing`] with the drawing library's error.
pub(super) fn draw_charts(charts: &[Chart; 2]) -> Result<String> {
    let mut svg = String::new();
    draw(charts, &mut svg).map_err(|error| Error::Run(RunError::Drawing { reason: error.to_string() }))?;
    Ok(svg)
}

fn draw(charts: &[Chart; 2], svg: &mut String) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let canvas = SVGBackend::with_string(svg, (900, 340)).into_drawing_area();
    canvas.fill(&WHITE)?;
    let (left, right) = canvas.split_horizontally(450);
    draw_chart(&charts[0], &left)?;
    draw_chart(&charts[1], &right)?;
    canvas.present()?;
    Ok(())
}

fn draw_chart(
    chart: &Chart,
    area: &DrawingArea<SVGBackend<'_>, Shift>,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let points = || chart.lines.iter().flat_map(|line| &line.points);
    // Values that are not finite cannot be drawn; `metrics.jsonl` contains them as null.
    let values: Vec<f64> = points().map(|(_, value)| *value).filter(|value| value.is_finite()).collect();
    let low = values.iter().copied().fold(f64::INFINITY, f64::min).min(1.0);
    let high = values.iter().copied().fold(0.0, f64::max);
    let margin = (high - low).abs().max(0.01) * 0.05;
    let last_epoch = points().map(|(epoch, _)| *epoch).max().unwrap_or(1).max(2);
    let mut context = ChartBuilder::on(area)
        .caption(&chart.title, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(34)
        .y_label_area_size(46)
        .build_cartesian_2d(1..last_epoch, low - margin..high + margin)?;
    context.configure_mesh().x_desc("epoch").light_line_style(WHITE).draw()?;
    for &Line { name, color, ref points } in &chart.lines {
        let points: Vec<(usize, f64)> = points.iter().copied().filter(|(_, y)| y.is_finite()).collect();
        // A line of one point would be invisible.
        let point_size = if points.len() == 1 { 3 } else { 0 };
        let series = LineSeries::new(points, color.stroke_width(2)).point_size(point_size);
        let line = context.draw_series(series)?;
        if chart.legend.is_some() {
            line.label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
        }
    }
    if let Some(position) = &chart.legend {
        let mut labels = context.configure_series_labels();
        labels.position(position.clone()).background_style(WHITE.mix(0.8)).draw()?;
    }
    Ok(())
}
