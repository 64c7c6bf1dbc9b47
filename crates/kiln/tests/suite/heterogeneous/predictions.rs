//! Predictions of saved models of heterogeneous graphs: on the data of the run they repeat the run, and on the same rows in another
//! order they are the same for each name.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use kiln::PredictionOutput;
use kiln::data::synthetic;
use kiln::feature::Targets;
use kiln::graph::NodeTypes;
use kiln::prelude::*;
use kiln::store::progress::{ProgressReporter, ProgressScope, ProgressStage};
use kiln::train::{
    Error as TrainError, LayerWiseConfig, ModelError, ModelNodesError, NodeKeys, NodePredictor, OutputRows,
    PredictionData, WantedRows,
};
use tempfile::TempDir;

use crate::relation::relation;

pub(crate) const N_USERS: u32 = 120;
pub(crate) const N_ITEMS: u32 = 400;

/// Users who buy items of one of two classes, with names. User `u` has the id `u * step % N_USERS`, and item `i` the id
/// `i * step % N_ITEMS`, for a `step` without common divisors; the last `n_new` users have names that `step` 1 does not have.
pub(crate) fn named_shop(step: u32, n_new: u32) -> Dataset {
    let user_id = |user: u32| user * step % N_USERS;
    let item_id = |item: u32| item * step % N_ITEMS;
    let (mut users, mut items) = (Vec::new(), Vec::new());
    for item in 0..N_ITEMS {
        for purchase in 0..6 {
            let buyer = (item * 31 + purchase * 17) % (N_USERS / 2);
            users.push(user_id(2 * buyer + item % 2));
            items.push(item_id(item));
        }
    }
    let mut user_names = vec![String::new(); N_USERS as usize];
    for user in 0..N_USERS {
        let suffix = if N_USERS - n_new <= user { " (new)" } else { "" };
        user_names[user_id(user) as usize] = format!("user {user}{suffix}");
    }
    let mut item_names = vec![String::new(); N_ITEMS as usize];
    let (mut features, mut labels) = (vec![0.0; 3 * N_ITEMS as usize], vec![0; N_ITEMS as usize]);
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    for item in 0..N_ITEMS {
        let id = item_id(item) as usize;
        item_names[id] = format!("item {item}");
        labels[id] = (item % 2) as i32;
        for column in 0..3 {
            features[3 * id + column] = ((3 * item as usize + column) * 7 % 11) as f32 / 11.0;
        }
        parts[(item % 5).saturating_sub(2) as usize].push(id as u32);
    }
    let types = NodeTypes::new([("user", N_USERS as usize), ("item", N_ITEMS as usize)]).unwrap();
    Dataset::builder_with_types(types)
        .name("shop")
        .relation(relation("buys", ["user", "item"], &users, &items))
        .relation(relation("bought by", ["item", "user"], &items, &users))
        .nodes("item")
        .features(features, 3)
        .nodes("user")
        .node_names(user_names.iter().map(String::as_str))
        .nodes("item")
        .node_names(item_names.iter().map(String::as_str))
        .nodes("item")
        .labels(labels, 2)
        .split(parts[0].to_vec(), parts[1].to_vec(), parts[2].to_vec())
        .build()
        .unwrap()
}

fn loader(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, [4, 4]).batch_size(32).workers(0)
}

/// Trains for two epochs and writes the report. Returns the folder of the run.
fn trained<C: ModelConfig>(data: &Dataset, model: C, n_ranks: usize) -> (TempDir, PathBuf)
where
    C::Model: Sync,
    NeighborLoader: DataLoader<C::Model>,
{
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    launch(RankConfig::threads(n_ranks), |rank| {
        let mut trainer = Trainer::new(model.clone(), AdamConfig::new(1e-2)).seed(7).rank(&rank);
        let loader = loader(data);
        let best = trainer.fit(&loader, FitConfig::epochs(2).out(&out).quiet())?;
        best.write_report(&loader)?;
        Ok(())
    })
    .unwrap();
    (folder, out)
}

fn rgcn(data: &Dataset) -> HeteroModelConfig<RgcnConfig> {
    HeteroModelConfig::new(data.dims(), RgcnConfig::new(8, 2, 2).layers(2).hidden(16).dropout(0.3))
}

fn rsage(data: &Dataset) -> HeteroModelConfig<RsageConfig> {
    let model = RsageConfig::new(8, 2).metagraph(&data.graph.metagraph()).layers(2).hidden(16);
    HeteroModelConfig::new(data.dims(), model)
}

