//! Phases of data with a split by time on partitions: those of the whole set, bit for bit.

use kiln::data::{DatasetLinks, LinkTargets, TimeSplit};
use kiln::feature::Labels;
use kiln::graph::{LinkId, Links};
use kiln::prelude::*;
use kiln::sample::TimeLimits;
use kiln::{GraphSource, Messages};

use super::{N_NODES, Random, draws, out};
use crate::frozen::partitions::Parts;

/// Trains on the whole set, on servers of two partitions and on a rank that holds the only partition, and compares the weights
/// and the evaluations. The last argument of `loader` is true for a whole set.
fn check<C: ModelConfig + Clone + Sync, L: DataLoader<C::Model>>(
    data: &Dataset,
    model: &C,
    loader: impl Fn(GraphSource, bool) -> L + Sync,
) {
    let folder = tempfile::tempdir().unwrap();
    let fit = |source: GraphSource, name: &str, rank: Option<&RankHandle>| {
        let loader = loader(source, name == "whole");
        let trainer = Trainer::new(model.clone(), AdamConfig::new(0.01)).seed(3);
        let mut trainer = rank.into_iter().fold(trainer, Trainer::rank);
        let trained = trainer.fit(&loader, out(folder.path(), name.to_owned(), 2)).unwrap();
        let evaluated =
            [Phase::Validation, Phase::Test].map(|phase| trained.evaluate(&loader, phase).unwrap());
        format!("{} {evaluated:?}", trained.best.weights_hash)
    };
    let expected = fit(data.into(), "whole", None);
    let parts = if data.is_heterogeneous() { Parts::of_typed(data) } else { Parts::of(data) };
    let served = parts.serve();
    let on_servers = launch(RankConfig::threads(1), |rank| {
        let joined = served.graph.join(&rank)?;
        Ok(fit(joined.into(), "servers", Some(&rank)))
    });
    assert_eq!(on_servers.unwrap(), [expected]);
}

fn split() -> TimeSplit {
    TimeSplit::new(Some(20), 50, 75).unwrap()
}

fn nodes(source: GraphSource) -> NeighborLoader {
    NeighborLoader::new(source, [4, 4]).batch_size(16).workers(0)
}

#[test]
fn nodes_are_learned_on_partitions_as_on_the_whole_set() {
    let sage = SageConfig::new(2, 2).layers(2).hidden(8).dropout(0.0);
    let gine = GineConfig::new(2, 2, EdgeInput::Features(1)).layers(2).hidden(8).dropout(0.0);
    for (has_edge_times, has_node_times) in [(true, true), (false, true)] {
        let data = Random::new(has_edge_times, has_node_times).timed(split(), false);
        check(&data, &sage, |source, _| nodes(source));
        // The rows of edges are found by their ids.
        check(&data, &gine, |source, _| nodes(source).edge_features());
    }
    let data = Random::new(true, true).timed(split(), true);
    let rsage = RsageConfig::new(2, 2).metagraph(&data.graph.metagraph()).layers(2).hidden(8).dropout(0.0);
    check(&data, &HeteroModelConfig::new(data.dims(), rsage), |source, _| nodes(source));
}

/// Trains on links, of a set that has them with their split.
fn check_links<C: ModelConfig + Clone + Sync>(data: Dataset, links: &LinkSplit, model: &C)
where
    LinkNeighborLoader: DataLoader<C::Model>,
{
    let data = links.clone().into_dataset(data).unwrap();
    check(&data, model, |source, is_whole| {
        let has_targets = links.targets().values().is_some();
        match (is_whole, has_targets) {
            (true, false) => LinkNeighborLoader::new(nodes(source), links).unwrap(),
            (true, true) => LinkNeighborLoader::with_targets(nodes(source), links).unwrap(),
            (false, false) => LinkNeighborLoader::new(nodes(source), links.dataset_links()).unwrap(),
            (false, true) => LinkNeighborLoader::with_targets(nodes(source), links.dataset_links()).unwrap(),
        }
    });
}

