//! Items that are sampled at their own times.

use kiln::data::{DatasetTimes, TimeSplit};
use kiln::graph::{ColumnValues, EdgeColumn, EdgeColumns};
use kiln::kernels::GraphMode;
use kiln::nn::AttentionKind;
use kiln::prelude::*;
use kiln::sample::TimeLimits;
use kiln::train::LayerWiseConfig;
use kiln::{CachedNodes, GraphSource, Messages};

use super::{N_NODES, Random, auc_of_items, items_with, out};

const AT_ITEM_TIME: Messages = Messages::AtItemTime(TimeLimits { includes_equal: false, window: None });

/// The class of an item is told by an edge just before it, or just after it.
#[test]
fn an_item_knows_what_came_just_before_it_and_nothing_later() {
    let future = items_with(|_, time| (time, time + 1), false, true);
    let auc = auc_of_items(&future, AT_ITEM_TIME, EvalMode::Sampled);
    assert!((auc - 0.5).abs() < 0.02, "{auc}");
    let recent = items_with(|_, time| (time - 1, time + 1), true, true);
    let auc = auc_of_items(&recent, AT_ITEM_TIME, EvalMode::Sampled);
    assert!((auc - 0.8).abs() < 0.02, "{auc}");
    // The cut of a phase is before its items.
    let auc = auc_of_items(&recent, Messages::Known, EvalMode::Sampled);
    assert!((auc - 0.5).abs() < 0.02, "{auc}");
    // An edge at the time of the item is not before it.
    let equal = items_with(|_, time| (time, time + 1), true, false);
    let auc = auc_of_items(&equal, AT_ITEM_TIME, EvalMode::Sampled);
    assert!((auc - 0.5).abs() < 0.02, "{auc}");
    let until = Messages::AtItemTime(TimeLimits { includes_equal: true, window: Some(1) });
    let auc = auc_of_items(&equal, until, EvalMode::Sampled);
    assert!((auc - 0.8).abs() < 0.02, "{auc}");
}

fn loader(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, [4, 4]).batch_size(16).messages(AT_ITEM_TIME)
}

/// Checks a model of nodes with times: any number of workers gives the same weights, and the saved model repeats the test, and
/// predicts at another time.
fn check<C: ModelConfig + Clone>(data: &Dataset, node_times: &[i64], model: &C, rule: Rule)
where
    NeighborLoader: DataLoader<C::Model>,
{
    let folder = tempfile::tempdir().unwrap();
    let loader = loader(data).rule(rule);
    let mut outputs = Vec::new();
    for workers in [0, 2] {
        let loader = loader.clone().workers(workers);
        let fit = out(folder.path(), workers.to_string(), 2);
        let trained = Trainer::new(model.clone(), AdamConfig::new(0.01)).fit(&loader, fit).unwrap();
        outputs.push(format!("{:?}", trained.predict(&loader, Phase::Test).unwrap().predictions()));
    }
    assert_eq!(outputs[0], outputs[1]);
    let saved = SavedModel::open(folder.path().join("0")).unwrap();
    let nodes: Vec<NodeId> = (0..N_NODES as u32).map(NodeId).collect();
    let predictor = saved.on_nodes(data).unwrap();
    let own = predictor.predict(&nodes, &PredictMode::default()).unwrap();
    // At the time of a node, its prediction is that at its own time.
    let time = node_times[data.split().test[0].index()];
    let at = GraphSource::from(data).at(&time.to_string()).unwrap();
    let at = saved.on_nodes(at).unwrap().predict(&nodes, &PredictMode::default()).unwrap();
    let test = predictor.predict(&data.split().test, &PredictMode::default()).unwrap();
    let rows = |outputs: &kiln::train::OutputRows| -> Vec<String> {
        outputs.confidences().iter().map(|confidence| format!("{confidence:?}")).collect()
    };
    let own = rows(&own);
    let at = rows(&at);
    let of_test: Vec<String> = data.split().test.iter().map(|node| own[node.index()].clone()).collect();
    assert_eq!(rows(&test), of_test, "a prediction should not depend on the request");
    let mut n_equal = 0;
    for (node, of_node) in node_times.iter().enumerate() {
        if *of_node == time {
            assert_eq!(own[node], at[node], "node {node}");
            n_equal += 1;
        }
    }
    assert!(0 < n_equal && own != at);
    let exact = PredictMode::Exact(LayerWiseConfig::within(None));
    let error = predictor.predict(&nodes, &exact).unwrap_err();
    assert!(error.to_string().contains("at the time of each item"), "{error}");
}

