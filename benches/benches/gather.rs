//! Stage `gather`: gathers the feature rows of the input nodes of fresh batches, on one thread. The rate counts rows.

use kiln_benches::{Access, Result, Stage, Work, inputs};
use kiln_feature::FeatureBuffer;
use kiln_graph::NodeId;

/// The number of batches that a bench cycles through.
const N_BATCHES: usize = 4;

pub(crate) fn main() -> Result {
    let mut stage = Stage::new("gather");
    for input in inputs()? {
        let sampled = input.sampled(N_BATCHES)?;
        let batches: Vec<&[NodeId]> = sampled.iter().map(|batch| batch.blocks[0].srcs()).collect();
        let features = input.dataset.node_features()?;
        let n_rows = batches.iter().map(|nodes| nodes.len()).sum::<usize>() / batches.len();
        let row_bytes = (features.dim() * features.dtype().bytes()) as u64;
        let work = Work::new(n_rows as u64, "rows", 1).rows(
            2 * n_rows as u64 * row_bytes,
            Access::Gather(row_bytes),
            features.n_rows() as u64 * row_bytes,
        );
        let variant = format!("dense-{}x{}", features.dtype(), features.dim());
        let mut rows = FeatureBuffer::empty(features.dtype());
        let mut next = 0;
        stage.bench(&variant, &input.name, work, |bencher| {
            bencher.iter(|| {
                next = (next + 1) % batches.len();
                features.gather(batches[next], &mut rows).expect("input nodes should have features");
            });
        })?;
    }
    stage.finish();
    Ok(())
}
