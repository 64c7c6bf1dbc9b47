//! Evaluations of items whose outputs are not finite: they have no prediction, are counted, and change no metric.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::ops::Range;
use std::sync::Arc;

use kiln::feature::{DenseFeatures, FeatureBuffer, FeatureStore, TargetKind};
use kiln::prelude::*;
use kiln::train::{Error as TrainError, Evaluation, MetricSums, TrainerError};

use crate::heterogeneous::predictions::named_shop;

const N_NODES: u32 = 300;

/// A node of the validation split and one of the test split, whose neighbours are in the same split.
const DAMAGED: [u32; 2] = [170, 230];

const MODES: [EvalMode; 3] =
    [EvalMode::Sampled, EvalMode::FirstRank { n_batches: 100 }, EvalMode::Exact { memory_bytes: None }];

/// Returns rows in which the first value of these nodes is NaN.
fn damage(features: &dyn FeatureStore, nodes: &[u32]) -> Arc<dyn FeatureStore> {
    let all: Vec<NodeId> = (0..features.n_rows() as u32).map(NodeId).collect();
    let mut rows = FeatureBuffer::empty(features.dtype());
    features.gather(&all, &mut rows).unwrap();
    let mut values = rows.into_f32();
    for &node in nodes {
        values[node as usize * features.dim()] = f32::NAN;
    }
    Arc::new(DenseFeatures::from_f32(values, features.dim()).unwrap())
}

fn nodes(ids: impl Iterator<Item = u32>) -> Vec<NodeId> {
    ids.map(NodeId).collect()
}

/// Returns a cycle with targets of this kind, which depend on the features. A node reaches itself and its two neighbours.
/// Nodes of `left_out` are in no part of the split.
fn data(kind: TargetKind, left_out: &[u32]) -> Dataset {
    let hash = |value: u32| value.wrapping_mul(2_654_435_761) >> 8;
    let (srcs, dsts): (Vec<u32>, Vec<u32>) = (0..N_NODES).map(|node| (node, (node + 1) % N_NODES)).unzip();
    let features = (0..2 * N_NODES).map(|value| hash(value) as f32 / (1 << 23) as f32 - 1.0);
    let features: Vec<f32> = features.collect();
    let part = |ids: Range<u32>| nodes(ids.filter(|id| !left_out.contains(id)));
    let builder = Dataset::builder(N_NODES as usize)
        .edges(&srcs, &dsts)
        .symmetrize()
        .features(features.clone(), 2)
        .split(part(0..150), part(150..200), part(200..250));
    let is_positive = features.iter().map(|value| u8::from(0.0 < *value));
    match kind {
        TargetKind::Classes => builder.labels(is_positive.step_by(2).map(i32::from).collect::<Vec<_>>(), 2),
        TargetKind::MultiLabel => builder.multi_label(is_positive.collect::<Vec<_>>(), 2),
        TargetKind::Regression => builder.regression(features, 2),
        TargetKind::Links => unreachable!("links have no target values"),
    }
    .build()
    .unwrap()
}

fn loader(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, [Fanout::All]).batch_size(16).workers(0)
}

fn sage(data: &Dataset) -> SageConfig {
    SageConfig::for_data(data).layers(1).hidden(8).dropout(0.0)
}

/// Compares values of a summary. Two ranks add the errors of their nodes, of which they have others here.
fn is_close(found: &serde_json::Value, expected: &serde_json::Value) -> bool {
    match (found.as_f64(), expected.as_f64(), found.as_object()) {
        (Some(found), Some(expected), _) => (found - expected).abs() <= 1e-12 * expected.abs(),
        (_, _, Some(all)) => all.iter().all(|(name, found)| is_close(found, &expected[name])),
        _ => found == expected,
    }
}

/// The nodes whose outputs depend on a damaged node.
fn reached() -> Vec<u32> {
    DAMAGED.into_iter().flat_map(|node| node - 1..=node + 1).collect()
}

