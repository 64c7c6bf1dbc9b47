//! Link prediction on one relation of a heterogeneous graph: links are learned, batches do not depend on ranks, equal those
//! of a homogeneous graph if there is one type and one relation, and contain no held-out link.

mod leaks;
mod predictions;

use std::collections::BTreeSet;
use std::path::Path;

use kiln::burn::tensor::{Int, Tensor};
use kiln::data::{DatasetLinks, LinkTargets, synthetic};
use kiln::graph::{LinkId, NodeTypes, Relations};
use kiln::prelude::*;
use kiln::sample::{NegativeSampler, NodeRng, PositiveLink};
use kiln::train::{Error as TrainError, LinkInput, Objective, RunError, Task, weights_to_bytes};

use crate::relation::relation;

const N_TASTES: u32 = 8;
const N_USERS: u32 = 240;
const N_ITEMS: u32 = 160;

/// Users who buy items of their taste only. Users have no features, and those of items tell nothing.
fn shop(n_purchases: u32) -> Dataset {
    let (mut users, mut items) = (Vec::new(), Vec::new());
    for user in 0..N_USERS {
        for purchase in 0..n_purchases {
            let item = (user * 31 + purchase * 17 + user / N_TASTES) % (N_ITEMS / N_TASTES);
            users.push(user);
            items.push(N_TASTES * item + user % N_TASTES);
        }
    }
    let features = (0..2 * N_ITEMS).map(|value| (value * 7 % 11) as f32 / 11.0).collect::<Vec<f32>>();
    Dataset::builder_with_types(
        NodeTypes::new([("user", N_USERS as usize), ("item", N_ITEMS as usize)]).unwrap(),
    )
    .name("shop")
    .relation(relation("buys", ["user", "item"], &users, &items))
    .relation(relation("bought by", ["item", "user"], &items, &users))
    .nodes("item")
    .features(features, 2)
    .build()
    .unwrap()
}

fn split(data: &Dataset) -> LinkSplit {
    LinkSplit::random_relation(&data.graph, "buys", Some("bought by"), &LinkSplitConfig::default(), 3)
        .unwrap()
}

fn nodes(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, [5, 5]).batch_size(128).workers(1)
}

fn loader(data: &Dataset) -> LinkNeighborLoader {
    LinkNeighborLoader::new(nodes(data), &split(data)).unwrap()
}

/// A model that reads the groups of edges by relation.
fn rsage(data: &Dataset) -> LinkModelConfig<HeteroModelConfig<RsageConfig>> {
    let model = RsageConfig::new(16, 16).metagraph(&data.graph.metagraph()).layers(2).hidden(16).dropout(0.0);
    let decoder = LinkDecoderConfig::Dot;
    LinkModelConfig { encoder: HeteroModelConfig::new(data.dims(), model), decoder }
}

fn rgcn(data: &Dataset) -> LinkModelConfig<HeteroModelConfig<RgcnConfig>> {
    let model = RgcnConfig::new(16, 16, data.graph.n_relations()).layers(2).hidden(16).dropout(0.0);
    let decoder = LinkDecoderConfig::DistMult;
    LinkModelConfig { encoder: HeteroModelConfig::new(data.dims(), model), decoder }
}

fn quiet(n_epochs: usize, folder: &Path, name: &str) -> FitConfig {
    FitConfig::epochs(n_epochs).out(folder.join(name)).quiet()
}

/// Among 100 negatives, the mean of the reciprocal rank is 0.052 by chance, and about 0.25 for a model that knows the
/// tastes and nothing else.
fn check_learns<C: ModelConfig>(model: C, name: &str)
where
    LinkNeighborLoader: DataLoader<C::Model>,
{
    let (data, folder) = (shop(10), tempfile::tempdir().unwrap());
    let loader = loader(&data);
    let mut trainer = Trainer::new(model, AdamConfig::new(1e-2)).seed(7);
    let best = trainer.fit(&loader, quiet(12, folder.path(), name)).unwrap();
    let outputs = best.predict(&loader, Phase::Test).unwrap();
    let value = |metric| outputs.stats(metric).unwrap().value().unwrap();
    assert!(0.15 < value(Metric::Mrr), "{}", value(Metric::Mrr));
    assert!(0.85 < value(Metric::RocAuc) && 0.5 < value(Metric::Hits10));
    let summary = best.write_report(&loader).unwrap().unwrap();
    let n_test = split(&data).split().test.len() as u64;
    assert_eq!(summary.negatives.test.n_negatives, 100 * n_test);
    assert_eq!(best.embeddings.len(), 1, "users have trainable rows");
}

