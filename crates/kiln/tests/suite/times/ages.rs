//! The ages of nodes and edges as inputs of models.

use kiln::data::{DatasetTimes, TimeSplit};
use kiln::graph::{EdgeColumn, EdgeColumns, NodeTypes, RelationEdges};
use kiln::nn::BlockModel;
use kiln::prelude::*;
use kiln::train::NodeTask;
use kiln::{GraphSource, ItemTimesError, Messages};

use super::{N_NODES, Random, draws, out};

const AT_ITEM_TIME: Messages =
    Messages::AtItemTime(kiln::sample::TimeLimits { includes_equal: false, window: None });

const N_ITEMS: usize = 1_500;

/// Items with one neighbour each, whose class tells how long ago that was: at most 400, or from 500 on. The time is that of the
/// edge, or of a source of the item's own.
fn recency(of_edges: bool) -> Dataset {
    let labels: Vec<i32> = draws(21, N_ITEMS, 2).into_iter().map(|class| class as i32).collect();
    let times: Vec<i64> =
        draws(22, N_ITEMS, 10_000).into_iter().map(|time| 10_000 + i64::from(time)).collect();
    let mut before = Vec::new();
    for ((class, draw), time) in labels.iter().zip(draws(23, N_ITEMS, 400)).zip(&times) {
        before.push(time - i64::from(draw) - if *class == 1 { 1 } else { 500 });
    }
    let srcs: Vec<u32> = (N_ITEMS as u32..2 * N_ITEMS as u32).collect();
    let dsts: Vec<u32> = (0..N_ITEMS as u32).collect();
    let of_srcs = if of_edges { vec![DatasetTimes::ALWAYS; N_ITEMS] } else { before.clone() };
    let mut builder = Dataset::builder(2 * N_ITEMS).edges(&srcs, &dsts);
    if of_edges {
        builder = builder.edge_column(EdgeColumns::TIMES, EdgeColumn::new(before, 1).unwrap());
    }
    let data = builder
        .features(vec![1.0; 2 * N_ITEMS], 1)
        .labels([labels, vec![-1; N_ITEMS]].concat(), 2)
        .node_times([times, of_srcs].concat());
    data.time_split(TimeSplit::new(None, 16_000, 17_000).unwrap()).build().unwrap()
}

/// Returns the accuracy of a model of one layer on the test split.
fn accuracy<C: ModelConfig>(data: &Dataset, loader: NeighborLoader, config: C) -> f64
where
    NeighborLoader: DataLoader<C::Model>,
{
    let folder = tempfile::tempdir().unwrap();
    let loader = loader.batch_size(64);
    let fit = out(folder.path(), "run".to_owned(), 12);
    let trained = Trainer::new(config, AdamConfig::new(0.02)).fit(&loader, fit).unwrap();
    let outputs = trained.predict(&loader, Phase::Test).unwrap();
    let predictions = outputs.predictions();
    assert_eq!(predictions.len(), data.split().test.len());
    let n_right = predictions.iter().filter(|of_item| of_item.predicted == Some(of_item.label)).count();
    n_right as f64 / predictions.len() as f64
}

#[test]
fn only_ages_tell_how_long_ago_a_neighbour_was() {
    let of_edges = recency(true);
    let loader = |data: &Dataset| NeighborLoader::new(data, [2]).messages(AT_ITEM_TIME);
    let transformer = TransformerConfig::new(16, 2).hidden(16).layers(1).heads(1).dropout(0.0);
    let plain = TransformerConfig { d_in: 1, ..transformer.clone() };
    let without = accuracy(&of_edges, loader(&of_edges), plain);
    assert!((without - 0.5).abs() < 0.1, "{without}");
    for times in [TimeEncoderConfig::fixed(8), TimeEncoderConfig::learned(8)] {
        let loader = loader(&of_edges).ages();
        let config = HeteroModelConfig::new([Some(1)], transformer.clone());
        let config = loader.encode_times(times, config).unwrap();
        let with = accuracy(&of_edges, loader, config);
        assert!(0.95 < with, "{with} by {times:?}");
    }
    let of_nodes = recency(false);
    let without = accuracy(&of_nodes, loader(&of_nodes), SageConfig::new(1, 2).layers(1).dropout(0.0));
    assert!((without - 0.5).abs() < 0.1, "{without}");
    let loader = loader(&of_nodes).ages();
    let config = HeteroModelConfig::new([Some(1)], SageConfig::new(16, 2).layers(1).dropout(0.0));
    let config = loader.encode_times(TimeEncoderConfig::learned(8), config).unwrap();
    let with = accuracy(&of_nodes, loader, config);
    assert!(0.95 < with, "{with} by ages of nodes");
}

