//! Messages of data with a split by time: each phase equals one on data without later edges, and what only the future tells cannot
//! be predicted.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod ages;
mod item_times;
mod link_times;
mod links;
#[cfg(feature = "grpc")]
mod partitions;
mod predictions;
mod pyg_rule;
mod relations;
mod task_tables;

use std::path::Path;

use kiln::Messages;
use kiln::data::TimeSplit;
use kiln::graph::{EdgeColumn, EdgeColumns, NodeTypes, RelationEdges};
use kiln::nn::Sage;
use kiln::prelude::*;
use kiln::sample::{KeyDomain, RngKey};

/// Draws numbers below a limit.
fn draws(stream: u32, n: usize, limit: u32) -> Vec<u32> {
    let mut rng = RngKey::new(11).fold_in(KeyDomain::Step, 0).node(NodeId(stream)).rng();
    (0..n).map(|_| rng.below(limit)).collect()
}

/// A random graph whose edges and nodes have times from 0 to 99.
struct Random {
    srcs: Vec<u32>,
    dsts: Vec<u32>,
    times: Vec<i64>,
    node_times: Vec<i64>,
    has_edge_times: bool,
    has_node_times: bool,
}

const N_NODES: usize = 120;

impl Random {
    fn new(has_edge_times: bool, has_node_times: bool) -> Self {
        let n_edges = 1_500;
        let times = draws(2, n_edges, 100).into_iter().map(i64::from).collect();
        let node_times = draws(3, N_NODES, 100).into_iter().map(i64::from).collect();
        let [srcs, dsts] = [0, 1].map(|stream| draws(stream, n_edges, N_NODES as u32));
        Self { srcs, dsts, times, node_times, has_edge_times, has_node_times }
    }

    /// Returns the set with all edges, or with those before a time, which then have no times.
    fn build(&self, before: Option<i64>, split: &Split, is_typed: bool) -> Dataset {
        let is_kept = |edge: &usize| {
            let Some(cut) = before else { return true };
            let src = self.srcs[*edge] as usize;
            // A node always knows itself.
            let is_loop = self.srcs[*edge] == self.dsts[*edge];
            (!self.has_edge_times || self.times[*edge] < cut)
                && (!self.has_node_times || is_loop || self.node_times[src] < cut)
        };
        let kept: Vec<usize> = (0..self.srcs.len()).filter(is_kept).collect();
        let ends = |nodes: &[u32]| kept.iter().map(|edge| nodes[*edge]).collect::<Vec<u32>>();
        let (srcs, dsts) = (ends(&self.srcs), ends(&self.dsts));
        let amounts: Vec<f32> = kept.iter().map(|edge| *edge as f32 / 1e3).collect();
        let mut columns =
            EdgeColumns::default().with(EdgeColumns::FEATURES, EdgeColumn::new(amounts, 1).unwrap()).unwrap();
        if self.has_edge_times && before.is_none() {
            let times: Vec<i64> = kept.iter().map(|edge| self.times[*edge]).collect();
            columns = columns.with(EdgeColumns::TIMES, EdgeColumn::new(times, 1).unwrap()).unwrap();
        }
        let features: Vec<f32> =
            draws(4, 2 * N_NODES, 1000).into_iter().map(|value| value as f32 / 500.0 - 1.0).collect();
        let labels: Vec<i32> = draws(5, N_NODES, 2).into_iter().map(|class| class as i32).collect();
        let parts = split.parts().map(|(_, nodes)| nodes.to_vec());
        let [train, val, test] = parts;
        if is_typed {
            let edges = RelationEdges {
                columns: Some(&columns),
                ..RelationEdges::new("edge", "node", "node", &srcs, &dsts)
            };
            return Dataset::builder_with_types(NodeTypes::new([("node", N_NODES)]).unwrap())
                .relation(edges)
                .nodes("node")
                .features(features, 2)
                .labels(labels, 2)
                .split(train, val, test)
                .build()
                .unwrap();
        }
        let mut builder =
            Dataset::builder(N_NODES).edges(&srcs, &dsts).features(features, 2).labels(labels, 2);
        for (name, column) in columns.iter() {
            builder = builder.edge_column(name, column.clone());
        }
        builder.split(train, val, test).build().unwrap()
    }

    fn split(&self, split: &TimeSplit) -> Split {
        let items = (0..).map(NodeId).zip(self.node_times.iter().copied());
        split.divide(items, Default::default()).unwrap()
    }

