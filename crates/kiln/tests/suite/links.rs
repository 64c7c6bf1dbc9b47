//! Tests of link prediction with `LinkNeighborLoader`: nothing of the held-out links leaks, and results do not depend on
//! ranks and interruptions.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kiln::burn::module::{Module, ModuleVisitor, Param};
use kiln::burn::tensor::Tensor;
use kiln::data::{LinkTargets, synthetic};
use kiln::feature::DenseFeatures;
use kiln::graph::{CscBuilder, Links};
use kiln::kernels::to_vec_f32;
use kiln::prelude::*;
use kiln::sample::{KeyDomain, Neighbors, NodeKey, RngKey, Selection};
use kiln::train::{
    EpochReport, LinkTask, MetricSums, NegativeCounts, Objective, RunNegatives, StepReport, TrainCallback,
};

const DIM: usize = 32;

/// Returns a graph of random undirected edges with random features, and its edges in one direction.
pub(crate) fn random_graph(n_nodes: u32, n_edges: usize) -> (Dataset, Links) {
    let rng = |number| RngKey::new(5).fold_in(KeyDomain::Step, 0).node(NodeId(number)).rng();
    let mut of_edges = rng(0);
    let edge = |_| {
        let src = of_edges.below(n_nodes);
        (src, (src + 1 + of_edges.below(n_nodes - 1)) % n_nodes)
    };
    let (srcs, dsts): (Vec<u32>, Vec<u32>) = (0..n_edges).map(edge).unzip();
    let mut of_features = rng(1);
    let values = (0..n_nodes as usize * DIM).map(|_| of_features.below(1 << 16) as f32 / 32_768.0 - 1.0);
    let features = DenseFeatures::from_f32(values.collect::<Vec<f32>>(), DIM).unwrap();
    let graph = CscBuilder::new(n_nodes as usize).symmetrize().build(&srcs, &dsts).unwrap();
    let data = synthetic::ring(n_nodes as usize).unwrap();
    let data = Dataset { graph: graph.into(), features: vec![Some(Arc::new(features))], ..data };
    (data, Links::new(srcs, dsts).unwrap())
}

/// An encoder of one layer, whose rows are linear in the features of a node and its neighbours.
pub(crate) fn linear() -> LinkModelConfig<SageConfig> {
    let encoder = SageConfig::new(DIM, DIM).layers(1).dropout(0.0);
    LinkModelConfig { encoder, decoder: LinkDecoderConfig::Dot }
}

fn out(folder: &Path, name: &str) -> FitConfig {
    FitConfig::epochs(3).metric(Metric::RocAuc).out(folder.join(name)).quiet()
}

fn test_auc(loader: &LinkNeighborLoader, fit: FitConfig) -> f64 {
    let trained = Trainer::new(linear(), AdamConfig::new(0.01)).fit(loader, fit).unwrap();
    let outputs = trained.predict(loader, Phase::Test).unwrap();
    outputs.stats(Metric::RocAuc).unwrap().value().unwrap()
}

#[test]
fn held_out_links_of_a_random_graph_cannot_be_predicted() {
    let (data, _) = random_graph(2_000, 12_000);
    let folder = tempfile::tempdir().unwrap();
    let config = LinkSplitConfig { val: 0.1, test: 0.4, ..LinkSplitConfig::default() };
    let split = LinkSplit::random(&data.graph, &config, 3).unwrap();
    assert!(split.find_leaks().unwrap().is_empty());
    let nodes = NeighborLoader::new(&data, [Fanout::All]).batch_size(512);
    let loader = LinkNeighborLoader::new(nodes, &split).unwrap();
    let auc = test_auc(&loader, out(folder.path(), "run"));
    assert!((auc - 0.5).abs() < 0.02, "{auc}");
}

