//! Training on several labels per item and on regression targets, for nodes and graphs: models learn, ranks agree,
//! exact evaluation computes the same metrics, and missing targets do not matter.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln::data::DatasetTargets;
use std::path::Path;
use std::sync::Arc;

use kiln::feature::{DenseFeatures, FeatureStore, Labels, TargetKind, TargetValues};
use kiln::nn::{ClassLoss, TargetLoss};
use kiln::prelude::*;
use kiln::train::{Error as TrainError, InputError, MetricError, Objective};

const N_NODES: u32 = 300;
const N_EPOCHS: usize = 40;
const MISSING: u8 = TargetValues::<NodeId>::MISSING;

/// Returns two numbers in `0..1` that are a node's features.
fn x(node: u32) -> [f32; 2] {
    [node.wrapping_mul(2_654_435_761), node.wrapping_mul(40_503) << 16]
        .map(|bits| (bits >> 8) as f32 / (1 << 24) as f32)
}

/// Returns a cycle whose targets depend on the features; every fifth value of column 1 is missing. Nodes from 250 on
/// have no target.
pub(crate) fn data(kind: TargetKind) -> Dataset {
    let (srcs, dsts): (Vec<u32>, Vec<u32>) = (0..N_NODES).map(|node| (node, (node + 1) % N_NODES)).unzip();
    let features = (0..N_NODES).flat_map(x).collect::<Vec<f32>>();
    let nodes = |range: std::ops::Range<u32>| range.map(NodeId).collect::<Vec<NodeId>>();
    let builder = Dataset::builder(N_NODES as usize)
        .edges(&srcs, &dsts)
        .symmetrize()
        .features(features, 2)
        .split(nodes(0..150), nodes(150..200), nodes(200..250));
    let is_missing = |node: u32, column: usize| 250 <= node || (column == 1 && node.is_multiple_of(5));
    let value = |node: u32, column: usize| 2.0 * x(node)[column] - 1.0;
    let all = (0..N_NODES).flat_map(|node| [(node, 0), (node, 1)]);
    match kind {
        TargetKind::Classes | TargetKind::Links => unreachable!("only target values are tested"),
        TargetKind::MultiLabel => {
            let label = |(node, column)| match is_missing(node, column) {
                true => MISSING,
                false => u8::from(0.0 < value(node, column)),
            };
            builder.multi_label(all.map(label).collect::<Vec<u8>>(), 2).build().unwrap()
        }
        TargetKind::Regression => {
            let number =
                |(node, column)| if is_missing(node, column) { f32::NAN } else { value(node, column) };
            builder.regression(all.map(number).collect::<Vec<f32>>(), 2).build().unwrap()
        }
    }
}

fn trainer(data: &Dataset) -> Trainer<SageConfig> {
    let config = SageConfig::for_data(data).layers(1).hidden(16).dropout(0.0);
    Trainer::new(config, AdamConfig::new(5e-2)).seed(7)
}

fn loader(data: &Dataset, batch_size: usize) -> NeighborLoader {
    NeighborLoader::new(data, [Fanout::All]).batch_size(batch_size)
}

fn quiet(out: &Path) -> FitConfig {
    FitConfig::epochs(N_EPOCHS).out(out).quiet()
}

#[test]
fn node_models_learn_and_select_by_the_metric_of_their_targets() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, metric, objective) in [
        (TargetKind::MultiLabel, Metric::RocAuc, Objective::MultiLabel),
        (TargetKind::Regression, Metric::Rmse, Objective::Regression(TargetLoss::SquaredError)),
        (TargetKind::Regression, Metric::R2, Objective::Regression(TargetLoss::Huber { delta: 0.5 })),
        (TargetKind::Regression, Metric::Mae, Objective::Regression(TargetLoss::AbsoluteError)),
    ] {
        let (data, out) = (data(kind), folder.path().join(metric.name()));
        let loader = loader(&data, 50).objective(objective);
        let best = trainer(&data).fit(&loader, quiet(&out).metric(metric)).unwrap();
        let first = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
        let first = first.split("\"val_metric\":").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        let (first, last) = (first.parse::<f64>().unwrap(), best.best.value.unwrap());
        assert!(metric.is_better(Some(last), Some(first)) && best.best.epoch > 1, "{metric}: {first} {last}");
        let is_learned = match metric {
            Metric::RocAuc => 0.97 < last,
            Metric::R2 => 0.9 < last,
            _ => last < 0.2,
        };
        assert!(is_learned, "{metric}: {last}");

        let summary = best.write_report(&loader).unwrap().unwrap();
        let test: Vec<Metric> = summary.test_metrics.iter().map(|(metric, _)| *metric).collect();
        assert_eq!(test, Metric::of_kind(kind).collect::<Vec<_>>());
        let json = std::fs::read_to_string(out.join("summary.json")).unwrap();
        assert_eq!(json.contains("test_accuracy"), kind == TargetKind::MultiLabel, "{json}");
        let csv = std::fs::read_to_string(out.join("test_predictions.csv")).unwrap();
        let mut lines = csv.lines();
        assert_eq!(lines.next(), Some("item,target_0,target_1,output_0,output_1"));
        assert!(lines.next().unwrap().starts_with("200,"), "{csv}");
        assert_eq!((csv.lines().count(), csv.lines().nth(1).unwrap().split(',').nth(2)), (51, Some("")));
    }
}

