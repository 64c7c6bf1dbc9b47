//! Stage `aggregate`: aggregates messages of 128 columns over the largest block of a batch, and computes the gradients.
//! The rate counts edges of the block. `heads` has a weight per edge for each of 4 groups of columns, `bases` adds up the
//! rows with 4 weights per edge, and `scores` computes GATv2's scores of 4 heads. `-bf16` and `-f16` read rows of half
//! precision, with sums in f32. `-backward` uses a block that is already transposed; `-backward-transpose`
//! transposes a fresh block, as in training.

use std::hint::black_box;
use std::time::{Duration, Instant};

use burn::tensor::{DType, Device, Tensor, TensorData};
use kiln_benches::{Access, Result, Stage, Work, inputs, n_threads, seconds_to_read_rows};
use kiln_graph::Block;
use kiln_kernels::DeviceBlock;
use kiln_kernels::ops::{self, Aggregation, MessageWeights, OwnRow, Reduction};

/// The benched reductions, each with its name in bench names.
const REDUCTIONS: [(&str, Reduction); 3] =
    [("mean", Reduction::Mean), ("sum", Reduction::Sum), ("max", Reduction::Max)];

/// The number of columns of the aggregated rows.
const DIM: usize = 128;

/// The number of heads or bases: the weights of an edge.
const N_WEIGHTS: usize = 4;

pub(crate) fn main() -> Result {
    let device = Device::flex();
    let mut stage = Stage::new("aggregate");
    for input in inputs()? {
        let sampled = input.sampled(1)?;
        let host = &sampled[0].blocks[0];
        let name = &input.name;
        let values = (0..host.n_src() * DIM).map(|i| (i % 1021) as f32 / 1021.0).collect::<Vec<_>>();
        let work = Works::of(host, &values);
        let data = TensorData::new(values, [host.n_src(), DIM]);
        let block = DeviceBlock::new(transposed(host).0, &device);
        let x = Tensor::<2>::from_data(data.clone(), &device);
        let tracked = Tensor::<2>::from_data(data, &device.clone().autodiff()).require_grad();
        for (op_name, reduce) in REDUCTIONS {
            stage.bench(&format!("{op_name}-forward"), name, work.forward, |bencher| {
                bencher.iter(|| black_box(ops::aggregate(&block, x.clone(), reduce)));
            })?;
            stage.bench(&format!("{op_name}-backward"), name, work.backward, |bencher| {
                bencher.iter_custom(|n| (0..n).map(|_| backward(&block, reduce, &tracked)).sum());
            })?;
        }
        half_precision(&mut stage, name, host, &block, &x)?;
        weighted(&mut stage, name, host, &block, [&x, &tracked], work)?;
        let transposing = work.backward;
        // Transposing needs about three sequential accesses of 8 bytes per edge.
        let transposing = transposing.streamed(transposing.streamed + 24 * host.n_edges() as u64);
        stage.bench("mean-backward-transpose", name, transposing, |bencher| {
            bencher.iter_custom(|n| {
                (0..n)
                    .map(|_| {
                        let (block, elapsed) = transposed(host);
                        elapsed + backward(&DeviceBlock::new(block, &device), Reduction::Mean, &tracked)
                    })
                    .sum()
            });
        })?;
    }
    stage.finish();
    Ok(())
}

/// Benches the aggregations of features of half precision.
fn half_precision(stage: &mut Stage, name: &str, host: &Block, block: &DeviceBlock, x: &Tensor<2>) -> Result {
    for (type_name, dtype) in [("bf16", DType::BF16), ("f16", DType::F16)] {
        let x = x.clone().cast(dtype);
        let n_edges = host.n_edges() as u64;
        let row_bytes = 2 * DIM as u64;
        let work = Work::new(n_edges, "edges", n_threads())
            .rows(n_edges * row_bytes, Access::Read(row_bytes), host.n_src() as u64 * row_bytes)
            .streamed(n_edges * 4 + host.n_dst() as u64 * (4 * DIM as u64 + 8));
        for (op_name, reduce) in REDUCTIONS {
            stage.bench(&format!("{op_name}-forward-{type_name}"), name, work, |bencher| {
                bencher.iter(|| black_box(ops::aggregate_f32(block, x.clone(), reduce)));
            })?;
        }
    }
    Ok(())
}