fn predictor(run: &std::path::Path, data: &Dataset) -> NodePredictor {
    SavedModel::open(run).unwrap().on_nodes(data).unwrap()
}

/// Returns the test items, numbered within their type.
fn test_items(data: &Dataset) -> Vec<NodeId> {
    let split = &data.targets.as_ref().unwrap().split;
    split.test.iter().map(|node| NodeId(node.0 - N_USERS)).collect()
}

fn check_repeats<C: ModelConfig>(data: &Dataset, model: C, n_ranks: usize)
where
    C::Model: Sync,
    NeighborLoader: DataLoader<C::Model>,
{
    let (_folder, run) = trained(data, model, n_ranks);
    let items = test_items(data);
    let scores = predictor(&run, data).predict(&items, &PredictMode::AsEvaluated).unwrap();
    let Targets::Classes(labels) = &data.targets.as_ref().unwrap().values else { panic!("expected classes") };
    let classes = scores.classes().into_iter().map(Option::unwrap);
    let mut rows: Vec<(NodeId, u32)> = items.iter().copied().zip(classes).collect();
    rows.sort_unstable();
    let line = |(item, class): (NodeId, u32)| format!("{},{},{class}\n", item.0, labels.get(item).unwrap());
    let csv = rows.into_iter().map(line).collect::<String>();
    let of_run = fs::read_to_string(run.join("test_predictions.csv")).unwrap();
    assert_eq!(format!("item,label,predicted\n{csv}"), of_run);
    // A constant prediction would also be repeated.
    assert!(scores.classes().iter().any(|class| *class != scores.classes()[0]));
}

#[test]
fn predictions_repeat_those_of_the_run_on_1_and_3_ranks() {
    let data = named_shop(1, 0);
    let hgt = HgtConfig::new(8, 2).metagraph(&data.graph.metagraph()).layers(2).hidden(16).heads(2);
    for n_ranks in [1, 3] {
        check_repeats(&data, rgcn(&data), n_ranks);
        check_repeats(&data, rsage(&data), n_ranks);
    }
    check_repeats(&data, HeteroModelConfig::new(data.dims(), hgt), 1);
    check_repeats(&data, HeteroModelConfig::new(data.dims(), SageConfig::new(8, 2).layers(2).hidden(16)), 1);
}

