//! Whole samplers of a program's own in loaders: equal runs for any workers and ranks, exact resumption, predictions of saved
//! models, and errors of what a sampler cannot do.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use kiln::Messages;
use kiln::graph::Csc;
use kiln::prelude::*;
use kiln::sample::{
    CustomSampler, Dsts, Error as SampleError, Frontier, FrontierSampler, HopRequest, KeyDomain,
    NeighborSampler, RngKey, SampledBlocks, SamplerConfig, SamplerError, Scratch, Seeds, TimeLimits,
};
use kiln::train::{Error as TrainError, LayerWiseConfig, ModelError, PredictModeError, RunError};

use crate::heterogeneous;
use crate::links::{linear, random_graph};
use crate::own_parts::{cycle, loader, trainer};

/// The default sampler as one of a program's own.
fn neighbors() -> CustomSampler {
    CustomSampler::try_new("neighbors", NeighborSampler::with_config)
}

/// A sampler with its own `sample_blocks`, which samples each batch with the key of its smallest seed.
struct BySeeds(NeighborSampler);

impl FrontierSampler for BySeeds {
    fn fanouts(&self) -> &[Fanout] {
        self.0.fanouts()
    }

    fn n_nodes(&self) -> usize {
        self.0.n_nodes()
    }

    fn sample_frontier(
        &self,
        request: &HopRequest,
        dsts: Dsts<'_>,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> kiln::sample::Result<()> {
        self.0.sample_frontier(request, dsts, scratch, out)
    }

    fn sample_blocks(
        &self,
        seeds: &Seeds,
        key: RngKey,
        scratch: &mut Scratch,
    ) -> kiln::sample::Result<SampledBlocks> {
        let smallest = seeds.as_nodes().iter().min().map_or(0, |node| node.0);
        self.0.sample_blocks(seeds, key.fold_in(KeyDomain::Host, u64::from(smallest)), scratch)
    }
}

fn by_seeds() -> CustomSampler {
    let create =
        |graph: Arc<Csc>, config: SamplerConfig| BySeeds(NeighborSampler::new(graph, config.fanouts));
    CustomSampler::new("by-seeds", create)
}

fn quiet(n_epochs: usize, out: &Path) -> FitConfig {
    FitConfig::epochs(n_epochs).out(out).quiet()
}

fn hash(loader: &NeighborLoader, data: &Dataset) -> String {
    let folder = tempfile::tempdir().unwrap();
    trainer(data).fit(loader, quiet(2, folder.path())).unwrap().best.weights_hash
}

#[test]
fn the_default_sampler_by_name_has_the_weights_of_the_default() {
    let data = cycle(160, 3);
    // One of two neighbours, so that draws matter.
    let one = || NeighborLoader::new(&data, [1, 1]).batch_size(32).workers(0);
    let expected = hash(&one(), &data);
    assert_eq!(hash(&one().sampler(neighbors()), &data), expected);
    assert_ne!(hash(&one().sampler(by_seeds()), &data), expected);
}

#[test]
fn weights_do_not_depend_on_workers() {
    let data = cycle(160, 3);
    let one = || NeighborLoader::new(&data, [1, 1]).batch_size(32);
    let of_workers = |n_workers| hash(&one().workers(n_workers).sampler(by_seeds()), &data);
    assert_eq!([of_workers(1), of_workers(3)], [of_workers(0), of_workers(0)]);
}

#[test]
fn excluded_edges_of_links_are_left_out() {
    let (data, _) = random_graph(200, 800);
    let split = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 1).unwrap();
    let nodes = || NeighborLoader::new(&data, [4]).batch_size(64).workers(0);
    let train = |nodes: NeighborLoader| {
        let folder = tempfile::tempdir().unwrap();
        let loader = LinkNeighborLoader::new(nodes, &split).unwrap();
        Trainer::new(linear(), AdamConfig::new(1e-2)).fit(&loader, quiet(1, folder.path()))
    };
    let expected = train(nodes()).unwrap().best.weights_hash;
    assert_eq!(train(nodes().sampler(neighbors())).unwrap().best.weights_hash, expected);
    // A sampler that takes all edges meets those of the batch's links.
    let blind =
        CustomSampler::new("blind", |graph, config| Blind(NeighborSampler::new(graph, config.fanouts)));
    let error = train(nodes().sampler(blind)).unwrap_err().to_string();
    assert!(error.contains("the sampler `blind` picked edge"), "{error}");
}

/// A sampler that reads no excluded edges.
struct Blind(NeighborSampler);

impl FrontierSampler for Blind {
    fn fanouts(&self) -> &[Fanout] {
        &[Fanout::All]
    }

    fn n_nodes(&self) -> usize {
        self.0.n_nodes()
    }

    fn sample_frontier(
        &self,
        request: &HopRequest,
        dsts: Dsts<'_>,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> kiln::sample::Result<()> {
        let request = HopRequest { excluded: None, ..request.clone() };
        self.0.sample_frontier(&request, dsts, scratch, out)
    }
}

