//! Stage `gather`: the feature rows of one batch's input nodes. The rates are rows, and bytes of rows
//! written.

use std::error::Error;

use criterion::{BenchmarkId, Throughput};
use kiln_benches::{inputs, settings};
use kiln_feature::RowBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = settings();
    let mut group = criterion.benchmark_group("gather");
    for input in inputs()? {
        let sampled = input.sampled()?;
        let nodes = sampled.blocks[0].srcs();
        let features = &input.dataset.features;
        let mut rows = RowBuf::empty(features.row_type());
        features.gather(nodes, &mut rows)?;
        group.throughput(Throughput::Elements(nodes.len() as u64));
        let variant = format!("dense-{}x{}", features.row_type(), features.dim());
        group.bench_function(BenchmarkId::new(variant, input.name), |bencher| {
            bencher.iter(|| features.gather(nodes, &mut rows).expect("input nodes should have features"));
        });
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}