/// All neighbours are sampled, so exact evaluation has the same outputs; ranks add the same items in other batches.
#[test]
fn ranks_and_exact_evaluation_compute_the_same_metrics() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [TargetKind::MultiLabel, TargetKind::Regression] {
        let data = data(kind);
        let run = |n_ranks: usize, mode: EvalMode| {
            let out = folder.path().join(format!("{kind} {n_ranks} {mode:?}"));
            let loader = loader(&data, 60 / n_ranks).evaluation(mode);
            launch(RankConfig::threads(n_ranks).threads_per_rank(1), |rank| {
                let best = trainer(&data).rank(&rank).fit(&loader, quiet(&out))?;
                Ok((
                    best.best.clone(),
                    best.evaluate(&loader, Phase::Test)?,
                    best.predict(&loader, Phase::Test)?,
                ))
            })
            .unwrap()
        };
        let one = run(1, EvalMode::Sampled);
        let others = [run(3, EvalMode::Sampled), run(1, EvalMode::Exact { memory_bytes: None })];
        for other in others.iter().chain([&run(3, EvalMode::Exact { memory_bytes: None })]) {
            let ((best, sums, outputs), (expected, expected_sums, all)) = (&other[0], &one[0]);
            let close = |a: f64, b: f64| (a - b).abs() <= 1e-4 * b.abs();
            assert!(close(best.value.unwrap(), expected.value.unwrap()), "{best:?} {expected:?}");
            assert!(close(sums.loss(), expected_sums.loss()), "{sums:?} {expected_sums:?}");
            assert_eq!((sums.total, sums.weight), (50, 90.0));
            for ((metric, value), (_, expected)) in outputs.all_metrics().iter().zip(all.all_metrics()) {
                assert!(close(value.unwrap(), expected.unwrap()), "{metric}: {value:?} {expected:?}");
            }
            assert!(other.iter().all(|(rank, ..)| rank == best));
        }
    }
}

/// Returns 60 stars with 3 to 7 nodes. The first target of a graph is the share of its nodes above 5, the second is the
/// sum of its features; every fourth is missing.
fn graphs(is_regression: bool) -> (GraphDataset, Arc<dyn FeatureStore>) {
    let n_nodes = |graph: u32| 3 + graph % 5;
    let (mut offsets, mut srcs, mut dsts, mut features) = (vec![0], Vec::new(), Vec::new(), Vec::new());
    let (mut numbers, mut bits) = (Vec::new(), Vec::new());
    for graph in 0..60 {
        let start: u32 = offsets[offsets.len() - 1];
        let nodes = start..start + n_nodes(graph);
        for node in nodes.clone().skip(1) {
            srcs.extend([node, start]);
            dsts.extend([start, node]);
        }
        let rows: Vec<[f32; 2]> = nodes.clone().map(x).collect();
        let sum: f32 = rows.iter().map(|row| row[0]).sum();
        features.extend(rows.concat());
        offsets.push(nodes.end);
        let is_missing = graph.is_multiple_of(4);
        numbers.extend([n_nodes(graph) as f32 / 5.0, if is_missing { f32::NAN } else { sum / 3.0 }]);
        bits.extend([u8::from(5 < n_nodes(graph)), if is_missing { MISSING } else { u8::from(2.5 < sum) }]);
    }
    let graph = kiln::graph::CscBuilder::new(features.len() / 2).build(&srcs, &dsts).unwrap();
    let targets = match is_regression {
        true => TargetValues::regression(numbers, 2).unwrap(),
        false => TargetValues::multi_label(bits, 2).unwrap(),
    };
    let features: Arc<dyn FeatureStore> = Arc::new(DenseFeatures::from_f32(features, 2).unwrap());
    (GraphDataset::new("stars", graph, offsets, targets).unwrap(), features)
}

