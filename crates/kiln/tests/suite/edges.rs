//! Edges with targets: classes, labels and numbers are learned from both ends and the edges' own features, nothing of a
//! held-out edge is read, and results do not depend on ranks, partitions and interruptions.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kiln::LinkLoaderError;
use kiln::data::{DatasetLinks, LinkTargets};
use kiln::feature::{EdgeFeatures, Labels, TargetKind, TargetValues, Targets};
use kiln::graph::{LinkId, Links, NodeTypes};
use kiln::nn::{ClassLoss, EdgeDims};
use kiln::prelude::*;
use kiln::sample::{Neighbors, NodeKey, Selection};
use kiln::train::{Objective, TargetScale};

#[cfg(feature = "grpc")]
use crate::frozen::partitions::Parts;
use crate::relation::relation;

const N_USERS: u32 = 60;
const N_ITEMS: u32 = 40;
const N_EDGES: usize = 900;

/// A pseudo-random number of an edge below `n`.
fn draw(edge: u32, salt: u32, n: u32) -> u32 {
    let mixed = (edge.wrapping_mul(2_654_435_761) ^ salt.wrapping_mul(0x9E37_79B9)).wrapping_mul(0x85EB_CA6B);
    (mixed ^ (mixed >> 15)) % n
}

/// Ratings of items by users. The feature of an item is its quality; each rating has a feature of its own.
pub(crate) struct Ratings {
    pub(crate) data: Dataset,
    links: Links,
    /// The quality of the item of each rating, 0 or 1.
    quality: Vec<f32>,
    /// The feature of each rating, 0 or 1.
    own: Vec<f32>,
}

impl Ratings {
    pub(crate) fn new() -> Self {
        let edges = 0..N_EDGES as u32;
        let users: Vec<u32> = edges.clone().map(|edge| draw(edge, 1, N_USERS)).collect();
        let items: Vec<u32> = edges.clone().map(|edge| draw(edge, 2, N_ITEMS)).collect();
        let quality_of = |item: u32| (item % 2) as f32;
        let data = Dataset::builder_with_types(
            NodeTypes::new([("user", N_USERS as usize), ("item", N_ITEMS as usize)]).unwrap(),
        )
        .name("ratings")
        .relation(relation("rates", ["user", "item"], &users, &items))
        .relation(relation("rated by", ["item", "user"], &items, &users))
        .nodes("user")
        .features(vec![1.0; N_USERS as usize], 1)
        .nodes("item")
        .features((0..N_ITEMS).flat_map(|item| [quality_of(item), 1.0]).collect::<Vec<_>>(), 2)
        .build()
        .unwrap();
        let quality = items.iter().map(|item| quality_of(*item)).collect();
        let own = edges.map(|edge| draw(edge, 3, 2) as f32).collect();
        let links = Links::new(users, items.iter().map(|item| item + N_USERS).collect::<Vec<_>>()).unwrap();
        Self { data, links, quality, own }
    }

    /// Returns the split of ratings with these targets, with their own features.
    pub(crate) fn split(&self, values: impl Into<Targets<LinkId>>) -> LinkSplit {
        let rows = EdgeFeatures::new(self.own.clone(), 1).unwrap();
        self.split_of(self.targets(values).with_features(rows).unwrap())
    }

    fn targets(&self, values: impl Into<Targets<LinkId>>) -> LinkTargets {
        let split = Split::random(N_EDGES, [0.6, 0.2], 5).unwrap();
        LinkTargets::new(self.links.clone(), split).unwrap().with_values(values).unwrap()
    }

    fn split_of(&self, targets: LinkTargets) -> LinkSplit {
        let schema = self.data.graph.schema();
        let links = DatasetLinks::new(schema, "rates", Some("rated by"), targets).unwrap();
        LinkSplit::hold_out(&self.data.graph, links).unwrap()
    }

