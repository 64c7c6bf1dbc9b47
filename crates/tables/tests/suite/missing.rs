//! The texts of `missing` are missing values in every format and for every use of a column.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, Float64Array, Int32Array, Int64Array, StringArray};
use kiln_feature::Targets;
use kiln_graph::NodeId;

use crate::helpers::{Tables, edges, features, keys, pairs};

const FORMATS: [&str; 3] = ["csv", "jsonl", "parquet"];

/// Writes the same nodes and edges in each format. -1 and `none` are missing.
fn tables() -> Tables {
    const NODES: [&str; 5] = [
        "1,5.5,3,10,train,1704067200",
        "2,-1.0,-1,-1,val,1704067200",
        "-1,1.0,3,10,train,0",
        "3,7.0,4,20,none,-1",
        "4,8.5,3,10,test,1704067200",
    ];
    const EDGES: [&str; 4] = ["1,2.0,0.5", "-1,2.0,1.0", "2,-1.0,1.0", "3,1.0,-1.0"];
    let tables = Tables::new();
    let lines = |header: &str, rows: &[&str]| format!("{header}\n{}\n", rows.join("\n"));
    let objects = |header: &str, rows: &[&str]| {
        let object = |row: &&str| {
            let quoted = |value: &str| {
                if value.starts_with(char::is_alphabetic) { format!("\"{value}\"") } else { value.to_owned() }
            };
            let fields = header
                .split(',')
                .zip(row.split(','))
                .map(|(name, value)| format!("\"{name}\": {}", quoted(value)));
            format!("{{{}}}\n", fields.collect::<Vec<_>>().join(", "))
        };
        rows.iter().map(object).collect::<String>()
    };
    let of_nodes = "id,x,c,y,s,at";
    let of_edges = "a,b,w";
    tables.put("nodes.csv", &lines(of_nodes, &NODES)).put("nodes.jsonl", &objects(of_nodes, &NODES));
    tables.put("edges.csv", &lines(of_edges, &EDGES)).put("edges.jsonl", &objects(of_edges, &EDGES));
    let column = |rows: &[&str], position: usize| -> Vec<String> {
        rows.iter().map(|row| row.split(',').nth(position).unwrap().to_owned()).collect()
    };
    let floats = |rows: &[&str], position: usize| -> Vec<f64> {
        column(rows, position).iter().map(|value| value.parse().unwrap()).collect()
    };
    let integers =
        |position: usize| floats(&NODES, position).iter().map(|value| *value as i64).collect::<Vec<_>>();
    let nodes: [(&str, ArrayRef); 6] = [
        ("id", Arc::new(Int64Array::from(integers(0)))),
        ("x", Arc::new(Float64Array::from(floats(&NODES, 1)))),
        ("c", Arc::new(integers(2).iter().map(|value| Some(*value as i32)).collect::<Int32Array>())),
        ("y", Arc::new(Int64Array::from(integers(3)))),
        ("s", Arc::new(StringArray::from(column(&NODES, 4)))),
        ("at", Arc::new(Int64Array::from(integers(5)))),
    ];
    let weights: Float32Array = floats(&EDGES, 2).iter().map(|value| Some(*value as f32)).collect();
    let edges: [(&str, ArrayRef); 3] = [
        ("a", Arc::new(Float64Array::from(floats(&EDGES, 0)))),
        ("b", Arc::new(Float64Array::from(floats(&EDGES, 1)))),
        ("w", Arc::new(weights)),
    ];
    tables.put_parquet("nodes.parquet", &nodes, Default::default());
    tables.put_parquet("edges.parquet", &edges, Default::default());
    tables
}

fn spec(format: &str) -> String {
    format!(
        "
name: t
nodes:
  - name: t
    files: [nodes.{format}]
    key: id
    missing: ['-1', none]
    columns:
      - {{column: x, transform: numeric}}
      - {{column: c, transform: {{one_hot: {{max_categories: 9}}}}}}
      - {{column: at, transform: {{time: {{parts: [hour]}}}}}}
    target: {{class: {{column: y}}}}
    split: {{column: {{column: s}}}}
    drop: [missing_key]
relations:
  - name: r
    files: [edges.{format}]
    src: {{type: t, column: a}}
    dst: {{type: t, column: b}}
    weight: w
    missing: ['-1.0']
    drop: [missing_key, wrong_type]
"
    )
}

#[test]
fn texts_in_missing_are_missing_in_every_format_and_use() {
    let tables = tables();
    for format in FORMATS {
        let report = tables.import_with(&spec(format), format, &Default::default()).unwrap();
        let dropped: Vec<(&str, u64)> =
            report.dropped.iter().map(|rows| (rows.kind.name(), rows.n_rows)).collect();
        assert_eq!(dropped, [("missing_key", 1), ("missing_key", 2), ("wrong_type", 1)], "{format}");
        let data = kiln_data::Dataset::open(tables.path(format)).unwrap();
        assert_eq!(keys(&data, 0), ["1", "2", "3", "4"], "{format}");
        // x, x=missing, c=3, c=4, c=missing, at.hour.sin, at.hour.cos, at=missing
        let expected = [
            [5.5, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0],
            [0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0],
            [7.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
            [8.5, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0],
        ];
        assert_eq!(features(&data, 0), expected.as_flattened(), "{format}");
        let targets = data.targets.as_ref().unwrap();
        let Targets::Classes(labels) = &targets.values else { panic!("{format}") };
        let classes: Vec<_> = (0..4).map(|row| labels.get(NodeId(row))).collect();
        assert_eq!(
            (targets.class_names.as_slice(), classes),
            (&["10".to_owned(), "20".to_owned()][..], vec![Some(0), None, Some(1), Some(0)])
        );
        let split = targets.split.parts().map(|(_, nodes)| nodes.to_vec());
        assert_eq!(split, [vec![NodeId(0)], vec![], vec![NodeId(3)]], "{format}");
        assert_eq!(edges(&data, 0), pairs(&[("1", "2")]), "{format}");
        assert_eq!(data.graph.relation(0).graph.weights().unwrap(), [0.5], "{format}");
    }
}
