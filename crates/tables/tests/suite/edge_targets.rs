//! Targets and a split of a relation: the edges with targets are the links of the set, and those for validation and test are not
//! in its graph.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeSet;

use kiln_data::{Dataset, format};
use kiln_feature::Targets;
use kiln_graph::{LinkId, NodeId};
use kiln_tables::{Error, ImportOptions, plan};

use crate::helpers::Tables;

/// Payments with an amount, a label and a part. The fifth has no label, the sixth no part; the last repeats the pair of a test
/// payment in the other direction.
const PAYMENTS: &str = "from,to,amount,fraud,part
a,b,1.5,no,train
b,c,2.5,yes,val
c,a,3.5,no,test
a,c,4.5,no,train
b,a,5.5,,train
c,b,6.5,no,
a,b,7.5,yes,train
c,d,8.5,yes,train
d,c,9.5,no,test
";

const SPEC: &str = "name: bank
nodes: [{name: account, from: relations}]
relations:
  - name: pays
    files: [payments.csv]
    src: {type: account, column: from}
    dst: {type: account, column: to}
    edge_columns: [{column: amount, name: features}]
    reverse: paid by
    target: {class: {column: fraud}}
    split: {column: {column: part}}
";

fn tables(payments: &str) -> Tables {
    let tables = Tables::new();
    tables.put("payments.csv", payments);
    tables
}

fn imported(tables: &Tables, spec: &str) -> Dataset {
    tables.import_with(spec, "set", &ImportOptions::default()).unwrap();
    let folder = tables.path("set");
    format::verify(&folder).unwrap();
    Dataset::open(&folder).unwrap()
}

/// Returns the edges of a relation by the names of their nodes, with their columns.
fn edges(data: &Dataset, relation: usize) -> BTreeSet<String> {
    let graph = &data.graph.relation(relation).graph;
    let name = |node: NodeId| data.node_name(node).unwrap();
    let column = graph.columns().get("features");
    let edges = graph.indices().iter().zip(graph.dsts()).enumerate();
    edges
        .map(|(edge, (src, dst))| {
            let amount = column.map_or(0.0, |column| column.value(edge));
            format!("{} {} {amount}", name(*src), name(dst))
        })
        .collect()
}

fn names<const N: usize>(edges: [&str; N]) -> BTreeSet<String> {
    edges.into_iter().map(str::to_owned).collect()
}

#[test]
fn edges_with_targets_are_links_and_held_out_ones_leave_the_graph() {
    let tables = tables(PAYMENTS);
    let data = imported(&tables, SPEC);
    let links = data.links.as_ref().unwrap();
    assert_eq!((links.relation, links.reverse), (0, Some(1)));
    let targets = &links.targets;
    let pair = |link: u32| {
        let (src, dst) = targets.links().pair(LinkId(link));
        [src, dst].map(|node| data.node_name(node).unwrap()).concat()
    };
    // The payment without a label, b -> a, is a link in no part.
    assert_eq!(
        (0..targets.links().len() as u32).map(pair).collect::<Vec<_>>().join(" "),
        "ab bc ca ac ba cb ab cd dc"
    );
    let Some(Targets::Classes(classes)) = targets.values() else { panic!("expected classes") };
    assert_eq!(classes.as_slice(), [0, 1, 0, 0, -1, 0, 1, 1, 0]);
    assert_eq!(targets.class_names(), ["no", "yes"]);
    let rows = targets.features().unwrap().to_column();
    let amounts: Vec<f32> = (0..9).map(|link| rows.value(link)).collect();
    assert_eq!(amounts, [1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5]);
    let ids = |ids: &[LinkId]| ids.iter().map(|link| link.0).collect::<Vec<_>>();
    assert_eq!(targets.split().parts().map(|(_, part)| ids(part)), [vec![0, 3, 6, 7], vec![1], vec![2, 8]]);
    // Without b -> c, c -> a and d -> c, in either direction: the unlabelled payment stays.
    assert_eq!(edges(&data, 0), names(["a b 1.5", "b a 5.5", "a b 7.5"]));
    assert_eq!(edges(&data, 1), names(["b a 1.5", "a b 5.5", "b a 7.5"]));
    let report = tables.import_with(SPEC, "again", &ImportOptions::default()).unwrap().to_string();
    assert!(report.contains("split of pays: 4 train, 1 val, 2 test"), "{report}");
    assert!(plan(tables.path("again.yaml")).unwrap().to_string().contains("from `account` to `account`"));
}