/// Checks that workers change nothing, that the saved model repeats the test, and that it predicts at the time of a node as at its
/// own.
fn check<C: ModelConfig<Model: BlockModel>>(
    data: &Dataset,
    loader: &NeighborLoader,
    config: HeteroModelConfig<C>,
) where
    NeighborLoader:
        DataLoader<kiln::nn::HeteroModel<C::Model>, Task = NodeTask<kiln::nn::HeteroModel<C::Model>>>,
{
    let loader = loader.clone().batch_size(16).messages(AT_ITEM_TIME).ages();
    let config = loader.encode_times(TimeEncoderConfig::learned(4), config).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut outputs = Vec::new();
    for workers in [0, 2] {
        let loader = loader.clone().workers(workers);
        let fit = out(folder.path(), workers.to_string(), 2);
        let trained = Trainer::new(config.clone(), AdamConfig::new(0.01)).fit(&loader, fit).unwrap();
        outputs.push(format!("{:?}", trained.predict(&loader, Phase::Test).unwrap().predictions()));
    }
    assert_eq!(outputs[0], outputs[1]);
    let weights = |run: &str| std::fs::read(folder.path().join(run).join("best.safetensors")).unwrap();
    assert!(weights("0") == weights("2"), "workers should not change the weights");
    let saved = SavedModel::open(folder.path().join("0")).unwrap();
    let predictor = saved.on_nodes(data).unwrap();
    let node_type = data.targets.as_ref().unwrap().node_type;
    let first = data.graph.types().range(node_type).start;
    let test: Vec<NodeId> = data.split().test.iter().map(|node| NodeId(node.0 - first)).collect();
    let classes = predictor.predict(&test, &PredictMode::default()).unwrap().classes();
    let loader = loader.workers(0);
    let fit = out(folder.path(), "again".to_owned(), 2);
    let trained = Trainer::new(config, AdamConfig::new(0.01)).fit(&loader, fit).unwrap();
    let of_test = trained.predict(&loader, Phase::Test).unwrap();
    let expected: Vec<_> = of_test.predictions().iter().map(|of_item| of_item.predicted).collect();
    assert_eq!(classes, expected);
    let times = data.times.node_times(node_type).unwrap();
    let time = times[test[0].index()];
    let at = saved.on_nodes(GraphSource::from(data).at(&time.to_string()).unwrap()).unwrap();
    let scores = |predictor: &kiln::train::NodePredictor| {
        predictor.predict(&test[..1], &PredictMode::default()).unwrap().confidences()
    };
    assert_eq!(scores(&at), scores(&predictor));
}

/// Users without features buy items. Both have times, and so have purchases, but not their reverses.
fn shop() -> Dataset {
    let n = 60_usize;
    let users = draws(31, 600, n as u32);
    let items = draws(32, 600, n as u32);
    let times: Vec<i64> = draws(33, 600, 100).into_iter().map(i64::from).collect();
    let amounts: Vec<f32> = draws(34, 600, 100).into_iter().map(|amount| amount as f32 / 50.0).collect();
    let columns = EdgeColumns::default()
        .with(EdgeColumns::TIMES, EdgeColumn::new(times, 1).unwrap())
        .and_then(|columns| columns.with(EdgeColumns::FEATURES, EdgeColumn::new(amounts, 1)?))
        .unwrap();
    let node_times = |stream: u32| draws(stream, n, 100).into_iter().map(i64::from).collect::<Vec<i64>>();
    Dataset::builder_with_types(NodeTypes::new([("user", n), ("item", n)]).unwrap())
        .relation(RelationEdges {
            columns: Some(&columns),
            ..RelationEdges::new("buys", "user", "item", &users, &items)
        })
        .relation(RelationEdges::new("bought by", "item", "user", &items, &users))
        .nodes("item")
        .features(draws(35, 2 * n, 100).into_iter().map(|value| value as f32 / 50.0).collect::<Vec<f32>>(), 2)
        .labels(draws(36, n, 2).into_iter().map(|class| class as i32).collect::<Vec<i32>>(), 2)
        .split(vec![0], vec![1], vec![2])
        .build()
        .unwrap()
        .with_node_times(0, node_times(37))
        .and_then(|data| data.with_node_times(1, node_times(38)))
        .and_then(|data| data.with_time_split(TimeSplit::new(None, 50, 75)?))
        .unwrap()
}