    /// Returns the set with the split by time.
    fn timed(&self, split: TimeSplit, is_typed: bool) -> Dataset {
        let mut data = self.build(None, &self.split(&split), is_typed);
        if self.has_node_times {
            data = data.with_node_times(0, self.node_times.clone()).unwrap();
        }
        data.times.split = Some(split);
        data
    }
}

fn out(folder: &Path, name: String, n_epochs: usize) -> FitConfig {
    FitConfig::epochs(n_epochs).out(folder.join(name)).quiet()
}

/// Trains and predicts on data with a split by time, and on data that lacks the edges that are late in each phase.
fn check_phases<C: ModelConfig + Clone>(
    random: &Random,
    split: TimeSplit,
    is_typed: bool,
    exact: bool,
    model: &C,
    loader: impl Fn(&Dataset) -> NeighborLoader,
) where
    NeighborLoader: DataLoader<C::Model>,
{
    let folder = tempfile::tempdir().unwrap();
    let mode = if exact { EvalMode::Exact { memory_bytes: None } } else { EvalMode::Sampled };
    let fit = |loader: &NeighborLoader, name: &str| {
        let mut trainer = Trainer::new(model.clone(), AdamConfig::new(0.01));
        trainer.fit(loader, out(folder.path(), name.to_owned(), 1)).unwrap()
    };
    let timed = loader(&random.timed(split, is_typed)).evaluation(mode);
    let of_cut =
        |cut: i64| loader(&random.build(Some(cut), &random.split(&split), is_typed)).evaluation(mode);
    let trained = fit(&timed, "timed");
    let [of_train, of_val, of_test] = split.cuts().map(of_cut);
    let expected = fit(&of_train, "cut");
    for (phase, cut) in [(Phase::Validation, of_val), (Phase::Test, of_test)] {
        let got = trained.predict(&timed, phase).unwrap();
        let expected = expected.predict(&cut, phase).unwrap();
        assert_eq!(format!("{:?}", got.predictions()), format!("{:?}", expected.predictions()), "{phase:?}");
        assert_eq!(got.counts().unwrap(), expected.counts().unwrap());
    }
    let all = trained.predict(&timed.clone().messages(Messages::All), Phase::Test).unwrap();
    let got = trained.predict(&timed, Phase::Test).unwrap();
    assert_ne!(all.counts().unwrap(), got.counts().unwrap(), "all messages should change the loss");
}

#[test]
fn each_phase_equals_one_on_data_without_late_edges() {
    let split = TimeSplit::new(Some(20), 50, 75).unwrap();
    let sage = SageConfig::new(2, 2).layers(2).hidden(8).dropout(0.0);
    for (has_edge_times, has_node_times) in [(true, true), (true, false), (false, true)] {
        let random = Random::new(has_edge_times, has_node_times);
        for exact in [false, true] {
            let loader = |data: &Dataset| NeighborLoader::new(data, [4, 4]).batch_size(16).workers(0);
            check_phases(&random, split, false, exact, &sage, loader);
        }
    }
    let random = Random::new(true, true);
    let without_train = TimeSplit::new(None, 50, 75).unwrap();
    let gcn = GcnConfig::new(2, 2).layers(2).hidden(8).dropout(0.0);
    for exact in [false, true] {
        // Normalised weights and self loops are those of the graph of the phase.
        let loader =
            |data: &Dataset| NeighborLoader::new(data, [4, 4]).gcn_norm().unwrap().batch_size(16).workers(0);
        check_phases(&random, without_train, false, exact, &gcn, loader);
        let gine = GineConfig::new(2, 2, EdgeInput::Features(1)).layers(2).hidden(8).dropout(0.0);
        let loader =
            |data: &Dataset| NeighborLoader::new(data, [4, 4]).edge_features().batch_size(16).workers(0);
        check_phases(&random, split, false, exact, &gine, loader);
        let data = random.timed(split, true);
        let rsage =
            RsageConfig::new(2, 2).metagraph(&data.graph.metagraph()).layers(2).hidden(8).dropout(0.0);
        let rsage = HeteroModelConfig::new(data.dims(), rsage);
        let loader = |data: &Dataset| NeighborLoader::new(data, [4, 4]).batch_size(16).workers(0);
        check_phases(&random, split, true, exact, &rsage, loader);
    }
}

/// Items whose class an edge tells that is known before the item, with the probability of 0.8 (`past`), and one that is known
/// after it (`future`).
fn items(past: bool, future: bool) -> Dataset {
    items_with(|_, time| (0, time + 1), past, future)
}

