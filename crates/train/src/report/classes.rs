//! The sections on classes: the confusion matrix and the scores of each class.

use super::html::{cell, count, escape, row, score_or_undefined, table, text_cell};
use crate::metric::confusion::ConfusionMatrix;

/// The largest number of classes whose matrix is shown. With more, the most frequent mistakes are listed instead.
const MATRIX_MAX_CLASSES: usize = 64;

/// The largest number of classes whose matrix is set in the normal font size.
const LARGE_MAX_CLASSES: usize = 20;

/// The maximum width, in letters, of all columns together if the class names above them are written horizontally. In
/// wider matrices the names are rotated.
const ROW_LETTERS: usize = 100;

/// The maximum number of letters in class names that are never rotated.
const SHORT_NAME_LETTERS: usize = 3;

/// The maximum number of mistakes (pairs of label and prediction) that are listed instead of a matrix.
const N_PAIRS: usize = 25;

/// The maximum number of classes in the table of scores.
const N_SCORED: usize = 200;

/// The smallest share of its row's items at which a cell is shaded so dark that its number is written in the page's
/// background colour.
const DEEP_SHARE: f64 = 0.55;

/// The classes' names from user input, unescaped; classes without a name are shown by number.
#[derive(Clone, Copy)]
pub(super) struct ClassNames<'a>(pub(super) &'a [String]);

impl ClassNames<'_> {
    pub(super) fn html(self, class: u32) -> String {
        escape(&self.text(class))
    }

    /// Returns the name as plain text, shortened to fit a chart. The drawing library escapes markup; characters that
    /// are not allowed in a document are replaced.
    pub(super) fn plain(self, class: u32) -> String {
        const LONGEST: usize = 32;
        self.text(class)
            .chars()
            .filter(|c: &char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}'))
            .take(LONGEST)
            .collect()
    }

    fn n_letters(self, class: u32) -> usize {
        self.text(class).chars().count()
    }

    fn text(self, class: u32) -> String {
        let name = self.0.get(class as usize).filter(|name| !name.trim().is_empty());
        name.cloned().unwrap_or_else(|| class.to_string())
    }
}

/// Renders the matrix or, for many classes, the most frequent mistakes.
pub(super) fn confusion(matrix: &ConfusionMatrix, names: ClassNames<'_>) -> String {
    let n_classes = matrix.margins().n_classes();
    if n_classes <= MATRIX_MAX_CLASSES {
        return cells(matrix, names);
    }
    let pairs = matrix.most_confused(N_PAIRS);
    if pairs.is_empty() {
        return format!("<p class=\"note\">{} classes, no mistakes.</p>\n", count(n_classes as u64));
    }
    let rows = pairs.iter().map(|pair| {
        let n_labelled = matrix.margins().scores(pair.label).n_labelled;
        let share = format!("{:.1} %", 100.0 * pair.n_items as f64 / n_labelled as f64);
        let cells = [text_cell(&names.html(pair.predicted)), cell(&count(pair.n_items)), cell(&share)];
        row(&names.html(pair.label), &cells.concat())
    });
    let head = ["class", "predicted", "items", "share of the class"];
    let n_classes = count(n_classes as u64);
    let note = format!("<p class=\"note\">{n_classes} classes: the most frequent mistakes.</p>\n");
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
    let label = names.html(label);
    let predicted = names.html(predicted);
    format!(
        "<td class=\"some{hit}{deep}\" style=\"--share:{share:.3}\" \
        title=\"{label} as {predicted}: {:.1} % of the row\">{}</td>",
        100.0 * share,
        count(n_items)
    )
}

/// Renders precision, recall and F1 of each class, or of the [`N_SCORED`] classes with the most items.
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
        let counts = [of.n_labelled, of.n_predicted].map(|n_items| cell(&count(n_items)));
        row(
            &names.html(class),
            &(counts.concat()
                + &[of.precision, of.recall, of.f1]
                    .map(|value: Option<f64>| {
                        let share = value.unwrap_or(0.0);
                        let text = score_or_undefined(value);
                        format!("<td class=\"bar\" style=\"--share:{share:.3}\">{text}</td>")
                    })
                    .concat()),
        )
    });
    note + &table("full scores", &["class", "items", "predicted", "precision", "recall", "F1"], rows)
}