/// Returns the scores of all items with all neighbours, in the order of the names.
fn by_name(run: &std::path::Path, data: &Dataset) -> Vec<Vec<f32>> {
    let mode = PredictMode::Sampled { fanouts: vec![Fanout::All; 2], seed: 0 };
    let items: Vec<NodeId> = (0..N_ITEMS).map(NodeId).collect();
    let scores = predictor(run, data).predict(&items, &mode).unwrap();
    let name = |item: usize| data.names[1].get(NodeId(item as u32)).unwrap();
    let mut rows: Vec<_> = scores.rows().enumerate().map(|(item, row)| (name(item), row.to_vec())).collect();
    rows.sort_by_key(|(name, _)| *name);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn most_different(one: &[Vec<f32>], other: &[Vec<f32>]) -> f32 {
    let pairs = one.iter().flatten().zip(other.iter().flatten());
    pairs.map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
}

#[test]
fn rows_in_another_order_have_the_same_predictions_by_name() {
    let data = named_shop(1, 0);
    let (_folder, run) = trained(&data, rsage(&data), 1);
    let scores = by_name(&run, &data);
    // Sums of neighbours in another order differ by rounding.
    let shuffled = by_name(&run, &named_shop(7, 0));
    assert!(most_different(&scores, &shuffled) < 1e-5, "{}", most_different(&scores, &shuffled));
    // A user with another name has no row of its own, so that the test above would fail without names.
    let renamed = by_name(&run, &named_shop(7, N_USERS));
    assert!(1e-3 < most_different(&scores, &renamed));
    // A constant would also be the same.
    assert_ne!(scores[0], scores[1]);
}

#[test]
fn embeddings_are_the_inputs_of_the_last_layer() {
    let data = named_shop(1, 0);
    let (_folder, run) = trained(&data, rgcn(&data), 1);
    let predictor = predictor(&run, &data);
    let items = [NodeId(0), NodeId(22), NodeId(0)];
    let mode = PredictMode::Sampled { fanouts: Vec::new(), seed: 3 };
    let embeddings = predictor.embed(&items, &mode).unwrap();
    assert_eq!(embeddings.width(), 16);
    let rows: Vec<&[f32]> = embeddings.rows().collect();
    assert_eq!(rows[0], rows[2]);
    assert_ne!(rows[0], rows[1]);
    assert_eq!(predictor.embed(&[], &mode).unwrap(), OutputRows::new(Vec::new(), 16));
    assert_eq!(predictor.embedding_width().unwrap(), 16);
    let (scores, of_both) = predictor.predict_and_embed(&items, &mode).unwrap();
    assert_eq!((scores, of_both), (predictor.predict(&items, &mode).unwrap(), embeddings));
}

#[test]
fn predictions_report_their_progress() {
    let data = named_shop(1, 0);
    let (_folder, run) = trained(&data, rgcn(&data), 1);
    let predictor = predictor(&run, &data);
    let items: Vec<NodeId> = (0..70).map(NodeId).collect();
    let n_nodes = data.graph.n_nodes();
    let stages = Recorder::record(|| predictor.predict(&items, &PredictMode::AsEvaluated).unwrap());
    assert_eq!(stages, ["predicting nodes: 70/70 nodes"]);
    let exact = PredictMode::Exact(LayerWiseConfig::default());
    // Rank 0 reports for all, on the threads of all ranks, too.
    for (mode, n_ranks) in [(&PredictMode::AsEvaluated, 3), (&exact, 1), (&exact, 2)] {
        let stages = Recorder::record(|| {
            launch(RankConfig::threads(n_ranks), |rank| {
                let (wanted, output) = (WantedRows::Outputs, PredictionOutput::RankZero);
                rank.predict(&predictor, &items, mode, wanted, output, |_| Ok(()))
            })
        });
        let mut expected = vec!["predicting nodes: 70/70 nodes".to_owned()];
        if mode == &exact {
            let layers = ["encoding nodes", "exact outputs, layer 1 of 2", "exact outputs, layer 2 of 2"];
            let layers = layers.map(|name| format!("{name}: {n_nodes}/{n_nodes} nodes"));
            expected.splice(0..0, layers);
        }
        assert_eq!(stages, expected, "{mode:?} on {n_ranks} ranks");
    }
}

/// A reporter that records the finished stages.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Recorder {
    fn record<T>(work: impl FnOnce() -> T) -> Vec<String> {
        let recorder = Arc::new(Self::default());
        ProgressScope::new(recorder.clone()).run(work);
        std::mem::take(&mut *recorder.0.lock().unwrap())
    }
}

impl ProgressReporter for Recorder {
    fn started(&self, _: &Arc<ProgressStage>) {}

    fn finished(&self, stage: &Arc<ProgressStage>) {
        let (name, done, unit) = (stage.name(), stage.done(), stage.unit().name());
        self.0.lock().unwrap().push(format!("{name}: {done}/{} {unit}", stage.total().unwrap()));
    }
}

/// A model without names finds rows by id: on the data of its training, also if its nodes have names now, and on no other data
/// with names.
#[test]
fn rows_without_names_are_those_of_the_training_data() {
    let mut nameless = named_shop(1, 0);
    nameless.names[0] = Default::default();
    let (_folder, run) = trained(&nameless, rsage(&nameless), 1);
    let model = SavedModel::open(&run).unwrap();
    assert!(model.finds_rows_by_id());
    let items = test_items(&nameless);
    let predict = |data: &Dataset| {
        model.on_nodes(data)?.predict(&items, &PredictMode::AsEvaluated).map_err(Error::from)
    };
    assert_eq!(predict(&named_shop(1, 0)).unwrap(), predict(&nameless).unwrap());
    let error = predict(&named_shop(7, 0)).unwrap_err().to_string();
    assert!(error.contains("was trained without names of the nodes of type \"user\""), "{error}");
}

