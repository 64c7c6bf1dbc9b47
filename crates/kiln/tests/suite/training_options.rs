//! Tests of `Trainer` with options of the optimizer, the step and the model.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;

use kiln::burn::module::{Module, ModuleVisitor, Param};
use kiln::burn::tensor::Tensor;
use kiln::data::synthetic;
use kiln::kernels::to_vec_f32;
use kiln::prelude::*;
use kiln::train::{Error as TrainError, RunError};

fn data() -> Dataset {
    let config = synthetic::FakeConfig { avg_num_nodes: 500, num_channels: 16, ..Default::default() };
    synthetic::fake(config).unwrap()
}

fn sage(data: &Dataset) -> Trainer<SageConfig> {
    let model = SageConfig::for_data(data).layers(3).hidden(16).norm(Normalization::Layer).residual(true);
    let schedule = LrSchedule::linear(TrainingLength::Epochs(4)).warmup(TrainingLength::Steps(3));
    let sgd = SgdConfig::new(0.1).momentum(0.9).schedule(schedule).clip_grad_norm(0.5);
    Trainer::new(model.jumping(JumpingKnowledge::Cat), sgd).seed(7)
}

/// Collects the values of all parameters.
struct Values(Vec<f32>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.extend(to_vec_f32(param.val()));
    }
}

fn values(model: &impl Module) -> Vec<f32> {
    let mut values = Values(Vec::new());
    model.visit(&mut values);
    values.0
}

fn check_close(one: &[f32], other: &[f32]) {
    const TOLERANCE: f32 = 1e-4;
    assert_eq!(one.len(), other.len());
    let largest = one.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest <= TOLERANCE, "the weights differ by {largest:e}");
}

#[test]
fn accumulated_batches_of_nodes_and_graphs_train_the_weights_of_larger_batches() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let weights = |batch_size, n_batches, name: &str| {
        let loader = NeighborLoader::new(&data, [5, 5, 5]).batch_size(batch_size);
        let fit = FitConfig::epochs(2).out(folder.path().join(name)).quiet();
        values(&sage(&data).accumulate(n_batches).fit(&loader, fit).unwrap().model)
    };
    check_close(&weights(64, 1, "one"), &weights(16, 4, "four"));

    let graphs = GraphDataset::open("mutag").unwrap();
    let features = graphs.node_features(NodeFeatures::Auto).unwrap();
    let model = GinConfig::simplified(features.dim(), 8, graphs.labels().n_classes());
    let split = Split::random(graphs.n_graphs(), [0.8, 0.1], 0).unwrap();
    let weights = |batch_size, n_batches, name: &str| {
        let loader = GraphLoader::new(&graphs, features.clone(), &split).batch_size(batch_size);
        let fit = FitConfig::epochs(2).out(folder.path().join(name)).quiet();
        let mut trainer = Trainer::new(model.clone(), AdamConfig::new(0.01)).accumulate(n_batches);
        values(&trainer.fit(&loader, fit).unwrap().model)
    };
    check_close(&weights(32, 1, "graphs"), &weights(8, 4, "micro"));
}

#[test]
fn a_run_with_options_resumes_only_with_the_same_options() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let loader = NeighborLoader::new(&data, [5, 5, 5]).batch_size(32);
    let (whole, run) = (folder.path().join("whole"), folder.path().join("run"));
    let best = |path: &Path| std::fs::read(path.join("best.safetensors")).unwrap();
    let trainer = || sage(&data).accumulate(2);
    trainer().fit(&loader, FitConfig::epochs(4).out(&whole).quiet()).unwrap();
    trainer().fit(&loader, FitConfig::epochs(1).out(&run).quiet()).unwrap();
    assert!(best(&run) != best(&whole), "a later epoch should be the best");
    let resume = || FitConfig::epochs(4).resume(&run).quiet();
    let model = SageConfig::for_data(&data).layers(3).hidden(16);
    let others = [
        (sage(&data).fit(&loader, resume()).err(), "batches per step"),
        (trainer().seed(8).fit(&loader, resume()).err(), "seed"),
        (
            Trainer::new(model, AdamConfig::new(0.1)).seed(7).accumulate(2).fit(&loader, resume()).err(),
            "model",
        ),
    ];
    for (error, expected) in others {
        let error = error.unwrap();
        assert!(
            matches!(&error, Error::Train(TrainError::Run(RunError::OtherRun { name, .. })) if name == expected),
            "{error}"
        );
    }
    trainer().fit(&loader, resume()).unwrap();
    assert!(best(&run) == best(&whole));
}

/// Checkpoints of earlier versions have these texts, so runs with defaults must keep them.
#[test]
fn a_run_without_options_has_the_settings_of_earlier_versions() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let loader = NeighborLoader::new(&data, [5, 5]).batch_size(64);
    let model = SageConfig::for_data(&data).layers(2).hidden(16);
    let out = folder.path().join("run");
    Trainer::new(model, AdamConfig::new(0.01)).fit(&loader, FitConfig::epochs(1).out(&out).quiet()).unwrap();
    let config = std::fs::read_to_string(out.join("config.json")).unwrap();
    assert!(!config.contains("batches per step"), "{config}");
    let optimizer = "OptimizerConfig { kind: Adam, learning_rate: 0.01, weight_decay: 0.0, decay: None }";
    assert!(config.contains(optimizer), "{config}");
    assert!(config.contains("input_dropout: 0.0, dropout: 0.5 }"), "{config}");
}
