//! Rules and windows of relations at the times of items.

use kiln::data::TimeSplit;
use kiln::graph::{EdgeColumn, EdgeColumns, NodeTypes, RelationEdges};
use kiln::nn::{HeteroModel, Rsage, Sage};
use kiln::prelude::*;
use kiln::sample::{TimeLimits, TimesError};
use kiln::{Error, ItemTimesError, Messages};

use super::{Random, draws, out};

const AT_ITEM_TIME: Messages = Messages::AtItemTime(TimeLimits { includes_equal: false, window: None });

fn ids(nodes: std::ops::Range<u32>) -> Vec<u32> {
    nodes.collect()
}

/// Items with times, and tags without: `bought` has times, and `has` none.
fn data(has_edge_times: bool) -> Dataset {
    let (n_items, n_tags, n_edges) = (100_usize, 20, 1_500);
    let [srcs, dsts] =
        [(20, n_tags), (21, n_items as u32)].map(|(stream, limit)| draws(stream, n_edges, limit));
    let times = draws(22, n_edges, 100).into_iter().map(i64::from).collect::<Vec<i64>>();
    let columns =
        EdgeColumns::default().with(EdgeColumns::TIMES, EdgeColumn::new(times, 1).unwrap()).unwrap();
    let bought = RelationEdges::new("bought", "tag", "item", &srcs, &dsts);
    let features =
        draws(23, n_items, 1_000).into_iter().map(|value| value as f32 / 1e3).collect::<Vec<f32>>();
    Dataset::builder_with_types(NodeTypes::new([("item", n_items), ("tag", n_tags as usize)]).unwrap())
        .relation(RelationEdges { columns: has_edge_times.then_some(&columns), ..bought })
        .relation(RelationEdges::new("has", "tag", "item", &srcs, &dsts))
        .nodes("item")
        .features(features, 1)
        .labels((0..n_items as i32).map(|item| item % 2).collect::<Vec<i32>>(), 2)
        .split(ids(0..60), ids(60..80), ids(80..100))
        .nodes("tag")
        .features((0..n_tags).map(|tag| tag as f32 / 20.0).collect::<Vec<f32>>(), 1)
        .build()
        .unwrap()
        .with_node_times(0, (0..n_items as i64).collect::<Vec<i64>>())
        .unwrap()
}

fn loader(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, [3]).batch_size(16).messages(AT_ITEM_TIME)
}

#[test]
fn rules_and_windows_of_relations_are_recorded_resumed_and_predicted() {
    let data = data(true);
    let folder = tempfile::tempdir().unwrap();
    let rsage = RsageConfig::new(2, 2).metagraph(&data.graph.metagraph()).layers(1).hidden(8).dropout(0.0);
    let model = HeteroModelConfig::new(data.dims(), rsage);
    let trainer = || Trainer::new(model.clone(), AdamConfig::new(0.01));
    let of = |loader: NeighborLoader, name: &str| {
        let trained = trainer().fit(&loader, out(folder.path(), name.to_owned(), 2)).unwrap();
        let test = format!("{:?}", trained.predict(&loader, Phase::Test).unwrap().counts().unwrap());
        let saved = SavedModel::open(folder.path().join(name)).unwrap();
        let predictor = saved.on_nodes(&data).unwrap();
        let scores = predictor.predict(&data.split().test, &PredictMode::AsEvaluated).unwrap();
        let said = trained.predict(&loader, Phase::Test).unwrap();
        let said: Vec<_> = said.predictions().iter().map(|said| said.predicted).collect();
        assert_eq!(said, scores.classes(), "{name}");
        test
    };
    let recent = || loader(&data).relation_rule("bought", Rule::MostRecent).unwrap();
    let window = || loader(&data).relation_window("bought", Some(20)).unwrap();
    let results = [
        of(loader(&data), "uniform"),
        of(recent(), "recent"),
        of(window(), "window"),
        of(loader(&data).rule(Rule::MostRecent).relation_window("bought", Some(4)).unwrap(), "both"),
    ];
    for (run, field) in [("recent", "\"relation_rules\""), ("window", "\"relation_windows\"")] {
        let model = std::fs::read_to_string(folder.path().join(run).join("model.json")).unwrap();
        assert!(model.contains(field), "{model}");
    }
    for (position, result) in results.iter().enumerate() {
        assert!(!results[..position].contains(result), "{position} of {results:?}");
    }
    // The only relation with times has the most recent edges either way.
    assert_eq!(of(loader(&data).rule(Rule::MostRecent), "all-recent"), results[1]);
    let resume = |loader: NeighborLoader| {
        let fit = FitConfig::epochs(3).resume(folder.path().join("recent")).quiet();
        trainer().fit(&loader, fit).map(drop)
    };
    let error = resume(loader(&data)).unwrap_err().to_string();
    assert!(error.contains("uniform; bought: most-recent"), "{error}");
    let error = resume(recent().relation_window("bought", Some(20)).unwrap()).unwrap_err().to_string();
    assert!(error.contains("bought: Some(20)"), "{error}");
    resume(recent()).unwrap();
}

