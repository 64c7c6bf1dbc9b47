//! Stage `device`: means over segments of random rows, sampling and gathering of fresh batches, and whole training
//! steps, all on the device that `KILN_DEVICE` names, or on the CPU. The measured time includes the wait for the
//! device. On a GPU, the tables exceed its caches, unless `KILN_BENCH_SMALL` is set, for a test of the benches themselves.
//!
//! Benches that are limited by memory bandwidth count all bytes that are read or written, so that their rates can be
//! compared with the rate of `copy`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use burn::tensor::{DType, Device, Tensor, TensorData};
use kiln_benches::{Endless, Input, Result, Stage, Work, inputs, train};
use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
use kiln_kernels::ops::{self, Reduction};
use kiln_kernels::testing::device;
use kiln_kernels::{DeviceBlock, DeviceFeatures, DeviceGraph, DeviceSampler, run_on_load_stream};
use kiln_sample::{Scratch, Seeds};
use kiln_train::DeviceNodeBatcher;

/// The number of batches that a bench cycles through.
const N_BATCHES: usize = 16;

/// The number of columns and the element type of the rows, for each bench of means.
const ROWS: [(usize, DType); 4] =
    [(100, DType::F32), (128, DType::F32), (256, DType::F32), (256, DType::BF16)];

/// The environment variable that, if set, omits the benches `copy` and `mean-*`, which need no data set.
const INPUTS_ONLY: &str = "KILN_BENCH_INPUTS_ONLY";

/// The sizes of the benches' inputs.
struct Scale {
    name: &'static str,
    n_rows: usize,
    n_edges: usize,
    /// The number of f32 values that the bench `copy` reads and writes.
    n_copied: usize,
}

/// Returns small sizes for the CPU, and sizes that exceed all caches for GPUs. If `KILN_BENCH_SMALL` is set, the sizes
/// suit the stub of the CUDA driver, which executes a kernel's threads one after the other.
fn scale() -> Scale {
    if std::env::var_os("KILN_BENCH_SMALL").is_some() {
        return Scale { name: "1Ki-rows", n_rows: 1 << 10, n_edges: 2_000, n_copied: 1 << 14 };
    }
    let name = std::env::var("KILN_DEVICE").unwrap_or_default();
    if name.starts_with("cuda") || name.starts_with("wgpu") {
        Scale { name: "2Mi-rows", n_rows: 1 << 21, n_edges: 10_000_000, n_copied: 1 << 28 }
    } else {
        Scale { name: "16Ki-rows", n_rows: 1 << 14, n_edges: 40_000, n_copied: 1 << 20 }
    }
}

pub(crate) fn main() -> Result {
    let device = device();
    let scale = scale();
    let mut stage = Stage::new("device");
    stage.samples(10);
    if std::env::var_os(INPUTS_ONLY).is_none() {
        copy(&mut stage, &device, &scale)?;
        means(&mut stage, &device, &scale)?;
    }
    for input in inputs()? {
        batches(&mut stage, &device, &input)?;
        steps(&mut stage, &device, &input)?;
    }
    stage.finish();
    Ok(())
}

/// Waits until the device has completed all submitted work.
fn wait(device: &Device) {
    device.sync().expect("the device should not fail");
}

/// Benches a pass that reads and writes each value once, as the reference for other rates.
fn copy(stage: &mut Stage, device: &Device, scale: &Scale) -> Result {
    let x = Tensor::<1>::ones([scale.n_copied], device);
    let work = Work::new(8 * scale.n_copied as u64, "bytes", 1);
    stage.bench("copy", scale.name, work, |bencher| {
        bencher.iter(|| {
            // The clone keeps the tensor in use, so the result is written to another buffer.
            black_box(x.clone().add_scalar(1.0));
            wait(device);
        });
    })
}

fn means(stage: &mut Stage, device: &Device, scale: &Scale) -> Result {
    for degree in [10, 50] {
        let block = DeviceBlock::new(random_block(scale, degree), device);
        for (dim, dtype) in ROWS {
            if !device.supports_dtype(dtype) {
                continue;
            }
            let values = (0..scale.n_rows * dim).map(|place| (place % 1021) as f32 / 1021.0).collect();
            let x = Tensor::<2>::from_data(TensorData::new::<f32, _>(values, [scale.n_rows, dim]), device);
            let x = x.cast(dtype);
            let row_bytes = (dim * dtype.size()) as u64;
            let n_edges = block.n_edges() as u64;
            let n_dst = block.n_dst() as u64;
            let work = Work::new(n_edges * (row_bytes + 4) + n_dst * (row_bytes + 8), "bytes", 1);
            let variant = format!("mean-{dim}-{dtype:?}-degree-{degree}").to_lowercase();
            stage.bench(&variant, scale.name, work, |bencher| {
                bencher.iter(|| {
                    black_box(ops::aggregate(&block, x.clone(), Reduction::Mean));
                    wait(device);
                });
            })?;
        }
    }
    Ok(())
}