#[test]
fn links_between_two_types_are_learned() {
    let data = shop(10);
    check_learns(rsage(&data), "rsage");
    check_learns(rgcn(&data), "rgcn");
}

/// A batch of links without its tensors.
#[derive(Debug, PartialEq)]
struct BatchOfLinks {
    links: Vec<LinkId>,
    pairs: Vec<[NodeId; 2]>,
    /// The sources of each block, and its edges.
    blocks: Vec<[Vec<i64>; 2]>,
}

impl BatchOfLinks {
    #[expect(clippy::disallowed_methods, reason = "the data is copied at once")]
    fn new(input: &LinkInput) -> Self {
        let ids = |ids: &Tensor<1, Int>| ids.clone().into_data().iter::<i64>().collect::<Vec<i64>>();
        // The nodes of rows have their ids in the graph, seeds those within their types.
        let rows = ids(input.nodes.blocks.last().unwrap().src_nodes());
        let node = |position: &u32| NodeId(rows[input.nodes.seed_index[*position as usize]] as u32);
        let pairs = input.srcs.iter().zip(&input.dsts).map(|(src, dst)| [node(src), node(dst)]).collect();
        let blocks = input.nodes.blocks.iter().map(|block| [ids(block.src_nodes()), ids(block.edge_ids())]);
        Self { links: input.links.clone(), pairs, blocks: blocks.collect() }
    }
}

/// Returns the batches of a phase on each rank.
fn batches<C, L>(model: &C, loader: &L, phase: Phase, n_ranks: usize) -> Vec<Vec<BatchOfLinks>>
where
    C: ModelConfig,
    L: DataLoader<C::Model, Task: Task<Input = LinkInput>> + Sync,
{
    let body = |rank: RankHandle| {
        let trainer = Trainer::new(model.clone(), AdamConfig::new(1e-2)).seed(7).rank(&rank).start(loader)?;
        let batches = loader.loader(phase, &trainer, &loader.evaluator(&rank)?)?;
        let batches = batches.epoch(phase).map(|batch| Ok(BatchOfLinks::new(&batch?.input)));
        batches.collect::<Result<Vec<_>, TrainError>>().map_err(Error::from)
    };
    launch(RankConfig::threads(n_ranks).threads_per_rank(1), body).unwrap()
}

const PHASES: [Phase; 3] = [Phase::Train { epoch: 1 }, Phase::Validation, Phase::Test];

