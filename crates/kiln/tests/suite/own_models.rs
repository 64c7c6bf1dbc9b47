//! Models of a user's own, with layers, initialisers and dropout of Burn: the seed of the run determines everything that they
//! draw from Burn's generator.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kiln::burn;
use kiln::burn::module::Module;
use kiln::burn::nn::{BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig};
use kiln::burn::tensor::{Device, Distribution, Tensor};
use kiln::data::synthetic;
use kiln::kernels::{DeviceBlock, ops};
use kiln::nn::{BlockModel, ForwardContext, LayerSize, TypeOrder};
use kiln::prelude::*;
use kiln::sample::RngKey;
use kiln::train::{
    EpochReport, Error as TrainError, LayerWiseConfig, MetricSums, ModelRegistry, StepReport, TrainCallback,
    weights_to_bytes,
};
use serde::{Deserialize, Serialize};

const HIDDEN: usize = 16;

/// Two dense layers of Burn over the means of the neighbours.
#[derive(Module, Debug)]
struct Own {
    layers: Vec<Linear>,
    norm: BatchNorm,
    dropout: Dropout,
    #[module(skip)]
    draws: Draws,
    #[module(skip)]
    has_sizes: bool,
}

/// The epochs in which a model draws from Burn's generator.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Draws {
    All,
    /// From the second epoch on.
    Late,
}

/// True after the first epoch of [`Draws::Late`].
static IS_LATE: AtomicBool = AtomicBool::new(false);

impl BlockModel for Own {
    fn n_layers(&self) -> usize {
        self.layers.len()
    }

    fn layer(&self, i: usize, block: &DeviceBlock, x: Tensor<2>, _: &ForwardContext) -> Tensor<2> {
        let rows = self.layers[i].forward(ops::aggregate(block, x, ops::Reduction::Mean));
        match (i, self.draws) {
            (0, Draws::All) => self.dropout.forward(ops::relu(self.norm.forward(rows))),
            (0, Draws::Late) if IS_LATE.load(Ordering::Relaxed) => {
                let noise = Tensor::random(rows.dims(), Distribution::Default, &rows.device());
                rows + noise
            }
            _ => rows,
        }
    }

    /// Negates the features, as an example of an input that is not the rows of the store.
    fn input(&self, mut rows: Vec<Tensor<2>>, _: &TypeOrder) -> Tensor<2> {
        self.input_rows(rows.remove(0)).neg()
    }

