//! Stage `aggregate`: messages of a batch's largest block to its destinations, 128 or so columns wide. The
//! rate is edges of the block. `-train` is the result and the gradient of its sum.

use std::error::Error;
use std::hint::black_box;

use burn::tensor::{Device, Tensor, TensorData};
use criterion::{BenchmarkId, Throughput};
use kiln_benches::{inputs, settings};
use kiln_feature::RowBuf;
use kiln_kernels::{DeviceBlock, ops};

/// An aggregation as the layers call it.
type Op = fn(&DeviceBlock, Tensor<2>) -> Tensor<2>;

const OPS: [(&str, Op); 3] =
    [("sum", ops::neighbor_sum), ("mean", ops::neighbor_mean), ("max", ops::neighbor_max)];

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::flex();
    let mut criterion = settings();
    let mut group = criterion.benchmark_group("aggregate");
    for input in inputs()? {
        let sampled = input.sampled()?;
        let features = &input.dataset.features;
        let mut rows = RowBuf::default();
        features.gather(sampled.blocks[0].srcs(), &mut rows)?;
        let data = TensorData::new(rows.into_f32(), [sampled.blocks[0].n_src(), features.dim()]);
        let block = DeviceBlock::upload(&sampled.blocks[0], &device);
        let x = Tensor::<2>::from_data(data.clone(), &device);
        let tracked = Tensor::<2>::from_data(data, &device.clone().autodiff()).require_grad();
        group.throughput(Throughput::Elements(block.n_edges() as u64));
        for (name, op) in OPS {
            group.bench_function(BenchmarkId::new(name, input.name), |bencher| {
                bencher.iter(|| black_box(op(&block, x.clone())));
            });
            group.bench_function(BenchmarkId::new(format!("{name}-train"), input.name), |bencher| {
                bencher.iter(|| tracked.grad(&op(&block, tracked.clone()).sum().backward()));
            });
        }
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}