/// Users have no names, items have; neither has features. Each type finds the rows of its own table.
#[test]
fn types_with_and_without_names_find_their_own_rows() {
    let mut data = named_shop(1, 0);
    data.features[1] = None;
    data.names[0] = Default::default();
    let (_folder, run) = trained(&data, rsage(&data), 1);
    let items = test_items(&data);
    let classes = |data: &Dataset| {
        let scores = predictor(&run, data).predict(&items, &PredictMode::AsEvaluated).unwrap();
        scores.classes().into_iter().map(Option::unwrap).collect::<Vec<u32>>()
    };
    let of_run = fs::read_to_string(run.join("test_predictions.csv")).unwrap();
    let of_run: std::collections::HashMap<u32, u32> = of_run
        .lines()
        .skip(1)
        .map(|line| line.split(',').map(|field| field.parse().unwrap()).collect::<Vec<u32>>())
        .map(|fields| (fields[0], fields[2]))
        .collect();
    let expected: Vec<u32> = items.iter().map(|item| of_run[&item.0]).collect();
    assert_eq!(classes(&data), expected);
    assert!(expected.iter().any(|class| *class != expected[0]));
    // The hash has no names, so the data with all of them is the training data, too.
    let mut named = named_shop(1, 0);
    named.features[1] = None;
    assert_eq!(classes(&named), expected);
}

#[test]
fn requests_that_do_not_fit_are_errors() {
    let data = named_shop(1, 0);
    let (_folder, run) = trained(&data, rgcn(&data), 1);
    let model = SavedModel::open(&run).unwrap();
    let reason = |data: &Dataset| match model.on_nodes(data).unwrap_err() {
        Error::Train(TrainError::Saved(error)) => error,
        other => panic!("{other}"),
    };
    let mut nameless = data.clone();
    nameless.names[0] = Default::default();
    let error = reason(&nameless);
    assert!(
        matches!(&error, ModelError::Nodes(ModelNodesError::NoNames { node_type }) if node_type == "user"),
        "{error}"
    );
    let error = reason(&super::shop(["client", "item"]));
    assert!(matches!(&error, ModelError::OtherSchema { .. }), "{error}");
    assert!(error.to_string().contains("client") && error.to_string().contains("user buys item"), "{error}");
    let features = || data.features.clone();
    let graph = || data.graph.clone();
    let bare = |features, keys: &[Option<NodeKeys>]| {
        NodePredictor::new(&model, PredictionData::heterogeneous(graph(), features).keys(keys.to_vec()))
    };
    for (features, n_keys) in
        [(features()[..1].to_vec(), 2), ([features(), vec![None]].concat(), 2), (features(), 1)]
    {
        let error = bare(features, &vec![None; n_keys]).unwrap_err().to_string();
        assert!(error.contains("expected 2: one per type of nodes"), "{error}");
    }
    let few = NodeKeys::of_names(1, |_| "user 0");
    let error = bare(features(), &[Some(few), None]).unwrap_err().to_string();
    assert!(error.contains("got 1 keys for an embedding of 120 rows"), "{error}");
    let predictor = model.on_nodes(&data).unwrap();
    let predict = |nodes: &[u32], mode: &PredictMode| {
        let nodes: Vec<NodeId> = nodes.iter().copied().map(NodeId).collect();
        predictor.predict(&nodes, mode)
    };
    let error = predict(&[N_ITEMS], &PredictMode::AsEvaluated).unwrap_err().to_string();
    assert!(error.contains("expected an id below 400"), "{error}");
    let error = predict(&[N_ITEMS], &PredictMode::Exact(Default::default())).unwrap_err().to_string();
    assert!(error.contains("expected an id below 400"), "{error}");
    let three = PredictMode::Sampled { fanouts: vec![Fanout::All; 3], seed: 0 };
    assert!(predict(&[0], &three).unwrap_err().to_string().contains("3 fanouts for a model of 2 layers"));
    assert_eq!(predict(&[], &PredictMode::AsEvaluated).unwrap(), OutputRows::new(Vec::new(), 2));
    assert!(predictor.batches(&[], &PredictMode::AsEvaluated, WantedRows::Both).is_ok());
    // A model of one type of nodes is for other data, and the other way round.
    let homogeneous = synthetic::fake(synthetic::FakeConfig::default()).unwrap();
    assert!(model.on_nodes(&homogeneous).unwrap_err().to_string().contains("reads a heterogeneous graph"));
    let json = fs::read_to_string(run.join("model.json")).unwrap();
    let damaged = json.replace("\"target_type\":\"item\"", "\"target_type\":\"thing\"");
    let damaged = damaged.replace("\"target_type\": \"item\"", "\"target_type\": \"thing\"");
    assert_ne!(json, damaged);
    fs::write(run.join("model.json"), damaged).unwrap();
    let error = SavedModel::open(&run).unwrap_err().to_string();
    assert!(error.contains("names a type that is not in `node_types`"), "{error}");
}
