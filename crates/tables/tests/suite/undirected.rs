//! Undirected relations: both directions of each edge, once.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_data::Dataset;
use kiln_tables::plan;

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
    let data = tables.import(SPEC);
    let expected = [("bob", "ann"), ("ann", "bob"), ("cem", "bob"), ("bob", "cem"), ("cem", "cem")];
    assert_eq!(edges(&data, 0), pairs(&expected));
    let expected = [(1.0, 10.0), (1.0, 10.0), (3.0, 30.0), (3.0, 30.0), (4.0, 40.0)];
    assert_eq!(values(&data), expected);
    let plan = plan(tables.path("set.yaml")).unwrap().to_string();
    assert!(plan.contains("with the edge columns met, undirected"), "{plan}");
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
