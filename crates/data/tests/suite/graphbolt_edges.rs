//! Features of edges in GraphBolt folders, of one type and of several.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;

use kiln_data::convert::{ConvertOptions, convert};
use kiln_data::{Dataset, open};
use kiln_graph::EdgeColumns;

use crate::common::{notes_of_reading, put};
use crate::{graphbolt, heterogeneous_graphbolt};

#[test]
fn reads_the_features_of_edges() {
    let folder = graphbolt::folder();
    let entry = "- {domain: edge, name: amount, format: numpy, path: data/amount.npy}\n";
    let text = graphbolt::METADATA.replace("tasks:", &format!("{entry}tasks:"));
    fs::write(folder.path().join("metadata.yaml"), &text).unwrap();
    // In the order of the edges 0 -> 1, 2 -> 1, 2 -> 1, 3 -> 0.
    put(folder.path(), "data/amount.npy", &[0.5_f32, 1.5, 2.5, 3.5], &[4]);
    let data = open(folder.path()).unwrap();
    graphbolt::check(&data);
    assert_eq!(notes_of_reading(&data.notes), []);
    let features = |data: &Dataset| {
        let column = data.csc().unwrap().columns().get(EdgeColumns::FEATURES).unwrap().clone();
        (0..column.n_rows()).map(|edge| column.value(edge)).collect::<Vec<_>>()
    };
    assert_eq!(features(&data), [3.5, 0.5, 1.5, 2.5]);
    let converted = folder.path().join("converted");
    convert(folder.path(), &converted, &ConvertOptions::default()).unwrap();
    assert_eq!(features(&open(&converted).unwrap()), [3.5, 0.5, 1.5, 2.5]);

    put(folder.path(), "data/amount.npy", &[0.5_f32, 1.5, 2.5], &[3]);
    let error = open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("amount.npy: the number of edge feature rows is 3, expected 4"), "{error}");
    put(folder.path(), "data/amount.npy", &[1_i64, 2, 3, 4], &[4]);
    let data = open(folder.path()).unwrap();
    assert!(data.csc().unwrap().columns().is_empty());
    let notes = notes_of_reading(&data.notes);
    assert!(
        notes[0].to_string().ends_with("is not read: edge features are floats (<f4 or <f2)"),
        "{notes:?}"
    );
    let entries =
        entry.repeat(2).replacen("name: amount", "name: feat", 1).replacen("amount.npy", "feat.npy", 1);
    fs::write(
        folder.path().join("metadata.yaml"),
        graphbolt::METADATA.replace("tasks:", &format!("{entries}tasks:")),
    )
    .unwrap();
    put(folder.path(), "data/feat.npy", &[0.0_f32, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], &[4, 2]);
    assert_eq!(features(&open(folder.path()).unwrap())[..2], [3.0, 3.5]);
}

#[test]
fn relations_have_the_features_of_their_edges() {
    let folder = heterogeneous_graphbolt::folder();
    let of = |edge_type: &str, name: &str| {
        format!(
            "- {{domain: edge, type: \"{edge_type}\", name: feat, format: numpy, path: data/{name}.npy}}\n"
        )
    };
    let entries = of("author:writes:paper", "share") + &of("paper:cites:paper", "place");
    fs::write(
        folder.path().join("metadata.yaml"),
        heterogeneous_graphbolt::METADATA.replace("tasks:", &format!("{entries}tasks:")),
    )
    .unwrap();
    put(folder.path(), "data/share.npy", &[0.5_f64, 1.5, 2.5], &[3]);
    put(folder.path(), "data/place.npy", &[0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0], &[3, 2]);
    let data = open(folder.path()).unwrap();
    assert_eq!(notes_of_reading(&data.validate().unwrap()), []);
    let column = |relation: usize| {
        data.graph.relation(relation).graph.columns().get(EdgeColumns::FEATURES).unwrap().clone()
    };
    // The edges by their destinations and sources: 2 -> 1, 2 -> 1 and 0 -> 2; 1 -> 0, 3 -> 0 and 0 -> 2.
    let (share, place) = (column(0), column(1));
    assert_eq!((0..3).map(|edge| share.value(edge)).collect::<Vec<_>>(), [1.5, 2.5, 0.5]);
    assert_eq!((0..6).map(|at| place.value(at)).collect::<Vec<_>>(), [2.0, 3.0, 0.0, 1.0, 4.0, 5.0]);
}

#[test]
fn notes_tasks_that_are_not_read() {
    let folder = graphbolt::folder();
    let pairs = "- name: fraud\n  train_set:\n  - data:\n    - {name: seeds, format: numpy, path: none.npy}\n    \
                 - {name: labels, format: numpy, path: none.npy}\n- {num_classes: 2}\n";
    let text = graphbolt::METADATA.to_owned() + pairs;
    fs::write(folder.path().join("metadata.yaml"), text).unwrap();
    let read = [kiln_data::graphbolt::open, kiln_data::graphbolt::open_heterogeneous];
    for data in read.map(|read| read(folder.path()).unwrap()) {
        let notes: Vec<String> = data.notes.iter().map(ToString::to_string).collect();
        for expected in
            ["the task fraud (tasks[1] in metadata.yaml) is not read", "the task without a name (tasks[2] in"]
        {
            assert_eq!(notes.iter().filter(|note| note.starts_with(expected)).count(), 1, "{notes:?}");
        }
    }
}
