//! Links and edges that are sampled at their own times.

use burn::tensor::{Int, Tensor};
use kiln::data::{LinkTargets, TimeSplit};
use kiln::feature::{EdgeFeatures, Labels};
use kiln::graph::{ColumnValues, EdgeColumns, LinkId, Links, Relations};
use kiln::nn::BlockModel;
use kiln::prelude::*;
use kiln::sample::{PastNegatives, TimeLimits};
use kiln::train::{LinkInput, Task, TimedLinks};
use kiln::{GraphSource, Messages};

use super::links::{auc_of_likes, best_auc, likes_with};
use super::{N_NODES, Random, out};

const AT_ITEM_TIME: Messages = Messages::AtItemTime(TimeLimits { includes_equal: false, window: None });

const PHASES: [Phase; 3] = [Phase::Train { epoch: 0 }, Phase::Validation, Phase::Test];

const CONFIG: LinkSplitConfig = LinkSplitConfig {
    val: 0.1,
    test: 0.1,
    direction: Some(LinkDirection::Directed),
    edge_type: None,
    disjoint_train: 0.0,
    with_times: true,
};

#[test]
fn a_link_knows_what_came_just_before_it_and_nothing_later() {
    let auc = auc_of_likes(likes_with(|_| 0, false, true, true), AT_ITEM_TIME);
    assert!((auc - 0.5).abs() < 0.02, "{auc}");
    let auc = auc_of_likes(likes_with(|time| time - 1, true, true, true), AT_ITEM_TIME);
    assert!((auc - best_auc()).abs() < 0.02, "{auc}, expected {}", best_auc());
}

fn sage() -> LinkModelConfig<SageConfig> {
    let encoder = SageConfig::new(2, 8).layers(2).hidden(8).dropout(0.0);
    LinkModelConfig { encoder, decoder: LinkDecoderConfig::Dot }
}

fn split_of(random: &Random, is_typed: bool, by_time: bool) -> (Dataset, LinkSplit) {
    let times = TimeSplit::new(Some(20), 50, 75).unwrap();
    let mut data = random.timed(times, is_typed);
    let split = match by_time {
        true => LinkSplit::temporal(&data, "edge", None, times, &CONFIG).unwrap(),
        false => LinkSplit::random_relation(&data.graph, "edge", None, &CONFIG, 5).unwrap(),
    };
    data.times.split = split.time_split();
    (data, split)
}

fn nodes(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, [3, 3]).batch_size(16).messages(AT_ITEM_TIME)
}

#[expect(clippy::disallowed_methods, reason = "the data is copied at once")]
fn ids(tensor: &Tensor<1, Int>) -> Vec<i64> {
    tensor.clone().into_data().iter::<i64>().collect()
}

/// Returns the links of each batch of a phase, with the edges of its blocks and the nodes of its pairs.
fn batches<C, L>(model: &C, loader: &L, phase: Phase) -> Vec<(Vec<LinkId>, Vec<i64>, Vec<u32>)>
where
    C: ModelConfig,
    L: DataLoader<C::Model, Task: Task<Input = LinkInput>> + Sync,
{
    let found = launch(RankConfig::threads(1).threads_per_rank(1), |rank| {
        let trainer = Trainer::new(model.clone(), AdamConfig::new(1e-2)).seed(7).rank(&rank).start(loader)?;
        let batches = loader.loader(phase, &trainer, &loader.evaluator(&rank)?)?;
        let mut found = Vec::new();
        for batch in batches.epoch(phase) {
            let input = batch.map_err(kiln::train::Error::from)?.input;
            let edges = input.nodes.blocks.iter().flat_map(|block| ids(block.edge_ids())).collect();
            let rows = ids(input.nodes.blocks.last().expect("there should be layers").src_nodes());
            let ends = input.srcs.iter().chain(&input.dsts);
            let nodes = ends.map(|end| rows[input.nodes.seed_index[*end as usize]] as u32).collect();
            found.push((input.links, edges, nodes));
        }
        Ok(found)
    });
    found.unwrap().remove(0)
}