    /// The class of a rating is whether its own feature and the quality of the item differ.
    pub(crate) fn classes(&self) -> Labels<LinkId> {
        let pairs = self.quality.iter().zip(&self.own);
        Labels::new(pairs.map(|(quality, own)| i32::from(quality != own)).collect::<Vec<_>>(), 2)
    }

    pub(crate) fn loader(&self, split: &LinkSplit) -> LinkNeighborLoader {
        LinkNeighborLoader::with_targets(self.nodes(100), split).unwrap()
    }

    fn nodes(&self, batch_size: usize) -> NeighborLoader {
        NeighborLoader::new(&self.data, [4, 4]).batch_size(batch_size).workers(0)
    }
}

pub(crate) type RatingModel = LinkModelConfig<HeteroModelConfig<RsageConfig>>;

pub(crate) fn model(data: &Dataset, dims: EdgeDims) -> RatingModel {
    let model = RsageConfig::new(8, 8).metagraph(&data.graph.metagraph()).layers(2).hidden(8).dropout(0.0);
    let EdgeDims { d_edge, n_outputs } = dims;
    let decoder = LinkDecoderConfig::Edge { hidden: 16, n_layers: 2, dropout: 0.0, d_edge, n_outputs };
    LinkModelConfig { encoder: HeteroModelConfig::new(data.dims(), model), decoder }
}

pub(crate) fn trainer(ratings: &Ratings, loader: &LinkNeighborLoader) -> Trainer<RatingModel> {
    Trainer::new(model(&ratings.data, loader.edge_dims().unwrap()), AdamConfig::new(0.02)).seed(3)
}

fn quiet(n_epochs: usize, folder: &Path, name: &str) -> FitConfig {
    FitConfig::epochs(n_epochs).out(folder.join(name)).quiet()
}

#[test]
fn classes_of_edges_are_learned_from_both_ends_and_their_own_features() {
    let (ratings, folder) = (Ratings::new(), tempfile::tempdir().unwrap());
    let split = ratings.split(ratings.classes());
    let loader = ratings.loader(&split);
    let best = trainer(&ratings, &loader).fit(&loader, quiet(30, folder.path(), "with")).unwrap();
    let test = best.evaluate(&loader, Phase::Test).unwrap();
    assert_eq!(test.total, split.split().test.len() as u64);
    assert!(0.95 < test.accuracy(), "{}", test.accuracy());
    let outputs = best.predict(&loader, Phase::Test).unwrap();
    assert!(0.97 < outputs.roc_auc().unwrap());
    let summary = best.write_report(&loader).unwrap().unwrap();
    assert_eq!(summary.test_accuracy, test.accuracy());
    // Shows that the test can fail: the item alone does not tell the class.
    let split = ratings.split_of(ratings.targets(ratings.classes()));
    let loader = ratings.loader(&split);
    let best = trainer(&ratings, &loader).fit(&loader, quiet(10, folder.path(), "without")).unwrap();
    assert!(best.evaluate(&loader, Phase::Test).unwrap().accuracy() < 0.7);
}