/// Benches the ops with several weights per edge. `rows` are those of the sources, without and with gradients.
fn weighted(
    stage: &mut Stage,
    name: &str,
    host: &Block,
    block: &DeviceBlock,
    rows: [&Tensor<2>; 2],
    work: Works,
) -> Result {
    let weights = (0..host.n_edges() * N_WEIGHTS).map(|i| (i % 509) as f32 / 509.0).collect::<Vec<_>>();
    let weights = TensorData::new(weights, [host.n_edges(), N_WEIGHTS]);
    let weights = rows.map(|x| Tensor::<2>::from_data(weights.clone(), &x.device()));
    let [weights, tracked] = [weights[0].clone(), weights[1].clone().require_grad()];
    let [x, tracked_x] = rows;
    let aggregate = |x: &Tensor<2>, weights: MessageWeights| {
        let weights = Some(weights);
        let own = OwnRow::Excluded;
        ops::aggregate(block, x.clone(), Aggregation { reduce: Reduction::Sum, weights, own })
    };
    let of_edges = 4 * (host.n_edges() * N_WEIGHTS) as u64;
    let row_bytes = 4 * DIM as u64;
    let Works { forward, backward } = work;
    let weighted = forward.streamed(forward.streamed + of_edges);
    stage.bench("heads-forward", name, weighted, |bencher| {
        bencher.iter(|| black_box(aggregate(x, MessageWeights::PerHead(weights.clone()))));
    })?;
    // The gradient of the weights reads the row of the source of each edge again.
    let both = Work {
        row_traffic: backward.row_traffic + forward.row_traffic,
        replayed: backward.replayed + forward.replayed,
        ..backward
    };
    stage.bench("heads-backward", name, both.streamed(both.streamed + 2 * of_edges), |bencher| {
        let out = || aggregate(tracked_x, MessageWeights::PerHead(tracked.clone()));
        bencher.iter_custom(|n| (0..n).map(|_| time_of_backward(out())).sum());
    })?;
    let wider = (N_WEIGHTS as u64 - 1) * host.n_dst() as u64 * row_bytes;
    stage.bench("bases-forward", name, weighted.streamed(weighted.streamed + wider), |bencher| {
        bencher.iter(|| black_box(aggregate(x, MessageWeights::PerBasis(weights.clone()))));
    })?;
    let dst = ops::take_dst(block, x.clone());
    let attention = Tensor::<2>::ones([N_WEIGHTS, DIM / N_WEIGHTS], &x.device());
    let scores = || ops::attention_scores(block, x.clone(), dst.clone(), attention.clone(), 0.2);
    stage.bench("scores-forward", name, weighted, |bencher| bencher.iter(|| black_box(scores())))
}

/// Returns a copy of the block that caches its transposed block, and the time that transposing took.
fn transposed(block: &Block) -> (Block, Duration) {
    let mut block = block.clone();
    let started = Instant::now();
    block.transpose();
    (block, started.elapsed())
}

/// Returns the time of the backward pass only. The loss is the sum of all results.
fn backward(block: &DeviceBlock, reduce: Reduction, x: &Tensor<2>) -> Duration {
    time_of_backward(ops::aggregate(block, x.clone(), reduce))
}

fn time_of_backward(out: Tensor<2>) -> Duration {
    let started = Instant::now();
    let gradients = black_box(out.backward());
    let elapsed = started.elapsed();
    drop(gradients);
    elapsed
}

/// The work of a forward pass and that of a backward pass, which is a forward pass over the transposed block.
#[derive(Clone, Copy)]
struct Works {
    forward: Work,
    backward: Work,
}

impl Works {
    /// `values` are at least the rows of the sources. A backward pass reads rows of destinations.
    fn of(block: &Block, values: &[f32]) -> Self {
        let forward: Vec<u32> = block.indices().iter().map(|src| src.0).collect();
        let transposed = transposed(block).0;
        let backward = transposed.transposed().map_or_else(Vec::new, |edges| edges.dsts().to_vec());
        let of = |order: &[u32], n_in, n_out| {
            work(block, n_in, n_out).replayed(seconds_to_read_rows(values, DIM, order, n_threads()))
        };
        Self {
            forward: of(&forward, block.n_src(), block.n_dst()),
            backward: of(&backward, block.n_dst(), block.n_src()),
        }
    }
}

/// Returns the work of a pass. For each edge, it reads a row randomly and the index sequentially. For each result, it writes
/// the row and reads the offset, both sequentially.
fn work(block: &Block, n_in: usize, n_out: usize) -> Work {
    let n_edges = block.n_edges() as u64;
    let row_bytes = 4 * DIM as u64;
    Work::new(n_edges, "edges", n_threads())
        .rows(n_edges * row_bytes, Access::Read(row_bytes), n_in as u64 * row_bytes)
        .streamed(n_edges * 4 + n_out as u64 * (row_bytes + 8))
}