/// Checks that all edges of the tree of each link are before it, and that its negatives exist by then. A batch has one link.
fn check_trees<C>(random: &Random, is_typed: bool, by_time: bool, model: &C, rule: Rule)
where
    C: ModelConfig,
    LinkNeighborLoader: DataLoader<C::Model, Task: Task<Input = LinkInput>>,
{
    let (data, split) = split_of(random, is_typed, by_time);
    let loader = LinkNeighborLoader::new(nodes(&data).rule(rule).batch_size(1), &split).unwrap();
    let loader = loader.eval_negatives(Negatives::new(UniformNegatives { dsts: 0..N_NODES as u32 }, 3));
    let graph = split.message().whole_graph(0).unwrap();
    let column = graph.columns().get(EdgeColumns::TIMES).unwrap().values();
    let ColumnValues::I64(edge_times) = column else { panic!("times should be integers") };
    let times = split.targets().times().unwrap();
    for phase in PHASES {
        let batches = batches(model, &loader, phase);
        let mut n_edges = 0;
        for (links, edges, nodes) in batches.iter().take(250) {
            let [link] = links[..] else { panic!("expected one link, got {links:?}") };
            let time = times[link.index()];
            for edge in edges {
                let edge = *edge as usize;
                let src = graph.indices()[edge].index();
                assert!(edge_times[edge] < time, "edge {edge} of link {link:?} at {time}");
                let is_loop = graph.dsts()[edge].index() == src;
                let of_src = random.has_node_times.then(|| random.node_times[src]).filter(|_| !is_loop);
                assert!(of_src.is_none_or(|of_src| of_src < time), "the source of edge {edge}");
            }
            n_edges += edges.len();
            let ends: [u32; 2] = <[NodeId; 2]>::from(split.links().pair(link)).map(|node| node.0);
            for node in nodes.iter().filter(|node| random.has_node_times && !ends.contains(node)) {
                assert!(random.node_times[*node as usize] < time, "negative {node} of link {link:?}");
            }
        }
        assert!(250 < n_edges, "{n_edges} edges");
    }
}

#[test]
fn trees_and_negatives_of_links_are_before_their_links() {
    let mut random = Random::new(true, true);
    // Some nodes exist before the first link.
    (0..20).for_each(|node| random.node_times[node] = -1);
    let sage = sage();
    check_trees(&random, false, true, &sage, Rule::Uniform);
    check_trees(&random, false, false, &sage, Rule::MostRecent);
    check_trees(&Random::new(true, false), false, true, &sage, Rule::UniformWithReplacement);
    let typed = random.timed(TimeSplit::new(None, 50, 75).unwrap(), true);
    let rsage = RsageConfig::new(2, 8).metagraph(&typed.graph.metagraph()).layers(2).hidden(8).dropout(0.0);
    let encoder = HeteroModelConfig::new(typed.dims(), rsage);
    let rsage = LinkModelConfig { encoder, decoder: LinkDecoderConfig::Dot };
    check_trees(&random, true, true, &rsage, Rule::Uniform);
    check_trees(&random, true, false, &rsage, Rule::MostRecent);
}

