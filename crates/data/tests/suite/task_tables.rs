//! Task tables in sets and in the kiln format.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_data::{
    BuildError, Dataset, DatasetTargets, DatasetTimes, Error, Split, TaskTable, TaskTableError, format,
    synthetic,
};
use kiln_feature::{Labels, TargetValues, Targets};
use kiln_graph::{NodeId, NodeTypes};

fn rows(rows: &[u32]) -> kiln_graph::SharedArray<NodeId> {
    rows.iter().copied().map(NodeId).collect()
}

/// Returns a table with these nodes, whose first row is for training and whose second one is for test.
fn table(name: &str, nodes: &[u32], node_type: usize, values: Targets) -> TaskTable {
    let split = Split { train: rows(&[0]), val: rows(&[]), test: rows(&[1]) };
    TaskTable {
        name: name.to_owned(),
        nodes: rows(nodes),
        times: (0..nodes.len() as i64).map(|row| 10 * row).collect(),
        targets: DatasetTargets::new(node_type, values, split),
    }
}

fn shop() -> Dataset {
    let types = NodeTypes::new([("user", 2), ("item", 3)]).unwrap();
    Dataset::builder_with_types(types).nodes("item").node_names(["a", "b", "c"]).build().unwrap()
}

fn with_tables() -> Dataset {
    let classes = Labels::new(vec![0, 1, -1], 2).into();
    let numbers = TargetValues::regression(vec![0.5, 2.0], 1).unwrap().into();
    let labels = TargetValues::multi_label(vec![1_u8, 0, 0, 1], 2).unwrap().into();
    let data = shop().with_task_table(table("churn", &[2, 2, 4], 1, classes)).unwrap();
    let data = data.with_task_table(table("sales", &[0, 1], 0, numbers)).unwrap();
    data.with_task_table(table("kinds", &[3, 3], 1, labels)).unwrap()
}

#[test]
fn a_written_set_has_the_same_tables_and_hashes() {
    let root = tempfile::tempdir().unwrap();
    let data = with_tables();
    format::write(&data, root.path().join("set")).unwrap();
    format::verify(root.path().join("set")).unwrap();
    let read = format::open(root.path().join("set")).unwrap();
    assert_eq!(read.hash().unwrap(), data.hash().unwrap());
    for (one, other) in read.tasks.iter().zip(&data.tasks) {
        assert_eq!(one.name, other.name);
        assert_eq!(one.nodes[..], other.nodes[..]);
        assert_eq!(one.times[..], other.times[..]);
        assert_eq!(one.targets.class_names, other.targets.class_names);
        assert_eq!(one.targets.split, other.targets.split);
    }
    assert!(read.tasks[0].nodes.path().is_some(), "the rows should be mapped");
    // Each column of a table changes both hashes.
    let other = |change: &dyn Fn(&mut TaskTable)| {
        let mut data = data.clone();
        change(&mut data.tasks[0]);
        let folder = tempfile::tempdir().unwrap();
        format::write(&data, folder.path().join("set")).unwrap();
        (data.hash().unwrap(), format::hash(folder.path().join("set")).unwrap())
    };
    let same = other(&|_| {});
    for change in [
        &(|table: &mut TaskTable| table.name = "other".to_owned()) as &dyn Fn(&mut TaskTable),
        &|table| table.nodes = rows(&[2, 3, 4]),
        &|table| table.times = vec![0, 10, 21].into(),
        &|table| table.targets.values = Labels::new(vec![0, 0, -1], 2).into(),
        &|table| table.targets.split.test = rows(&[0]),
    ] {
        let changed = other(change);
        assert!(changed.0 != same.0 && changed.1 != same.1);
    }
}

#[test]
fn a_set_without_tables_is_written_as_before() {
    let root = tempfile::tempdir().unwrap();
    format::write(&shop(), root.path().join("set")).unwrap();
    let manifest = std::fs::read_to_string(root.path().join("set/kiln.json")).unwrap();
    assert!(!manifest.contains("task"), "{manifest}");
}

#[test]
fn files_of_task_tables_have_the_numbers_of_the_tables() {
    let root = tempfile::tempdir().unwrap();
    let set = root.path().join("set");
    format::write(&with_tables(), &set).unwrap();
    for file in [
        "task_nodes.npy",
        "task_times.npy",
        "task_labels.npy",
        "task_targets.npy",
        "task_train.npy",
        "task_val.npy",
        "task_test.npy",
    ] {
        let stem = file.strip_suffix(".npy").unwrap();
        let is_there = (0..3).any(|table| set.join(format!("{stem}.{table}.npy")).exists());
        assert!(is_there && !set.join(file).exists(), "{file}");
    }
}