#[test]
fn batches_equal_those_of_a_homogeneous_graph_if_there_is_one_type_and_one_relation() {
    let fake = synthetic::FakeConfig { avg_num_nodes: 400, num_channels: 16, ..Default::default() };
    let (data, folder) = (synthetic::fake(fake).unwrap(), tempfile::tempdir().unwrap());
    let typed = Dataset::builder_with_relations(&Relations::of_graph(data.csc().unwrap().clone()))
        .nodes("node")
        .feature_store(data.node_features().unwrap().clone())
        .build()
        .unwrap();
    let config = LinkSplitConfig { val: 0.1, test: 0.1, ..LinkSplitConfig::default() };
    let split = LinkSplit::random(&data.graph, &config, 3).unwrap();
    let plain = LinkNeighborLoader::new(NeighborLoader::new(&data, [5, 5]).batch_size(64), &split).unwrap();
    let encoder = SageConfig::for_data(&data).layers(2).hidden(16);
    let decoder = LinkDecoderConfig::Mlp { hidden: 8, n_layers: 2, dropout: 0.5 };
    let model = LinkModelConfig { encoder: encoder.clone(), decoder };
    let typed_model = LinkModelConfig { encoder: HeteroModelConfig::new(typed.dims(), encoder), decoder };
    let adam = AdamConfig::new(1e-2);
    let fit = |name| quiet(2, folder.path(), name);
    let expected = Trainer::new(model.clone(), adam).fit(&plain, fit("plain")).unwrap();
    for (name, reverse) in [("alone", None), ("undirected", Some("edge"))] {
        let split = LinkSplit::random_relation(&typed.graph, "edge", reverse, &config, 3).unwrap();
        let nodes = NeighborLoader::new(&typed, [5, 5]).batch_size(64);
        let loader = LinkNeighborLoader::new(nodes, &split).unwrap();
        for phase in PHASES {
            assert_eq!(
                batches(&typed_model, &loader, phase, 1),
                batches(&model, &plain, phase, 1),
                "{phase:?}"
            );
        }
        let found = Trainer::new(typed_model.clone(), adam).fit(&loader, fit(name)).unwrap();
        assert!(
            weights_to_bytes(&found.model.encoder.model).unwrap()
                == weights_to_bytes(&expected.model.encoder).unwrap()
        );
        assert!(
            weights_to_bytes(&found.model.decoder).unwrap()
                == weights_to_bytes(&expected.model.decoder).unwrap()
        );
        assert_eq!(found.best.val, expected.best.val);
    }
}

#[test]
fn two_ranks_have_the_batches_of_one() {
    let data = shop(6);
    let (model, split) = (rsage(&data), split(&data));
    let of_ranks = |phase: Phase, n_ranks: usize| {
        let nodes = nodes(&data).batch_size(128 / n_ranks);
        let loader = LinkNeighborLoader::new(nodes, &split).unwrap();
        let loader = loader.negatives(Negatives::new(kiln::sample::InBatchNegatives, 2));
        batches(&model, &loader, phase, n_ranks)
    };
    for phase in PHASES {
        let (one, two) = (of_ranks(phase, 1).remove(0), of_ranks(phase, 2));
        assert!(1 < one.len() && two.iter().all(|of_rank| of_rank.len() == one.len()), "{phase:?}");
        for (step, one) in one.iter().enumerate() {
            let parts = [&two[0][step], &two[1][step]];
            assert_eq!(parts.map(|part| part.links.clone()).concat(), one.links);
            assert_eq!(parts.map(|part| part.pairs.clone()).concat(), one.pairs);
            // A destination has the same edges on each rank.
            let set = |ids: &[i64]| ids.iter().copied().collect::<BTreeSet<i64>>();
            for (layer, [nodes, edges]) in one.blocks.iter().enumerate() {
                let [first, second] = parts.map(|part| &part.blocks[layer]);
                assert_eq!(&set(&first[0]) | &set(&second[0]), set(nodes), "{phase:?}, step {step}");
                assert_eq!(&set(&first[1]) | &set(&second[1]), set(edges), "{phase:?}, step {step}");
            }
        }
    }
}

#[test]
fn ranks_train_the_rows_and_weights_of_one_rank() {
    let (data, folder) = (shop(6), tempfile::tempdir().unwrap());
    let (model, split) = (rgcn(&data), split(&data));
    let users: Vec<NodeId> = (0..N_USERS).map(NodeId).collect();
    let run = |n_ranks: usize| {
        let nodes = nodes(&data).batch_size(128 / n_ranks);
        let loader = LinkNeighborLoader::new(nodes, &split).unwrap();
        let ranks = launch(RankConfig::threads(n_ranks).threads_per_rank(1), |rank| {
            let mut trainer = Trainer::new(model.clone(), AdamConfig::new(1e-2)).rank(&rank);
            let best = trainer.fit(&loader, quiet(2, folder.path(), &n_ranks.to_string()))?;
            Ok((best.embeddings[0].learned_rows(&users), best.best.val.loss()))
        });
        ranks.unwrap().remove(0)
    };
    let ((one, loss), (two, other)) = (run(1), run(2));
    let distance = one.iter().zip(&two).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(distance < 1e-3 && (loss - other).abs() < 1e-4, "{distance}, {loss} {other}");
}

