//! What is compared: for each row our bench, the peer's scripts, and what is to be reached.

use super::ours::{Ours, Value};
use super::python::{Script, Set};

/// One row of the table.
#[derive(Debug)]
pub(super) struct Row {
    /// Its name on the command line.
    pub(super) name: &'static str,
    /// What is measured.
    pub(super) what: &'static str,
    /// Of the values.
    pub(super) unit: Unit,
    pub(super) ours: Ours,
    /// The peer's ways of doing it; none where it has none.
    pub(super) peers: &'static [Script],
    pub(super) target: Target,
    /// The least fraction of the ceiling, where one is to be reached.
    pub(super) least_fraction: Option<f64>,
    /// Whether it takes minutes and is measured in the first round only.
    pub(super) is_slow: bool,
}

/// What values are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Unit {
    Milliseconds,
    Seconds,
    /// A second.
    Edges,
    /// A second.
    Rows,
    Bytes,
    Share,
}

/// What a row is to reach. Ratios are ours by the other.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// At least so many times the peer's rate.
    TimesPeer(f64),
    /// At most this part of the peer's time.
    OfPeer(f64),
    /// At least so many times the rate of another row of ours.
    TimesRow(f64, &'static str),
    /// At least the peer's less this.
    PeerLess(f64),
    AtMost(f64),
    AtLeast(f64),
}

/// A value of ours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cell {
    pub(super) value: f64,
    /// The machine's bound by the median, for rows with a ceiling.
    pub(super) ceiling_fraction: Option<f64>,
}

/// A row with its medians.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) row: &'static Row,
    pub(super) ours: Cell,
    pub(super) peer: Option<f64>,
}

impl Unit {
    /// Whether more is better.
    pub(super) fn is_rate(self) -> bool {
        matches!(self, Self::Edges | Self::Rows | Self::Share)
    }

    /// A value with its unit.
    pub(super) fn say(self, value: f64) -> String {
        match self {
            Self::Milliseconds => format!("{value:.1} ms"),
            Self::Seconds => format!("{value:.2} s"),
            Self::Edges => format!("{:.1} M edges/s", value / 1e6),
            Self::Rows => format!("{:.2} M rows/s", value / 1e6),
            Self::Bytes => format!("{:.2} GiB", value / f64::from(1 << 30)),
            Self::Share => format!("{value:.4}"),
        }
    }
}

impl Outcome {
    /// Ours by the peer's.
    pub(super) fn ratio(&self) -> Option<f64> {
        Some(self.ours.value / self.peer?)
    }

    /// Whether row and ceiling are reached; `None` when what it compares with was not measured.
    pub(super) fn is_met(&self, all: &[Self]) -> Option<bool> {
        let value = self.ours.value;
        let is_met = match self.row.target {
            Target::TimesPeer(times) => times <= self.ratio()?,
            Target::OfPeer(part) => self.ratio()? <= part,
            Target::TimesRow(times, name) => {
                let other = all.iter().find(|other| other.row.name == name)?;
                times <= value / other.ours.value
            }
            Target::PeerLess(difference) => self.peer? - difference <= value,
            Target::AtMost(most) => value <= most,
            Target::AtLeast(least) => least <= value,
        };
        let fraction = self.ours.ceiling_fraction;
        Some(is_met && self.row.least_fraction.is_none_or(|least| fraction.is_some_and(|of| least <= of)))
    }
}

const GIB: f64 = (1_u64 << 30) as f64;