#[test]
fn labels_and_numbers_of_edges_are_learned() {
    let (ratings, folder) = (Ratings::new(), tempfile::tempdir().unwrap());
    let pairs = || ratings.quality.iter().zip(&ratings.own);
    // One of 16 labels is missing.
    let missing =
        |edge: usize, label: u8| if edge % 16 == 7 { TargetValues::<LinkId>::MISSING } else { label };
    let labels =
        pairs().enumerate().flat_map(|(edge, (quality, own))| [*quality as u8, missing(edge, *own as u8)]);
    let labels = TargetValues::multi_label(labels.collect::<Vec<u8>>(), 2).unwrap();
    let loader = ratings.loader(&ratings.split(labels));
    let best = trainer(&ratings, &loader).fit(&loader, quiet(20, folder.path(), "labels")).unwrap();
    let outputs = best.predict(&loader, Phase::Test).unwrap();
    assert_eq!(outputs.kind(), TargetKind::MultiLabel);
    let auc = outputs.stats(Metric::RocAuc).unwrap().value().unwrap();
    assert!(0.97 < auc, "{auc}");
    // Far from 0, so that only standardised targets are learned in a few epochs.
    let numbers: Vec<f32> = pairs().map(|(quality, own)| 500.0 + 20.0 * quality + 10.0 * own).collect();
    let numbers = TargetValues::regression(numbers, 1).unwrap();
    let loader = ratings.loader(&ratings.split(numbers));
    let best = trainer(&ratings, &loader).fit(&loader, quiet(20, folder.path(), "numbers")).unwrap();
    let rmse = |phase| best.predict(&loader, phase).unwrap().stats(Metric::Rmse).unwrap().value().unwrap();
    assert!(rmse(Phase::Test) < 3.0, "{}", rmse(Phase::Test));
    assert!((best.target_scaler.as_ref().unwrap().means()[0] - 515.0).abs() < 3.0);
}

#[test]
fn ranks_train_the_weights_of_one_rank() {
    let (ratings, folder) = (Ratings::new(), tempfile::tempdir().unwrap());
    let split = ratings.split(ratings.classes());
    let run = |n_ranks: usize| {
        let loader = LinkNeighborLoader::with_targets(ratings.nodes(96 / n_ranks), &split).unwrap();
        let ranks = launch(RankConfig::threads(n_ranks).threads_per_rank(1), |rank| {
            let mut trainer = trainer(&ratings, &loader).rank(&rank);
            let best = trainer.fit(&loader, quiet(2, folder.path(), &n_ranks.to_string()))?;
            let outputs = best.predict(&loader, Phase::Test)?;
            Ok((best.best.val.loss(), outputs.predictions().len(), outputs.roc_auc()))
        });
        ranks.unwrap().remove(0)
    };
    let ((one, n_one, auc), (three, n_three, other)) = (run(1), run(3));
    assert!((one - three).abs() < 1e-5, "{one} {three}");
    assert_eq!((n_one, n_three), (split.split().test.len(), n_one));
    assert!((auc.unwrap() - other.unwrap()).abs() < 1e-4);
}

#[test]
fn a_run_resumes_exactly_and_only_with_the_same_targets() {
    let (ratings, folder) = (Ratings::new(), tempfile::tempdir().unwrap());
    let loader = ratings.loader(&ratings.split(ratings.classes()));
    let fit = |loader: &LinkNeighborLoader, fit: FitConfig| {
        trainer(&ratings, loader).fit(loader, fit).map(|trained| trained.best.weights_hash)
    };
    let whole = fit(&loader, quiet(3, folder.path(), "whole")).unwrap();
    fit(&loader, quiet(1, folder.path(), "run")).unwrap();
    let resume = || FitConfig::epochs(3).resume(folder.path().join("run")).quiet();
    let swapped =
        Labels::new(ratings.classes().as_slice().iter().map(|class| 1 - class).collect::<Vec<_>>(), 2);
    let error = fit(&ratings.loader(&ratings.split(swapped)), resume()).unwrap_err().to_string();
    assert!(error.contains("data"), "{error}");
    let weighted = ClassLoss { class_weights: Some(vec![1.0, 2.0]), ..ClassLoss::default() };
    let error =
        fit(&loader.clone().objective(Objective::Classes(weighted)), resume()).unwrap_err().to_string();
    assert!(error.contains("objective"), "{error}");
    assert_eq!(fit(&loader, resume()).unwrap(), whole);
}