/// Shows that the test above can fail: the test links point the other way, and the graph keeps all edges.
#[test]
fn links_whose_reverses_are_in_the_graph_can_be_predicted() {
    let (data, links) = random_graph(20_000, 12_000);
    let ids = |nodes: &[NodeId]| nodes.iter().map(|node| node.0).collect::<Vec<u32>>();
    // The message graph has the reverse of each link.
    let reverses = CscBuilder::new(20_000).build(&ids(links.dsts()), &ids(links.srcs())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let part = |range: std::ops::Range<u32>| range.map(kiln::graph::LinkId).collect();
    let split = Split { train: part(0..9_000), val: part(9_000..10_000), test: part(10_000..12_000) };
    let targets = LinkTargets::new(links, split).unwrap();
    let split = LinkSplit::new(&kiln::graph::Relations::of_graph(Arc::new(reverses)), targets).unwrap();
    assert_eq!(split.find_leaks().unwrap().len(), 2, "the split should report the reverses");
    let nodes = NeighborLoader::new(&data, [Fanout::All]).batch_size(512);
    let loader = LinkNeighborLoader::new(nodes, &split).unwrap().exclusion(LinkExclusion::None);
    let fit = FitConfig::epochs(10).metric(Metric::RocAuc).out(folder.path().join("run")).quiet();
    let auc = test_auc(&loader, fit);
    assert!(0.9 < auc, "{auc}");
}

#[test]
fn messages_never_pass_over_held_out_links() {
    let (data, _) = random_graph(300, 1_500);
    let config = LinkSplitConfig { val: 0.1, test: 0.2, ..LinkSplitConfig::default() };
    let split = LinkSplit::random(&data.graph, &config, 3).unwrap();
    let pairs = |links: &[kiln::graph::LinkId]| -> HashSet<(NodeId, NodeId)> {
        let pairs = links.iter().map(|link| split.links().pair(*link));
        pairs.flat_map(|(src, dst)| [(src, dst), (dst, src)]).collect()
    };
    let held_out: HashSet<_> = &pairs(&split.split().val) | &pairs(&split.split().test);
    let n_read = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let counts = Arc::clone(&n_read);
    let rule = move |neighbors: Neighbors<'_>, _: NodeKey, _: u32, picks: &mut Selection| {
        for src in neighbors.ids {
            let is_held_out = held_out.contains(&(*src, neighbors.dst));
            counts[usize::from(is_held_out)].fetch_add(1, Ordering::Relaxed);
        }
        (0..neighbors.degree() as u32).for_each(|pick| picks.push(pick));
    };
    let folder = tempfile::tempdir().unwrap();
    let nodes = NeighborLoader::new(&data, [100]).batch_size(256).rule(rule);
    let loader = LinkNeighborLoader::new(nodes, &split).unwrap();
    let trained =
        Trainer::new(linear(), AdamConfig::new(0.01)).fit(&loader, out(folder.path(), "run")).unwrap();
    trained.predict(&loader, Phase::Test).unwrap();
    let [message, held_out] = [0, 1].map(|kind| n_read[kind].load(Ordering::Relaxed));
    assert!(1_000 < message, "{message}");
    assert_eq!(held_out, 0);
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

fn model() -> LinkModelConfig<SageConfig> {
    let encoder = SageConfig::new(DIM, 16).layers(2).hidden(16).dropout(0.5);
    LinkModelConfig { encoder, decoder: LinkDecoderConfig::Mlp { hidden: 16, n_layers: 2, dropout: 0.25 } }
}

fn small_loader(batch_size: usize) -> LinkNeighborLoader {
    let (data, _) = random_graph(500, 3_000);
    let config = LinkSplitConfig { val: 0.1, test: 0.1, ..LinkSplitConfig::default() };
    let split = LinkSplit::random(&data.graph, &config, 3).unwrap();
    let nodes = NeighborLoader::new(&data, [5, 5]).batch_size(batch_size);
    LinkNeighborLoader::new(nodes, &split).unwrap()
}

#[test]
fn four_ranks_train_the_weights_of_one_rank() {
    let folder = tempfile::tempdir().unwrap();
    let weights = |n_ranks: usize| {
        let loader = small_loader(1_024 / n_ranks);
        let trained = launch(RankConfig::threads(n_ranks), |rank| {
            let mut trainer = Trainer::new(model(), AdamConfig::new(0.003)).rank(&rank);
            let trained = trainer.fit(&loader, out(folder.path(), &format!("{n_ranks}")))?;
            let counts = trained.evaluate(&loader, Phase::Test)?;
            Ok((values(&trained.model), counts.loss()))
        });
        trained.unwrap().remove(0)
    };
    let (one, loss) = weights(1);
    let (four, other) = weights(4);
    let largest = one.iter().zip(&four).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest < 1e-4, "the weights differ by {largest:e}");
    assert!((loss - other).abs() < 1e-5, "{loss} and {other}");
}