/// Negatives that are no items.
struct Users;

impl NegativeSampler for Users {
    fn draw(&self, link: PositiveLink<'_>, rng: &mut NodeRng) -> (NodeId, NodeId) {
        (link.src, NodeId(rng.below(N_USERS)))
    }

    fn name(&self) -> &str {
        "users"
    }
}

#[test]
fn negatives_are_nodes_of_the_types_of_the_relation() {
    let data = shop(6);
    let (model, types) = (rsage(&data), data.graph.types());
    let is_right = |pairs: &[BatchOfLinks]| {
        let of_type = |nodes: &[NodeId; 2]| nodes.map(|node| types.type_of(node).unwrap()) == [0, 1];
        pairs.iter().flat_map(|batch| &batch.pairs).all(of_type)
    };
    let uniform = loader(&data);
    let [srcs, dsts] = split(&data).node_ranges();
    let pairs = kiln::sample::UniformPairNegatives { srcs, dsts };
    let pairs = uniform.clone().negatives(Negatives::new(pairs, 3));
    for loader in [uniform, pairs] {
        assert!(is_right(&batches(&model, &loader, PHASES[0], 1)[0]), "{loader:?}");
        assert!(is_right(&batches(&model, &loader, Phase::Test, 1)[0]));
    }
}

#[test]
fn rejects_inconsistent_settings() {
    let (data, folder) = (shop(6), tempfile::tempdir().unwrap());
    let unknown = |relation, reverse| {
        LinkSplit::random_relation(&data.graph, relation, reverse, &LinkSplitConfig::default(), 3)
            .map_err(Error::from)
            .unwrap_err()
            .to_string()
    };
    let expected = "expected one of: buys, bought by";
    assert!(unknown("sells", None).ends_with(&format!("the data has no relation `sells`, {expected}")));
    assert!(unknown("buys", Some("sold to")).ends_with(&format!("no relation `sold to`, {expected}")));
    let other =
        Dataset::builder_with_types(NodeTypes::new([("user", 4), ("item", 5)]).unwrap()).build().unwrap();
    let error = LinkNeighborLoader::new(nodes(&other), &split(&data)).unwrap_err();
    assert!(matches!(&error, Error::OtherRelations { name } if name == "dataset"), "{error}");
    let nodes_with_loss = nodes(&data).objective(Objective::default());
    let error = LinkNeighborLoader::new(nodes_with_loss, &split(&data)).unwrap_err();
    assert!(matches!(error, Error::Links(kiln::LinkLoaderError::ObjectiveOfNodes)), "{error}");
    let fit = |loader: &LinkNeighborLoader| {
        let mut trainer = Trainer::new(rsage(&data), AdamConfig::new(0.01));
        trainer.fit(loader, quiet(1, folder.path(), "refused")).map(drop).unwrap_err()
    };
    let [_, dsts] = split(&data).node_ranges();
    let none = Negatives::new(UniformNegatives { dsts }, 0);
    assert!(fit(&loader(&data).negatives(none)).to_string().contains("negative"));
    let error = fit(&loader(&data).negatives(Negatives::new(Users, 1))).to_string();
    let expected = "expected a node of the relation's destination type (240..400)";
    assert!(error.contains(expected), "{error}");
    // A loader without targets is for links only.
    let model = HeteroModelConfig::new(data.dims(), RgcnConfig::new(8, 2, 2).layers(2));
    let error = Trainer::new(model, AdamConfig::new(0.01))
        .fit(&nodes(&data), quiet(1, folder.path(), "refused"))
        .map(drop)
        .unwrap_err();
    assert!(matches!(&error, Error::NoTargets { name } if name == "shop"), "{error}");
}

