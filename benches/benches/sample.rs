//! Stage `sample`: the blocks of one batch, on one thread, as a loader's worker makes them. The rate is
//! edges of the blocks.

use std::error::Error;
use std::sync::Arc;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Throughput};
use kiln_benches::{FANOUTS, Input, inputs, settings};
use kiln_graph::Block;
use kiln_sample::{BlockSampler, FullNeighbors, NeighborSampler, RngKey, Scratch};

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = settings();
    let mut group = criterion.benchmark_group("sample");
    for input in inputs()? {
        let graph = &input.dataset.graph;
        let replacement = NeighborSampler::with_replacement(Arc::clone(graph), FANOUTS);
        bench(&mut group, "uniform-10-10-10", &input, &input.sampler())?;
        bench(&mut group, "replacement-10-10-10", &input, &replacement)?;
        bench(&mut group, "full-1", &input, &FullNeighbors::new(Arc::clone(graph), 1))?;
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}

fn bench(
    group: &mut BenchmarkGroup<'_, WallTime>,
    variant: &str,
    input: &Input,
    sampler: &impl BlockSampler,
) -> Result<(), kiln_sample::Error> {
    let (seeds, key, mut scratch) = (input.seeds(), RngKey::new(0), Scratch::default());
    let sampled = sampler.sample_blocks(&seeds, key, &mut scratch)?;
    let n_edges: usize = sampled.blocks.iter().map(Block::n_edges).sum();
    group.throughput(Throughput::Elements(n_edges as u64));
    group.bench_function(BenchmarkId::new(variant, input.name), |bencher| {
        bencher.iter(|| {
            sampler.sample_blocks(&seeds, key, &mut scratch).expect("the seeds should be nodes of the graph")
        });
    });
    Ok(())
}