#[test]
fn a_run_resumes_exactly_and_only_with_the_same_negatives() {
    let (loader, folder) = (small_loader(256), tempfile::tempdir().unwrap());
    let fit = |loader: &LinkNeighborLoader, fit: FitConfig| {
        Trainer::new(model(), AdamConfig::new(0.003)).fit(loader, fit).map(|trained| values(&trained.model))
    };
    let whole = fit(&loader, out(folder.path(), "whole")).unwrap();
    let path = folder.path().join("run");
    let first = FitConfig::epochs(1).metric(Metric::RocAuc).out(&path).quiet();
    fit(&loader, first).unwrap();
    let resume = || FitConfig::epochs(3).metric(Metric::RocAuc).resume(&path).quiet();
    let other = loader.clone().exclusion(LinkExclusion::Directed);
    let error = fit(&other, resume()).unwrap_err().to_string();
    assert!(error.contains("exclusion"), "{error}");
    let uniform = kiln::sample::UniformNegatives { dsts: 0..500 };
    let (two, draws) = (Negatives::new(uniform.clone(), 2), Negatives::new(uniform.clone(), 1).max_draws(8));
    for negatives in [two, draws, Negatives::new(kiln::sample::InBatchNegatives, 1)] {
        let error = fit(&loader.clone().negatives(negatives.clone()), resume()).unwrap_err().to_string();
        assert!(error.contains("negatives") && !error.contains("test negatives"), "{negatives:?}: {error}");
    }
    let error = fit(&loader.clone().test_negatives(Negatives::new(uniform, 50)), resume()).unwrap_err();
    assert!(error.to_string().contains("test negatives"), "{error}");
    let resumed = fit(&loader, resume()).unwrap();
    assert!(resumed == whole, "the resumed run should have the same weights");
}

#[test]
fn exact_evaluation_equals_sampled_evaluation_with_all_neighbors() {
    let (data, _) = random_graph(400, 1_200);
    let split = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 3).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let scores = |evaluation: EvalMode, name: &str| {
        let nodes =
            NeighborLoader::new(&data, [Fanout::All, Fanout::All]).batch_size(100).evaluation(evaluation);
        let loader = LinkNeighborLoader::new(nodes, &split).unwrap();
        let trained =
            Trainer::new(model(), AdamConfig::new(0.003)).fit(&loader, out(folder.path(), name)).unwrap();
        trained.predict(&loader, Phase::Test).unwrap().link_predictions()
    };
    let sampled = scores(EvalMode::Sampled, "sampled");
    let exact = scores(EvalMode::Exact { memory_bytes: None }, "exact");
    assert_eq!(sampled.len(), exact.len());
    for (sampled, exact) in sampled.iter().zip(&exact) {
        assert_eq!((sampled.link, sampled.src, sampled.dst), (exact.link, exact.src, exact.dst));
        assert!((sampled.score - exact.score).abs() < 1e-4, "{sampled:?} and {exact:?}");
    }
}

