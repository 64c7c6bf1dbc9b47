//! Undirected relations: both directions of each edge, once.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_data::Dataset;
use kiln_tables::{ImportOptions, plan};

use crate::helpers::{Tables, edges, pairs};

const SPEC: &str = "
name: people
nodes:
  - {name: city, files: [cities.csv], key: id}
  - {name: person, files: [people.csv], key: id}
relations:
  - name: knows
    files: [knows.csv]
    src: {type: person, column: a}
    dst: {type: person, column: b}
    weight: years
    edge_columns: [{column: met}]
    undirected: true
";

fn tables() -> Tables {
    let tables = Tables::new();
    tables.put("cities.csv", "id\nrome\n").put("people.csv", "id\nann\nbob\ncem\n");
    // The second row repeats the first in the other direction, and the last one is a loop.
    tables.put("knows.csv", "a,b,years,met\nann,bob,1,10\nbob,ann,2,20\ncem,bob,3,30\ncem,cem,4,40\n");
    tables
}

/// Returns the weight and the column of each edge, by destination.
fn values(data: &Dataset) -> Vec<(f32, f32)> {
    let graph = &data.graph.relation(0).graph;
    let met = graph.columns().get("met").unwrap();
    let weights = graph.weights().unwrap();
    (0..weights.len()).map(|edge| (weights[edge], met.value(edge))).collect()
}

#[test]
fn an_undirected_relation_has_both_directions_of_its_first_rows() {
    let tables = tables();
    let report = tables.import_with(SPEC, "set", &ImportOptions::default()).unwrap();
    assert_eq!(report.notes, ["relation `knows`: 1 row repeats a pair: the first one is kept"]);
    let data = Dataset::open(tables.path("set")).unwrap();
    let expected = [("bob", "ann"), ("ann", "bob"), ("cem", "bob"), ("bob", "cem"), ("cem", "cem")];
    assert_eq!(edges(&data, 0), pairs(&expected));
    let expected = [(1.0, 10.0), (1.0, 10.0), (3.0, 30.0), (3.0, 30.0), (4.0, 40.0)];
    assert_eq!(values(&data), expected);
    let plan = plan(tables.path("set.yaml")).unwrap().to_string();
    assert!(plan.contains("with the edge columns met, undirected"), "{plan}");
}

#[test]
fn appended_rows_of_a_pair_of_the_set_are_counted() {
    let tables = tables();
    tables.import(SPEC);
    // Two pairs and a loop of the set, a new pair twice, and a new loop twice.
    let rows =
        "bob,ann,9,90\nbob,cem,8,80\ncem,cem,7,70\nann,cem,5,50\ncem,ann,6,60\nann,ann,2,20\nann,ann,3,30\n";
    tables.put("knows.csv", &format!("a,b,years,met\n{rows}"));
    let options = ImportOptions { append_to: Some(tables.path("set")), ..ImportOptions::default() };
    let spec = SPEC.split("relations:").nth(1).unwrap();
    let spec = format!("name: people\nnodes: []\nrelations:{spec}");
    let report = tables.import_with(&spec, "more", &options).unwrap();
    let expected = "relation `knows`: 5 rows repeat a pair: the first one is kept, or the edge of the set";
    assert_eq!(report.notes, [expected]);
    assert_eq!(report.appended.unwrap().new_edges, [3]);
    let data = Dataset::open(tables.path("more")).unwrap();
    let weights: Vec<f32> = values(&data).into_iter().map(|(weight, _)| weight).collect();
    assert_eq!(weights, [2.0, 1.0, 5.0, 1.0, 3.0, 5.0, 3.0, 4.0]);
}

#[test]
fn an_undirected_relation_between_nodes_of_one_type_has_no_reverse() {
    for (old, new, expected) in [
        (
            "{type: person, column: b}",
            "{type: city, column: b}",
            "false between two node types: name a relation",
        ),
        ("undirected: true", "undirected: true\n    reverse: known by", "expected false beside `reverse`"),
    ] {
        let error = tables().error_of(&SPEC.replace(old, new));
        assert!(error.contains("relations[0].undirected is true"), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}
