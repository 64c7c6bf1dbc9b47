//! Checks that ranks share one graph and one feature matrix: measures the heap that each additional rank needs, with
//! the allocator of this test binary.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use kiln_data::{Dataset, DatasetTargets};
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Device;
use kiln_feature::{DenseFeatures, Labels};
use kiln_loader::{Phase, Shard};
use kiln_nn::{Aggregate, Sage, SageConfig};
use kiln_sample::RngKey;
use kiln_train::{NodeClassification, TaskTrainer, VALIDATION};
use peak_alloc::PeakAlloc;

use common::{config, data, loader, nodes, ranks, shard};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const TRAIN: Phase = Phase::Train { epoch: 0 };

const N_NODES: usize = 120_000;
const DIM: usize = 128;
const HIDDEN: usize = 32;
const N_SEEDS: u32 = 800;

/// The number of seeds of one rank in a step.
const BATCH: usize = 40;

/// The workspace of the matrix product in each thread, at most the size of a core's L2 cache. A thread releases it some
/// time after its work.
const WORKSPACE: usize = 4 << 20;

/// Returns the peak of the heap during `run`, in bytes.
fn peak_bytes(run: impl FnOnce()) -> usize {
    HEAP.reset_peak_usage();
    run();
    HEAP.peak_usage()
}

/// Returns a dataset with 61 MB of features.
fn wide_data() -> Dataset {
    let values: Vec<f32> = (0..N_NODES * DIM).map(|i| (i % 97) as f32 / 97.0).collect();
    let labels: Vec<i32> = (0..N_NODES as i32).map(|node| node % 4).collect();
    let features = Arc::new(DenseFeatures::from_f32(values, DIM).unwrap());
    let data = data(N_NODES);
    let targets = DatasetTargets::new(0, Labels::new(labels, 4).into(), data.split().clone());
    Dataset { features: vec![Some(features)], targets: Some(targets), ..data }
}

fn model() -> Sage {
    let (d_in, hidden, n_classes, aggregate) = (DIM, HIDDEN, 4, Aggregate::Mean);
    let config = SageConfig {
        d_in,
        hidden,
        n_classes,
        n_layers: 2,
        aggregate,
        input_dropout: 0.1,
        dropout: 0.5,
        ..SageConfig::new(d_in, n_classes)
    };
    config.init(RngKey::new(1), &Device::flex().autodiff()).unwrap()
}

/// Runs an epoch and a validation on this many ranks.
fn train(data: &Dataset, n_ranks: usize) {
    let trained = ranks(n_ranks).run(|comm| {
        let loader = loader(data, &nodes(N_SEEDS), BATCH * n_ranks, shard(&*comm));
        let mut trainer = TaskTrainer::new(NodeClassification::new(), &config(), comm, |_, _| Ok(model()))?;
        let trained = trainer.epoch(&loader, |_| ())?.counts.total;
        Ok([trained, trainer.evaluate(loader.epoch(VALIDATION), |_, _| ())?.total])
    });
    assert_eq!(trained.unwrap(), vec![[u64::from(N_SEEDS); 2]; n_ranks]);
}

/// Returns the upper bound of one rank's memory, from the sizes of its components.
fn bound_bytes(data: &Dataset) -> usize {
    let parameters = model().num_params() * size_of::<f32>();
    let (mut batch, mut n_inputs) = (0, 0);
    for made in loader(data, &nodes(N_SEEDS), BATCH, Shard::default()).epoch(TRAIN) {
        let made = made.unwrap();
        batch = batch.max(made.n_bytes);
        n_inputs = n_inputs.max(made.input.blocks[0].n_src());
    }
    // `learned` covers the model before and after the update, Adam's two moments, the local and the averaged gradients,
    // the bucket, two buffers of the sum, and the serialized model for the comparison at the end of an epoch.
    let learned = 12 * parameters;
    // `activations` covers the features as gathered, uploaded and masked, the mask, and a gradient for each of these.
    let activations = 8 * n_inputs * DIM * size_of::<f32>();
    // `tables` covers the sampler's table, the items, and the order of the epoch.
    let tables = N_NODES * size_of::<u64>() + 4 * N_SEEDS as usize * size_of::<u32>();
    // `rest` covers threads, channels and names.
    let rest = 256 << 10;
    learned + activations + 2 * batch + tables + WORKSPACE + rest
}

#[test]
fn an_additional_rank_needs_memory_for_a_model_and_a_batch_but_not_for_the_data() {
    let data = wide_data();
    let bound = bound_bytes(&data);
    let features = N_NODES * DIM * size_of::<f32>();
    assert!(6 * bound < features, "a bound of {bound} bytes is too large to detect a copy of {features}");
    let before = HEAP.current_usage();
    let one = peak_bytes(|| train(&data, 1)) - before;
    let three = peak_bytes(|| train(&data, 3)) - before;
    println!("1 rank: {one} bytes, 3 ranks: {three} bytes, limit per rank: {bound} bytes");
    assert!(one <= bound, "one rank takes {one} bytes, expected at most {bound}");
    assert!(
        three <= one + 2 * bound,
        "3 ranks take {three} bytes, one rank {one}, expected at most {bound} per additional rank"
    );
    // Each rank has its own model and batches, so three ranks need more memory than one.
    assert!(one < three);
}