#[test]
fn rejects_splits_of_other_graphs_and_loaders_without_negatives() {
    let (data, _) = random_graph(400, 1_200);
    let (other, _) = random_graph(401, 1_200);
    let split = LinkSplit::random(&other.graph, &LinkSplitConfig::default(), 3).unwrap();
    let nodes = || NeighborLoader::new(&data, [5]);
    let error = LinkNeighborLoader::new(nodes(), &split).unwrap_err();
    assert!(matches!(error, Error::OtherGraph { n_nodes: 401, expected: 400 }), "{error}");
    let split = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 3).unwrap();
    let loader = LinkNeighborLoader::new(nodes(), &split).unwrap();
    let none = Negatives::new(kiln::sample::UniformNegatives { dsts: 0..400 }, 0);
    let folder = tempfile::tempdir().unwrap();
    let fit = |loader: &LinkNeighborLoader| {
        let fit = out(folder.path(), "refused");
        Trainer::new(linear(), AdamConfig::new(0.01)).fit(loader, fit).unwrap_err().to_string()
    };
    let error = fit(&loader.negatives(none));
    assert!(error.contains("negative"), "{error}");
}

#[test]
fn rejects_loaders_of_nodes_with_an_objective() {
    let (data, _) = random_graph(400, 1_200);
    let split = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 3).unwrap();
    let nodes = NeighborLoader::new(&data, [5]).objective(Objective::default());
    let error = LinkNeighborLoader::new(nodes, &split).unwrap_err();
    assert!(
        matches!(error, Error::Links(kiln::LinkLoaderError::ObjectiveOfNodes))
            && error.to_string().contains(".loss()"),
        "{error}"
    );
}

/// The graph of a dataset may have the links of the validation and the test.
#[test]
fn rejects_whole_graphs_instead_of_partitioned_message_graphs() {
    let (data, _) = random_graph(400, 1_200);
    let split = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 3).unwrap();
    let error = LinkNeighborLoader::new(NeighborLoader::new(&data, [5]), split.targets()).unwrap_err();
    assert!(matches!(error, Error::NeedsPartitionedGraph), "{error}");
    assert!(error.to_string().contains("pass their split"), "{error}");
}

/// Returns the counts of a run's negatives on rank 0, and its summary file.
fn negatives_of(loader: &LinkNeighborLoader, n_ranks: usize, fit: impl Fn() -> FitConfig + Sync) -> Reported {
    let reported = launch(RankConfig::threads(n_ranks), |rank| {
        let trained = Trainer::new(linear(), AdamConfig::new(0.01)).rank(&rank).fit(loader, fit())?;
        let summary = trained.write_report(loader)?;
        assert_eq!(trained.report.negatives.test.n_negatives, 0, "the test comes after the training");
        let Some(summary) = summary else { return Ok(None) };
        let file = std::fs::read_to_string(trained.folder().unwrap().join("summary.json"))?;
        Ok(Some(Reported { negatives: summary.negatives, printed: summary.to_string(), file }))
    });
    reported.unwrap().remove(0).unwrap()
}

struct Reported {
    negatives: RunNegatives,
    printed: String,
    file: String,
}

