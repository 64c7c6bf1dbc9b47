//! Tests of runs without items for validation or test, and of metrics that cannot rank models, on nodes, links and graphs,
//! homogeneous and heterogeneous.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;

use kiln::data::{DatasetTargets, LinkTargets, synthetic};
use kiln::feature::Labels;
use kiln::graph::{LinkId, NodeTypes};
use kiln::prelude::*;
use kiln::train::{Error as TrainError, InputError, MetricError, SelectionError, Summary};

use crate::relation::relation;

/// Returns a graph of at least 150 nodes in two classes. The split has 60 nodes for training, and the given numbers for validation
/// and test.
fn data(n_val: u32, n_test: u32) -> Dataset {
    let config = synthetic::FakeConfig { avg_num_nodes: 200, num_channels: 8, ..Default::default() };
    let data = synthetic::fake(config).unwrap();
    let part = |range: std::ops::Range<u32>| range.map(NodeId).collect();
    let labels = (0..data.graph.n_nodes() as i32).map(|node| node % 2).collect::<Vec<i32>>();
    let split = Split { train: part(0..60), val: part(60..60 + n_val), test: part(80..80 + n_test) };
    let class_names = vec!["a".into(), "b".into()];
    let values = Labels::new(labels, 2).into();
    Dataset { targets: Some(DatasetTargets { node_type: 0, values, split, class_names }), ..data }
}

fn nodes(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, [5]).batch_size(16).workers(0)
}

fn sage(data: &Dataset) -> Trainer<SageConfig> {
    Trainer::new(SageConfig::for_data(data).layers(1).hidden(8), AdamConfig::new(1e-2)).seed(7)
}

/// Returns a loader of the links of a graph, with these shares for validation and test.
fn links(data: &Dataset, shares: [f64; 2]) -> LinkNeighborLoader {
    let config = LinkSplitConfig { val: shares[0], test: shares[1], ..LinkSplitConfig::default() };
    LinkNeighborLoader::new(nodes(data), &LinkSplit::random(&data.graph, &config, 3).unwrap()).unwrap()
}

fn link_trainer(data: &Dataset) -> Trainer<LinkModelConfig<SageConfig>> {
    let encoder = SageConfig::new(data.node_features().unwrap().dim(), 8).layers(1);
    Trainer::new(LinkModelConfig { encoder, decoder: LinkDecoderConfig::Dot }, AdamConfig::new(1e-2)).seed(7)
}

/// Returns users who buy items of two classes, with these numbers of items for validation and test.
fn shop(n_val: u32, n_test: u32) -> Dataset {
    let users: Vec<u32> = (0..120).map(|edge| edge % 20).collect();
    let items: Vec<u32> = (0..120).map(|edge| edge % 40).collect();
    let ids = |range: std::ops::Range<u32>| range.collect::<Vec<u32>>();
    Dataset::builder_with_types(NodeTypes::new([("user", 20), ("item", 40)]).unwrap())
        .relation(relation("buys", ["user", "item"], &users, &items))
        .relation(relation("bought by", ["item", "user"], &items, &users))
        .nodes("item")
        .features(vec![0.5; 80], 2)
        .nodes("item")
        .labels((0..40).map(|item| item % 2).collect::<Vec<i32>>(), 2)
        .split(ids(0..20).clone(), ids(20..20 + n_val).clone(), ids(30..30 + n_test).clone())
        .build()
        .unwrap()
}

fn typed_nodes(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, [5]).batch_size(8).workers(0)
}

fn rgcn(data: &Dataset, d_out: usize) -> HeteroModelConfig<RgcnConfig> {
    HeteroModelConfig::new(data.dims(), RgcnConfig::new(8, d_out, 2).layers(1))
}

fn typed_links(data: &Dataset, shares: [f64; 2]) -> LinkNeighborLoader {
    let config = LinkSplitConfig { val: shares[0], test: shares[1], ..LinkSplitConfig::default() };
    let split = LinkSplit::random_relation(&data.graph, "buys", Some("bought by"), &config, 3).unwrap();
    let nodes = NeighborLoader::new(data, [5]).batch_size(16).workers(0);
    LinkNeighborLoader::new(nodes, &split).unwrap()
}

fn quiet(out: &Path) -> FitConfig {
    FitConfig::epochs(2).out(out).quiet()
}