#[test]
fn runs_resume_with_the_same_sampler_only() {
    let data = cycle(160, 3);
    let folder = tempfile::tempdir().unwrap();
    let [whole, part] = ["whole", "part"].map(|name| folder.path().join(name));
    let with = |size: u32| loader(&data).sampler(by_seeds().setting("size", size));
    let expected = trainer(&data).fit(&with(1), quiet(4, &whole)).unwrap().best.weights_hash;
    trainer(&data).fit(&with(1), quiet(2, &part)).unwrap();
    let resume = || FitConfig::epochs(4).resume(&part).quiet();
    for other in [with(2), loader(&data), loader(&data).sampler(neighbors())] {
        let error = trainer(&data).fit(&other, resume()).unwrap_err();
        let Error::Train(TrainError::Run(RunError::OtherRun { name, .. })) = &error else {
            panic!("{error}")
        };
        assert_eq!(name, "sampler");
    }
    let resumed = trainer(&data).fit(&with(1), resume()).unwrap();
    assert_eq!(resumed.best.weights_hash, expected);
}

#[test]
fn evaluations_may_have_another_sampler() {
    let data = cycle(160, 3);
    let losses = |loader: &NeighborLoader| {
        let folder = tempfile::tempdir().unwrap();
        let trained = trainer(&data).fit(loader, quiet(1, folder.path())).unwrap();
        (trained.evaluate(loader, Phase::Test).unwrap(), trained.best.weights_hash)
    };
    let one = || NeighborLoader::new(&data, [1, 1]).batch_size(32).workers(0);
    let whole = || CustomSampler::new("whole", |graph, _| NeighborSampler::full(graph, 2));
    let by_rule = losses(&one());
    let exact = losses(&one().evaluation(EvalMode::Exact { memory_bytes: None }).sampler(neighbors()));
    let of_whole = losses(&one().eval_sampler(Some(whole())));
    assert_eq!((&by_rule.1, &of_whole.1), (&exact.1, &exact.1), "training should have the same batches");
    assert_ne!(by_rule.0.loss(), of_whole.0.loss());
    assert!((of_whole.0.loss() - exact.0.loss()).abs() < 1e-5);
    assert_eq!(losses(&one().sampler(neighbors()).eval_sampler(None)), by_rule);
}

#[test]
fn saved_models_predict_with_the_sampler_of_the_training() {
    let data = cycle(160, 3);
    let folder = tempfile::tempdir().unwrap();
    let loader = loader(&data).sampler(by_seeds().setting("size", 1));
    trainer(&data).fit(&loader, quiet(2, folder.path())).unwrap().write_report(&loader).unwrap();
    let file: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.path().join("model.json")).unwrap()).unwrap();
    let expected = serde_json::json!({ "name": "by-seeds", "settings": { "size": "1" } });
    assert_eq!(file["inputs"]["sampling"]["sampler"], expected);
    let model = SavedModel::open(folder.path()).unwrap();
    let predictor = model.on_nodes(&data).unwrap();
    let test = &data.split().test;
    let mode = |error: TrainError| match error {
        TrainError::Saved(ModelError::Mode(error)) => error,
        error => panic!("{error}"),
    };
    let error = mode(predictor.predict(test, &PredictMode::AsEvaluated).unwrap_err());
    assert!(matches!(&error, PredictModeError::CustomSampler { sampler } if sampler == "by-seeds (size: 1)"));
    assert!(error.to_string().contains("(--mode exact)"), "{error}");
    predictor.predict(test, &PredictMode::Exact(LayerWiseConfig::default())).unwrap();
    let other = predictor.clone().sampler(by_seeds().setting("size", 2));
    let error = mode(other.predict(test, &PredictMode::AsEvaluated).unwrap_err());
    assert!(matches!(error, PredictModeError::OtherSampler { .. }), "{error}");
    let predictor = predictor.sampler(by_seeds().setting("size", 1));
    let classes = predictor.predict(test, &PredictMode::AsEvaluated).unwrap().classes();
    let csv = fs::read_to_string(folder.path().join("test_predictions.csv")).unwrap();
    let written: Vec<u32> =
        csv.lines().skip(1).map(|line| line.split(',').nth(2).unwrap().parse().unwrap()).collect();
    assert_eq!(classes.into_iter().map(Option::unwrap).collect::<Vec<_>>(), written);
}

#[test]
fn what_a_sampler_cannot_do_is_an_error_before_the_training() {
    let data = cycle(160, 3);
    let folder = tempfile::tempdir().unwrap();
    let check = |loader: NeighborLoader| match trainer(&data).fit(&loader, quiet(1, folder.path())) {
        Err(Error::Sample(SampleError::Sampler(error))) => error,
        other => panic!("{other:?}"),
    };
    let error = check(loader(&data).sampler(neighbors()).graph_mode(GraphMode::Device));
    assert!(matches!(error, SamplerError::OnDevice { .. }), "{error}");
    let short = CustomSampler::new("short", |graph, _| NeighborSampler::new(graph, [1]));
    let error = check(loader(&data).sampler(short));
    assert!(matches!(error, SamplerError::Layers { expected: 2, got: 1, .. }), "{error}");
    let timed = data.clone().with_node_times(0, (0..160).collect::<Vec<i64>>()).unwrap();
    let error =
        check(loader(&timed).messages(Messages::AtItemTime(TimeLimits::default())).sampler(by_seeds()));
    assert!(matches!(error, SamplerError::Times { .. }), "{error}");
    let hetero = heterogeneous::data();
    let loader = heterogeneous::loader(&hetero).sampler(neighbors());
    let error = heterogeneous::trainer(&hetero).fit(&loader, quiet(1, folder.path())).unwrap_err();
    assert!(matches!(error, Error::NeedsOneType { what: "a sampler of one's own", .. }), "{error}");
}