#[test]
fn exact_evaluation_equals_sampled_evaluation_with_all_neighbors() {
    let (ratings, folder) = (Ratings::new(), tempfile::tempdir().unwrap());
    let numbers = TargetValues::regression(ratings.quality.clone(), 1).unwrap();
    let split = ratings.split(numbers);
    let outputs = |evaluation: EvalMode, name: &str| {
        let nodes = NeighborLoader::new(&ratings.data, [Fanout::All, Fanout::All]).batch_size(200);
        let loader = LinkNeighborLoader::with_targets(nodes.evaluation(evaluation), &split).unwrap();
        let best = trainer(&ratings, &loader).fit(&loader, quiet(1, folder.path(), name)).unwrap();
        best.predict(&loader, Phase::Test).unwrap().column(0)
    };
    let sampled = outputs(EvalMode::Sampled, "sampled");
    let exact = outputs(EvalMode::Exact { memory_bytes: None }, "exact");
    assert_eq!(sampled.len(), split.split().test.len());
    for (sampled, exact) in sampled.iter().zip(&exact) {
        assert_eq!(sampled.target, exact.target);
        assert!((sampled.output - exact.output).abs() < 1e-4, "{sampled:?} {exact:?}");
    }
}

/// Trains on the graph, and returns how many edges a rule has seen, and how many of them are held out or are edges of the
/// training step's batches.
#[test]
fn messages_never_pass_over_held_out_edges_or_those_of_the_step() {
    let ratings = Ratings::new();
    let split = ratings.split(ratings.classes());
    let pair = |link: &LinkId| split.links().pair(*link);
    let held_out: HashSet<_> = [&split.split().val, &split.split().test]
        .into_iter()
        .flat_map(|links| links.iter().map(pair))
        .flat_map(|(src, dst)| [(src, dst), (dst, src)])
        .collect();
    let n_read = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let counts = Arc::clone(&n_read);
    let rule = move |neighbors: Neighbors<'_>, _: NodeKey, _: u32, picks: &mut Selection| {
        for src in neighbors.ids {
            counts[usize::from(held_out.contains(&(*src, neighbors.dst)))].fetch_add(1, Ordering::Relaxed);
        }
        (0..neighbors.degree() as u32).for_each(|pick| picks.push(pick));
    };
    let folder = tempfile::tempdir().unwrap();
    // A step of all training edges has no message over a rating, so only the item itself is read.
    let nodes = ratings.nodes(N_EDGES).rule(rule);
    let loader = LinkNeighborLoader::with_targets(nodes, &split).unwrap();
    let best = trainer(&ratings, &loader).fit(&loader, quiet(1, folder.path(), "run")).unwrap();
    assert_eq!([0, 1].map(|kind| n_read[kind].load(Ordering::Relaxed))[1], 0);
    best.predict(&loader, Phase::Test).unwrap();
    let [message, held_out] = [0, 1].map(|kind| n_read[kind].load(Ordering::Relaxed));
    assert!(500 < message, "{message}");
    assert_eq!(held_out, 0);
}

#[cfg(feature = "grpc")]
#[test]
fn partitions_and_servers_train_the_weights_of_the_whole_graph() {
    let (ratings, folder) = (Ratings::new(), tempfile::tempdir().unwrap());
    let split = ratings.split(ratings.classes());
    let links = split.dataset_links();
    let data = Dataset { graph: split.message().clone(), links: Some(links.clone()), ..ratings.data.clone() };
    let whole = ratings.loader(&split);
    let expected = trainer(&ratings, &whole).fit(&whole, quiet(2, folder.path(), "whole")).unwrap();
    let parts = Parts::of_typed(&data);
    let served = parts.serve();
    let of_servers = launch(RankConfig::threads(1), |rank| {
        let nodes = NeighborLoader::new(&served.graph.join(&rank)?, [4, 4]).batch_size(100).workers(0);
        let loader = LinkNeighborLoader::with_targets(nodes, links)?;
        let best = trainer(&ratings, &loader).rank(&rank).fit(&loader, quiet(2, folder.path(), "served"))?;
        Ok(best.best)
    });
    let of_servers = of_servers.unwrap().remove(0);
    assert_eq!(of_servers.weights_hash, expected.best.weights_hash);
    assert_eq!(of_servers.val, expected.best.val);
    let graph = parts.of_workers();
    let of_workers = launch(RankConfig::threads(2).threads_per_rank(1), |rank| {
        let nodes = NeighborLoader::new(&graph.join(&rank)?, [4, 4]).batch_size(50).workers(0);
        let loader = LinkNeighborLoader::with_targets(nodes, links)?;
        let mut trainer = trainer(&ratings, &loader).rank(&rank);
        let best = trainer.fit(&loader, quiet(2, folder.path(), "workers"))?;
        Ok(best.evaluate(&loader, Phase::Test)?.total)
    });
    assert_eq!(of_workers.unwrap(), [split.split().test.len() as u64; 2]);
}