    fn layer_size(&self, i: usize) -> Option<LayerSize> {
        self.has_sizes.then(|| LayerSize::new(self.layers[i].weight.dims()))
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct OwnConfig {
    widths: [usize; 3],
    draws: Draws,
    /// True if the model returns the sizes of its layers.
    has_sizes: bool,
}

impl ModelConfig for OwnConfig {
    const KIND: &'static str = "own";
    type Model = Own;

    fn for_dims(d_in: usize, n_classes: usize) -> Self {
        Self { widths: [d_in, HIDDEN, n_classes], draws: Draws::All, has_sizes: true }
    }

    fn n_layers(&self) -> usize {
        2
    }

    fn init(&self, _: RngKey, device: &Device) -> kiln::nn::Result<Own> {
        let layer = |i: usize| LinearConfig::new(self.widths[i], self.widths[i + 1]).init(device);
        Ok(Own {
            layers: vec![layer(0), layer(1)],
            norm: BatchNormConfig::new(HIDDEN).init(device),
            dropout: DropoutConfig::new(0.5).init(),
            draws: self.draws,
            has_sizes: self.has_sizes,
        })
    }
}

fn data() -> Dataset {
    let config = synthetic::FakeConfig { avg_num_nodes: 300, num_channels: 16, ..Default::default() };
    synthetic::fake(config).unwrap()
}

/// Trains on ranks that are threads. Returns the hash of the weights of the best epoch and the weights of each rank.
fn train(
    data: &Dataset,
    seed: u64,
    n_ranks: usize,
    fit: impl Fn() -> FitConfig + Sync,
) -> Result<(String, Vec<u8>)> {
    let models = launch(RankConfig::threads(n_ranks).threads_per_rank(1), |rank| {
        let loader = NeighborLoader::new(data, [4, 4]).batch_size(64 / n_ranks);
        let mut trainer =
            Trainer::new(OwnConfig::for_data(data), AdamConfig::new(1e-2)).seed(seed).rank(&rank);
        let best = trainer.fit(&loader, fit())?;
        Ok((best.best.weights_hash.clone(), weights_to_bytes(&best.model)?))
    })?;
    assert!(models.iter().all(|model| *model == models[0]), "the ranks differ");
    Ok(models.into_iter().next().unwrap())
}

fn fit(out: &Path) -> FitConfig {
    FitConfig::epochs(3).out(out).quiet()
}

/// Another generator, another thread or another trainer must not matter either, so the runs of a seed are made at the same time.
#[test]
fn runs_of_one_seed_have_one_model() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let run = |seed: u64, n_ranks: usize, name: &str| {
        let out = folder.path().join(name);
        train(&data, seed, n_ranks, || fit(&out)).unwrap()
    };
    for n_ranks in [1, 2] {
        let names = ["a", "b", "c"].map(|name| format!("{name}{n_ranks}"));
        let (run, mut models) = (&run, Vec::new());
        std::thread::scope(|scope| {
            let runs = names.each_ref().map(|name| scope.spawn(move || run(1, n_ranks, name)));
            models.extend(runs.map(|run| run.join().unwrap()));
        });
        assert!(models.iter().all(|model| *model == models[0]), "{n_ranks} ranks");
        let other = run(2, n_ranks, &format!("other{n_ranks}"));
        assert_ne!(other, models[0], "another seed should give other weights");
    }
}

/// Requests a stop after some steps.
struct StopAfter(usize, Arc<AtomicBool>);

impl TrainCallback for StopAfter {
    fn step(&mut self, report: &StepReport) {
        if report.step == self.0 {
            self.1.store(true, Ordering::Relaxed);
        }
    }

    fn epoch(&mut self, _: usize, _: &EpochReport, _: &MetricSums, _: bool) {}
}

#[test]
fn a_stopped_and_resumed_run_has_the_model_of_an_uninterrupted_one() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    for n_ranks in [1, 2] {
        let [whole, stopped] =
            ["whole", "stopped"].map(|name| folder.path().join(format!("{name}{n_ranks}")));
        let expected = train(&data, 1, n_ranks, || fit(&whole)).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let error = train(&data, 1, n_ranks, || {
            let callback = StopAfter(1, Arc::clone(&stop));
            fit(&stopped).stop_flag(Arc::clone(&stop)).callback(callback)
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("the run was stopped after 0 epochs"), "{error}");
        let resumed = train(&data, 1, n_ranks, || FitConfig::epochs(3).resume(&stopped).quiet()).unwrap();
        assert_eq!(resumed, expected, "{n_ranks} ranks");
    }
}

/// Ranks in threads share the generator, which is not noticed in the middle of an epoch.
#[test]
fn a_model_that_begins_to_draw_in_a_later_epoch_is_an_error_on_ranks_in_threads() {
    struct AfterEpoch;

    impl TrainCallback for AfterEpoch {
        fn step(&mut self, _: &StepReport) {}

        fn epoch(&mut self, _: usize, _: &EpochReport, _: &MetricSums, _: bool) {
            IS_LATE.store(true, Ordering::Relaxed);
        }
    }

    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let config = OwnConfig { draws: Draws::Late, ..OwnConfig::for_data(&data) };
    let error = launch(RankConfig::threads(2).threads_per_rank(1), |rank| {
        let loader = NeighborLoader::new(&data, [4, 4]).batch_size(64);
        let mut trainer = Trainer::new(config.clone(), AdamConfig::new(1e-2)).rank(&rank);
        trainer.fit(&loader, fit(&folder.path().join("run")).callback(AfterEpoch)).map(drop)
    });
    let error = error.unwrap_err();
    assert!(
        error.to_string().contains("draws random numbers from Burn's generator since epoch 2"),
        "{error}"
    );
}

/// Exact evaluation is refused before the first step.
#[test]
fn a_model_without_sizes_of_its_layers_is_evaluated_on_sampled_neighbours() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let config = OwnConfig { has_sizes: false, ..OwnConfig::for_data(&data) };
    let sampled = NeighborLoader::new(&data, [4, 4]).batch_size(64);
    let exact = sampled.clone().evaluation(EvalMode::Exact { memory_bytes: None });
    let [run, refused] = ["run", "refused"].map(|name| folder.path().join(name));
    let mut trainer = Trainer::new(config, AdamConfig::new(1e-2));
    let error = trainer.fit(&exact, fit(&refused)).map(drop).unwrap_err();
    assert!(error.to_string().contains("the model returns no sizes of its layers"), "{error}");
    assert!(!refused.join("metrics.jsonl").exists(), "the run began");

