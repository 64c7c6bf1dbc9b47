//! Prints a summary as tables.

use std::fmt;

use kiln_feature::TargetKind;
use kiln_store::{AlignedTable, counted};

use super::{
    ColumnSummary, DatasetSummary, DegreeSummary, FeatureSummary, OutputSummary, RelationSummary,
    TargetSummary, TaskSummary, TimesSummary,
};
use crate::TimeSplit;
use crate::dataset::noun;

/// The maximum number of columns of a type, and of classes, that are printed.
const MAX_LINES: usize = 50;

/// The maximum number of characters of what the features of a column are.
const MAX_MEANING: usize = 60;

impl fmt::Display for FeatureSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dim, dtype, is_sparse } = self;
        write!(f, "{dim} columns, {dtype}{}", if *is_sparse { ", sparse" } else { "" })
    }
}

impl fmt::Display for DatasetSummary {
    /// Writes tables of the node types and of the relations, and lines about the targets and the split.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_nodes: usize = self.types.iter().map(|node_type| node_type.n_nodes).sum();
        let n_edges: u64 = self.relations.iter().map(|relation| relation.n_edges).sum();
        writeln!(f, "{}: {n_nodes} nodes, {n_edges} edges\n", self.name)?;
        let types = self.types.iter().map(|node_type| {
            let features = node_type.features.map_or_else(|| "none".to_owned(), |found| found.to_string());
            let names = if node_type.is_named { "yes" } else { "no" };
            let new = node_type.n_new.map_or_else(String::new, |n_new| format!(", {n_new} new"));
            [node_type.name.clone(), format!("{}{new}", node_type.n_nodes), features, names.to_owned()]
        });
        write_table(f, ["node type", "nodes", "features", "names"], types)?;
        for node_type in self.types.iter().filter(|node_type| !node_type.columns.is_empty()) {
            writeln!(f)?;
            let of_type = format!("column of {}", node_type.name);
            let header = [of_type.as_str(), "width", "values", "range", "missing"];
            write_table(f, header, node_type.columns.iter().take(MAX_LINES).map(ColumnSummary::fields))?;
            if MAX_LINES < node_type.columns.len() {
                writeln!(f, "{} more", counted((node_type.columns.len() - MAX_LINES) as u64, "column"))?;
            }
        }
        writeln!(f)?;
        const HEADER: [&str; 5] = ["relation", "from", "to", "edges", "in-degree: min, median, max"];
        write_table(f, HEADER, self.relations.iter().map(RelationSummary::fields))?;
        if !self.edge_types.is_empty() {
            writeln!(f)?;
            let header = ["edge type", "from", "to", "edges", HEADER[4]];
            write_table(f, header, self.edge_types.iter().map(RelationSummary::fields))?;
        }
        writeln!(f)?;
        for relation in &self.relations {
            for (name, width) in &relation.edge_columns {
                let width = counted(*width as u64, "value");
                writeln!(f, "edge column `{name}` of {}: {width} per edge", relation.name)?;
            }
        }
        write!(f, "{}", self.times)?;
        if let Some([train, val, test]) = self.n_links {
            writeln!(f, "links: {train} to train, {val} to validate, {test} to test")?;
        }
        if let Some(targets) = &self.link_targets {
            writeln!(f, "{targets}\n")?;
        }
        for TaskSummary { name, times, targets } in &self.tasks {
            let kind = self.times.kind;
            let times = times.map(|[first, last]| format!(", {} to {}", kind.text(first), kind.text(last)));
            writeln!(f, "task table `{name}`{}", times.unwrap_or_default())?;
            writeln!(f, "{targets}\n")?;
        }
        match &self.targets {
            Some(targets) => targets.fmt(f),
            None => write!(f, "targets: none"),
        }
    }
}

impl fmt::Display for TargetSummary {
    /// Writes lines about the targets and the split, and a table of the outputs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, items, kind, n_outputs, n_items, n_labelled, n_split, outputs } = self;
        let [train, val, test] = n_split;
        writeln!(
            f,
            "targets: {n_outputs} {} of {name}, known for {n_labelled} of {n_items} {items}",
            noun(*kind)
        )?;
        write!(f, "split: {train} / {val} / {test} {items} to train, validate, test")?;
        write_outputs(f, *kind, items, outputs)
    }
}

