//! Items that are rows of task tables.

use kiln::data::{DatasetTargets, TaskTable, TimeSplit};
use kiln::graph::NodeTypes;
use kiln::kernels::GraphMode;
use kiln::prelude::*;
use kiln::{LinkLoaderError, Messages};

use super::{Random, out};

/// Returns data with a task table that has the targets, the split and the times of the nodes, by row; each row twice if
/// `is_repeated`.
fn with_table(data: &Dataset, random: &Random, is_repeated: bool) -> Dataset {
    let targets = data.targets.clone().unwrap();
    let nodes = data.target_nodes();
    let n_nodes = nodes.len() as u32;
    let rows = |nodes: &[NodeId]| -> Vec<NodeId> {
        let first = data.target_nodes().start;
        let rows = nodes.iter().map(|node| node.0 - first);
        let rows = rows.flat_map(|row| [row, row + n_nodes].into_iter().take(1 + usize::from(is_repeated)));
        rows.map(NodeId).collect()
    };
    let [train, val, test] = targets.split.parts().map(|(_, nodes)| rows(nodes).into());
    let n_copies = 1 + usize::from(is_repeated);
    let classes = data.labels().as_slice().repeat(n_copies);
    let classes = kiln::feature::Labels::new(classes, data.labels().n_classes());
    let split = Split { train, val, test };
    let table = TaskTable {
        name: "table".to_owned(),
        nodes: nodes.map(NodeId).collect::<Vec<_>>().repeat(n_copies).into(),
        times: random.node_times.repeat(n_copies).into(),
        targets: DatasetTargets::new(targets.node_type, classes.into(), split),
    };
    data.clone().with_task_table(table).unwrap()
}

fn nodes_at_times(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, [4, 4]).batch_size(16).messages(Messages::AT_ITEM_TIME)
}

fn rows(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, [4, 4]).batch_size(16).task_table("table").unwrap()
}

/// Trains on the nodes at their times and on the same rows of a table, and compares the outputs of the test.
fn check<C: ModelConfig + Clone>(data: &Dataset, random: &Random, model: &C)
where
    NeighborLoader: DataLoader<C::Model>,
{
    let folder = tempfile::tempdir().unwrap();
    let fit = |loader: &NeighborLoader, name: &str| {
        let fit = out(folder.path(), name.to_owned(), 2);
        let trained = Trainer::new(model.clone(), AdamConfig::new(0.01)).fit(loader, fit).unwrap();
        trained.write_report(loader).unwrap();
        trained.predict(loader, Phase::Test).unwrap()
    };
    let of_nodes = fit(&nodes_at_times(data), "nodes");
    let once = with_table(data, random, false);
    let of_rows = fit(&rows(&once).workers(2), "rows");
    assert_eq!(format!("{:?}", of_rows.predictions()), format!("{:?}", of_nodes.predictions()));
    let csv = std::fs::read_to_string(folder.path().join("rows/test_predictions.csv")).unwrap();
    let first = of_rows.predictions()[0];
    let expected = format!(
        "item,node,time,label,predicted\n{0},{0},{1},",
        first.item, random.node_times[first.item as usize]
    );
    assert!(csv.starts_with(&expected), "{csv}");
    // The rows of one node at one time have equal outputs.
    let twice = with_table(data, random, true);
    let of_rows = fit(&rows(&twice), "twice").predictions();
    assert_eq!(of_rows.len(), 2 * of_nodes.predictions().len());
    let (first, second) = of_rows.split_at(of_rows.len() / 2);
    let outputs = |rows: &[kiln::train::Prediction]| {
        rows.iter().map(|row| (row.label, row.predicted)).collect::<Vec<_>>()
    };
    assert_eq!(outputs(first), outputs(second));
    // Another time has another tree.
    let model = SavedModel::open(folder.path().join("rows")).unwrap();
    let error = model.on_nodes(&once).unwrap_err().to_string();
    assert!(error.contains("trained on the task table `table`"), "{error}");
    let nodes = &data.split().test;
    let at = |time: &str| {
        let known = kiln::GraphSource::from(&once).at(time).unwrap();
        format!("{:?}", model.on_nodes(&known).unwrap().predict(nodes, &PredictMode::default()).unwrap())
    };
    assert_ne!(at("30"), at("90"));
}

#[test]
fn rows_of_nodes_at_their_times_train_the_model_of_the_nodes() {
    let random = Random::new(true, true);
    let split = TimeSplit::new(None, 50, 75).unwrap();
    let plain = random.timed(split, false);
    check(&plain, &random, &SageConfig::new(2, 2).layers(2).hidden(8).dropout(0.0));
    let typed = random.timed(split, true);
    let rsage = RsageConfig::new(2, 2).metagraph(&typed.graph.metagraph()).layers(2).hidden(8).dropout(0.0);
    check(&typed, &random, &HeteroModelConfig::new(typed.dims(), rsage));
}

#[test]
fn what_is_not_possible_with_rows_is_an_error() {
    let random = Random::new(true, true);
    let data = with_table(&random.timed(TimeSplit::new(None, 50, 75).unwrap(), false), &random, true);
    let folder = tempfile::tempdir().unwrap();
    let error_of = |loader: NeighborLoader| {
        let sage = SageConfig::new(2, 2).layers(2).hidden(8);
        let fit = out(folder.path(), "run".to_owned(), 1);
        let error = Trainer::new(sage, AdamConfig::new(0.01)).fit(&loader, fit);
        error.expect_err("the training should not start").to_string()
    };
    for messages in [Messages::Known, Messages::All] {
        let error = error_of(rows(&data).messages(messages));
        assert!(error.contains("rows of the task table `table` are sampled at their own times"), "{error}");
    }
    let error = error_of(rows(&data).evaluation(EvalMode::Exact { memory_bytes: None }));
    assert!(error.contains("exact evaluation of a task table is not possible"), "{error}");
    let error = error_of(rows(&data).graph_mode(GraphMode::Device));
    assert!(error.contains("sampling a task table on a device is not possible"), "{error}");
    let links = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 0).unwrap();
    let error = LinkNeighborLoader::new(rows(&data), &links).unwrap_err();
    assert!(matches!(error, kiln::Error::Links(LinkLoaderError::TaskTableOfNodes)), "{error}");
    let error = NeighborLoader::new(&data, [4]).task_table("tabel").unwrap_err().to_string();
    assert!(error.contains("it has table (did you mean `table`?)"), "{error}");
    let types = NodeTypes::new([("a", 1)]).unwrap();
    let empty = Dataset::builder_with_types(types).build().unwrap();
    let error = NeighborLoader::new(&empty, [4]).task_table("table").unwrap_err().to_string();
    assert!(error.contains("it has none"), "{error}");
}