#[test]
fn runs_report_negatives_that_are_rejected_after_the_last_draw() {
    let (data, _) = random_graph(60, 600);
    let config = LinkSplitConfig { val: 0.1, test: 0.1, ..LinkSplitConfig::default() };
    let split = LinkSplit::random(&data.graph, &config, 3).unwrap();
    let uniform = kiln::sample::UniformNegatives { dsts: 0..60 };
    let rejecting = |n_per_link, n_draws| {
        Negatives::new(uniform.clone(), n_per_link)
            .rejecting(data.csc().unwrap().clone())
            .unwrap()
            .max_draws(n_draws)
    };
    let folder = tempfile::tempdir().unwrap();
    let run = |n_ranks: usize, evaluation: EvalMode, name: &str, fit: fn(FitConfig) -> FitConfig| {
        let nodes = NeighborLoader::new(&data, [5]).batch_size(120 / n_ranks).evaluation(evaluation);
        let loader = LinkNeighborLoader::new(nodes, &split).unwrap();
        let loader = loader.negatives(rejecting(2, 1)).val_negatives(rejecting(5, 1));
        let loader = loader.test_negatives(rejecting(7, 2));
        negatives_of(&loader, n_ranks, || fit(out(folder.path(), name)))
    };
    let Reported { negatives, printed, file } = run(1, EvalMode::Sampled, "one", |fit| fit);
    let [n_train, n_val, n_test] =
        [&split.split().train, &split.split().val, &split.split().test].map(|links| links.len() as u64);
    let phases = [negatives.train, negatives.val, negatives.test];
    assert_eq!(phases.map(|counts| counts.n_negatives), [3 * 2 * n_train, 5 * n_val, 7 * n_test]);
    // About 510 of the 1,770 pairs of nodes have edges.
    for (counts, share) in phases.iter().zip([0.3, 0.3, 0.09]) {
        let rejected = counts.n_rejected as f64 / counts.n_negatives as f64;
        assert!((rejected - share).abs() < 0.07, "{counts:?}, expected a share of about {share}");
    }
    for (phase, counts) in ["training", "validation", "test"].into_iter().zip(phases) {
        let NegativeCounts { n_negatives, n_rejected } = counts;
        let note =
            format!("\nnote: {n_rejected} of {n_negatives} negatives of the {phase} are edges of the graph");
        assert!(printed.contains(&note), "{note}: {printed}");
        let field = format!("\"n_negatives\": {n_negatives},\n      \"n_rejected\": {n_rejected}");
        assert!(file.contains(&field), "{phase}: {file}");
    }
    for n_ranks in [2, 4] {
        assert_eq!(run(n_ranks, EvalMode::Sampled, &format!("{n_ranks}"), |fit| fit).negatives, negatives);
    }
    let exact = EvalMode::Exact { memory_bytes: None };
    assert_eq!(run(1, exact, "exact", |fit| fit).negatives, negatives);
    assert_eq!(run(2, exact, "exact of two", |fit| fit).negatives, negatives);
}

/// Stops a run after this many steps.
struct StopAfter {
    n_steps: usize,
    stop: Arc<AtomicBool>,
}

impl TrainCallback for StopAfter {
    fn step(&mut self, _: &StepReport) {
        self.n_steps -= 1;
        self.stop.store(self.n_steps == 0, Ordering::Relaxed);
    }

    fn epoch(&mut self, _: usize, _: &EpochReport, _: &MetricSums, _: bool) {}
}

#[test]
fn resumed_runs_report_the_negatives_of_all_epochs() {
    let folder = tempfile::tempdir().unwrap();
    // Steps of one link: each in-batch negative is the link itself.
    let (data, _) = random_graph(40, 60);
    let split = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 3).unwrap();
    let loader = LinkNeighborLoader::new(NeighborLoader::new(&data, [5]).batch_size(1), &split).unwrap();
    let loader = loader.negatives(Negatives::new(kiln::sample::InBatchNegatives, 2));
    let path = folder.path().join("run");
    let stop = Arc::new(AtomicBool::new(false));
    let n_steps = split.split().train.len();
    let fit = FitConfig::epochs(3).out(&path).quiet().stop_flag(Arc::clone(&stop));
    let fit = fit.callback(StopAfter { n_steps: n_steps + n_steps / 2, stop });
    let error = Trainer::new(linear(), AdamConfig::new(0.01)).fit(&loader, fit).unwrap_err();
    assert!(matches!(error, Error::Interrupted { n_epochs: 1, n_steps: 1.., .. }), "{error}");
    // The second resumption has nothing to train.
    for _ in 0..2 {
        let resumed = negatives_of(&loader, 1, || FitConfig::epochs(3).resume(&path).quiet());
        let n_negatives = 3 * 2 * split.split().train.len() as u64;
        let expected = NegativeCounts { n_negatives, n_rejected: n_negatives };
        assert_eq!(resumed.negatives.train, expected);
        assert_eq!(resumed.negatives.val.n_negatives, 100 * split.split().val.len() as u64);
        assert_eq!((resumed.negatives.val.n_rejected, resumed.negatives.test.n_rejected), (0, 0));
        assert_eq!(resumed.printed.matches("note: ").count(), 1, "{}", resumed.printed);
    }
}

/// The task is public, for training loops of one's own.
#[test]
fn the_task_of_the_loader_is_public() {
    let _: LinkTask<kiln::nn::Sage> =
        DataLoader::<kiln::nn::LinkModel<kiln::nn::Sage>>::task(&small_loader(16), None);
}
