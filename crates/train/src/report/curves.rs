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
}

/// A line of a chart: its name in the legend, its colour, and its value in an epoch.
type Series = (&'static str, RGBColor, fn(&Point) -> f64);

const TRAIN: RGBColor = RGBColor(0x1b, 0x6c, 0xa8);
const VALIDATION: RGBColor = RGBColor(0xd1, 0x49, 0x5b);

impl Curves {
    /// Collects the plotted values of these epochs.
    pub(crate) fn of(epochs: &[EpochRow]) -> Self {
        let metric = epochs.last().map_or_else(String::new, |row| row.metric.clone());
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
        }
    }

    /// Draws both charts side by side, as SVG.
    ///
    /// # Errors
    /// Returns [`RunError::Drawing`] with the drawing library's error.
    pub(crate) fn to_svg(&self) -> Result<String> {
        let mut svg = String::new();
        self.draw(&mut svg).map_err(|error| Error::Run(RunError::Drawing { reason: error.to_string() }))?;
        Ok(svg)
    }

    fn draw(&self, svg: &mut String) -> std::result::Result<(), Box<dyn std::error::Error>> {
        let canvas = SVGBackend::with_string(svg, (900, 340)).into_drawing_area();
        canvas.fill(&WHITE)?;
        let (left, right) = canvas.split_horizontally(450);
        self.chart(
            &left,
            "mean loss",
            SeriesLabelPosition::UpperRight,
            &[("training", TRAIN, |p| p.train_loss), ("validation", VALIDATION, |p| p.val_loss)],
        )?;
        let accuracies: [Series; 2] =
            [("training", TRAIN, |p| p.train_accuracy), ("validation", VALIDATION, |p| p.val_accuracy)];
        let (title, series): (_, &[Series]) = match self.metric.as_str() {
            "" => ("accuracy", &accuracies),
            metric => (metric, &[("validation", VALIDATION, |p| p.val_metric)]),
        };
        // The legend is where the values of a good model are not.
        let position = match title.parse::<Metric>() {
            Ok(metric) if !metric.higher_is_better() => SeriesLabelPosition::UpperRight,
            _ => SeriesLabelPosition::LowerRight,
        };
        self.chart(&right, title, position, series)?;
        canvas.present()?;
        Ok(())
    }

    fn chart(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        title: &str,
        legend_position: SeriesLabelPosition,
        series: &[Series],
    ) -> std::result::Result<(), Box<dyn std::error::Error>> {
        let values = self.points.iter().flat_map(|point| series.iter().map(|(_, _, value)| value(point)));
        // Values that are not finite cannot be drawn; `metrics.jsonl` contains them as null.
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min).min(1.0);
        let high = values.iter().copied().fold(0.0, f64::max);
        let margin = (high - low).abs().max(0.01) * 0.05;
        let last_epoch = self.points.last().map_or(1, |point| point.epoch).max(2);
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(34)
            .y_label_area_size(46)
            .build_cartesian_2d(1..last_epoch, low - margin..high + margin)?;
        chart.configure_mesh().x_desc("epoch").light_line_style(WHITE).draw()?;
        for &(name, color, value) in series {
            let points = self.points.iter().map(|point| (point.epoch, value(point)));
            let line = LineSeries::new(points.filter(|(_, y)| y.is_finite()), color.stroke_width(2));
            chart
                .draw_series(line)?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
        }
        let mut labels = chart.configure_series_labels();
        Ok(labels.position(legend_position).background_style(WHITE.mix(0.8)).draw()?)
    }
}