impl fmt::Display for TimesSummary {
    /// Writes a line for each node type and relation with times, and one for the split by time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, types, relations, split, has_stored_order } = self;
        for (what, ranges) in [("nodes", types), ("edges", relations)] {
            for (name, [first, last]) in ranges {
                writeln!(f, "times of the {what} `{name}`: {} to {}", kind.text(*first), kind.text(*last))?;
            }
        }
        if *has_stored_order {
            writeln!(f, "the order of the edges by time is stored")?;
        }
        let Some(TimeSplit { train, val, test }) = split else { return Ok(()) };
        write!(f, "split by time: ")?;
        if let Some(train) = train {
            write!(f, "train from {}, ", kind.text(*train))?;
        }
        writeln!(f, "validate from {}, test from {}", kind.text(*val), kind.text(*test))
    }
}

impl RelationSummary {
    fn fields(&self) -> [String; 5] {
        let edges = format!("{}{}", self.n_edges, if self.has_weights { ", weighted" } else { "" });
        let degrees = self.in_degrees.map_or_else(
            || "none".to_owned(),
            |DegreeSummary { min, median, max }| format!("{min}, {median}, {max}"),
        );
        [self.name.clone(), self.src_type.clone(), self.dst_type.clone(), edges, degrees]
    }
}

impl ColumnSummary {
    fn fields(&self) -> [String; 5] {
        let mut meaning: String = self.meaning.chars().take(MAX_MEANING).collect();
        if meaning.len() < self.meaning.len() {
            meaning.push('…');
        }
        let range = self.range.map_or_else(|| "none".to_owned(), |[min, max]| shown_range(min, max));
        let missing = match self.missing_share {
            None => "not recorded".to_owned(),
            Some(0.0) => "none".to_owned(),
            Some(share) if share < 0.0005 => "less than 0.1 %".to_owned(),
            Some(share) => format!("{:.1} %", 100.0 * share),
        };
        [self.name.clone(), self.width.to_string(), meaning, range, missing]
    }
}

/// Returns a range of numbers with four significant digits.
fn shown_range(min: f64, max: f64) -> String {
    let [min, max] = [min, max].map(|value| {
        let rounded = format!("{value:.3e}");
        let rounded: f64 = rounded.parse().unwrap_or(value);
        match rounded.abs() {
            _ if value.fract() == 0.0 && value.abs() < 1e9 => value.to_string(),
            size if (1e-4..1e9).contains(&size) => rounded.to_string(),
            _ => format!("{rounded:e}"),
        }
    });
    if min == max { min } else { format!("{min} to {max}") }
}

/// Writes the classes with their nodes, up to a number of lines; the others are counted.
fn write_outputs(
    f: &mut fmt::Formatter<'_>,
    kind: TargetKind,
    items: &str,
    outputs: &[OutputSummary],
) -> fmt::Result {
    if outputs.is_empty() {
        return Ok(());
    }
    let (noun, plural, values) = match kind {
        TargetKind::Classes => ("class", "classes", ""),
        TargetKind::MultiLabel => ("label", "labels", ""),
        _ => ("target", "targets", "range"),
    };
    let rows = outputs.iter().take(MAX_LINES).map(|output| {
        let OutputSummary { name, n_items, n_split: [train, val, test], range } = output;
        let range = range.map_or_else(String::new, |[min, max]| shown_range(min.into(), max.into()));
        [name.clone(), n_items.to_string(), train.to_string(), val.to_string(), test.to_string(), range]
    });
    write!(f, "\n\n{}", table([noun, items, "train", "val", "test", values], rows))?;
    let others = outputs.get(MAX_LINES..).unwrap_or_default();
    let n_items: usize = others.iter().map(|output| output.n_items).sum();
    match (others.len(), kind) {
        (0, _) => Ok(()),
        (1, TargetKind::Classes) => write!(f, "\n1 more {noun}: {n_items} {items}"),
        (n_others, TargetKind::Classes) => write!(f, "\n{n_others} more {plural}: {n_items} {items}"),
        // A node has several labels or numbers.
        (1, _) => write!(f, "\n1 more {noun}"),
        (n_others, _) => write!(f, "\n{n_others} more {plural}"),
    }
}

/// Writes a table with a line break behind its last line.
fn write_table<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    header: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> fmt::Result {
    writeln!(f, "{}", table(header, rows))
}

fn table<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> AlignedTable {
    let headings = header.map(str::to_owned).to_vec();
    AlignedTable { headings, rows: rows.map(Vec::from).collect() }
}