#[test]
fn graph_models_learn_several_labels_and_numbers() {
    let folder = tempfile::tempdir().unwrap();
    for is_regression in [false, true] {
        let (graphs, features) = graphs(is_regression);
        let split = Split::random(graphs.n_graphs(), [0.6, 0.2], 1).unwrap();
        let loader = GraphLoader::new(&graphs, features, &split).batch_size(12);
        let config = GinConfig { dropout: 0.0, ..GinConfig::paper(2, 16, 2) };
        let out = folder.path().join(is_regression.to_string());
        let mut trainer = Trainer::new(config, AdamConfig::new(1e-2)).seed(3);
        let best = trainer.fit(&loader, FitConfig::epochs(40).out(&out).quiet()).unwrap();
        let value = best.best.value.unwrap();
        match is_regression {
            true => assert!(best.best.metric == Metric::Rmse && value < 0.25, "{value}"),
            false => assert!(best.best.metric == Metric::RocAuc && 0.9 < value, "{value}"),
        }
        assert_eq!(best.write_report(&loader).unwrap().unwrap().val_metric, Some(value));
    }
}

#[test]
fn objectives_that_do_not_suit_the_targets_are_rejected_before_anything_is_written() {
    let (data, folder) = (data(TargetKind::Regression), tempfile::tempdir().unwrap());
    let refused = |objective: Objective| {
        let out = folder.path().join("run");
        let error = trainer(&data).fit(&loader(&data, 50).objective(objective), quiet(&out)).unwrap_err();
        assert!(!out.exists(), "{error}");
        error
    };
    let error = refused(Objective::MultiLabel);
    assert!(matches!(error, Error::Train(TrainError::Input(InputError::OtherTargets { .. }))), "{error}");
    let expected = "the task learns several labels per item, but the data has regression targets: set the objective \
                    that suits the data (--loss)";
    assert_eq!(error.to_string(), expected);
    let error = refused(Objective::Regression(TargetLoss::BinaryCrossEntropy));
    assert!(matches!(error, Error::Train(TrainError::Input(InputError::BinaryLoss))), "{error}");
    let error = refused(Objective::Regression(TargetLoss::Huber { delta: 0.0 }));
    assert!(
        matches!(
            error,
            Error::Train(TrainError::Model(kiln::nn::Error::Loss(kiln::nn::LossError::HuberDelta { .. })))
        ),
        "{error}"
    );
    let out = folder.path().join("run");
    let error = trainer(&data).fit(&loader(&data, 50), quiet(&out).metric(Metric::RocAuc)).unwrap_err();
    assert!(matches!(error, Error::Train(TrainError::Metric(MetricError::OtherMetric { .. }))), "{error}");
}

/// Class weights count like repeated items, so they move the model towards the heavier class.
#[test]
fn class_weights_and_label_smoothing_change_the_loss() {
    let folder = tempfile::tempdir().unwrap();
    let base = data(TargetKind::MultiLabel);
    let classes: Vec<i32> = (0..N_NODES).map(|node| i32::from(node.is_multiple_of(3))).collect();
    let targets = DatasetTargets::new(0, Labels::new(classes, 2).into(), base.split().clone());
    let data = Dataset { targets: Some(targets), ..base };
    let predicted = |name: &str, loss: ClassLoss| {
        let loader = loader(&data, 50).objective(Objective::Classes(loss));
        let best = trainer(&data).fit(&loader, quiet(&folder.path().join(name))).unwrap();
        let predictions = best.predict(&loader, Phase::Test).unwrap().predictions();
        (
            predictions.iter().filter(|said| said.predicted == Some(1)).count(),
            best.evaluate(&loader, Phase::Test).unwrap(),
        )
    };
    let (few, plain) = predicted("plain", ClassLoss::default());
    let weights = ClassLoss { class_weights: Some(vec![1.0, 10.0]), label_smoothing: 0.0 };
    let (many, weighted) = predicted("weighted", weights);
    assert!(few < many, "{few} {many}");
    // Of the 50 test nodes, 16 or 17 have class 1.
    assert_eq!((plain.weight, weighted.weight), (50.0, 50.0 + 9.0 * 17.0));
    let (_, smooth) = predicted("smooth", ClassLoss { class_weights: None, label_smoothing: 0.3 });
    assert!(plain.loss() < smooth.loss() && smooth.weight == 50.0, "{plain:?} {smooth:?}");

    let wrong = ClassLoss { class_weights: Some(vec![1.0; 3]), label_smoothing: 0.0 };
    let loader = loader(&data, 50).objective(Objective::Classes(wrong));
    let error = trainer(&data).fit(&loader, quiet(&folder.path().join("wrong"))).unwrap_err();
    assert!(error.to_string().contains("expected 2 finite numbers, one per class"), "{error}");
}