#[test]
fn numbers_labels_and_random_splits_of_edges_are_imported() {
    let rows =
        (0..400).map(|row| format!("{},{},{},{}\n", row % 20, row % 31, row % 7, ["x;y", "y", ""][row % 3]));
    let payments = format!("from,to,amount,kinds\n{}", rows.collect::<String>());
    let spec = |target: &str| {
        let of = "split: {random: {seed: 7, train: 0.6, val: 0.2, test: 0.2}}";
        SPEC.replace("target: {class: {column: fraud}}", target)
            .replace("split: {column: {column: part}}", of)
    };
    let tables = tables(&payments);
    let numbers = imported(&tables, &spec("target: {regression: {columns: [amount]}}"));
    let targets = &numbers.links.as_ref().unwrap().targets;
    let Some(Targets::Values(values)) = targets.values() else { panic!("expected numbers") };
    assert_eq!(values.as_numbers().unwrap()[..9], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0, 1.0]);
    let sizes = targets.split().parts().map(|(_, part)| part.len());
    assert_eq!(sizes.iter().sum::<usize>(), 400);
    assert!(160 < sizes[0] && 40 < sizes[1] && 40 < sizes[2], "{sizes:?}");
    // All edges between two nodes are in one part.
    let part_of = |link: LinkId| targets.split().parts().iter().position(|(_, part)| part.contains(&link));
    for link in (0..80).map(LinkId) {
        let twin = (link.0 + 1..400)
            .map(LinkId)
            .find(|other| targets.links().pair(*other) == targets.links().pair(link));
        assert!(twin.is_none_or(|twin| part_of(twin) == part_of(link)), "{link:?}");
    }
    std::fs::remove_dir_all(tables.path("set")).unwrap();
    let labels = imported(&tables, &spec("target: {multi_label: {column: kinds, separator: ;}}"));
    let targets = &labels.links.as_ref().unwrap().targets;
    let Some(Targets::Values(values)) = targets.values() else { panic!("expected labels") };
    // A row without labels is a link in no part.
    assert_eq!((values.as_labels().unwrap()[..6].to_vec(), values.len()), (vec![1, 1, 0, 1, 255, 255], 400));
}

#[test]
fn undirected_relations_lose_both_directions_of_a_held_out_edge() {
    let spec = SPEC.replace("    reverse: paid by\n", "    undirected: true\n");
    let data = imported(&tables(PAYMENTS), &spec);
    assert_eq!(data.links.as_ref().unwrap().reverse, None);
    assert_eq!(edges(&data, 0), names(["a b 1.5", "b a 1.5"]));
}

#[test]
fn rejects_bad_targets_and_splits_of_edges() {
    let error = |payments: &str, spec: &str| {
        let tables = tables(payments);
        tables.import_with(spec, "set", &ImportOptions::default()).unwrap_err()
    };
    let bad = PAYMENTS.replace("4.5,no,train", "4.5,no,later");
    let text = error(&bad, SPEC).to_string();
    assert!(text.contains("relation `pays`: 1 row has a value of the wrong type"), "{text}");
    assert!(text.contains("row 4, column \"part\": \"later\", expected train, val, test"), "{text}");
    let dropping = format!("{SPEC}    drop: [wrong_type]\n");
    let data = imported(&tables(&bad), &dropping);
    assert_eq!(data.links.as_ref().unwrap().targets.links().len(), 8);
    let none = PAYMENTS.replace(",no,", ",,").replace(",yes,", ",,");
    assert!(matches!(error(&none, SPEC), Error::NoTargets { table } if table == "relation `pays`"));
    let without = SPEC.replace("    target: {class: {column: fraud}}\n", "");
    let text = error(PAYMENTS, &without).to_string();
    assert!(text.contains("relations[0].split") && text.contains("there is no target"), "{text}");
    let relation = SPEC.split("relations:\n").nth(1).unwrap();
    let twice =
        format!("{SPEC}{}", relation.replace("name: pays", "name: owes").replace("paid by", "owed by"));
    let text = error(PAYMENTS, &twice).to_string();
    assert!(text.contains("at most one relation with a target"), "{text}");
    let text = error(PAYMENTS, &SPEC.replace("column: fraud", "column: frauds")).to_string();
    assert!(text.contains("frauds"), "{text}");
}

#[test]
fn rows_cannot_be_appended_to_a_set_with_targets_of_edges() {
    let tables = tables(PAYMENTS);
    imported(&tables, SPEC);
    let options = ImportOptions { append_to: Some(tables.path("set")), ..ImportOptions::default() };
    let text = tables.import_with(SPEC, "more", &options).unwrap_err().to_string();
    assert!(text.contains("links"), "{text}");
}