/// A run on data with such items has the metrics, the best epoch and the weights of a run whose splits lack them.
#[test]
fn a_run_leaves_them_out_and_counts_them() {
    let metrics = [
        (TargetKind::Classes, Metric::Accuracy),
        (TargetKind::Classes, Metric::RocAuc),
        (TargetKind::MultiLabel, Metric::F1Micro),
        (TargetKind::MultiLabel, Metric::AveragePrecisionMicro),
        (TargetKind::Regression, Metric::Rmse),
    ];
    for (kind, metric) in metrics {
        for mode in MODES {
            for n_ranks in [1, 2] {
                let run = |data: &Dataset| {
                    let folder = tempfile::tempdir().unwrap();
                    let out = folder.path().join("run");
                    launch(RankConfig::threads(n_ranks).threads_per_rank(1), |rank| {
                        let loader = loader(data).evaluation(mode);
                        let fit = FitConfig::epochs(3).out(&out).metric(metric).quiet();
                        let mut trainer = Trainer::new(sage(data), AdamConfig::new(1e-2)).seed(7).rank(&rank);
                        trainer.fit(&loader, fit)?.write_report(&loader)?;
                        Ok(())
                    })
                    .unwrap();
                    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
                    let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
                    let epochs = read("metrics.jsonl").lines().map(parse).collect::<Vec<_>>();
                    (parse(&read("summary.json")), epochs, read("test_predictions.csv"))
                };
                let good = data(kind, &reached());
                let bad = data(kind, &[]);
                let bad = Dataset {
                    features: vec![Some(damage(&**bad.node_features().unwrap(), &DAMAGED))],
                    ..bad
                };
                let (expected, expected_epochs, expected_rows) = run(&good);
                let (mut summary, epochs, rows) = run(&bad);
                let case = format!("{kind:?}, {metric}, {mode:?}, {n_ranks} ranks");
                for name in ["val_not_finite", "test_not_finite"] {
                    assert_eq!(expected.get(name), None, "{case}");
                    assert_eq!(summary.as_object_mut().unwrap().remove(name), Some(3.into()), "{case}");
                }
                for name in ["seconds", "peak_rss_anon_bytes", "peak_rss_mapped_bytes"] {
                    summary.as_object_mut().unwrap().remove(name);
                }
                for (epoch, expected) in epochs.iter().zip(&expected_epochs) {
                    assert_eq!(epoch["val_not_finite"], 3, "{case}");
                    // The loss of a batch is a sum in f32 unless items are left out.
                    let [loss, expected] = [epoch, expected].map(|epoch| epoch["val_loss"].as_f64().unwrap());
                    assert!(
                        (loss - expected).abs() < 1e-5 * expected,
                        "{case}: {loss} instead of {expected}"
                    );
                }
                for (name, value) in summary.as_object().unwrap() {
                    assert!(is_close(value, &expected[name]), "{case}: {name}: {value}");
                }
                let (lost, kept): (Vec<&str>, Vec<&str>) = rows.lines().partition(|line| line.ends_with(','));
                assert_eq!(kept, expected_rows.lines().collect::<Vec<_>>(), "{case}");
                let ids: Vec<&str> = lost.iter().map(|line| line.split(',').next().unwrap()).collect();
                assert_eq!(ids, ["229", "230", "231"], "{case}");
            }
        }
    }
}