const fn script(set: Set, file: &'static str, args: &'static [&'static str], what: &'static str) -> Script {
    Script { set, file, args, what }
}

const fn bench(set: Set, stage: &'static str, variant: &'static str, threads: u32, value: Value) -> Ours {
    Ours::Bench { set, stage, variant, threads, value }
}

const fn row(
    name: &'static str,
    what: &'static str,
    unit: Unit,
    ours: Ours,
    peers: &'static [Script],
    target: Target,
) -> Row {
    Row { name, what, unit, ours, peers, target, least_fraction: None, is_slow: false }
}

impl Row {
    const fn least(self, fraction: f64) -> Self {
        Self { least_fraction: Some(fraction), ..self }
    }

    const fn slow(self) -> Self {
        Self { is_slow: true, ..self }
    }
}

use Set::{Arxiv, Fake, Imdb, Products};
use Target::{AtLeast, AtMost, OfPeer, PeerLess, TimesPeer, TimesRow};
use Unit::{Bytes, Edges, Milliseconds, Rows, Seconds, Share};
use Value::{Rate, Time};

/// A single thread for both; the batches are DGL's: each hop samples for all nodes reached so far.
const SAMPLE_1: [Script; 2] = [
    script(Products, "sample.py", &["--mode", "classic", "--fanouts", "15,10,5", "--threads", "1"], "edges"),
    script(
        Products,
        "sample.py",
        &["--mode", "graphbolt", "--fanouts", "15,10,5", "--threads", "1"],
        "edges",
    ),
];
const SAMPLE_2: [Script; 1] = [script(
    Products,
    "sample.py",
    &["--mode", "graphbolt", "--fanouts", "15,10,5", "--threads", "2"],
    "edges",
)];
const ROWS_1: [Script; 1] =
    [script(Products, "sample.py", &["--mode", "rows", "--fanouts", "15,10,5", "--threads", "1"], "rows")];
const AGGREGATE_1: &[&str] = &["--fanouts", "15,10,5", "--threads", "1"];
const AGGREGATE_2: &[&str] = &["--fanouts", "15,10,5", "--threads", "2"];
const FORWARD_1: [Script; 1] = [script(Products, "aggregate.py", AGGREGATE_1, "forward")];
const BACKWARD_1: [Script; 1] = [script(Products, "aggregate.py", AGGREGATE_1, "backward")];
const BACKWARD_2: [Script; 1] = [script(Products, "aggregate.py", AGGREGATE_2, "backward")];
const TRAIN_ARXIV: &[&str] = &["--steps", "20", "--threads", "2"];
const TRAIN_PRODUCTS: &[&str] = &["--steps", "20", "--fanouts", "15,10,5", "--threads", "2"];
const STEP_ARXIV: [Script; 1] = [script(Arxiv, "train.py", TRAIN_ARXIV, "step")];
const STEP_PRODUCTS: [Script; 1] = [script(Products, "train.py", TRAIN_PRODUCTS, "step")];
const ACCURACY: [Script; 1] = [script(Arxiv, "train.py", &["--epochs", "5", "--threads", "2"], "accuracy")];
const GIN: [Script; 1] = [script(Imdb, "gin.py", &["--threads", "2"], "epoch")];
const GCN_ARGS: &[&str] = &[
    "--model",
    "gcn",
    "--fanouts",
    "50,50",
    "--hidden",
    "64",
    "--batch",
    "128",
    "--decay",
    "0.0005",
    "--steps",
    "40",
    "--threads",
    "2",
];
const GCN: [Script; 1] = [script(Fake, "train.py", GCN_ARGS, "step")];
const FIRST_STEP: [Script; 1] = [script(Arxiv, "train.py", TRAIN_ARXIV, "first_step")];
const MEMORY_ARXIV: [Script; 1] = [script(Arxiv, "train.py", TRAIN_ARXIV, "memory")];
const MEMORY_PRODUCTS: [Script; 1] = [script(Products, "train.py", TRAIN_PRODUCTS, "memory")];

/// All rows, in the order of a step.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("sample", "sample and relabel, products-like [15, 10, 5], 1,024 seeds, 1 thread", Edges,
        bench(Products, "sample", "uniform-15-10-5", 1, Rate), &SAMPLE_1, TimesPeer(6.0)).least(0.7),
    row("sample-2", "the same with 2 threads", Edges,
        bench(Products, "sample", "uniform-15-10-5-workers", 2, Rate), &SAMPLE_2, TimesRow(1.8, "sample")),
    row("gather", "gather its 603 k random rows of 400 B, 1 thread", Rows,
        bench(Products, "gather", "dense-f32x100", 1, Rate), &ROWS_1, TimesPeer(4.0)).least(0.7),
    row("forward", "mean of its largest block, 128 columns, 1 thread", Milliseconds,
        bench(Products, "aggregate", "mean-forward", 1, Time), &FORWARD_1, OfPeer(0.9)).least(0.8),
    row("backward", "its gradient on a fresh block, 1 thread", Milliseconds,
        bench(Products, "aggregate", "mean-backward-transpose", 1, Time), &BACKWARD_1, OfPeer(0.35)),
    row("backward-2", "the same with 2 threads", Milliseconds,
        bench(Products, "aggregate", "mean-backward-transpose", 2, Time), &BACKWARD_2, OfPeer(0.35)),
    row("step-arxiv", "GraphSAGE 3 x 256, a step, arxiv-like [10, 10, 10], 2 threads", Milliseconds,
        bench(Arxiv, "step", "sage-3x256-10-10-10", 2, Time), &STEP_ARXIV, OfPeer(0.25)),
    row("step-products", "the same, products-like [15, 10, 5]", Milliseconds,
        bench(Products, "step", "sage-3x256-15-10-5", 2, Time), &STEP_PRODUCTS, OfPeer(0.25)),
    row("accuracy", "its validation accuracy after 5 epochs, arxiv-like", Share,
        Ours::Accuracy { set: Arxiv }, &ACCURACY, PeerLess(0.01)).slow(),
    row("gin", "GIN 2 x 64, an epoch of 800 graphs of 20 nodes, batches of 32, 2 threads", Milliseconds,
        bench(Imdb, "step", "gin-2x64-epoch", 2, Time), &GIN, OfPeer(0.35)),
    row("gcn", "GCN 2 x 64, a step, fake graph of 100,000 nodes, [50, 50], 128 seeds, 2 threads", Milliseconds,
        bench(Fake, "step", "gcn-2x64-50-50", 2, Time), &GCN, OfPeer(0.35)),
    row("first-step", "start of the process to the end of the first step, arxiv-like", Seconds,
        Ours::FirstStep { set: Arxiv }, &FIRST_STEP, OfPeer(0.12)),
    row("memory-arxiv", "peak memory in training, arxiv-like (ours anonymous, DGL's resident)", Bytes,
        Ours::Memory { set: Arxiv }, &MEMORY_ARXIV, AtMost(0.55 * GIB)),
    row("memory-products", "the same, products-like", Bytes,
        Ours::Memory { set: Products }, &MEMORY_PRODUCTS, AtMost(1.5 * GIB)),
    row("ingest", "edge list to CSC, products-like, 2 threads", Edges,
        bench(Products, "graph", "ingest", 2, Rate), &[], AtLeast(30e6)).slow(),
];

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An outcome of the row of this name.
    pub(in super::super) fn outcome(
        name: &str,
        value: f64,
        fraction: Option<f64>,
        peer: Option<f64>,
    ) -> Outcome {
        let row = ROWS.iter().find(|row| row.name == name).unwrap();
        Outcome { row, ours: Cell { value, ceiling_fraction: fraction }, peer }
    }

    fn is_met(name: &str, value: f64, fraction: Option<f64>, peer: Option<f64>) -> Option<bool> {
        let others = [outcome("sample", 50e6, None, None)];
        outcome(name, value, fraction, peer).is_met(&others)
    }

    #[test]
    fn a_rate_is_met_at_so_many_times_the_peers_and_its_part_of_the_ceiling() {
        assert_eq!(is_met("sample", 60e6, Some(0.7), Some(10e6)), Some(true));
        assert_eq!(is_met("sample", 59e6, Some(0.7), Some(10e6)), Some(false));
        assert_eq!(is_met("sample", 60e6, Some(0.69), Some(10e6)), Some(false));
        assert_eq!(is_met("sample", 60e6, None, Some(10e6)), Some(false));
        assert_eq!(is_met("sample", 60e6, Some(0.7), None), None);
    }

    #[test]
    fn a_time_is_met_at_its_part_of_the_peers() {
        assert_eq!(is_met("backward", 35.0, None, Some(100.0)), Some(true));
        assert_eq!(is_met("backward", 36.0, None, Some(100.0)), Some(false));
    }

    #[test]
    fn other_targets_compare_with_another_row_or_with_a_number() {
        assert_eq!(is_met("sample-2", 90e6, None, Some(1.0)), Some(true));
        assert_eq!(is_met("sample-2", 89e6, None, Some(1.0)), Some(false));
        assert_eq!(outcome("sample-2", 90e6, None, None).is_met(&[]), None);
        assert_eq!(is_met("accuracy", 0.768, None, Some(0.778)), Some(true));
        assert_eq!(is_met("accuracy", 0.767, None, Some(0.778)), Some(false));
        assert_eq!(is_met("memory-arxiv", 0.56 * GIB, None, None), Some(false));
        assert_eq!(is_met("ingest", 30e6, None, None), Some(true));
    }

    #[test]
    fn names_of_rows_differ() {
        let mut names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
    }
}
