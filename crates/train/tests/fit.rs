//! A whole run through the library: what is learned, what is kept, and what cannot be judged.

// Helpers of tests unwrap as tests do.
#![allow(clippy::unwrap_used)]

use burn::tensor::Device;
use kiln_data::{Dataset, synthetic};
use kiln_feature::FeatureSource;
use kiln_graph::NodeId;
use kiln_loader::{ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, NodeFetch};
use kiln_nn::{Aggregate, Sage, SageConfig};
use kiln_sample::{Fanout, NeighborSampler, RngKey};
use kiln_train::{
    Counts, EpochReport, Error, NodeClassification, Observer, OptimizerConfig, RunFolder, SingleRank,
    StepReport, Trainer, fit, test_best,
};

#[derive(Default)]
struct Heard {
    n_steps: usize,
    epochs: Vec<(usize, f64, bool)>,
}

impl Observer for Heard {
    fn step(&mut self, _: &StepReport) {
        self.n_steps += 1;
    }

    fn epoch(&mut self, epoch: usize, _: &EpochReport, val: &Counts, is_best: bool) {
        self.epochs.push((epoch, val.accuracy(), is_best));
    }
}

fn data() -> Dataset {
    let config = synthetic::SbmConfig {
        n_nodes: 2000,
        n_classes: 4,
        degree: 8,
        homophily: 0.8,
        dim: 8,
        noise: 1.5,
        seed: 5,
    };
    synthetic::sbm(config).unwrap()
}

fn loader(data: &Dataset, nodes: &[NodeId]) -> Loader<NodeFetch<NeighborSampler, dyn FeatureSource>> {
    let sampler = NeighborSampler::new(data.graph.clone(), [Fanout::UpTo(5); 2]);
    let fetch = NodeFetch::new(sampler.into(), data.features.clone(), data.labels.clone());
    let items = ItemSamplerConfig { batch_size: 100, seed: 1, ..Default::default() };
    Loader::new(ItemSampler::new(nodes, items).unwrap(), fetch, LoaderConfig::default()).unwrap()
}

fn trainer(data: &Dataset) -> Trainer<NodeClassification<Sage>, SingleRank> {
    let config = SageConfig {
        d_in: data.features.dim(),
        hidden: 16,
        n_classes: 4,
        n_layers: 2,
        aggregate: Aggregate::Mean,
        input_dropout: 0.0,
        dropout: 0.2,
    };
    let model = config.init(RngKey::new(1), &Device::flex().autodiff()).unwrap();
    let optimizer = OptimizerConfig::adam(0.01, 0.0);
    Trainer::new(NodeClassification::new(), model, &optimizer, SingleRank, Device::flex()).unwrap()
}

#[test]
fn a_run_learns_keeps_the_best_epoch_and_tests_that() {
    let data = data();
    let folder = tempfile::tempdir().unwrap();
    let mut run = RunFolder::create(folder.path()).unwrap();
    let (train, val) = (loader(&data, &data.split.train), loader(&data, &data.split.val));
    let mut trainer = trainer(&data);
    let mut heard = Heard::default();
    fit(&mut trainer, &train, &val, 6, &mut run, &mut heard).unwrap();

    assert_eq!(heard.n_steps, 6 * train.n_steps());
    let epochs: Vec<usize> = heard.epochs.iter().map(|(epoch, ..)| *epoch).collect();
    assert_eq!(epochs, [1, 2, 3, 4, 5, 6]);
    let (best, accuracy, _) = heard.epochs.iter().rev().find(|(.., is_best)| *is_best).unwrap();
    assert_eq!((run.best().unwrap().epoch, run.best().unwrap().val_accuracy), (*best, *accuracy));
    assert!(heard.epochs.iter().all(|(_, other, _)| other <= accuracy));

    let mut n_seen = 0;
    let test = loader(&data, &data.split.test);
    let counts = test_best(trainer, &test, &run, |input, _| n_seen += input.seeds.len()).unwrap();
    assert_eq!((n_seen, counts.total), (data.split.test.len(), data.split.test.len() as u64));
    assert!(counts.accuracy() > 0.85, "{}", counts.accuracy());
}

#[test]
fn splits_without_nodes_are_refused_before_anything_runs() {
    let data = data();
    let folder = tempfile::tempdir().unwrap();
    let mut run = RunFolder::create(folder.path()).unwrap();
    let (some, none) = (loader(&data, &data.split.train), loader(&data, &[]));
    let mut heard = Heard::default();
    for (train, val, expected) in [(&none, &some, "training"), (&some, &none, "validation")] {
        let error = fit(&mut trainer(&data), train, val, 1, &mut run, &mut heard).unwrap_err();
        assert!(matches!(error, Error::EmptySplit { split } if split == expected), "{error}");
    }
    assert_eq!(heard.n_steps, 0);
    fit(&mut trainer(&data), &some, &some, 1, &mut run, &mut heard).unwrap();
    let error = test_best(trainer(&data), &none, &run, |_, _| ()).unwrap_err();
    assert!(matches!(error, Error::EmptySplit { split: "test" }), "{error}");
}