/// A model whose outputs are never finite has diverged: that is an error.
#[test]
fn an_evaluation_without_a_finite_output_is_an_error() {
    let good = data(TargetKind::Classes, &[]);
    let all_evaluated: Vec<u32> = (150..250).collect();
    // The training nodes have no damaged neighbours.
    let split = Split { train: nodes(1..149).into(), ..good.split().clone() };
    let features = good.node_features().unwrap();
    let damaged = Dataset { features: vec![Some(damage(&**features, &all_evaluated))], ..good.clone() };
    let bad = damaged.with_split(split).unwrap();
    for metric in [Metric::Accuracy, Metric::RocAuc] {
        for mode in MODES {
            let loader = loader(&bad).evaluation(mode);
            let folder = tempfile::tempdir().unwrap();
            let fit = FitConfig::epochs(1).out(folder.path().join("run")).metric(metric).quiet();
            let mut trainer = Trainer::new(sage(&bad), AdamConfig::new(1e-2)).seed(7);
            let error = trainer.fit(&loader, fit).unwrap_err();
            let is_expected = matches!(
                &error,
                Error::Train(TrainError::Trainer(TrainerError::LossNotFinite { pass: "evaluation", .. }))
            );
            assert!(is_expected, "{metric}, {mode:?}: {error}");
            // Only the test has no finite output.
            let damaged = vec![Some(damage(&**features, &all_evaluated[50..]))];
            let of_test = Dataset { features: damaged, ..bad.clone() };
            let split = Split { val: nodes(150..199).into(), ..bad.split().clone() };
            let loader = self::loader(&of_test.with_split(split).unwrap()).evaluation(mode);
            let fit = FitConfig::epochs(1).out(folder.path().join("test")).metric(metric).quiet();
            let mut trainer = Trainer::new(sage(&bad), AdamConfig::new(1e-2)).seed(7);
            let error = trainer.fit(&loader, fit).unwrap().write_report(&loader).unwrap_err();
            let is_expected = matches!(
                &error,
                Error::Train(TrainError::Trainer(TrainerError::LossNotFinite { pass: "evaluation", .. }))
            );
            assert!(is_expected, "{metric}, {mode:?}: {error}");
        }
    }
}

/// Compares the evaluation of a test split on good data with that on damaged data. Returns the ids of the items without finite
/// outputs.
fn check_items(good: &Evaluation, bad: &Evaluation) -> Vec<u32> {
    let [good, bad_rows] = [good, bad].map(Evaluation::predictions);
    assert_eq!(good.len(), bad_rows.len());
    let mut lost = Vec::new();
    let mut n_hits = 0;
    for (good, bad) in good.iter().zip(&bad_rows) {
        match bad.predicted {
            Some(_) => assert_eq!(good, bad),
            None => lost.push(bad.item),
        }
        n_hits += u64::from(bad.predicted == Some(bad.label));
    }
    let counts = bad.counts().unwrap();
    let n_lost = lost.len() as u64;
    assert_eq!((counts.n_not_finite, counts.total), (n_lost, good.len() as u64 - n_lost));
    assert_eq!(counts.hits, n_hits);
    assert!(counts.loss().is_finite());
    lost
}

fn train<C: ModelConfig, L: DataLoader<C::Model>>(model: C, loader: &L) -> TrainedModel<C::Model> {
    let folder = tempfile::tempdir().unwrap();
    let fit = FitConfig::epochs(1).out(folder.path().join("run")).quiet();
    Trainer::new(model, AdamConfig::new(1e-2)).seed(7).fit(loader, fit).unwrap()
}

#[test]
fn nodes_of_heterogeneous_graphs_are_left_out() {
    let good = named_shop(1, 0);
    let node = good.targets.as_ref().unwrap().split.test[0].0;
    let mut bad = good.clone();
    bad.features[1] = Some(damage(&**good.features[1].as_ref().unwrap(), &[node]));
    let loader =
        |data: &Dataset| NeighborLoader::new(data, [Fanout::All, Fanout::All]).batch_size(64).workers(0);
    let rgcn = RgcnConfig::new(8, 2, 2).layers(2).hidden(16);
    let best = train(HeteroModelConfig::new(good.dims(), rgcn), &loader(&good));
    let evaluate = |data: &Dataset| best.predict(&loader(data), Phase::Test).unwrap();
    let sums = best.evaluate(&loader(&bad), Phase::Test).unwrap();
    let bad = evaluate(&bad);
    let lost = check_items(&evaluate(&good), &bad);
    assert!(lost.contains(&node) && lost.len() < bad.predictions().len());
    assert_eq!(sums.n_not_finite, lost.len() as u64);
}