#[test]
fn models_at_item_times_are_reproducible_and_predict() {
    let random = Random::new(true, true);
    let split = TimeSplit::new(None, 50, 75).unwrap();
    let plain = random.timed(split, false);
    let sage = SageConfig::new(2, 2).layers(2).hidden(8).dropout(0.0);
    check(&plain, &random.node_times, &sage, Rule::Uniform);
    check(&plain, &random.node_times, &sage, Rule::MostRecent);
    let typed = random.timed(split, true);
    let rsage = RsageConfig::new(2, 2).metagraph(&typed.graph.metagraph()).layers(2).hidden(8).dropout(0.0);
    let rsage = HeteroModelConfig::new(typed.dims(), rsage);
    check(&typed, &random.node_times, &rsage, Rule::MostRecent);
}

/// A device samples the trees of the host, from a copy of the graph or of the lists, with a cache of hot rows.
#[test]
fn the_place_of_batches_does_not_change_models_at_item_times() {
    let random = Random::new(true, true);
    let split = TimeSplit::new(None, 50, 75).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut n_runs = 0;
    let mut outputs = |data: &Dataset, mode: GraphMode, cache: bool, rule: Rule| {
        let loader = loader(data).rule(rule).graph_mode(mode);
        let loader = if cache { loader.feature_cache_of(64, CachedNodes::ByPresampling) } else { loader };
        n_runs += 1;
        let fit = out(folder.path(), n_runs.to_string(), 2);
        let sage = SageConfig::new(2, 2).layers(2).hidden(8).dropout(0.0);
        if data.is_heterogeneous() {
            let rsage = RsageConfig::new(2, 2).metagraph(&data.graph.metagraph()).layers(2).hidden(8);
            let rsage = HeteroModelConfig::new(data.dims(), rsage.dropout(0.0));
            let trained = Trainer::new(rsage, AdamConfig::new(0.01)).fit(&loader, fit).unwrap();
            return format!("{:?}", trained.predict(&loader, Phase::Test).unwrap().predictions());
        }
        let trained = Trainer::new(sage, AdamConfig::new(0.01)).fit(&loader, fit).unwrap();
        format!("{:?}", trained.predict(&loader, Phase::Test).unwrap().predictions())
    };
    for is_typed in [false, true] {
        let data = random.timed(split, is_typed);
        let expected = outputs(&data, GraphMode::Host, false, Rule::MostRecent);
        for mode in [GraphMode::Device, GraphMode::ZeroCopy] {
            assert_eq!(outputs(&data, mode, false, Rule::MostRecent), expected, "{mode:?}");
            if !is_typed {
                assert_eq!(outputs(&data, mode, true, Rule::MostRecent), expected, "{mode:?} with a cache");
            }
        }
        assert!(outputs(&data, GraphMode::Device, false, Rule::Uniform) != expected);
    }
}

/// Added self loops are always known, and keep the times of the other edges.
#[test]
fn self_loops_are_known_at_every_time() {
    let random = Random::new(true, true);
    let data = random.timed(TimeSplit::new(None, 50, 75).unwrap(), false);
    let folder = tempfile::tempdir().unwrap();
    let gat = GatConfig::new(2, 2).layers(1).heads(1).dropout(0.0);
    let fit = |data: &Dataset, name: &str| {
        let loader =
            NeighborLoader::new(data, [Fanout::All]).messages(AT_ITEM_TIME).add_self_loops().unwrap();
        let fit = out(folder.path(), name.to_owned(), 1);
        let trained = Trainer::new(gat.clone(), AdamConfig::new(0.01)).fit(&loader, fit).unwrap();
        let test = trained.predict(&loader, Phase::Test).unwrap();
        let saved = SavedModel::open(folder.path().join(name)).unwrap();
        let nodes = &data.split().test;
        let again = saved.on_nodes(data).unwrap().predict(nodes, &PredictMode::default()).unwrap();
        assert_eq!(test.predictions().len(), again.confidences().len());
        format!("{:?}", again.confidences())
    };
    let with_times = |name: &str, change: &dyn Fn(i64) -> i64| {
        let column = data.graph.relation(0).graph.columns().get(EdgeColumns::TIMES).unwrap();
        let ColumnValues::I64(times) = column.values() else { panic!("times should be integers") };
        let times: Vec<i64> = times.iter().map(|time| change(*time)).collect();
        let column = EdgeColumn::new(times, 1).unwrap();
        fit(&data.clone().with_edge_column(0, EdgeColumns::TIMES, column).unwrap(), name)
    };
    let expected = with_times("same", &|time| time);
    // When an edge comes that no item knows changes nothing.
    let last = *random.node_times.iter().max().unwrap();
    let later = with_times("later", &|time| if last <= time { time + 1_000 } else { time });
    assert_eq!(later, expected);
    let loops_only = with_times("loops", &|_| 1_000);
    assert!(loops_only != expected && !loops_only.contains("NaN"), "{loops_only}");
}