#[test]
fn rejects_inconsistent_entries_of_task_tables() {
    let root = tempfile::tempdir().unwrap();
    let set = root.path().join("set");
    format::write(&with_tables(), &set).unwrap();
    let manifest = std::fs::read_to_string(set.join("kiln.json")).unwrap();
    for (from, to, expected) in [
        ("\"name\": \"churn\"", "\"name\": \"sales\"", "tasks[1].name"),
        ("\"node_type\": \"item\"", "\"node_type\": \"thing\"", "tasks[0].node_type"),
        ("\"n_rows\": 3", "\"n_rows\": 4", "task_labels.0.npy"),
        ("\"n_rows\": 3", "\"n_rows\": 5000000000", "tasks[0].n_rows"),
        (
            "\"n_rows\": 3,\n      \"n_classes\": 2,\n      \"class_names\": []",
            "\"n_rows\": 3,\n      \"n_classes\": 2,\n      \"class_names\": [\"a\"]",
            "2 names",
        ),
        (
            "\"n_rows\": 2,\n      \"n_classes\": 1,",
            "\"n_rows\": 2,\n      \"n_classes\": 0,",
            "tasks[1].n_classes",
        ),
        (
            "\"n_rows\": 2,\n      \"n_classes\": 2,",
            "\"n_rows\": 2,\n      \"n_classes\": 3,",
            "task_targets.2.npy",
        ),
        ("\"task_times.1.npy\"", "\"task_time.1.npy\"", "task_time.1.npy"),
        ("\"task_targets.1.npy\"", "\"task_labels.1.npy\"", "task_labels.1.npy"),
    ] {
        assert!(manifest.contains(from), "{from}\n{manifest}");
        std::fs::write(set.join("kiln.json"), manifest.replacen(from, to, 1)).unwrap();
        let error = format::open(&set).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}\n{error}");
    }
}

#[test]
fn damaged_tables_are_rejected_with_their_row() {
    let classes = || Labels::new(vec![0, 1, -1], 2).into();
    let good = || table("churn", &[2, 2, 4], 1, classes());
    let error_of = |table: TaskTable| shop().with_task_table(table).unwrap_err().to_string();
    for (table, expected) in [
        (TaskTable { nodes: rows(&[2, 1, 4]), ..good() }, "row 1: node 1 is no node of the type `item`"),
        (TaskTable { nodes: rows(&[2, 5, 4]), ..good() }, "row 1: node 5 is no node of the type `item`"),
        (TaskTable { times: vec![0, 1, DatasetTimes::NEVER].into(), ..good() }, "row 2: it has no time"),
        (TaskTable { times: vec![0, 1].into(), ..good() }, "number of times"),
        (table("churn", &[2, 2, 4], 2, classes()), "the graph has no node type 2"),
        (
            table("churn", &[2, 2, 4], 1, Labels::new(vec![0, -1, 1], 2).into()),
            "entry 0 of the test split is row 1",
        ),
        (table("churn", &[2, 2, 4], 1, Labels::new(vec![0, 1, 2], 2).into()), "2"),
        (table("churn", &[2], 1, Labels::new(vec![0], 2).into()), "entry 0 of the test split is row 1"),
    ] {
        let message = error_of(table);
        assert!(message.contains(expected), "{expected}\n{message}");
    }
    let twice = with_tables().with_task_table(good()).unwrap_err();
    assert!(matches!(twice, Error::Build(BuildError::TaskTable(TaskTableError::Twice { .. }))), "{twice}");
    // A damaged table of a set is an error when it is taken, and when the set is checked.
    let mut data = with_tables();
    data.tasks[0].nodes = rows(&[2, 7, 4]);
    data.task_table("churn").unwrap_err();
    data.validate().unwrap_err();
    data.task_table("sales").unwrap();
}

#[test]
fn a_homogeneous_set_keeps_tables_in_memory_and_is_not_written_with_them() {
    let one = table("churn", &[3, 3], 0, Labels::new(vec![0, 1], 2).into());
    let data = synthetic::ring(6).unwrap().with_task_table(one).unwrap();
    assert_ne!(data.hash().unwrap(), synthetic::ring(6).unwrap().hash().unwrap());
    let root = tempfile::tempdir().unwrap();
    let error = format::write(&data, root.path().join("set")).unwrap_err();
    assert!(
        matches!(error, Error::Build(BuildError::TaskTable(TaskTableError::NotStored { .. }))),
        "{error}"
    );
}