#[test]
fn edges_of_one_type_of_nodes_are_learned_on_a_plain_graph() {
    let edges = 0..600_u32;
    let srcs: Vec<u32> = edges.clone().map(|edge| draw(edge, 1, 80)).collect();
    let dsts: Vec<u32> = edges.clone().map(|edge| draw(edge, 2, 80)).collect();
    let kind = |node: u32| node % 3;
    // The class depends on the direction: it is that of the source, unless the edge is marked.
    let marked: Vec<f32> = edges.map(|edge| draw(edge, 3, 2) as f32).collect();
    let ends = srcs.iter().zip(&dsts).zip(&marked);
    let classes: Vec<i32> =
        ends.map(|((src, dst), mark)| kind(if *mark == 0.0 { *src } else { *dst }) as i32).collect();
    let features = (0..80).flat_map(|node| [0, 1, 2].map(|of| f32::from(u8::from(kind(node) == of))));
    let data =
        Dataset::builder(80).edges(&srcs, &dsts).features(features.collect::<Vec<_>>(), 3).build().unwrap();
    let targets =
        LinkTargets::new(Links::new(srcs, dsts).unwrap(), Split::random(600, [0.6, 0.2], 1).unwrap());
    let targets = targets.unwrap().with_values(Labels::new(classes, 3)).unwrap();
    let targets = targets.with_features(EdgeFeatures::new(marked, 1).unwrap()).unwrap();
    let split = LinkSplit::hold_out(&data.graph, targets).unwrap();
    let nodes = NeighborLoader::new(&data, [5]).batch_size(60).workers(0);
    let loader = LinkNeighborLoader::with_targets(nodes, &split).unwrap();
    let decoder = LinkDecoderConfig::edges(loader.edge_dims().unwrap());
    let encoder = SageConfig::new(3, 8).layers(1).dropout(0.0);
    let folder = tempfile::tempdir().unwrap();
    let best = Trainer::new(LinkModelConfig { encoder, decoder }, AdamConfig::new(0.02))
        .fit(&loader, quiet(25, folder.path(), "run"))
        .unwrap();
    let test = best.evaluate(&loader, Phase::Test).unwrap();
    assert!(0.95 < test.accuracy(), "{}", test.accuracy());
    // A saved model predicts edges from their ends and features.
    let saved = SavedModel::open(best.folder().unwrap()).unwrap();
    let message = Dataset { graph: split.message().clone(), ..data };
    let predictor = saved.on_links(&message).unwrap();
    let ids: Vec<LinkId> = split.split().test.to_vec();
    let (srcs, dsts): (Vec<NodeId>, Vec<NodeId>) = ids.iter().map(|link| split.links().pair(*link)).unzip();
    let edges = Links::new(srcs, dsts).unwrap();
    let rows = |link: &LinkId| split.targets().features().unwrap().to_column().value(link.index());
    let rows = EdgeFeatures::new(ids.iter().map(rows).collect::<Vec<_>>(), 1).unwrap();
    let outputs = predictor.predict_edges(&edges, Some(&rows), &PredictMode::AsEvaluated).unwrap();
    let expected: Vec<_> = best.predict(&loader, Phase::Test).unwrap().predictions();
    let said = |link: &LinkId| expected.iter().find(|said| said.item == link.0).unwrap().predicted;
    let n_equal = ids.iter().zip(outputs.classes()).filter(|(link, class)| said(link) == *class).count();
    // Batches sample other neighbours.
    assert!(0.95 * ids.len() as f64 <= n_equal as f64, "{n_equal} of {}", ids.len());
    let error = predictor.predict_edges(&edges, None, &PredictMode::AsEvaluated).unwrap_err().to_string();
    assert!(error.contains("reads 1 feature columns of the edges") && error.contains("have 0"), "{error}");
    let error = predictor.score_links(&edges, &PredictMode::AsEvaluated).unwrap_err().to_string();
    assert!(error.contains("trained for edges"), "{error}");
}