/// Any number of workers gives the same model; the saved one repeats the scores at other batches and times.
fn check_model<E: ModelConfig<Model: BlockModel + Sync> + Clone>(
    data: &Dataset,
    split: &LinkSplit,
    encoder: E,
) where
    LinkNeighborLoader: DataLoader<kiln::nn::LinkModel<E::Model>>,
{
    let model = LinkModelConfig { encoder, decoder: LinkDecoderConfig::Dot };
    let folder = tempfile::tempdir().unwrap();
    let mut hashes = Vec::new();
    for workers in [0, 2] {
        let past = PastNegatives::new(&split.message().whole_graph(0).unwrap(), 0..N_NODES as u32).unwrap();
        let loader = LinkNeighborLoader::new(nodes(data).workers(workers), split).unwrap();
        let loader = loader.negatives(Negatives::new(past, 2));
        let fit = out(folder.path(), workers.to_string(), 2);
        let trained = Trainer::new(model.clone(), AdamConfig::new(0.01)).fit(&loader, fit).unwrap();
        let test = trained.predict(&loader, Phase::Test).unwrap();
        hashes.push(format!("{:?} {:?}", trained.best, test.counts().unwrap()));
        let rejected = trained.report.negatives.train;
        assert!(0 < rejected.n_rejected && rejected.n_rejected < rejected.n_negatives / 2, "{rejected:?}");
    }
    assert_eq!(hashes[0], hashes[1]);

    let saved = SavedModel::open(folder.path().join("0")).unwrap();
    let predictor = saved.on_links(data).unwrap();
    let mode = PredictMode::default();
    let links = Links::new(split.links().srcs()[..40].to_vec(), split.links().dsts()[..40].to_vec()).unwrap();
    let times: Vec<i64> = (0..40).map(|link| 20 * (link % 5)).collect();
    let scores = predictor.score_links(TimedLinks::at(&links, times.clone()).unwrap(), &mode).unwrap();
    for time in [20, 60] {
        let at = saved.on_links(GraphSource::from(data).at(&time.to_string()).unwrap()).unwrap();
        let of_time = at.score_links(&links, &mode).unwrap();
        for (link, own) in times.iter().enumerate().filter(|(_, own)| **own == time) {
            assert_eq!(of_time[link].to_bits(), scores[link].to_bits(), "link {link} at {own}");
        }
        assert_ne!(of_time, scores);
        // Destinations that the source has later are not known links.
        let n_known = at.known_links().unwrap().n_edges();
        assert!(0 < n_known && n_known < data.graph.n_edges(), "{n_known} at {time}");
        // All neighbours, at one time.
        let exact = PredictMode::Exact(Default::default());
        let all = PredictMode::Sampled { fanouts: vec![Fanout::All; 2], seed: 0 };
        let [exact, all] = [exact, all].map(|mode| at.score_links(&links, &mode).unwrap());
        for (exact, all) in exact.iter().zip(&all) {
            assert!((exact - all).abs() < 1e-4 * all.abs().max(1.0), "{exact} instead of {all}");
        }
    }
    for (error, expected) in [
        (predictor.score_links(&links, &mode).unwrap_err(), "these items have no times"),
        (
            predictor
                .score_links(TimedLinks::at(&links, times).unwrap(), &PredictMode::Exact(Default::default()))
                .unwrap_err(),
            "predict at one time",
        ),
        (predictor.top_k(&[NodeId(1)], &TopKConfig::new(3), &mode).unwrap_err(), "these items have no times"),
        (TimedLinks::at(&links, [1]).unwrap_err(), "1 times for 40 links"),
    ] {
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn models_of_links_at_their_times_are_reproducible_and_predict() {
    let random = Random::new(true, true);
    let (data, split) = split_of(&random, false, true);
    check_model(&data, &split, sage().encoder);
    let (data, split) = split_of(&random, true, false);
    let rsage = RsageConfig::new(2, 8).metagraph(&data.graph.metagraph()).layers(2).hidden(8).dropout(0.0);
    check_model(&data, &split, HeteroModelConfig::new(data.dims(), rsage));
}

/// Payments between random accounts; the class of one is told by an earlier payment of its payer, of the same amount.
fn payments() -> (Dataset, LinkTargets) {
    let random = Random::new(true, false);
    let data = random.timed(TimeSplit::new(None, 50, 75).unwrap(), false);
    let classes: Vec<i32> = random.times.iter().map(|time| (time % 3 == 0) as i32).collect();
    let split = TimeSplit::new(Some(20), 50, 75).unwrap();
    let items = (0..).map(LinkId).zip(random.times.iter().copied());
    let split = split.divide(items, Default::default()).unwrap();
    let links = Links::new(random.srcs.clone(), random.dsts.clone()).unwrap();
    let amounts: Vec<f32> = random.times.iter().map(|time| *time as f32 / 50.0 - 1.0).collect();
    let targets = LinkTargets::new(links, split)
        .unwrap()
        .with_values(Labels::new(classes, 2))
        .unwrap()
        .with_features(EdgeFeatures::new(amounts, 1).unwrap())
        .unwrap()
        .with_times(random.times)
        .unwrap();
    (data, targets)
}

/// An edge is predicted as in the test of its training, which reads what was known at its time.
#[test]
fn edges_with_targets_are_trained_and_predicted_at_their_times() {
    let (mut data, targets) = payments();
    data.times.split = None;
    let split = LinkSplit::new(&data.graph, targets.clone()).unwrap();
    let loader = LinkNeighborLoader::with_targets(nodes(&data), &split).unwrap();
    let decoder = LinkDecoderConfig::edges(loader.edge_dims().unwrap());
    let model = LinkModelConfig { encoder: sage().encoder, decoder };
    let folder = tempfile::tempdir().unwrap();
    let fit = out(folder.path(), "run".to_owned(), 2);
    let trained = Trainer::new(model, AdamConfig::new(0.01)).fit(&loader, fit).unwrap();
    let test = trained.predict(&loader, Phase::Test).unwrap();
    let saved = SavedModel::open(folder.path().join("run")).unwrap();
    let edges =
        kiln::predictions::PredictedEdges::new(&data.graph, Some(&targets.clone().into()), 0).unwrap();
    let items = &targets.split().test[..];
    let features = edges.features(items).unwrap();
    let predictor = saved.on_links(&data).unwrap();
    let timed = edges.timed_ends(items).unwrap();
    let outputs = predictor.predict_edges(timed, features.as_ref(), &PredictMode::default()).unwrap();
    let classes: Vec<_> = test.predictions().iter().map(|said| said.predicted).collect();
    assert_eq!(outputs.classes(), classes);
    // Of data without links, the edges of the graph have the times of its column.
    let of_graph = kiln::predictions::PredictedEdges::new(&data.graph, None, 0).unwrap();
    let all: Vec<LinkId> = (0..of_graph.links().len() as u32).map(LinkId).collect();
    assert_eq!(of_graph.timed_ends(&all).unwrap().times().unwrap().len(), 1_500);
    assert!(of_graph.without_times().timed_ends(&all).unwrap().times().is_none());
}

/// An exact evaluation of items of one time equals a sampled one of all neighbours.
#[test]
fn items_of_one_time_are_evaluated_exactly() {
    let mut random = Random::new(true, true);
    for window in [None, Some(30)] {
        let messages = Messages::AtItemTime(TimeLimits { includes_equal: false, window });
        // Nodes: the validation is at 60 and the test at 80.
        for time in &mut random.node_times {
            *time = if *time < 50 {
                *time
            } else if *time < 75 {
                60
            } else {
                80
            };
        }
        let data = random.timed(TimeSplit::new(None, 50, 75).unwrap(), false);
        let model = SageConfig::new(2, 2).layers(2).hidden(8).dropout(0.0);
        let losses = [EvalMode::Sampled, EvalMode::Exact { memory_bytes: None }].map(|evaluation| {
            let folder = tempfile::tempdir().unwrap();
            let loader = NeighborLoader::new(&data, [Fanout::All; 2]).batch_size(16).messages(messages);
            let loader = loader.evaluation(evaluation);
            let fit = out(folder.path(), "run".to_owned(), 1);
            let trained = Trainer::new(model.clone(), AdamConfig::new(0.01)).fit(&loader, fit).unwrap();
            let saved = SavedModel::open(folder.path().join("run")).unwrap();
            let test = trained.predict(&loader, Phase::Test).unwrap();
            let again =
                saved.on_nodes(&data).unwrap().predict(&data.split().test, &PredictMode::default()).unwrap();
            let classes: Vec<_> = test.predictions().iter().map(|said| said.predicted).collect();
            assert_eq!(again.classes(), classes, "{evaluation:?}");
            [trained.best.val.loss(), trained.evaluate(&loader, Phase::Test).unwrap().loss()]
        });
        for (sampled, exact) in losses[0].iter().zip(&losses[1]) {
            assert!((sampled - exact).abs() < 1e-5, "{losses:?} with {window:?}");
        }
    }
    // Links: those of the validation and of the test have one time each.
    let (data, targets) = payments();
    let parts = targets.split();
    let of = |ids: &[LinkId], time: i64| {
        let times = targets.times().unwrap();
        ids.iter().copied().filter(|id| times[id.index()] == time).collect::<Vec<LinkId>>()
    };
    let split = Split {
        train: parts.train.clone(),
        val: of(&parts.val, 60).into(),
        test: of(&parts.test, 80).into(),
    };
    let links = LinkTargets::new(targets.links().clone(), split).unwrap();
    let links = links.with_times(targets.times().unwrap().clone()).unwrap();
    let split = LinkSplit::new(&data.graph, links).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let losses = [EvalMode::Sampled, EvalMode::Exact { memory_bytes: None }].map(|evaluation| {
        let nodes = NeighborLoader::new(&data, [Fanout::All; 2]).batch_size(16).messages(AT_ITEM_TIME);
        let loader = LinkNeighborLoader::new(nodes.evaluation(evaluation), &split).unwrap();
        let fit = out(folder.path(), format!("{evaluation:?}"), 1);
        let trained = Trainer::new(sage(), AdamConfig::new(0.01)).fit(&loader, fit).unwrap();
        [trained.best.val.loss(), trained.evaluate(&loader, Phase::Test).unwrap().loss()]
    });
    for (sampled, exact) in losses[0].iter().zip(&losses[1]) {
        assert!((sampled - exact).abs() < 1e-5, "{losses:?}");
    }
}

#[test]
fn what_is_not_possible_with_links_at_their_times_is_an_error() {
    let random = Random::new(true, true);
    let (data, split) = split_of(&random, false, true);
    let folder = tempfile::tempdir().unwrap();
    let fit = |loader: LinkNeighborLoader| {
        let fit = out(folder.path(), "run".to_owned(), 1);
        let trained = Trainer::new(sage(), AdamConfig::new(0.01)).fit(&loader, fit);
        trained.expect_err("the training should not start").to_string()
    };
    let loader = |nodes: NeighborLoader| LinkNeighborLoader::new(nodes, &split).unwrap();
    let exact = nodes(&data).evaluation(EvalMode::Exact { memory_bytes: None });
    let until = Messages::AtItemTime(TimeLimits { includes_equal: true, window: None });
    let past = || PastNegatives::new(&split.message().whole_graph(0).unwrap(), 0..N_NODES as u32).unwrap();
    let untimed = LinkSplitConfig { with_times: false, ..CONFIG };
    let untimed = LinkSplit::random(&data.graph, &untimed, 0).unwrap();
    let mut times = split.targets().times().unwrap().to_vec();
    let without = split.split().train[3];
    times[without.index()] = kiln::data::DatasetTimes::NEVER;
    let some = split.targets().clone().with_times(times).unwrap();
    let some = LinkSplit::new(&Relations::clone(split.message()), some).unwrap();
    // The links have times and the edges of their relation have none.
    let no_edge_times = Random::new(false, true).timed(TimeSplit::new(None, 50, 75).unwrap(), false);
    let timed_links = LinkSplit::new(&no_edge_times.graph, payments().1).unwrap();
    for (loader, expected) in [
        (
            LinkNeighborLoader::new(nodes(&no_edge_times), &timed_links).unwrap(),
            "the link would read its own edge",
        ),
        (loader(exact), "exact evaluation of items of several times is not possible"),
        (loader(nodes(&data).messages(until)), "the edge of a link has the time of the link"),
        (
            loader(nodes(&data).messages(Messages::Known)).negatives(Negatives::new(past(), 1)),
            "the negatives `past` are those at the times of links",
        ),
        (LinkNeighborLoader::new(nodes(&data), &untimed).unwrap(), "kiln data split-links --with-times"),
        (
            LinkNeighborLoader::new(nodes(&data), &some).unwrap(),
            &format!("link {} of the split has no time", without.0),
        ),
    ] {
        let error = fit(loader);
        assert!(error.contains(expected), "{error}");
    }
    // Edges of a pair are no leak, so an exclusion has a note.
    let notes = |loader: &LinkNeighborLoader| {
        DataLoader::<kiln::nn::LinkModel<kiln::nn::Sage>>::notes(loader).join("\n")
    };
    let plain = loader(nodes(&data));
    assert!(!notes(&plain).contains("no edges are excluded"));
    assert!(notes(&plain.exclusion(LinkExclusion::Directed)).contains("no edges are excluded"));
}