#[test]
fn equal_settings_of_relations_are_the_settings_of_all() {
    let data = data(true);
    let settings = |loader: NeighborLoader| DataLoader::<HeteroModel<Rsage>>::settings(&loader, 1);
    let same = loader(&data).relation_rule("bought", Rule::Uniform).unwrap();
    assert_eq!(settings(same.relation_window("bought", None).unwrap()), settings(loader(&data)));
    // The relation of a graph of one type is `edge`.
    let plain = Random::new(true, true).timed(TimeSplit::new(None, 50, 75).unwrap(), false);
    let settings = |loader: NeighborLoader| DataLoader::<Sage>::settings(&loader, 1);
    let named = loader(&plain).relation_rule("edge", Rule::MostRecent).unwrap();
    let named = named.relation_window("edge", Some(5)).unwrap();
    let limits = TimeLimits { includes_equal: false, window: Some(5) };
    let of_all = loader(&plain).rule(Rule::MostRecent).messages(Messages::AtItemTime(limits));
    assert_eq!(settings(named), settings(of_all));
}

#[test]
fn rules_and_windows_that_a_relation_cannot_have_are_errors() {
    let set = data(true);
    let error = loader(&set).relation_rule("sold", Rule::MostRecent).unwrap_err().to_string();
    assert!(error.contains("no relation `sold`"), "{error}");
    let error = loader(&set).relation_window("sold", None).unwrap_err().to_string();
    assert!(error.contains("no relation `sold`"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let fit = |data: &Dataset, loader: NeighborLoader| {
        let rsage = RsageConfig::new(2, 2).metagraph(&data.graph.metagraph()).layers(1).hidden(8);
        let model = HeteroModelConfig::new(data.dims(), rsage);
        let fit = out(folder.path(), "run".to_owned(), 1);
        Trainer::new(model, AdamConfig::new(0.01)).fit(&loader, fit).map(drop).unwrap_err()
    };
    let untimed = |loader: NeighborLoader| match fit(&set, loader) {
        Error::Sample(kiln::sample::Error::Times(TimesError::RelationWithoutTimes { relation, .. })) => {
            relation
        }
        error => panic!("{error}"),
    };
    assert_eq!(untimed(loader(&set).relation_rule("has", Rule::MostRecent).unwrap()), "has");
    assert_eq!(untimed(loader(&set).relation_window("has", Some(3)).unwrap()), "has");
    let known = |loader: NeighborLoader| fit(&set, loader.messages(Messages::Known));
    let error = known(loader(&set).relation_rule("bought", Rule::MostRecent).unwrap());
    assert!(matches!(error, Error::ItemTimes(ItemTimesError::RuleNeedsTimes { .. })), "{error}");
    let error = known(loader(&set).relation_window("bought", Some(3)).unwrap());
    assert!(matches!(error, Error::ItemTimes(ItemTimesError::LimitsWithoutTimes)), "{error}");
    let without = data(false);
    let error = fit(&without, loader(&without));
    assert!(matches!(error, Error::ItemTimes(ItemTimesError::NoEdgeTimes)), "{error}");
}