#[test]
fn a_run_resumes_exactly_and_only_with_the_same_relation_and_links() {
    let (data, folder) = (shop(6), tempfile::tempdir().unwrap());
    let fit = |loader: &LinkNeighborLoader, fit: FitConfig| {
        Trainer::new(rsage(&data), AdamConfig::new(0.01)).fit(loader, fit).map(|trained| trained.best)
    };
    let loader = loader(&data);
    let whole = fit(&loader, quiet(3, folder.path(), "whole")).unwrap();
    fit(&loader, quiet(1, folder.path(), "run")).unwrap();
    let resume = || FitConfig::epochs(3).resume(folder.path().join("run")).quiet();
    let of = |relation, reverse| {
        let split =
            LinkSplit::random_relation(&data.graph, relation, reverse, &LinkSplitConfig::default(), 3)
                .unwrap();
        LinkNeighborLoader::new(nodes(&data), &split).unwrap()
    };
    let error = fit(&of("bought by", Some("buys")), resume()).unwrap_err();
    assert!(
        matches!(&error, Error::Train(TrainError::Run(RunError::OtherRun { name, .. })) if name == "relation"),
        "{error}"
    );
    let error = fit(&of("buys", None), resume()).unwrap_err();
    assert!(matches!(error, Error::Train(TrainError::Run(RunError::OtherRun { .. }))), "{error}");
    // The same numbers of links, but other links.
    let targets = split(&data).targets().clone();
    let Split { train, val, test } = targets.split().clone();
    let n_val = val.len();
    let swapped = Split {
        train,
        val: test.iter().take(n_val).copied().collect(),
        test: val.iter().chain(test.iter().skip(n_val)).copied().collect(),
    };
    let targets = LinkTargets::new(targets.links().clone(), swapped).unwrap();
    let links = DatasetLinks::new(data.graph.schema(), "buys", Some("bought by"), targets).unwrap();
    let split = LinkSplit::new(split(&data).message(), links).unwrap();
    let other = LinkNeighborLoader::new(nodes(&data), &split).unwrap();
    let error = fit(&other, resume()).unwrap_err();
    assert!(error.to_string().contains("data"), "{error}");
    assert_eq!(fit(&loader, resume()).unwrap(), whole);
}

/// Clones of a loader share the copies of its relations on devices, but each split has message graphs of its own.
#[test]
fn splits_of_one_loader_have_their_own_copies_on_a_device() {
    let data = shop(6);
    let losses = |nodes: &NeighborLoader, seed: u64| {
        let split = LinkSplit::random_relation(
            &data.graph,
            "buys",
            Some("bought by"),
            &LinkSplitConfig::default(),
            seed,
        );
        let loader = LinkNeighborLoader::new(nodes.clone(), &split.unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let config = LinkModelConfig { encoder: super::config(&data), decoder: LinkDecoderConfig::Dot };
        let fit = FitConfig::epochs(1).out(folder.path().join("run")).quiet();
        Trainer::new(config, AdamConfig::new(1e-2)).seed(7).fit(&loader, fit).unwrap().best
    };
    let on = |mode| NeighborLoader::new(&data, [4, 4]).batch_size(64).graph_mode(mode);
    let shared = on(GraphMode::Device);
    for seed in [0, 1] {
        assert_eq!(losses(&shared, seed), losses(&on(GraphMode::Host), seed));
    }
}

/// Exact evaluation scores links from the rows of all nodes.
#[test]
fn exact_evaluation_equals_sampling_with_all_neighbours() {
    let (data, folder) = (shop(4), tempfile::tempdir().unwrap());
    let loader = |evaluation| {
        let nodes = NeighborLoader::new(&data, [Fanout::All; 2]).batch_size(64).workers(0);
        LinkNeighborLoader::new(nodes.evaluation(evaluation), &split(&data)).unwrap()
    };
    let exact = loader(EvalMode::Exact { memory_bytes: None });
    let mut trainer = Trainer::new(rsage(&data), AdamConfig::new(1e-2)).seed(5);
    let best = trainer.fit(&exact, quiet(1, folder.path(), "exact")).unwrap();
    let found = best.evaluate(&exact, Phase::Validation).unwrap();
    let expected = best.evaluate(&loader(EvalMode::Sampled), Phase::Validation).unwrap();
    assert_eq!((found.total, found.hits), (expected.total, expected.hits));
    assert!((found.loss() - expected.loss()).abs() < 1e-5, "{found:?} {expected:?}");
}