#[test]
fn links_are_learned_on_partitions_as_on_the_whole_set() {
    let config = LinkSplitConfig { direction: Some(LinkDirection::Directed), ..LinkSplitConfig::default() };
    let links = |data: &Dataset| LinkSplit::temporal(data, "edge", None, split(), &config).unwrap();
    let data = Random::new(true, true).timed(split(), false);
    let sage = SageConfig::new(2, 8).layers(2).hidden(8).dropout(0.0);
    check_links(
        data.clone(),
        &links(&data),
        &LinkModelConfig { encoder: sage, decoder: LinkDecoderConfig::Dot },
    );
    let data = Random::new(true, true).timed(split(), true);
    let rsage = RsageConfig::new(2, 8).metagraph(&data.graph.metagraph()).layers(2).hidden(8).dropout(0.0);
    let encoder = HeteroModelConfig::new(data.dims(), rsage);
    check_links(data.clone(), &links(&data), &LinkModelConfig { encoder, decoder: LinkDecoderConfig::Dot });
}

#[test]
fn edges_are_learned_on_partitions_as_on_the_whole_set() {
    let random = Random::new(true, true);
    let data = random.timed(split(), false);
    let ids = (0..).map(LinkId).zip(random.times.iter().copied());
    let parts = split().divide(ids, Default::default()).unwrap();
    let classes: Vec<i32> = draws(21, random.srcs.len(), 2).into_iter().map(|class| class as i32).collect();
    let links = Links::new(random.srcs.clone(), random.dsts.clone()).unwrap();
    let targets = LinkTargets::new(links, parts).unwrap().with_values(Labels::new(classes, 2)).unwrap();
    let links = DatasetLinks::new(data.graph.schema(), "edge", None, targets).unwrap();
    let links = LinkSplit::new(&data.graph, links).unwrap().with_time_split(Some(split()));
    let decoder = LinkDecoderConfig::Edge { hidden: 8, n_layers: 2, dropout: 0.0, d_edge: 0, n_outputs: 2 };
    let encoder = SageConfig::new(2, 8).layers(2).hidden(8).dropout(0.0);
    check_links(data, &links, &LinkModelConfig { encoder, decoder });
}

/// Two ranks that hold a partition each evaluate all items, and predict at a time what the whole set predicts.
#[test]
fn ranks_that_hold_partitions_predict_at_a_time_as_on_the_whole_set() {
    let data = Random::new(true, true).timed(split(), false);
    let folder = tempfile::tempdir().unwrap();
    let sage = SageConfig::new(2, 2).layers(2).hidden(8).dropout(0.0);
    let loader = nodes((&data).into());
    let trained = Trainer::new(sage, AdamConfig::new(0.01))
        .fit(&loader, out(folder.path(), "run".to_owned(), 1))
        .unwrap();
    let counts = trained.evaluate(&loader, Phase::Test).unwrap();
    assert_eq!(counts.total, data.split().test.len() as u64);
    let model = SavedModel::open(folder.path().join("run")).unwrap();
    let ids: Vec<NodeId> = (0..N_NODES as u32).map(NodeId).collect();
    let scores = |source: GraphSource| {
        let scores = model.on_nodes(source).unwrap().predict(&ids, &PredictMode::default()).unwrap();
        format!("{:?}", scores.confidences())
    };
    let at = |source: GraphSource| source.at("60").unwrap();
    let expected = scores(at((&data).into()));
    assert_ne!(expected, scores((&data).into()));
    let folder_of_parts = Parts::of(&data);
    let parts = folder_of_parts.of_workers();
    let of_ranks = launch(RankConfig::threads(2), |rank| {
        let joined = parts.join(&rank)?;
        let of_rank = scores(at(joined.into()));
        rank.communicator("predicted")?.barrier(std::time::Duration::from_secs(60))?;
        Ok(of_rank)
    });
    assert_eq!(of_ranks.unwrap(), [expected.clone(), expected]);
}