#[test]
fn models_that_read_ages_are_reproducible_and_predict() {
    let random = Random::new(true, true);
    let data = random.timed(TimeSplit::new(None, 50, 75).unwrap(), false);
    assert_eq!(data.graph.n_nodes(), N_NODES);
    let loader = NeighborLoader::new(&data, [4, 4]);
    let widths = data.dims();
    let gine = GineConfig::new(8, 2, EdgeInput::Features(1)).layers(2).hidden(8).dropout(0.0);
    check(&data, &loader.clone().edge_features(), HeteroModelConfig::new(widths.clone(), gine));
    // Self loops have no ages.
    let gat = GatConfig::new(8, 2)
        .attention(kiln::nn::AttentionKind::GatV2)
        .layers(2)
        .heads(2)
        .hidden(8)
        .dropout(0.0);
    let with_loops = loader.clone().add_self_loops().unwrap();
    check(&data, &with_loops, HeteroModelConfig::new(widths.clone(), gat));
    let sage = SageConfig::new(8, 2).layers(2).hidden(8).dropout(0.0);
    check(&data, &loader.rule(Rule::MostRecent), HeteroModelConfig::new(widths, sage));
    let shop = shop();
    let rgcn = RgcnConfig::new(8, 2, 2).layers(2).hidden(8).dropout(0.0);
    let loader = NeighborLoader::new(&shop, [4, 4]);
    check(&shop, &loader, HeteroModelConfig::new(shop.dims(), rgcn.clone()));
    let rgcn = rgcn.edge_features([Some(1), None]);
    check(&shop, &loader.edge_features_by_relation(), HeteroModelConfig::new(shop.dims(), rgcn));
}

#[test]
fn ages_that_are_not_read_or_not_there_are_errors() {
    let random = Random::new(true, true);
    let data = random.timed(TimeSplit::new(None, 50, 75).unwrap(), false);
    let folder = tempfile::tempdir().unwrap();
    let loader = NeighborLoader::new(&data, [4]).messages(AT_ITEM_TIME);
    let config = HeteroModelConfig::new([Some(2)], SageConfig::new(8, 2).layers(1));
    let encoded = loader.encode_times(TimeEncoderConfig::fixed(4), config.clone()).unwrap();
    let fit = |loader: &NeighborLoader| {
        let fit = out(folder.path(), "run".to_owned(), 1);
        Trainer::new(encoded.clone(), AdamConfig::new(0.01)).fit(loader, fit)
    };
    let item_times = |error: kiln::Error| match error {
        kiln::Error::ItemTimes(error) => error,
        error => panic!("{error}"),
    };
    assert_eq!(item_times(fit(&loader).unwrap_err()), ItemTimesError::NoAges);
    let without_times = loader.clone().ages().messages(Messages::Known);
    assert_eq!(item_times(fit(&without_times).unwrap_err()), ItemTimesError::AgesWithoutItemTimes);
    let sage = Trainer::new(SageConfig::new(2, 2).layers(1), AdamConfig::new(0.01))
        .fit(&loader.clone().ages(), out(folder.path(), "sage".to_owned(), 1));
    assert_eq!(item_times(sage.unwrap_err()), ItemTimesError::AgesNotRead);
    // Each part that is evaluated has one time, with which exact evaluation is possible otherwise.
    let [train, val, test] =
        [0..100, 100..101, 101..102].map(|nodes| nodes.map(NodeId).collect::<Vec<_>>().into());
    let once = random.build(None, &Split { train, val, test }, false);
    let once = once.with_node_times(0, random.node_times.clone()).unwrap();
    let of_once = NeighborLoader::new(&once, [4]).messages(AT_ITEM_TIME).ages();
    let exact = of_once.evaluation(EvalMode::Exact { memory_bytes: None });
    let error = fit(&exact).unwrap_err().to_string();
    assert!(error.contains("exact evaluation of a model that reads ages is not possible"), "{error}");
    // A model of ages of nodes only suits no data whose nodes have none.
    let without = kiln::data::synthetic::ring(20).unwrap();
    let loader_without = NeighborLoader::new(&without, [4]).ages();
    let error = loader_without.encode_times(TimeEncoderConfig::fixed(4), config).unwrap_err();
    assert_eq!(item_times(error), ItemTimesError::NothingToEncode);
    let mut other = encoded.clone();
    other.ages.as_mut().unwrap().parts.node_types = vec![false];
    let error = Trainer::new(other, AdamConfig::new(0.01))
        .fit(&loader.clone().ages(), out(folder.path(), "other".to_owned(), 1));
    assert!(matches!(item_times(error.unwrap_err()), ItemTimesError::OtherAges { .. }));

    let loader = loader.ages();
    let transformer =
        HeteroModelConfig::new([Some(2)], TransformerConfig::new(8, 2).layers(1).heads(1).hidden(8));
    let transformer = loader.encode_times(TimeEncoderConfig::fixed(4), transformer).unwrap();
    let run = out(folder.path(), "saved".to_owned(), 1);
    Trainer::new(transformer, AdamConfig::new(0.01)).fit(&loader, run).unwrap();
    let saved = SavedModel::open(folder.path().join("saved")).unwrap();
    let ages = saved.info().inputs.sampling.as_ref().unwrap().ages.clone().unwrap();
    assert_eq!((ages.unit, ages.relations), (99, vec![true]), "times are from 0 to 99");
    let no_edge_times = Random::new(false, true).timed(TimeSplit::new(None, 50, 75).unwrap(), false);
    let error = saved.on_nodes(&no_edge_times).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("the age of the edges of the relation `edge`"), "{error}");
}