#[test]
fn rejects_settings_that_do_not_suit_edges() {
    let (ratings, folder) = (Ratings::new(), tempfile::tempdir().unwrap());
    let split = ratings.split(ratings.classes());
    let loader = ratings.loader(&split);
    let of_edges = |error: Error| match error {
        Error::Links(error) => error,
        other => panic!("{other}"),
    };
    let bare = LinkTargets::new(split.links().clone(), split.split().clone()).unwrap();
    let error = LinkNeighborLoader::with_targets(ratings.nodes(10), &ratings.split_of(bare)).unwrap_err();
    assert_eq!(of_edges(error), LinkLoaderError::NoTargets { name: "ratings".into() });
    let fit = |loader: &LinkNeighborLoader, dims: EdgeDims| {
        let mut trainer = Trainer::new(model(&ratings.data, dims), AdamConfig::new(0.01));
        trainer.fit(loader, quiet(1, folder.path(), "refused")).map(drop).unwrap_err()
    };
    let expected = EdgeDims { d_edge: 1, n_outputs: 2 };
    for got in [EdgeDims { d_edge: 0, ..expected }, EdgeDims { n_outputs: 3, ..expected }] {
        assert_eq!(of_edges(fit(&loader, got)), LinkLoaderError::DecoderDims { expected, got });
    }
    let misplaced = |loader: LinkNeighborLoader| of_edges(fit(&loader, expected));
    for (loader, call) in [
        (loader.clone().loss(LinkLoss::default()), ".loss()"),
        (loader.clone().negatives(Negatives::new(UniformNegatives { dsts: 60..100 }, 1)), ".negatives()"),
    ] {
        assert_eq!(misplaced(loader), LinkLoaderError::NotApplicable { call, is_of_edges: true });
    }
    let of_links = LinkNeighborLoader::new(ratings.nodes(10), &split).unwrap();
    let call = ".target_scale()";
    let error = misplaced(of_links.clone().target_scale(TargetScale::None));
    assert_eq!(error, LinkLoaderError::NotApplicable { call, is_of_edges: false });
    assert_eq!(misplaced(of_links.clone()), LinkLoaderError::DecoderOfEdges);
    assert!(DataLoader::<<RatingModel as ModelConfig>::Model>::notes(&of_links)[0].contains("--task edge"));
    let dot = LinkModelConfig { decoder: LinkDecoderConfig::Dot, ..model(&ratings.data, expected) };
    let mut trainer = Trainer::new(dot, AdamConfig::new(0.01));
    let error = trainer.fit(&loader, quiet(1, folder.path(), "refused")).map(drop).unwrap_err();
    assert_eq!(of_edges(error), LinkLoaderError::DecoderOfScores);
    // Losses and scales of other targets.
    let error = fit(&loader.clone().objective(Objective::MultiLabel), expected).to_string();
    assert!(error.contains("several labels"), "{error}");
    let error = fit(&loader.clone().target_scale(TargetScale::None), expected).to_string();
    assert!(error.contains("class labels"), "{error}");
}
