//! The features of a table, the columns that are none, and the targets, as lines of a spec.

use super::columns::{ColumnPlan, is_target_name, plan_column};
use super::describe::describe;
use super::profile::{ColumnProfile, ValueKind};
use super::tables::InputTable;
use super::targets::TargetCandidate;
use super::yaml::{self, Lines, scalar};
use crate::spec::ColumnTransform;

/// The split that is proposed for targets without another one.
pub(super) const RANDOM_SPLIT: &str = "split: {random: {seed: 0, train: 0.6, val: 0.2, test: 0.2}}";

/// The comment before targets, none of which is certain.
pub(super) const UNCOMMENT_TARGET: &str = "To predict a column, uncomment its target and a split, and remove it from `columns`, which would have the answer:";

/// The columns of a table that become features, and those that are left out.
#[derive(Default)]
pub(super) struct PlannedColumns {
    /// The columns with their transforms, and the reason if the transform is not the usual one.
    pub(super) features: Vec<(usize, ColumnTransform, Option<String>)>,
    /// The columns that are left out, with the reason.
    pub(super) left_out: Vec<(usize, String)>,
}

impl PlannedColumns {
    pub(super) fn add(&mut self, table: &InputTable, column: usize) {
        let profile = &table.profile.columns[column];
        match plan_column(table, profile) {
            ColumnPlan::Feature(..) if is_target_name(&profile.name) => {
                self.left_out.push((column, "looks like a target".to_owned()));
            }
            ColumnPlan::Feature(transform, why) => self.features.push((column, transform, why)),
            ColumnPlan::LeftOut(why) => self.left_out.push((column, why)),
        }
    }

    /// Returns the features for a relation in a line.
    pub(super) fn inline(&self, table: &InputTable) -> String {
        let columns = self.features.iter();
        let columns =
            columns.map(|(column, transform, _)| feature(&table.profile.columns[*column], transform));
        format!("columns: [{}]", columns.collect::<Vec<_>>().join(", "))
    }

    pub(super) fn write(&self, lines: &mut Lines, table: &InputTable) {
        if !self.features.is_empty() {
            lines.push(4, "columns:", "");
        }
        for (column, transform, why) in &self.features {
            let profile = &table.profile.columns[*column];
            let line = format!("- {}", feature(profile, transform));
            let why = why.iter().map(|why| format!("; {why}")).collect::<String>();
            lines.push(6, &line, &format!("{}{why}", describe(table, profile)));
        }
        write_left_out(lines, table, &self.left_out);
    }
}

/// Returns the column and its transform as an entry of `columns`.
fn feature(column: &ColumnProfile, transform: &ColumnTransform) -> String {
    format!("{{column: {}, transform: {}}}", scalar(&column.name), yaml::transform(transform))
}

/// Writes targets and the splits for them as comments after another one.
pub(super) fn write_targets(
    lines: &mut Lines,
    targets: &[TargetCandidate],
    planned: &PlannedColumns,
    splits: &[String],
    comment: &str,
) {
    lines.comment(4, comment);
    for target in targets {
        let is_featured = planned.features.iter().any(|(column, ..)| *column == target.column);
        let note = if is_featured { "" } else { "; it is not in `columns`" };
        lines.comment(4, &format!("target: {}  # {}{note}", target.yaml, target.about));
    }
    splits.iter().for_each(|split| lines.comment(4, split));
}

fn write_left_out(lines: &mut Lines, table: &InputTable, left_out: &[(usize, String)]) {
    if left_out.is_empty() {
        return;
    }
    lines.comment(4, "Left out:");
    for (column, why) in left_out {
        let profile = &table.profile.columns[*column];
        let has_values = profile.kind(table.has_decimal_commas) != ValueKind::Nothing;
        let values = if has_values { format!(" ({})", describe(table, profile)) } else { String::new() };
        lines.comment(4, &format!("- {}: {why}{values}", scalar(&profile.name)));
    }
}
