//! The section on the time of each stage.

use std::collections::BTreeMap;

use super::html::{cell, duration, number, row, table, text_cell};
use crate::run::metrics_file::EpochRow;
use crate::step::reports::Timings;

/// The number of stages that the loader runs; the stages after them are the trainer's.
const N_LOADER_STAGES: usize = 3;

/// The width of the drawing, in SVG units; the page scales it.
const WIDTH: f64 = 900.0;

/// The approximate width of a letter in a bar, in SVG units. A name that is wider than its stage is left out; the table
/// contains it.
const LETTER_WIDTH: f64 = 8.0;

/// A stage's name and its seconds, summed over the epochs.
type Stage = (&'static str, f64);

/// Renders the stages as two bars of the same scale, and as a table.
pub(super) fn section(epochs: &[EpochRow], config: &BTreeMap<String, String>) -> String {
    let stages = Timings::default().seconds().map(|(name, _)| (name, total(epochs, name)));
    let (loader, trainer) = stages.split_at(N_LOADER_STAGES);
    let [in_loader, in_trainer] = [loader, trainer].map(|stages| stages.iter().map(drawn).sum::<f64>());
    let longest = in_loader.max(in_trainer);
    if longest <= 0.0 {
        return "<p class=\"note\">No time was measured.</p>\n".into();
    }
    let scale = WIDTH / longest;
    let bars = [
        bar(&format!("trainer: {}", duration(in_trainer)), trainer, 0.0, scale),
        bar(&format!("loader: {}", duration(in_loader)), loader, 64.0, scale),
    ];
    let rows = stages.iter().enumerate().map(|(i, &(name, seconds))| {
        let whole = if i < N_LOADER_STAGES { in_loader } else { in_trainer };
        let share = if whole <= 0.0 { 0.0 } else { 100.0 * seconds / whole };
        let heading = format!("<span class=\"swatch {name}\"></span>{name}");
        let cells = [cell(&number(seconds, 3)), cell(&format!("{} %", number(share, 1)))].concat();
        row(&heading, &(cells + &text_cell(description(name))))
    });
    let table = table("full timed", &["stage", "seconds", "share of its bar", ""], rows);
    format!(
        "<figure class=\"stages\" role=\"img\" aria-label=\"time of each stage, also in the table below\">\n\
        <svg viewBox=\"0 0 {WIDTH} 122\" xmlns=\"http://www.w3.org/2000/svg\">\n{}</svg>\n</figure>\n{}{table}",
        bars.concat(),
        note(config)
    )
}

fn total(epochs: &[EpochRow], name: &str) -> f64 {
    epochs.iter().map(|epoch| epoch.stage_seconds.get(name).copied().unwrap_or(0.0)).sum()
}

/// Returns the length of a stage in its bar, in seconds; 0 if the value is negative or not finite.
fn drawn(&(_, seconds): &Stage) -> f64 {
    if seconds.is_finite() { seconds.max(0.0) } else { 0.0 }
}

fn bar(caption: &str, stages: &[Stage], top: f64, scale: f64) -> String {
    let baseline = top + 14.0;
    let y = top + 22.0;
    let middle = top + 41.0;
    let mut svg = format!("<text x=\"0\" y=\"{baseline}\">{caption}</text>\n");
    svg.push_str(&format!("<rect class=\"track\" x=\"0\" y=\"{y}\" width=\"{WIDTH}\" height=\"30\"/>\n"));
    let mut x = 0.0;
    for stage @ (name, seconds) in stages {
        let width = drawn(stage) * scale;
        svg.push_str(&format!(
            "<rect class=\"{name}\" x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"30\">\
            <title>{name}: {} s</title></rect>\n",
            number(*seconds, 3)
        ));
        if LETTER_WIDTH * (name.len() + 1) as f64 <= width {
            let center = x + width / 2.0;
            svg.push_str(&format!("<text class=\"in\" x=\"{center:.2}\" y=\"{middle}\">{name}</text>\n"));
        }
        x += width;
    }
    svg
}

/// Explains which times the bars show, depending on the number of loader workers.
fn note(config: &BTreeMap<String, String>) -> String {
    let inline = "Without worker threads, the loader's time is also part of <code>wait</code>.";
    let beside = "The loader's stages ran in its threads, in parallel with the trainer, and are summed over the \
        threads; <code>wait</code> is the loader time that did not overlap with compute.";
    let text = match config.get("workers").map(String::as_str) {
        Some("0") => inline.to_owned(),
        Some(_) => beside.to_owned(),
        None => format!("{beside} {inline}"),
    };
    format!(
        "<p class=\"note\">Sums over the training epochs, without evaluation. With several ranks, the times are those \
        of the rank that wrote this page. {text}</p>\n"
    )
}

fn description(stage: &str) -> &'static str {
    match stage {
        "seeds" => "selecting the batch's seeds",
        "sample" => "sampling their neighbourhoods",
        "gather" => "reading features and labels",
        "wait" => "waiting for the loader",
        "upload" => "copying the batch to the device",
        "forward" => "the model and the loss",
        "backward" => "gradients",
        "sync" => "averaging gradients over the ranks",
        "update" => "the optimizer step",
        _ => "",
    }
}
