//! Losses, metrics, callbacks and loops of one's own, and training from given weights.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod callbacks;
mod initial_heads;
mod initial_weights;
mod loops;
mod losses;
mod metrics;

use std::path::Path;

use kiln::prelude::*;
use kiln::train::RunRecord;
use serde_json::Value;

/// Returns a cycle of `n` nodes with four features each, whose class is that of the largest of the first features.
pub(crate) fn cycle(n: u32, n_classes: u32) -> Dataset {
    let feature = |node: u32, column: u32| {
        (node * 4 + column).wrapping_mul(2_654_435_761).rotate_right(9) as f32 / u32::MAX as f32
    };
    let class = |node: u32| {
        let of_node = |column: &u32| feature(node, *column);
        (0..n_classes).max_by(|one, other| of_node(one).total_cmp(&of_node(other))).unwrap() as i32
    };
    let srcs: Vec<u32> = (0..n).collect();
    let dsts: Vec<u32> = (0..n).map(|node| (node + 1) % n).collect();
    let part = |range: std::ops::Range<u32>| range.map(NodeId).collect::<Vec<_>>();
    Dataset::builder(n as usize)
        .name("cycle")
        .edges(&srcs, &dsts)
        .symmetrize()
        .features(
            (0..n).flat_map(|node| (0..4).map(move |column| feature(node, column))).collect::<Vec<_>>(),
            4,
        )
        .labels((0..n).map(class).collect::<Vec<_>>(), n_classes as usize)
        .split(part(0..n / 2), part(n / 2..3 * n / 4), part(3 * n / 4..n))
        .build()
        .unwrap()
}

pub(crate) fn loader(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, [2, 2]).batch_size(32).workers(0)
}

pub(crate) fn trainer(data: &Dataset) -> Trainer<SageConfig> {
    Trainer::new(SageConfig::for_data(data).layers(2).hidden(8), AdamConfig::new(1e-2)).seed(3)
}

fn quiet(n_epochs: usize, out: &Path) -> FitConfig {
    FitConfig::epochs(n_epochs).out(out).quiet()
}

fn rows(out: &Path) -> Vec<Value> {
    let lines = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn summary(out: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(out.join("summary.json")).unwrap()).unwrap()
}

fn record(out: &Path) -> RunRecord {
    RunRecord::read(out).unwrap()
}