/// Trains on splits without items for validation, test, or both. The run must have the results of what is there.
fn check<C: ModelConfig, L: DataLoader<C::Model>>(
    mut trainer: Trainer<C>,
    loader_of: impl Fn(bool, bool) -> L,
) {
    for (has_val, has_test) in [(false, false), (false, true), (true, false)] {
        let folder = tempfile::tempdir().unwrap();
        let (out, loader) = (folder.path().join("run"), loader_of(has_val, has_test));
        if !has_val {
            let error = trainer.fit(&loader, quiet(&out).patience(1)).unwrap_err();
            let is_refused = matches!(
                error,
                Error::Train(TrainError::Metric(MetricError::Selection(
                    SelectionError::PatienceWithoutValidation
                )))
            );
            assert!(is_refused && !out.exists(), "{error}");
        }
        let trained = trainer.fit(&loader, quiet(&out)).unwrap();
        assert_eq!(trained.report.n_epochs, 2);
        let is_last = (trained.best.epoch, trained.best.value) == (2, None);
        assert_eq!(is_last, !has_val, "{:?}", trained.best);
        for (phase, name, has_items) in
            [(Phase::Validation, "validation", has_val), (Phase::Test, "test", has_test)]
        {
            let evaluated = trained.evaluate(&loader, phase);
            let is_empty = matches!(
                &evaluated,
                Err(Error::Train(TrainError::Input(InputError::EmptySplit { split }))) if *split == name
            );
            assert_eq!((evaluated.is_ok(), is_empty), (has_items, !has_items), "{name}");
        }
        let summary = trained.write_report(&loader).unwrap().unwrap();
        check_summary(&summary, &out, has_val, has_test);
    }
}

fn check_summary(summary: &Summary, out: &Path, has_val: bool, has_test: bool) {
    let printed = summary.to_string();
    assert_eq!(printed.contains("test            none: the test split has no items"), !has_test, "{printed}");
    assert_eq!(printed.contains("(the last one: no validation split)"), !has_val, "{printed}");
    assert!(!printed.contains("NaN") && !printed.contains("undefined"), "{printed}");
    let json = std::fs::read_to_string(out.join("summary.json")).unwrap();
    assert_eq!((json.contains("\"test_"), json.contains("\"val_")), (has_test, has_val), "{json}");
    assert_eq!(out.join("test_predictions.csv").exists(), has_test);
}

#[test]
fn runs_on_nodes_need_neither_validation_nor_test() {
    let sized = |has_val, has_test| data(20 * u32::from(has_val), 20 * u32::from(has_test));
    check(sage(&data(20, 20)), |has_val, has_test| nodes(&sized(has_val, has_test)));
}

#[test]
fn exact_evaluation_needs_neither_validation_nor_test() {
    let sized = |has_val, has_test| data(20 * u32::from(has_val), 20 * u32::from(has_test));
    check(sage(&data(20, 20)), |has_val, has_test| {
        nodes(&sized(has_val, has_test)).evaluation(EvalMode::Exact { memory_bytes: None })
    });
}

#[test]
fn runs_on_links_need_neither_validation_nor_test() {
    let data = data(0, 0);
    let share = |has_items| if has_items { 0.2 } else { 0.0 };
    check(link_trainer(&data), |has_val, has_test| links(&data, [share(has_val), share(has_test)]));
}

#[test]
fn runs_on_graphs_need_neither_validation_nor_test() {
    let graphs = GraphDataset::open("mutag").unwrap();
    let features = graphs.node_features(NodeFeatures::Auto).unwrap();
    let model = GinConfig::simplified(features.dim(), 8, graphs.labels().n_classes());
    let part = |range: std::ops::Range<u32>| range.map(GraphId).collect();
    check(Trainer::new(model, AdamConfig::new(1e-2)), |has_val, has_test| {
        let val = part(100..100 + 40 * u32::from(has_val));
        let test = part(140..140 + 48 * u32::from(has_test));
        GraphLoader::new(&graphs, features.clone(), &Split { train: part(0..100), val, test })
    });
}

#[test]
fn runs_on_heterogeneous_graphs_need_neither_validation_nor_test() {
    let trainer = Trainer::new(rgcn(&shop(10, 10), 2), AdamConfig::new(1e-2));
    check(trainer, |has_val, has_test| typed_nodes(&shop(10 * u32::from(has_val), 10 * u32::from(has_test))));
    let data = shop(0, 0);
    let share = |has_items| if has_items { 0.2 } else { 0.0 };
    let model = LinkModelConfig { encoder: rgcn(&data, 8), decoder: LinkDecoderConfig::Dot };
    check(Trainer::new(model, AdamConfig::new(1e-2)), |has_val, has_test| {
        typed_links(&data, [share(has_val), share(has_test)])
    });
}

