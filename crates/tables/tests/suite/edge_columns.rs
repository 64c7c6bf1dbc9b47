//! Columns of edges, from tables to a set: each edge has the values of its row.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array};
use kiln_graph::NodeId;

use crate::helpers::Tables;

const SPEC: &str = "
name: shop
nodes:
  - {name: user, files: [users.csv], key: id}
  - {name: item, files: [items.csv], key: id}
relations:
  - name: buys
    files: [edges.parquet]
    src: {type: user, column: user}
    dst: {type: item, column: item}
    weight: amount
    edge_columns: [{column: price}, {column: time, name: at}]
    reverse: bought by
";

/// Writes users 0 to 9, items 0 to 6, and edges whose values follow from their ends and their position.
fn tables(price_of: impl Fn(i64) -> Option<f64>) -> Tables {
    let tables = Tables::new();
    let ids = |n: i64| (0..n).map(|id| format!("{id}\n")).collect::<String>();
    tables.put("users.csv", &format!("id\n{}", ids(10))).put("items.csv", &format!("id\n{}", ids(7)));
    let edges = 0..40_i64;
    let users: Int64Array = edges.clone().map(|edge| edge * 3 % 10).collect();
    let items: Int64Array = edges.clone().map(|edge| edge * 5 % 7).collect();
    let amounts: Float64Array = edges.clone().map(|edge| Some(edge as f64 / 4.0)).collect();
    let prices: Float64Array = edges.clone().map(price_of).collect();
    let times: Int64Array = edges.map(|edge| 1000 - edge).collect();
    let columns: [(&str, ArrayRef); 5] = [
        ("user", Arc::new(users)),
        ("item", Arc::new(items)),
        ("amount", Arc::new(amounts)),
        ("price", Arc::new(prices)),
        ("time", Arc::new(times)),
    ];
    tables.put_parquet("edges.parquet", &columns, Default::default());
    tables
}

#[test]
fn edges_and_their_reverses_have_the_values_of_their_rows() {
    let tables = tables(|edge| Some(edge as f64 * 1.5));
    let data = tables.import(SPEC);
    assert_eq!(data.validate().unwrap(), []);
    for (relation, is_reverse) in [(0, false), (1, true)] {
        let graph = &data.graph.relation(relation).graph;
        let columns = graph.columns();
        assert_eq!(columns.names().collect::<Vec<_>>(), ["weights", "at", "price"]);
        let mut found = Vec::new();
        for (edge, (src, dst)) in graph.indices().iter().zip(graph.dsts()).enumerate() {
            let of = |name: &str| columns.get(name).unwrap().value(edge);
            let row = (of("weights") * 4.0) as i64;
            assert_eq!((of("price"), of("at")), (row as f32 * 1.5, 1000.0 - row as f32));
            let src = data.row_of(*src).unwrap();
            let (user, item) = if is_reverse { (dst, src) } else { (src, dst) };
            assert_eq!((user, item), (NodeId((row * 3 % 10) as u32), NodeId((row * 5 % 7) as u32)));
            found.push(row);
        }
        found.sort_unstable();
        assert_eq!(found, (0..40).collect::<Vec<_>>());
    }
}

#[test]
fn values_that_are_no_finite_numbers_are_bad_rows() {
    for bad in [None, Some(f64::NAN), Some(1e300)] {
        let tables = tables(|edge| if edge == 17 { bad } else { Some(1.0) });
        let error = tables.error_of(SPEC);
        assert!(
            error.contains("row 18, column \"price\": ") && error.contains("expected a finite number"),
            "{error}"
        );
    }
}

#[test]
fn names_that_no_column_may_have_are_errors_of_the_spec() {
    for name in ["weights", "types", "Price", "a.b", ""] {
        let spec = SPEC.replace("{column: price}", &format!("{{column: price, name: \"{name}\"}}"));
        let error = tables(|_| Some(1.0)).error_of(&spec);
        assert!(error.contains("relations[0].edge_columns[0].name"), "{name}: {error}");
    }
}