#[test]
fn graphs_are_left_out() {
    let graphs = GraphDataset::open("mutag").unwrap();
    let split = Split::<GraphId>::random(graphs.n_graphs(), [0.6, 0.1], 0).unwrap();
    let graph = split.test[0];
    let good = graphs.node_features(NodeFeatures::Auto).unwrap();
    let bad = damage(&*good, &[graphs.nodes(graph.0 as usize).start as u32]);
    let loader = |features: &Arc<dyn FeatureStore>| {
        GraphLoader::new(&graphs, features.clone(), &split).batch_size(16).workers(0)
    };
    let model = GinConfig::paper(good.dim(), 16, graphs.labels().n_classes());
    let best = train(model, &loader(&good));
    let evaluate = |features| best.predict(&loader(features), Phase::Test).unwrap();
    assert_eq!(check_items(&evaluate(&good), &evaluate(&bad)), [graph.0]);
    assert_eq!(best.evaluate(&loader(&bad), Phase::Test).unwrap().n_not_finite, 1);
}

/// A link has no rank if its score or that of one of its negatives is NaN.
fn check_links(good: &Evaluation, bad: &Evaluation, counts: &MetricSums) {
    let [links, bad_links] = [good, bad].map(Evaluation::link_predictions);
    let mut n_lost = 0;
    let mut reciprocals = 0.0;
    for (good, bad) in links.iter().zip(&bad_links) {
        match bad.rank {
            Some(rank) => {
                assert_eq!((good, Some(rank)), (bad, good.rank));
                reciprocals += 1.0 / rank;
            }
            None => n_lost += 1,
        }
    }
    let n_kept = links.len() as u64 - n_lost;
    assert!(0 < n_lost && 0 < n_kept, "{n_lost} of {}", links.len());
    for counts in [*counts, bad.counts().unwrap()] {
        assert_eq!((counts.n_not_finite, counts.total), (n_lost, n_kept));
        assert!(counts.loss().is_finite());
    }
    let mrr = bad.stats(Metric::Mrr).unwrap().value().unwrap();
    let expected = reciprocals / n_kept as f64;
    assert!((mrr - expected).abs() < 1e-9, "{mrr} instead of {expected}");
    assert!(bad.stats(Metric::RocAuc).unwrap().value().is_some());
}

#[test]
fn links_are_left_out() {
    let good = data(TargetKind::Classes, &[]);
    let bad =
        Dataset { features: vec![Some(damage(&**good.node_features().unwrap(), &DAMAGED))], ..good.clone() };
    let split = LinkSplit::random(&good.graph, &LinkSplitConfig::default(), 3).unwrap();
    for mode in [EvalMode::Sampled, EvalMode::Exact { memory_bytes: None }] {
        let loader = |data: &Dataset| LinkNeighborLoader::new(loader(data).evaluation(mode), &split).unwrap();
        let encoder = SageConfig::new(2, 8).layers(1).dropout(0.0);
        let model = LinkModelConfig { encoder, decoder: LinkDecoderConfig::Dot };
        let best = train(model, &loader(&good));
        let evaluate = |data: &Dataset| best.predict(&loader(data), Phase::Test).unwrap();
        let counts = best.evaluate(&loader(&bad), Phase::Test).unwrap();
        check_links(&evaluate(&good), &evaluate(&bad), &counts);
    }
}

#[test]
fn links_of_heterogeneous_graphs_are_left_out() {
    let good = named_shop(1, 0);
    let mut bad = good.clone();
    bad.features[1] = Some(damage(&**good.features[1].as_ref().unwrap(), &[5]));
    let config = LinkSplitConfig::default();
    let split = LinkSplit::random_relation(&good.graph, "buys", Some("bought by"), &config, 3).unwrap();
    let loader = |data: &Dataset| {
        let nodes = NeighborLoader::new(data, [2]).batch_size(64).workers(0);
        LinkNeighborLoader::new(nodes, &split).unwrap()
    };
    let rsage = RsageConfig::new(8, 8).metagraph(&good.graph.metagraph()).layers(1);
    let encoder = HeteroModelConfig::new(good.dims(), rsage);
    let best = train(LinkModelConfig { encoder, decoder: LinkDecoderConfig::Dot }, &loader(&good));
    let evaluate = |data: &Dataset| best.predict(&loader(data), Phase::Test).unwrap();
    let counts = best.evaluate(&loader(&bad), Phase::Test).unwrap();
    check_links(&evaluate(&good), &evaluate(&bad), &counts);
}