/// Checks that a metric is refused before the run's folder exists, and that the error names `instead`.
fn check_refused<C: ModelConfig, L: DataLoader<C::Model>>(
    mut trainer: Trainer<C>,
    loader: &L,
    metric: Metric,
    instead: &str,
) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let error = trainer.fit(loader, quiet(&out).metric(metric).patience(1)).unwrap_err();
    let is_refused = matches!(
        &error,
        Error::Train(TrainError::Metric(MetricError::Selection(SelectionError::CannotRank { metric: named, .. }))) if *named == metric.name()
    );
    assert!(is_refused && !out.exists(), "{error}");
    assert!(error.to_string().contains(instead), "{error}\n    expected {instead}");
}

#[test]
fn metrics_that_cannot_rank_the_epochs_are_refused_before_the_first_step() {
    // The validation has the nodes 60, 62, and so on, which are all of class 0.
    let mut plain = data(20, 20);
    plain.targets.as_mut().unwrap().split.val = (60..80).step_by(2).map(NodeId).collect();
    for metric in [Metric::RocAuc, Metric::AveragePrecision] {
        check_refused(sage(&plain), &nodes(&plain), metric, "use one of accuracy, f1-micro, f1-macro");
    }
    // The first batch alone has one class, and rank 0 evaluates no other.
    let mut first = data(20, 20);
    first.targets.as_mut().unwrap().split.val =
        (60..80).step_by(2).chain((61..80).step_by(2)).map(NodeId).collect();
    let loader = nodes(&first).batch_size(10);
    let of_first = loader.clone().evaluation(EvalMode::FirstRank { n_batches: 1 });
    check_refused(sage(&first), &of_first, Metric::RocAuc, "whose 10 items are all of class 0");
    let folder = tempfile::tempdir().unwrap();
    let both = loader.evaluation(EvalMode::FirstRank { n_batches: 2 });
    assert!(sage(&first).fit(&both, quiet(folder.path()).metric(Metric::RocAuc)).is_ok());

    let graphs = GraphDataset::open("mutag").unwrap();
    let features = graphs.node_features(NodeFeatures::Auto).unwrap();
    let model = GinConfig::simplified(features.dim(), 8, graphs.labels().n_classes());
    let class_one = |id: &GraphId| graphs.labels().get(*id) == Some(1);
    let val: Vec<GraphId> = (100..188).map(GraphId).filter(class_one).collect();
    let split = Split { train: (0..100).map(GraphId).collect(), val: val.into(), test: Default::default() };
    let loader = GraphLoader::new(&graphs, features, &split);
    check_refused(Trainer::new(model, AdamConfig::new(1e-2)), &loader, Metric::RocAuc, "are all of class 1");

    let mut typed = shop(10, 10);
    let targets = typed.targets.as_mut().unwrap();
    // Nodes of the type come after the 20 users.
    targets.split.val = (40..50).step_by(2).map(NodeId).collect();
    let trainer = Trainer::new(rgcn(&typed, 2), AdamConfig::new(1e-2));
    check_refused(trainer, &typed_nodes(&typed), Metric::RocAuc, "whose 5 items are all of class 0");
}

#[test]
fn ranks_that_are_always_hits_are_refused_before_the_first_step() {
    let data = data(0, 0);
    let few = Negatives::new(UniformNegatives { dsts: 0..data.graph.n_nodes() as u32 }, 9);
    let loader = links(&data, [0.2, 0.0]).val_negatives(few.clone());
    check_refused(link_trainer(&data), &loader, Metric::Hits10, "have 9 negatives each: use one of");
    let shop = shop(0, 0);
    let model = LinkModelConfig { encoder: rgcn(&shop, 8), decoder: LinkDecoderConfig::Dot };
    let items = UniformNegatives { dsts: 20..60 };
    let loader = typed_links(&shop, [0.2, 0.0]).val_negatives(Negatives::new(items, 40));
    let trainer = Trainer::new(model, AdamConfig::new(1e-2));
    check_refused(trainer, &loader, Metric::Hits50, "have 40 negatives each: use one of");
    // A link of a validation without negatives is always the first.
    let targets = LinkTargets::new(
        kiln::graph::Links::new(vec![0, 1, 2], vec![1, 2, 3]).unwrap(),
        Split {
            train: [LinkId(0)].to_vec().into(),
            val: [LinkId(1)].to_vec().into(),
            test: Default::default(),
        },
    );
    let split = LinkSplit::new(&data.graph, targets.unwrap()).unwrap();
    let n_nodes = data.graph.n_nodes() as u32;
    let one = Negatives::new(UniformNegatives { dsts: 0..n_nodes }, 1);
    let loader = LinkNeighborLoader::new(nodes(&data), &split).unwrap().val_negatives(one);
    check_refused(
        link_trainer(&data),
        &loader,
        Metric::Hits100,
        "use one of roc-auc, average-precision, mrr, or",
    );
}
