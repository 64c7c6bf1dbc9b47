//! Regression targets in any units: a model learns them by default, and everything outside a training step is in their units.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use kiln::feature::{DenseFeatures, FeatureStore, TargetKind, TargetValues};
use kiln::prelude::*;
use kiln::train::{
    Error as TrainError, InputError, LayerWiseConfig, Objective, RunError, TargetScale, weights_to_bytes,
};
use serde_json::{Value, json};

const N_NODES: u32 = 600;

/// Returns a number in `-1..1`.
fn number(seed: u32) -> f32 {
    (seed.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0
}

/// Returns the value of a node, in `-1..1`: a feature of its own and one of its neighbour on the cycle.
fn value(node: u32) -> f32 {
    (number(2 * node) + number(2 * ((node + 1) % N_NODES) + 1)) / 2.0
}

/// Returns a cycle with two features per node and these targets, `[N_NODES, n_columns]`.
fn cycle(targets: Vec<f32>) -> Dataset {
    let nodes = |range: std::ops::Range<u32>| range.map(NodeId).collect::<Vec<NodeId>>();
    let srcs: Vec<u32> = (0..N_NODES).map(|node| (node + 1) % N_NODES).collect();
    let dsts: Vec<u32> = (0..N_NODES).collect();
    let n_columns = targets.len() / N_NODES as usize;
    Dataset::builder(N_NODES as usize)
        .edges(&srcs, &dsts)
        .features((0..2 * N_NODES).map(number).collect::<Vec<f32>>(), 2)
        .regression(targets, n_columns)
        .split(nodes(0..400), nodes(400..500), nodes(500..600))
        .build()
        .unwrap()
}

fn prices() -> Dataset {
    cycle((0..N_NODES).map(|node| 2.5e5 + 1e5 * value(node)).collect())
}

fn loader(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, [Fanout::All]).batch_size(50)
}

fn trainer(data: &Dataset) -> Trainer<SageConfig> {
    let config = SageConfig::for_data(data).layers(1).hidden(16).dropout(0.0);
    Trainer::new(config, AdamConfig::new(5e-2)).seed(7)
}

fn fit(data: &Dataset, loader: &NeighborLoader, out: &Path) -> TrainedModel<kiln::nn::Sage> {
    trainer(data).fit(loader, FitConfig::epochs(20).out(out).quiet()).unwrap()
}

/// Returns R² of each column on the test split.
fn r2(best: &TrainedModel<kiln::nn::Sage>, loader: &NeighborLoader) -> Vec<f64> {
    let outputs = best.predict(loader, Phase::Test).unwrap();
    let mut of_columns = Vec::new();
    for column in 0..outputs.n_outputs() {
        let pairs = outputs.column(column);
        let target = |pair: &kiln::train::TargetAndOutput| f64::from(pair.target);
        let mean = pairs.iter().map(target).sum::<f64>() / pairs.len() as f64;
        let error: f64 =
            pairs.iter().map(|pair| (f64::from(pair.output) - f64::from(pair.target)).powi(2)).sum();
        let deviation: f64 = pairs.iter().map(|pair| (target(pair) - mean).powi(2)).sum();
        of_columns.push(1.0 - error / deviation);
    }
    of_columns
}

/// Prices of 1e5: R² was -2.8 after 20 epochs.
#[test]
fn prices_are_learned_by_default_and_not_without_a_scale() {
    let folder = tempfile::tempdir().unwrap();
    let data = prices();
    let by_default = loader(&data);
    let best = fit(&data, &by_default, &folder.path().join("default"));
    assert!(0.5 < r2(&best, &by_default)[0], "{:?}", r2(&best, &by_default));
    let unscaled = loader(&data).target_scale(TargetScale::None);
    let raw = fit(&data, &unscaled, &folder.path().join("none"));
    assert!(r2(&raw, &unscaled)[0] < 0.0 && raw.target_scaler.is_none());
    let json = |name: &str| fs::read_to_string(folder.path().join(name).join("model.json")).unwrap();
    assert!(json("default").contains("target_scaler") && !json("none").contains("target_scaler"));

    // Scaled targets that are learned as they are give the same weights.
    let mut scaled: Vec<f32> = (0..N_NODES).map(|node| 2.5e5 + 1e5 * value(node)).collect();
    best.target_scaler.as_ref().unwrap().scale(&mut scaled);
    let scaled = cycle(scaled);
    let as_they_are = loader(&scaled).target_scale(TargetScale::None);
    let of_scaled = fit(&scaled, &as_they_are, &folder.path().join("scaled"));
    assert_eq!(weights_to_bytes(&of_scaled.model).unwrap(), weights_to_bytes(&best.model).unwrap());
    // The units change nothing but the rounding of the targets.
    let in_units = cycle((0..N_NODES).map(value).collect());
    let other = loader(&in_units);
    let of_units = fit(&in_units, &other, &folder.path().join("units"));
    assert!((r2(&of_units, &other)[0] - r2(&best, &by_default)[0]).abs() < 1e-3);
    let expected = best.best.value.unwrap() / 1e5;
    assert!((of_units.best.value.unwrap() - expected).abs() < 1e-3 * expected);
}

