//! Stage `step`: a whole training step of GraphSAGE, three layers of 256, with nothing overlapped: sample,
//! gather, upload, forward, backward, update. The rate is seeds.

use std::error::Error;

use burn::tensor::Device;
use criterion::{BenchmarkId, Throughput};
use kiln_benches::{inputs, settings};
use kiln_dist::Solo;
use kiln_loader::{Fetch, NodeFetch, SeedBatch, StageTimes};
use kiln_nn::{Aggregate, SageConfig};
use kiln_sample::{RngKey, Scratch};
use kiln_train::{NodeClassification, OptimizerConfig, Trainer};

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::flex();
    let mut criterion = settings();
    let mut group = criterion.benchmark_group("step");
    for input in inputs()? {
        let data = &input.dataset;
        let fetch = NodeFetch::new(input.sampler().into(), data.features.clone(), data.labels.clone());
        let fetch = fetch.for_training();
        let model = SageConfig {
            d_in: data.features.dim(),
            hidden: 256,
            n_classes: data.labels.n_classes(),
            n_layers: 3,
            aggregate: Aggregate::Mean,
            input_dropout: 0.0,
            dropout: 0.5,
        };
        let model = model.init(RngKey::new(0), &device.clone().autodiff())?;
        let optimizer = OptimizerConfig::adam(0.003, 0.0);
        let task = NodeClassification::new();
        let mut trainer = Trainer::new(task, model, &optimizer, Box::new(Solo), device.clone())?;
        let batch = SeedBatch { step: 0, key: RngKey::new(0), seeds: input.labelled_seeds() };
        let mut scratch = Scratch::default();
        group.throughput(Throughput::Elements(batch.seeds.len() as u64));
        group.bench_function(BenchmarkId::new("sage-3x256", input.name), |bencher| {
            bencher.iter(|| {
                let mut times = StageTimes::default();
                let fetched = fetch.fetch(batch.clone(), &mut scratch, &mut times);
                let fetched = fetched.expect("labelled nodes should make a batch");
                trainer.epoch(0, [Ok(fetched)], |_| {}).expect("a step should have a finite loss")
            });
        });
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}