/// Items with the edges of [`items`], whose times `times` returns from the number of the item and its time.
fn items_with(times: impl Fn(usize, i64) -> (i64, i64), past: bool, future: bool) -> Dataset {
    let n_items = 13_000_usize;
    let labels: Vec<i32> = draws(6, n_items, 2).into_iter().map(|class| class as i32).collect();
    // Nodes 0 and 1 tell the classes 0 and 1.
    let mut edges: Vec<(u32, u32, i64)> = Vec::new();
    let node_times: Vec<i64> = (0..n_items as i64).map(|item| 1_000 + item).collect();
    for (item, (label, is_wrong)) in labels.iter().zip(draws(7, n_items, 5)).enumerate() {
        let label = *label as u32;
        let node = item as u32 + 2;
        if past {
            edges.push((label ^ u32::from(is_wrong == 0), node, times(item, node_times[item]).0));
        }
        if future {
            edges.push((label, node, times(item, node_times[item]).1));
        }
    }
    let srcs: Vec<u32> = edges.iter().map(|edge| edge.0).collect();
    let dsts: Vec<u32> = edges.iter().map(|edge| edge.1).collect();
    let times: Vec<i64> = edges.iter().map(|edge| edge.2).collect();
    let mut features = vec![-1.0_f32, 0.0, 1.0, 0.0];
    features.extend(draws(8, n_items, 1000).into_iter().flat_map(|noise| [0.0, noise as f32 / 500.0 - 1.0]));
    let split = TimeSplit::new(Some(1_400), 2_400, 3_000).unwrap();
    Dataset::builder(n_items + 2)
        .edges(&srcs, &dsts)
        .edge_column(EdgeColumns::TIMES, EdgeColumn::new(times, 1).unwrap())
        .features(features, 2)
        .labels([vec![-1; 2], labels].concat(), 2)
        .node_times([vec![0; 2], node_times].concat())
        .time_split(split)
        .build()
        .unwrap()
}

fn auc_of_items(data: &Dataset, messages: Messages, evaluation: EvalMode) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let loader = NeighborLoader::new(data, [4]).batch_size(256).messages(messages).evaluation(evaluation);
    let model = SageConfig::new(2, 2).layers(1).dropout(0.0);
    let trained: TrainedModel<Sage> = Trainer::new(model, AdamConfig::new(0.05))
        .fit(&loader, out(folder.path(), "run".to_owned(), 6))
        .unwrap();
    let outputs = trained.predict(&loader, Phase::Test).unwrap();
    assert!(10_000 <= outputs.predictions().len());
    outputs.roc_auc().unwrap()
}

#[test]
fn a_class_that_only_the_future_tells_is_a_leak_with_all_messages_only() {
    let only_future = items(false, true);
    for evaluation in [EvalMode::Sampled, EvalMode::Exact { memory_bytes: None }] {
        let auc = auc_of_items(&only_future, Messages::Known, evaluation);
        assert!((auc - 0.5).abs() < 0.02, "{auc} by {evaluation:?}");
        let leak = auc_of_items(&only_future, Messages::All, evaluation);
        assert!(0.9 < leak, "{leak} by {evaluation:?}");
    }
    // A binary score that is right with the probability 0.8 has that area.
    let auc = auc_of_items(&items(true, true), Messages::Known, EvalMode::Sampled);
    assert!((auc - 0.8).abs() < 0.02, "{auc}");
    let leak = auc_of_items(&items(true, true), Messages::All, EvalMode::Sampled);
    assert!(0.9 < leak, "{leak}");
}

#[test]
fn all_messages_have_a_note_and_another_setting() {
    let data = items(false, true);
    let loader = NeighborLoader::new(&data, [4]);
    let notes = |loader: &NeighborLoader| DataLoader::<Sage>::notes(loader);
    let setting = |loader: &NeighborLoader| {
        let mut settings = DataLoader::<Sage>::settings(loader, 1).into_iter();
        settings.find(|(name, _)| *name == "messages").map(|(_, value)| value)
    };
    assert_eq!((notes(&loader), setting(&loader)), (vec![], Some("before [1400, 2400, 3000]".to_owned())));
    let all = loader.messages(Messages::All);
    assert!(notes(&all).iter().any(|note| note.contains("later than their items")));
    assert_eq!(setting(&all), Some("all".to_owned()));
    let other = NeighborLoader::new(&kiln::data::synthetic::ring(10).unwrap(), [4]).messages(Messages::All);
    assert_eq!((notes(&other), setting(&other)), (vec![], None));
}