/// A resumed run has the scale of its start.
#[test]
fn a_resumed_run_is_exact_and_has_the_same_scale() {
    let folder = tempfile::tempdir().unwrap();
    let data = prices();
    let whole = fit(&data, &loader(&data), &folder.path().join("whole"));
    let out = folder.path().join("parts");
    trainer(&data).fit(&loader(&data), FitConfig::epochs(7).out(&out).quiet()).unwrap();
    let unscaled = loader(&data).target_scale(TargetScale::None);
    let error = trainer(&data).fit(&unscaled, FitConfig::epochs(20).resume(&out).quiet()).unwrap_err();
    let is_expected = matches!(
        &error,
        Error::Train(TrainError::Run(RunError::OtherRun { name, then, .. }))
            if name == "target scale" && then == "standardize"
    );
    assert!(is_expected, "{error}");
    let resumed = trainer(&data).fit(&loader(&data), FitConfig::epochs(20).resume(&out).quiet()).unwrap();
    assert_eq!(weights_to_bytes(&resumed.model).unwrap(), weights_to_bytes(&whole.model).unwrap());
    assert_eq!((resumed.best, resumed.target_scaler), (whole.best, whole.target_scaler));
}

/// The saved model, the trained model and exact evaluation have equal predictions, in the units of the targets.
#[test]
fn predictions_of_saved_models_are_in_the_units_of_the_targets() {
    let folder = tempfile::tempdir().unwrap();
    let data = prices();
    let out = folder.path().join("run");
    let best = fit(&data, &loader(&data), &out);
    let of_run = best.predict(&loader(&data), Phase::Test).unwrap().column(0);
    let expected: Vec<f32> = of_run.iter().map(|pair| pair.output).collect();
    assert!(expected.iter().all(|output| (1e5..4e5).contains(output)), "{expected:?}");
    let model = SavedModel::open(&out).unwrap();
    let predictor = model.on_nodes(&data).unwrap();
    let test = &data.split().test;
    for mode in [PredictMode::AsEvaluated, PredictMode::Exact(LayerWiseConfig::default())] {
        assert_eq!(predictor.predict(test, &mode).unwrap().values(), expected, "{mode:?}");
    }
    let exact = loader(&data).evaluation(EvalMode::Exact { memory_bytes: None });
    assert_eq!(best.predict(&exact, Phase::Test).unwrap().column(0), of_run);
    let rmse = best.predict(&exact, Phase::Test).unwrap().stats(Metric::Rmse).unwrap().value().unwrap();
    let deviation = best.target_scaler.as_ref().unwrap().deviations()[0];
    for loader in [&exact, &loader(&data)] {
        let loss = best.evaluate(loader, Phase::Test).unwrap().loss();
        let expected = (rmse / deviation).powi(2);
        assert!((loss - expected).abs() < 1e-4 * expected, "{loss} instead of {expected}");
    }
    // Other data, whose training split has another mean, is predicted on the scale of the training.
    let other = cycle(vec![1.0; N_NODES as usize]);
    let pairs = best.predict(&loader(&other), Phase::Test).unwrap().column(0);
    assert_eq!(pairs.iter().map(|pair| pair.output).collect::<Vec<f32>>(), expected);

    let path = out.join("model.json");
    let intact: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for (at, value, expected) in [
        ("/inputs/target_scaler/deviations", json!([1.0, 1.0]), "the scaling of targets has 2 deviations"),
        ("/inputs/target_scaler/deviations/0", json!(-1.0), "is -1, expected a number above 0"),
        ("/inputs/targets", json!("multi_label"), "`target_scaler` does not apply to several labels"),
    ] {
        let mut damaged = intact.clone();
        *damaged.pointer_mut(at).unwrap() = value;
        fs::write(&path, damaged.to_string()).unwrap();
        let error = SavedModel::open(&out).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// One column has missing targets, one is constant in the training split, and the scales differ by 1e40.
#[test]
fn columns_of_other_scales_are_learned_beside_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let row = |node: u32| {
        let missing = if node.is_multiple_of(3) { f32::NAN } else { 1e-10 * value(node) };
        [1e30 * (3.0 + value(node)), missing, if node < 400 { 7.0 } else { 7.0 + value(node) }]
    };
    let data = cycle((0..N_NODES).flat_map(row).collect());
    for loss in [kiln::nn::TargetLoss::SquaredError, kiln::nn::TargetLoss::Huber { delta: 1.0 }] {
        let loader = loader(&data).objective(Objective::Regression(loss));
        let best = fit(&data, &loader, &folder.path().join(format!("{loss:?}")));
        let r2 = r2(&best, &loader);
        assert!(0.5 < r2[0] && 0.5 < r2[1], "{loss:?}: {r2:?}");
        let constant = best.predict(&loader, Phase::Test).unwrap().column(2);
        assert!(constant.iter().all(|pair| (pair.output - 7.0).abs() < 1.0), "{constant:?}");
    }
}

/// Energies of molecules, in the units of OGB's sets: the sum over nodes, with an offset.
#[test]
fn graphs_learn_and_predict_targets_in_their_units() {
    let folder = tempfile::tempdir().unwrap();
    let mut offsets = vec![0];
    let mut srcs = Vec::new();
    let mut dsts = Vec::new();
    let mut features = Vec::new();
    let mut energies = Vec::new();
    for graph in 0..200_u32 {
        let start: u32 = offsets[graph as usize];
        let n_nodes = 3 + graph % 5;
        let kinds: Vec<u32> = (0..n_nodes).map(|node| (number(start + node) > 0.0).into()).collect();
        for node in 1..n_nodes {
            srcs.extend([start + node, start]);
            dsts.extend([start, start + node]);
        }
        features.extend(kinds.iter().flat_map(|kind| [1.0 - *kind as f32, *kind as f32]));
        energies.push(-76_000.0 - 1000.0 * kinds.iter().map(|kind| 1.0 + *kind as f32).sum::<f32>());
        offsets.push(start + n_nodes);
    }
    let graph = kiln::graph::CscBuilder::new(features.len() / 2).build(&srcs, &dsts).unwrap();
    let targets = TargetValues::regression(energies, 1).unwrap();
    let graphs = GraphDataset::new("energies", graph, offsets, targets).unwrap();
    let features: Arc<dyn FeatureStore> = Arc::new(DenseFeatures::from_f32(features, 2).unwrap());
    let split = Split::random(graphs.n_graphs(), [0.6, 0.2], 1).unwrap();
    let loader = GraphLoader::new(&graphs, features.clone(), &split).batch_size(20);
    let config = GinConfig { dropout: 0.0, ..GinConfig::paper(2, 16, 1) };
    let out = folder.path().join("run");
    let fit = FitConfig::epochs(20).out(&out).metric(Metric::R2).quiet();
    let best = Trainer::new(config, AdamConfig::new(1e-2)).seed(3).fit(&loader, fit).unwrap();
    assert!(0.5 < best.best.value.unwrap(), "{:?}", best.best);
    let outputs = best.predict(&loader, Phase::Test).unwrap().column(0);
    let model = SavedModel::open(&out).unwrap();
    let rows = model.predict_dataset(&graphs, &features, &split.test).unwrap();
    assert_eq!(rows.values(), outputs.iter().map(|pair| pair.output).collect::<Vec<f32>>());
}

#[test]
fn scales_of_other_targets_and_infinite_targets_are_rejected_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let mut values: Vec<f32> = (0..N_NODES).map(value).collect();
    values[17] = f32::INFINITY;
    let data = prices();
    let damaged = kiln::data::DatasetTargets::new(
        0,
        TargetValues::regression(values, 1).unwrap().into(),
        data.split().clone(),
    );
    let damaged = Dataset { targets: Some(damaged), ..data };
    let fit = || FitConfig::epochs(1).out(&out).quiet();
    let error = trainer(&damaged).fit(&loader(&damaged), fit()).unwrap_err();
    let expected = "node 17 has the target inf in column 0, expected a finite number or NaN";
    assert!(error.to_string().contains(expected), "{error}");
    let classes = kiln::data::synthetic::ring(100).unwrap();
    let scaled = NeighborLoader::new(&classes, [2]).target_scale(TargetScale::None);
    let model = SageConfig::for_data(&classes).layers(1);
    let error = Trainer::new(model, AdamConfig::new(1e-2)).fit(&scaled, fit()).unwrap_err();
    let got = TargetKind::Classes;
    let is_expected = matches!(
        &error,
        Error::Train(TrainError::Input(InputError::ScaleOfOtherTargets { got: found })) if *found == got
    );
    assert!(is_expected && !out.exists(), "{error}");
}
