//! Predictions at a time: their messages and their candidates were known then.

use kiln::GraphSource;
use kiln::data::TimeSplit;
use kiln::prelude::*;
use kiln::train::LayerWiseConfig;

use super::{N_NODES, Random, out};

#[test]
fn predictions_at_a_time_read_only_what_was_known_then() {
    let random = Random::new(true, true);
    let split = TimeSplit::new(None, 50, 75).unwrap();
    let data = random.timed(split, false);
    let folder = tempfile::tempdir().unwrap();
    let loader = NeighborLoader::new(&data, [4, 4]).batch_size(16);
    let sage = SageConfig::new(2, 2).layers(2).hidden(8).dropout(0.0);
    Trainer::new(sage, AdamConfig::new(0.01)).fit(&loader, out(folder.path(), "run".to_owned(), 1)).unwrap();
    let model = SavedModel::open(folder.path().join("run")).unwrap();
    let nodes: Vec<NodeId> = (0..N_NODES as u32).map(NodeId).collect();
    for mode in [PredictMode::default(), PredictMode::Exact(LayerWiseConfig::within(None))] {
        let of = |source: GraphSource| {
            let scores = model.on_nodes(source).unwrap().predict(&nodes, &mode).unwrap();
            format!("{:?}", scores.confidences())
        };
        let at = GraphSource::from(&data).at("60").unwrap();
        let cut = random.build(Some(60), &random.split(&split), false);
        assert_eq!(of(at), of((&cut).into()));
    }
    let error = GraphSource::from(&data).at("2026-06-01").unwrap_err();
    assert!(error.to_string().contains("an integer"), "{error}");
    let error = GraphSource::from(&kiln::data::synthetic::ring(10).unwrap()).at("7").unwrap_err();
    assert!(error.to_string().contains("have no times"), "{error}");
}

/// Nodes that did not exist at a time are no destinations: of one type, of a type of several, and on servers.
#[test]
fn the_best_destinations_at_a_time_existed_then() {
    let random = Random::new(true, true);
    let split = TimeSplit::new(None, 50, 75).unwrap();
    let config = LinkSplitConfig { direction: Some(LinkDirection::Directed), ..LinkSplitConfig::default() };
    let folder = tempfile::tempdir().unwrap();
    let n_known = random.node_times.iter().filter(|time| **time < 60).count();
    let check = |source: GraphSource, run: &str, n_expected: usize| {
        let model = SavedModel::open(folder.path().join(run)).unwrap();
        let links = model.on_links(source).unwrap();
        // The source is late itself, and so is no destination of its own.
        let late = random.node_times.iter().position(|time| 60 <= *time).unwrap();
        let best =
            links.top_k(&[NodeId(late as u32)], &TopKConfig::new(N_NODES), &PredictMode::default()).unwrap();
        let is_known = |link: &kiln::train::ScoredLink| random.node_times[link.dst.index()] < 60;
        assert_eq!(best.len(), n_expected, "{run}");
        assert_eq!(best.iter().filter(|link| is_known(link)).count(), n_known);
        format!("{best:?}")
    };
    for is_typed in [false, true] {
        let data = random.timed(split, is_typed);
        let links = LinkSplit::temporal(&data, "edge", None, split, &config).unwrap();
        let nodes = NeighborLoader::new(&data, [4, 4]).batch_size(32).workers(0);
        let loader = LinkNeighborLoader::new(nodes, &links).unwrap();
        let decoder = LinkDecoderConfig::Dot;
        let fit = out(folder.path(), is_typed.to_string(), 1);
        if is_typed {
            let rsage =
                RsageConfig::new(2, 8).metagraph(&data.graph.metagraph()).layers(2).hidden(8).dropout(0.0);
            let encoder = HeteroModelConfig::new(data.dims(), rsage);
            Trainer::new(LinkModelConfig { encoder, decoder }, AdamConfig::new(0.01))
                .fit(&loader, fit)
                .unwrap();
        } else {
            let encoder = SageConfig::new(2, 8).layers(2).hidden(8).dropout(0.0);
            Trainer::new(LinkModelConfig { encoder, decoder }, AdamConfig::new(0.01))
                .fit(&loader, fit)
                .unwrap();
        }
        let run = is_typed.to_string();
        check((&data).into(), &run, N_NODES - 1);
        let expected = check(GraphSource::from(&data).at("60").unwrap(), &run, n_known);
        on_servers(&data, |source| assert_eq!(check(source, &run, n_known), expected));
    }
}

#[cfg(feature = "grpc")]
fn on_servers(data: &Dataset, check: impl Fn(GraphSource) + Sync) {
    use crate::frozen::partitions::Parts;
    let parts = if data.is_heterogeneous() { Parts::of_typed(data) } else { Parts::of(data) };
    let served = parts.serve();
    let checked = launch(RankConfig::threads(1), |rank| {
        check(GraphSource::from(served.graph.join(&rank)?).at("60")?);
        Ok(())
    });
    checked.unwrap();
}

#[cfg(not(feature = "grpc"))]
fn on_servers(_: &Dataset, _: impl Fn(GraphSource) + Sync) {}