/// Returns a block in which every destination has this degree, and the sources are random rows of the table.
fn random_block(scale: &Scale, degree: usize) -> Block {
    let n_dst = scale.n_edges / degree;
    let n_rows = scale.n_rows as u64;
    let n_edges = n_dst * degree;
    // The upper bits of the golden ratio's multiples give evenly distributed rows without locality.
    let upper = |edge: usize| (edge as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let source = |edge: usize| (upper(edge) * n_rows) >> 32;
    Block::new(BlockParts {
        srcs: (0..scale.n_rows as u32).map(NodeId).collect(),
        indptr: (0..=n_dst).map(|dst| (dst * degree) as u32).collect(),
        indices: (0..n_edges).map(|edge| LocalId(source(edge) as u32)).collect(),
        edge_ids: (0..n_edges as u64).map(EdgeId).collect(),
        ..BlockParts::default()
    })
}

fn batches(stage: &mut Stage, device: &Device, input: &Input) -> Result {
    let (sampler, features) = parts(device, input)?;
    let batches = input.batches(N_BATCHES)?;
    let mut scratch = Scratch::default();
    let mut sample = |number: usize| {
        let batch = &batches[number % batches.len()];
        let sampled = run_on_load_stream(device, || {
            sampler.sample_blocks(&Seeds::nodes(batch.seeds.clone()), batch.key, &mut scratch)
        });
        sampled.expect("the device should not fail").expect("the seeds should be nodes of the graph")
    };
    let sampled: Vec<_> = (0..batches.len()).map(&mut sample).collect();
    let n_edges: usize = sampled.iter().flat_map(|batch| &batch.blocks).map(DeviceBlock::n_edges).sum();
    let mut number = 0;
    let variant = format!("sample-{}", input.fanouts_name());
    let work = Work::new((n_edges / sampled.len()) as u64, "edges", 1);
    stage.bench(&variant, &input.name, work, |bencher| {
        bencher.iter(|| {
            number += 1;
            black_box(sample(number));
        });
    })?;
    let n_rows: usize = sampled.iter().map(|batch| batch.input_nodes.dims()[0]).sum();
    let row_bytes = 4 + 4 * features.dim() + input.dataset.node_features()?.dtype().bytes() * features.dim();
    let work = Work::new((n_rows / sampled.len() * row_bytes) as u64, "bytes", 1);
    stage.bench("gather", &input.name, work, |bencher| {
        bencher.iter(|| {
            number += 1;
            let nodes = &sampled[number % sampled.len()].input_nodes;
            let rows =
                run_on_load_stream(device, || features.gather(nodes)).expect("the device should not fail");
            black_box(rows.expect("every node should have features"));
        });
    })
}

fn parts(device: &Device, input: &Input) -> Result<(DeviceSampler, DeviceFeatures)> {
    let graph = DeviceGraph::new(Arc::clone(input.dataset.csc()?), device)?;
    let features = DeviceFeatures::new(input.dataset.node_features()?.clone(), device)?;
    Ok((DeviceSampler::new(graph, input.fanouts.clone()), features))
}

/// Benches steps of GraphSAGE with three layers of 256, on batches that are sampled and gathered on the device.
fn steps(stage: &mut Stage, device: &Device, input: &Input) -> Result {
    let (sampler, features) = parts(device, input)?;
    let batcher = DeviceNodeBatcher::new(sampler.into(), features.into(), input.dataset.labels().clone());
    let mut batches = Endless::new(train::loader(input, batcher)?);
    let mut trainer = train::trainer(input, device)?;
    let mut step = || {
        trainer.step(&mut batches, |_| ()).expect("a step should have a finite loss");
    };
    let n_seeds = input.batches(1)?[0].seeds.len() as u64;
    let variant = format!("sage-3x256-{}", input.fanouts_name());
    stage.bench(&variant, &input.name, Work::new(n_seeds, "seeds", 1), |bencher| {
        bencher.iter_custom(|n_steps| -> Duration {
            step();
            wait(device);
            let started = Instant::now();
            (0..n_steps).for_each(|_| step());
            wait(device);
            started.elapsed()
        });
    })
}