fn at_item_times(source: GraphSource, limits: TimeLimits) -> NeighborLoader {
    nodes(source).messages(Messages::AtItemTime(limits))
}

#[test]
fn nodes_at_their_own_times_are_learned_on_partitions_as_on_the_whole_set() {
    let sage = SageConfig::new(2, 2).layers(2).hidden(8).dropout(0.0);
    let gine = GineConfig::new(2, 2, EdgeInput::Features(1)).layers(2).hidden(8).dropout(0.0);
    let data = Random::new(true, true).timed(split(), false);
    let window = TimeLimits { includes_equal: true, window: Some(30) };
    check(&data, &sage, |source, _| at_item_times(source, window));
    let recent = |source| at_item_times(source, TimeLimits::default()).rule(Rule::MostRecent);
    check(&data, &gine, |source, _| recent(source).edge_features());
    let data = Random::new(false, true).timed(split(), true);
    let rsage = RsageConfig::new(2, 2).metagraph(&data.graph.metagraph()).layers(2).hidden(8).dropout(0.0);
    check(&data, &HeteroModelConfig::new(data.dims(), rsage), |source, _| recent(source));
}

/// Two ranks that hold a partition each predict what the whole set predicts, at the times of the nodes and at one
/// time.
#[test]
fn ranks_that_hold_partitions_predict_nodes_at_their_own_times() {
    let data = Random::new(true, true).timed(split(), false);
    let folder = tempfile::tempdir().unwrap();
    let sage = SageConfig::new(2, 2).layers(2).hidden(8).dropout(0.0);
    let loader = at_item_times((&data).into(), TimeLimits::default());
    let fit = out(folder.path(), "run".to_owned(), 1);
    Trainer::new(sage.clone(), AdamConfig::new(0.01)).fit(&loader, fit).unwrap();
    let model = SavedModel::open(folder.path().join("run")).unwrap();
    let ids: Vec<NodeId> = (0..N_NODES as u32).map(NodeId).collect();
    let scores = |source: GraphSource| {
        [source.clone(), source.at("60").unwrap()].map(|source| {
            let scores = model.on_nodes(source).unwrap().predict(&ids, &PredictMode::default()).unwrap();
            format!("{:?}", scores.confidences())
        })
    };
    let expected = scores((&data).into());
    assert_ne!(expected[0], expected[1]);
    let folder_of_parts = Parts::of(&data);
    let parts = folder_of_parts.of_workers();
    let of_ranks = launch(RankConfig::threads(2), |rank| {
        let source = GraphSource::from(parts.join(&rank)?);
        let of_rank = scores(source.clone());
        // The edges of one time have no order.
        let cut = at_item_times(source.at("60")?, TimeLimits::default());
        let fit = out(folder.path(), format!("cut{}", rank.index()), 1);
        let error = Trainer::new(sage.clone(), AdamConfig::new(0.01)).fit(&cut, fit).unwrap_err();
        assert!(error.to_string().contains("its edges have no times"), "{error}");
        rank.communicator("predicted")?.barrier(std::time::Duration::from_secs(60))?;
        Ok(of_rank)
    });
    assert_eq!(of_ranks.unwrap(), [expected.clone(), expected]);
}

#[test]
fn partitions_without_times_have_no_graph_of_a_time() {
    let served = Parts::of(&kiln::data::synthetic::ring(10).unwrap()).serve();
    let errors = launch(RankConfig::threads(1), |rank| {
        let source = GraphSource::from(served.graph.join(&rank)?);
        let loader = at_item_times(source.clone(), TimeLimits::default());
        let sage = SageConfig::new(3, 2).layers(2);
        let error = Trainer::new(sage, AdamConfig::new(0.01)).fit(&loader, FitConfig::epochs(1).quiet());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("neither the edges nor their sources have times"), "{error}");
        Ok(source.at("7").unwrap_err().to_string())
    });
    assert!(errors.unwrap()[0].contains("have no times"));
}