#[test]
fn what_is_not_possible_with_item_times_is_an_error() {
    let random = Random::new(true, true);
    let split = TimeSplit::new(None, 50, 75).unwrap();
    let data = random.timed(split, false);
    let folder = tempfile::tempdir().unwrap();
    let fit = |loader: NeighborLoader| {
        let sage = SageConfig::new(2, 2).layers(2).hidden(8);
        let fit =
            Trainer::new(sage, AdamConfig::new(0.01)).fit(&loader, out(folder.path(), "run".to_owned(), 1));
        fit.expect_err("the training should not start").to_string()
    };
    let error = fit(loader(&data).evaluation(EvalMode::Exact { memory_bytes: None }));
    assert!(error.contains("exact evaluation of items of several times is not possible"), "{error}");
    let error = fit(NeighborLoader::new(&data, [4, 4]).rule(Rule::MostRecent));
    assert!(error.contains("`most-recent` picks by time"), "{error}");
    let error = fit(loader(&Random::new(true, false).timed(split, false)));
    assert!(error.contains("the nodes of the type `node` have no times"), "{error}");
    let gcn = loader(&data).gcn_norm().unwrap();
    let config = GcnConfig::new(2, 2).layers(2).hidden(8);
    let error =
        Trainer::new(config, AdamConfig::new(0.01)).fit(&gcn, out(folder.path(), "gcn".to_owned(), 1));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("degrees count later edges"), "{error}");
}

/// Nodes without a time know nothing that can be sampled, added loops have no rows of later edges, and a graph at one time has no
/// other times.
#[test]
fn items_without_times_and_features_of_loops_are_errors() {
    let random = Random::new(true, true);
    let data = random.timed(TimeSplit::new(None, 50, 75).unwrap(), false);
    let folder = tempfile::tempdir().unwrap();
    let error_of = |loader: NeighborLoader, model: GatConfig| {
        let fit = out(folder.path(), "run".to_owned(), 1);
        let trained = Trainer::new(model, AdamConfig::new(0.01)).fit(&loader, fit);
        trained.expect_err("the training should not start").to_string()
    };
    let gat = GatConfig::new(2, 2).attention(AttentionKind::GatV2).layers(1).heads(1);
    let with_loops =
        |data: &Dataset| NeighborLoader::new(data, [4]).messages(AT_ITEM_TIME).add_self_loops().unwrap();
    let error = error_of(with_loops(&data).edge_features(), gat.clone().edge_features(1));
    assert!(error.contains("a self loop with edge features is not possible"), "{error}");
    let error = error_of(with_loops(&data).rule(Rule::MostRecent), gat.clone());
    assert!(error.contains("needs a self loop on each node"), "{error}");
    let source = GraphSource::from(&data).at("60").unwrap();
    let at = NeighborLoader::new(&source, [4]).messages(AT_ITEM_TIME).add_self_loops().unwrap();
    let error = error_of(at, gat.clone());
    assert!(error.contains("its edges have no times"), "{error}");

    let mut times = random.node_times.clone();
    let without = data.split().train[3];
    times[without.index()] = DatasetTimes::NEVER;
    let some = data.clone().with_node_times(0, times).unwrap();
    let error = error_of(with_loops(&some), gat.clone());
    assert!(error.contains(&format!("node {} of the split has no time", without.0)), "{error}");
    let fit = out(folder.path(), "gat".to_owned(), 1);
    Trainer::new(gat, AdamConfig::new(0.01)).fit(&with_loops(&data), fit).unwrap();
    let model = SavedModel::open(folder.path().join("gat")).unwrap();
    let error = model.on_nodes(&some).unwrap().predict(&[without], &PredictMode::default()).unwrap_err();
    assert!(error.to_string().contains("these items have no times"), "{error}");
    // Stored loops must not have the rows of later edges either.
    let only_nodes = Random::new(false, true).timed(TimeSplit::new(None, 50, 75).unwrap(), false);
    let error = only_nodes.add_self_loops().unwrap_err().to_string();
    assert!(error.contains("features"), "{error}");
}

/// The reverses that the preparation of a model adds have the times of their edges.
#[test]
fn a_model_of_symmetrized_data_predicts_on_the_data_as_it_was() {
    let random = Random::new(true, true);
    let split = TimeSplit::new(None, 50, 75).unwrap();
    let data = random.timed(split, false);
    let both = data.clone().symmetrize().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let sage = SageConfig::new(2, 2).layers(2).hidden(8).dropout(0.0);
    let fit = out(folder.path(), "run".to_owned(), 1);
    Trainer::new(sage, AdamConfig::new(0.01)).fit(&loader(&both), fit).unwrap();
    let model = SavedModel::open(folder.path().join("run")).unwrap();
    let scores = |data: &Dataset| {
        let nodes = &data.split().test;
        format!("{:?}", model.on_nodes(data).unwrap().predict(nodes, &PredictMode::default()).unwrap())
    };
    assert_eq!(scores(&both), scores(&data));
}
