//! What was taken for what, and how well each class was found.

use super::html::{cell, count, escape, row, score_or_undefined, table, text_cell};
use crate::evaluate::metrics::ConfusionMatrix;

/// A matrix of more classes is a carpet that nobody reads: its largest mistakes are listed instead.
const MATRIX_MAX_CLASSES: usize = 64;

/// With more classes than these, the matrix is set small.
const LARGE_MAX_CLASSES: usize = 20;

/// Letters of all names together that fit above the columns; longer names stand upright.
const ROW_LETTERS: usize = 100;

/// A name of so many letters fits above any column.
const SHORT_NAME_LETTERS: usize = 3;

/// Mistakes that are listed where there is no matrix.
const N_PAIRS: usize = 25;

/// Classes whose scores are listed.
const N_SCORED: usize = 200;

/// From this share of its row on, a cell is so deep that its number is written in the page's colour.
const DEEP_SHARE: f64 = 0.55;

/// The classes' names, numbers where they have none. They come from outside.
#[derive(Clone, Copy)]
pub(super) struct ClassNames<'a>(pub(super) &'a [String]);

impl ClassNames<'_> {
    fn html(self, class: u32) -> String {
        escape(&self.text(class))
    }

    fn n_letters(self, class: u32) -> usize {
        self.text(class).chars().count()
    }

    fn text(self, class: u32) -> String {
        let name = self.0.get(class as usize).filter(|name| !name.trim().is_empty());
        name.cloned().unwrap_or_else(|| class.to_string())
    }
}

/// The matrix or, for many classes, its largest mistakes.
pub(super) fn confusion(matrix: &ConfusionMatrix, names: ClassNames<'_>) -> String {
    let n_classes = matrix.margins().n_classes();
    if n_classes <= MATRIX_MAX_CLASSES {
        return cells(matrix, names);
    }
    let pairs = matrix.most_confused(N_PAIRS);
    if pairs.is_empty() {
        return format!("<p class=\"note\">{} classes, no mistake.</p>\n", count(n_classes as u64));
    }
    let rows = pairs.iter().map(|pair| {
        let n_labelled = matrix.margins().scores(pair.label).n_labelled;
        let share = format!("{:.1} %", 100.0 * pair.n_items as f64 / n_labelled as f64);
        let cells = [text_cell(&names.html(pair.predicted)), cell(&count(pair.n_items)), cell(&share)];
        row(&names.html(pair.label), &cells.concat())
    });
    let head = ["class", "predicted", "items", "share of the class"];
    let n_classes = count(n_classes as u64);
    let note =
        format!("<p class=\"note\">{n_classes} classes: the mistakes that were made most often.</p>\n");
    note + &table("full pairs", &head, rows)
}

fn cells(matrix: &ConfusionMatrix, names: ClassNames<'_>) -> String {
    let n_classes = matrix.margins().n_classes() as u32;
    let head: String = (0..n_classes)
        .map(|class| format!("<th scope=\"col\"><span>{}</span></th>", names.html(class)))
        .collect();
    let rows: String = (0..n_classes)
        .map(|label| {
            let cells = (0..n_classes).map(|predicted| shaded(matrix, names, label, predicted));
            row(&names.html(label), &cells.collect::<String>())
        })
        .collect();
    let n_classes = n_classes as usize;
    let many = if LARGE_MAX_CLASSES < n_classes { " many" } else { "" };
    let longest = (0..n_classes as u32).map(|class| names.n_letters(class)).max().unwrap_or(0);
    let is_upright = SHORT_NAME_LETTERS < longest && ROW_LETTERS < n_classes * (longest + 2);
    let upright = if is_upright { " upright" } else { "" };
    format!(
        "<p class=\"note\">Rows are labels, columns predictions; a cell is shaded by its share of the row.</p>\n\
        <div class=\"scroll matrix{many}{upright}\"><table>\
        <thead><tr><th>label</th>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
    )
}

fn shaded(matrix: &ConfusionMatrix, names: ClassNames<'_>, label: u32, predicted: u32) -> String {
    let n_items = matrix.count(label, predicted);
    if n_items == 0 {
        return "<td class=\"zero\">0</td>".into();
    }
    let n_labelled = matrix.margins().scores(label).n_labelled;
    let share = n_items as f64 / n_labelled as f64;
    let hit = if label == predicted { " hit" } else { "" };
    let deep = if DEEP_SHARE <= share { " deep" } else { "" };
    let (label, predicted) = (names.html(label), names.html(predicted));
    format!(
        "<td class=\"some{hit}{deep}\" style=\"--share:{share:.3}\" \
        title=\"{label} as {predicted}: {:.1} % of the row\">{}</td>",
        100.0 * share,
        count(n_items)
    )
}

/// Precision, recall and F1 of each class, of the largest where they are many.
pub(super) fn scores(matrix: &ConfusionMatrix, names: ClassNames<'_>) -> String {
    let margins = matrix.margins();
    let mut classes: Vec<u32> = (0..margins.n_classes() as u32).collect();
    let mut note = String::new();
    if N_SCORED < classes.len() {
        note = format!("<p class=\"note\">The {N_SCORED} classes with the most items.</p>\n");
        classes.sort_by_key(|&class| std::cmp::Reverse(margins.scores(class).n_labelled));
        classes.truncate(N_SCORED);
    }
    let rows = classes.into_iter().map(|class| {
        let of = margins.scores(class);
        let bar = |value: Option<f64>| {
            let (share, text) = (value.unwrap_or(0.0), score_or_undefined(value));
            format!("<td class=\"bar\" style=\"--share:{share:.3}\">{text}</td>")
        };
        let counts = [of.n_labelled, of.n_predicted].map(|n_items| cell(&count(n_items)));
        row(&names.html(class), &(counts.concat() + &[of.precision, of.recall, of.f1].map(bar).concat()))
    });
    note + &table("full scores", &["class", "items", "predicted", "precision", "recall", "F1"], rows)
}