    let best = trainer.fit(&sampled, fit(&run)).unwrap();
    let evaluation = best.evaluate(&sampled, Phase::Test).unwrap();
    assert_eq!(evaluation.total, data.split().test.len() as u64);
    let error = best.evaluate(&exact, Phase::Test).map(drop).unwrap_err();
    assert!(error.to_string().contains("the model returns no sizes of its layers"), "{error}");

    let registry = ModelRegistry::default().with_node_model::<OwnConfig>();
    let predictor = SavedModel::open_with(&run, &registry, &Device::flex()).unwrap().on_nodes(&data).unwrap();
    let mode = PredictMode::AsEvaluated;
    let scores = predictor.predict(&data.split().test, &mode).unwrap();
    assert_eq!(scores.n_rows(), data.split().test.len());
    assert_eq!(predictor.predict(&[], &mode).unwrap().width(), data.labels().n_classes());
    for error in [
        predictor.embed(&data.split().test, &mode).map(drop).unwrap_err(),
        predictor.embed(&[], &mode).map(drop).unwrap_err(),
        predictor.embedding_width().map(drop).unwrap_err(),
        predictor.predict(&[], &PredictMode::Exact(LayerWiseConfig::default())).map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, TrainError::NotLayerWise), "{error}");
    }
}

/// Evaluations of a run, exact evaluations and predictions of its saved model compute the input rows as the training does.
#[test]
fn every_way_of_computing_outputs_reads_the_input_of_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let config = synthetic::SbmConfig {
        n_nodes: 600,
        n_classes: 4,
        degree: 8,
        homophily: 0.9,
        dim: 12,
        noise: 1.0,
        seed: 5,
    };
    let data = synthetic::sbm(config).unwrap();
    let test = &data.split().test;
    for (name, mode) in [("sampled", EvalMode::Sampled), ("exact", EvalMode::Exact { memory_bytes: None })] {
        let loader = NeighborLoader::new(&data, [4, 4]).batch_size(64).evaluation(mode);
        let run = folder.path().join(name);
        let mut trainer = Trainer::new(OwnConfig::for_data(&data), AdamConfig::new(1e-2));
        let best = trainer.fit(&loader, fit(&run)).unwrap();
        let evaluation = best.evaluate(&loader, Phase::Test).unwrap();

        let registry = ModelRegistry::default().with_node_model::<OwnConfig>();
        let model = SavedModel::open_with(&run, &registry, &Device::flex()).unwrap();
        let scores = model.on_nodes(&data).unwrap().predict(test, &PredictMode::AsEvaluated).unwrap();
        let classes = scores.classes();
        let hits =
            classes.iter().zip(test).filter(|(class, node)| **class == data.labels().get(**node)).count();
        assert_eq!((evaluation.hits, evaluation.total), (hits as u64, test.len() as u64), "{name}");
        assert!(evaluation.total < 2 * evaluation.hits, "the model should learn: {evaluation:?}");
    }
}
