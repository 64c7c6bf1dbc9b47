//! The section on link prediction: histograms of the scores of links and of their negatives.

use plotters::prelude::*;

use super::html::{cell, count, row, score_or_undefined, table};
use crate::error::{Error, Result, RunError};
use crate::evaluate::evaluation::Evaluation;
use crate::evaluate::links::LinkScores;

/// The number of bins of a histogram.
const N_BINS: usize = 50;

const LINKS: RGBColor = RGBColor(0x1b, 0x6c, 0xa8);
const NEGATIVES: RGBColor = RGBColor(0xd1, 0x49, 0x5b);

/// The scores of a test split's links and of their negatives, as the report page shows them.
#[derive(Debug, Clone)]
pub struct LinkReport {
    links: ScoreReport,
    negatives: ScoreReport,
    /// The smallest and the largest score.
    range: Option<[f64; 2]>,
}

/// The scores of links or of negatives.
#[derive(Debug, Clone)]
struct ScoreReport {
    /// The scores in ascending order, all finite.
    scores: Vec<f32>,
}

impl LinkReport {
    /// Returns the report of links with finite scores; `None` for other targets, or without such links.
    pub fn of(evaluation: &Evaluation) -> Option<Self> {
        let LinkScores { links, negatives } = evaluation.link_scores();
        if links.is_empty() {
            return None;
        }
        let [links, negatives] = [links, negatives].map(ScoreReport::new);
        let ends = [&links, &negatives].into_iter().filter_map(ScoreReport::ends);
        let range = ends.reduce(|one, other| [one[0].min(other[0]), one[1].max(other[1])]);
        Some(Self { links, negatives, range })
    }

    /// Renders the histograms and a table of the scores.
    pub(super) fn to_html(&self) -> Result<String> {
        let mut html = String::new();
        if let Some(range) = self.range {
            let svg = self.to_svg(range)?;
            let label = "share of the links and of the negatives by score";
            html = format!("<figure class=\"curves\" role=\"img\" aria-label=\"{label}\">\n{svg}</figure>\n");
        }
        let head = ["pairs", "number", "lowest score", "median", "mean", "highest score"];
        let of_kind = [("links", &self.links), ("negatives", &self.negatives)];
        Ok(html + &table("full scores", &head, of_kind.map(|(name, scores)| row(name, &scores.cells()))))
    }

    fn to_svg(&self, range: [f64; 2]) -> Result<String> {
        let mut svg = String::new();
        self.draw(range, &mut svg)
            .map_err(|error| Error::Run(RunError::Drawing { reason: error.to_string() }))?;
        Ok(svg)
    }

    fn draw(
        &self,
        [low, high]: [f64; 2],
        svg: &mut String,
    ) -> std::result::Result<(), Box<dyn std::error::Error>> {
        // Equal scores need bins of a width above 0, whatever their magnitude.
        let high = high.max(low + 0.01_f64.max(low.abs() * 1e-6));
        let kinds = [("links", LINKS, &self.links), ("negatives", NEGATIVES, &self.negatives)];
        let shares = kinds.map(|(_, _, scores)| scores.shares(low, high));
        let top = shares.iter().flatten().copied().fold(0.0, f64::max).max(0.01);
        let canvas = SVGBackend::with_string(svg, (900, 320)).into_drawing_area();
        canvas.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&canvas)
            .margin(10)
            .x_label_area_size(34)
            .y_label_area_size(56)
            .build_cartesian_2d(low..high, 0.0..top * 1.05)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc("score").y_desc("share of the pairs").light_line_style(WHITE).draw()?;
        for ((name, color, _), shares) in kinds.into_iter().zip(shares) {
            let edge = |bin: usize| low + (high - low) * bin as f64 / N_BINS as f64;
            let steps: Vec<(f64, f64)> = shares
                .into_iter()
                .enumerate()
                .flat_map(|(bin, share)| [(edge(bin), share), (edge(bin + 1), share)])
                .collect();
            chart
                .draw_series(LineSeries::new(steps, color.stroke_width(2)))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
        }
        let mut labels = chart.configure_series_labels();
        labels.position(SeriesLabelPosition::UpperRight).background_style(WHITE.mix(0.8)).draw()?;
        drop(chart);
        canvas.present()?;
        Ok(())
    }
}

impl ScoreReport {
    fn new(mut scores: Vec<f32>) -> Self {
        scores.sort_unstable_by(f32::total_cmp);
        Self { scores }
    }

    /// Returns the smallest and the largest score.
    fn ends(&self) -> Option<[f64; 2]> {
        Some([f64::from(*self.scores.first()?), f64::from(*self.scores.last()?)])
    }

    /// Returns the share of the scores in each of [`N_BINS`] bins of equal width.
    fn shares(&self, low: f64, high: f64) -> Vec<f64> {
        let mut counts = vec![0_usize; N_BINS];
        for &score in &self.scores {
            let bin = ((f64::from(score) - low) / (high - low) * N_BINS as f64) as usize;
            counts[bin.min(N_BINS - 1)] += 1;
        }
        counts.into_iter().map(|count| count as f64 / self.scores.len() as f64).collect()
    }

    /// Renders the cells of the table.
    fn cells(&self) -> String {
        let n = self.scores.len();
        let mean = self.scores.iter().map(|&score| f64::from(score)).sum::<f64>() / n as f64;
        let median = (0 < n).then(|| f64::from(self.scores[(n - 1) / 2] + self.scores[n / 2]) / 2.0);
        let [low, high] = self.ends().map_or([None; 2], |ends| ends.map(Some));
        let values = [low, median, (0 < n).then_some(mean), high];
        cell(&count(n as u64)) + &values.map(|value| cell(&score_or_undefined(value))).concat()
    }
}
