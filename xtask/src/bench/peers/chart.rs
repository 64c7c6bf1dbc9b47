//! The comparison as a chart: how many times better each row is than the peer's, on a logarithmic axis.

use std::fmt::Write as _;

use super::About;
use super::rows::{Outcome, Target, Unit};

/// Where bars start and how wide the longest may be, in pixels.
const LEFT: f64 = 560.0;
const WIDTH: f64 = 360.0;
const ROW_HEIGHT: f64 = 26.0;
const TOP: f64 = 78.0;

/// Colours that can be read on white and on black.
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#57606a}.title{font-size:17px;font-weight:600}\
.bar{fill:#2f81f7}.grid{stroke:#8b949e;stroke-opacity:.35}.even{stroke:#8b949e}.target{stroke:#db6d28;stroke-width:2.5}\
@media(prefers-color-scheme:dark){text{fill:#adbac7}}";

/// The whole file. Rows without a peer, and shares, have no bar.
pub(super) fn svg(outcomes: &[Outcome], about: &About) -> String {
    let bars: Vec<(&Outcome, f64)> =
        outcomes.iter().filter_map(|outcome| Some((outcome, times_better(outcome)?))).collect();
    let most =
        bars.iter().map(|(outcome, times)| times.max(target(outcome).unwrap_or(1.0))).fold(2.0, f64::max);
    let least = bars.iter().map(|(_, times)| *times).fold(1.0, f64::min);
    let axis = Axis::new(least, most);
    let bottom = TOP + ROW_HEIGHT * bars.len() as f64;
    let (width, height) = (LEFT + WIDTH + 80.0, bottom + 54.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\">\n<title>kiln beside DGL</title>\n<style>{STYLE}</style>\n"
    );
    let About { host, date, commit, .. } = about;
    let _ =
        writeln!(text, "<text class=\"title\" x=\"16\" y=\"28\">kiln against DGL 2.1.0: times better</text>");
    let place = escape(&format!("{host}, {date}, commit {commit}; logarithmic axis"));
    let _ = writeln!(text, "<text x=\"16\" y=\"50\">{place}</text>");
    for times in axis.ticks() {
        let (x, class) = (axis.x(times), if times == 1.0 { "even" } else { "grid" });
        let _ = writeln!(
            text,
            "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{bottom}\"/>",
            TOP - 6.0
        );
        let y = bottom + 18.0;
        let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{times}x</text>");
    }
    for (i, (outcome, times)) in bars.iter().enumerate() {
        text += &bar(outcome, *times, TOP + ROW_HEIGHT * i as f64, &axis);
    }
    let y = bottom + 40.0;
    let _ = writeln!(
        text,
        "<text x=\"{LEFT}\" y=\"{y}\">bar: measured; orange mark: what was to be reached</text>\n</svg>"
    );
    text
}

/// One row: its name, its bar from 1x, its number, and the mark of its target.
fn bar(outcome: &Outcome, times: f64, y: f64, axis: &Axis) -> String {
    let (from, to) = (axis.x(times.min(1.0)), axis.x(times.max(1.0)));
    let (name, base) = (escape(outcome.row.what), y + 16.0);
    let mut text = format!("<text x=\"{}\" y=\"{base}\" text-anchor=\"end\">{name}</text>\n", LEFT - 10.0);
    let _ = writeln!(
        text,
        "<rect class=\"bar\" x=\"{from:.1}\" y=\"{}\" width=\"{:.1}\" height=\"16\"/>",
        y + 3.0,
        to - from
    );
    let mut end = to;
    if let Some(target) = target(outcome) {
        let x = axis.x(target);
        let _ = writeln!(
            text,
            "<line class=\"target\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y}\" y2=\"{}\"/>",
            y + 22.0
        );
        // The number stands clear of a mark that lies just behind the bar.
        if to - 2.0 <= x && x < to + 50.0 {
            end = x;
        }
    }
    let _ = writeln!(text, "<text x=\"{:.1}\" y=\"{base}\">{times:.1}x</text>", end + 6.0);
    text
}

/// How many times the peer's rate, or its time by ours.
fn times_better(outcome: &Outcome) -> Option<f64> {
    let ratio = outcome.ratio().filter(|ratio| ratio.is_finite() && 0.0 < *ratio)?;
    match outcome.row.unit {
        Unit::Share => None,
        unit => Some(if unit.is_rate() { ratio } else { 1.0 / ratio }),
    }
}

/// The same of what is to be reached, where that is relative to the peer.
fn target(outcome: &Outcome) -> Option<f64> {
    match outcome.row.target {
        Target::TimesPeer(times) => Some(times),
        Target::OfPeer(part) => Some(1.0 / part),
        Target::AtMost(most) => Some(outcome.peer? / most),
        Target::TimesRow(..) | Target::PeerLess(_) | Target::AtLeast(_) => None,
    }
}

/// A logarithmic axis.
struct Axis {
    least: f64,
    most: f64,
}

impl Axis {
    /// From 1, or from what is less, to what is most, with room for a number.
    fn new(least: f64, most: f64) -> Self {
        Self { least: least.min(1.0).log2(), most: most.log2() }
    }

    fn x(&self, times: f64) -> f64 {
        LEFT + WIDTH * (times.log2() - self.least) / (self.most - self.least)
    }

    /// The powers of two on it.
    fn ticks(&self) -> Vec<f64> {
        (self.least.ceil() as i32..=self.most.floor() as i32).map(f64::from).map(f64::exp2).collect()
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::rows::tests::outcome;
    use super::super::table::tests::about;
    use super::*;

    #[test]
    fn rates_and_times_are_both_times_better() {
        assert_eq!(times_better(&outcome("sample", 60e6, None, Some(10e6))), Some(6.0));
        assert_eq!(times_better(&outcome("step-arxiv", 50.0, None, Some(200.0))), Some(4.0));
        assert_eq!(times_better(&outcome("accuracy", 0.7, None, Some(0.7))), None);
        assert_eq!(times_better(&outcome("ingest", 30e6, None, None)), None);
    }

    #[test]
    fn the_axis_has_powers_of_two_at_equal_distances() {
        let axis = Axis::new(0.5, 8.0);
        assert_eq!(axis.ticks(), [0.5, 1.0, 2.0, 4.0, 8.0]);
        assert_eq!([0.5, 1.0, 8.0].map(|times| axis.x(times)), [LEFT, LEFT + WIDTH / 4.0, LEFT + WIDTH]);
    }

    #[test]
    fn a_chart_has_a_bar_for_each_row_with_a_peer_and_is_well_formed() {
        let outcomes = [
            outcome("sample", 80e6, None, Some(10e6)),
            outcome("step-arxiv", 300.0, None, Some(150.0)),
            outcome("accuracy", 0.7, None, Some(0.7)),
            outcome("ingest", 30e6, None, None),
        ];
        let text = svg(&outcomes, &about());
        assert_eq!(text.matches("class=\"bar\"").count(), 2);
        assert!(text.contains(">8.0x<") && text.contains(">0.5x<"), "{text}");
        assert!(text.contains("a &lt;fast&gt; processor, 2 cores, 2026-01-31"), "{text}");
        for tag in ["svg", "text", "style", "title"] {
            assert_eq!(
                text.matches(&format!("<{tag}")).count(),
                text.matches(&format!("</{tag}>")).count(),
                "{tag}"
            );
        }
    }
}
