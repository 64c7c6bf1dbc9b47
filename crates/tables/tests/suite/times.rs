//! Times of nodes and edges from tables, splits by time, and statistics of what was known before the validation.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_data::{Dataset, DatasetTimes, TimeKind, TimeSplit};
use kiln_graph::{ColumnValues, EdgeColumn, EdgeColumns};
use kiln_tables::{Import, ImportOptions};

use crate::helpers::Tables;

const NODES: &str =
    "id,y,x,at\na,1,0,2026-02-28T23:59:59.999999Z\nb,2,2,2026-03-01\nc,1,50,2026-05-01\nd,2,1,1969-12-31\n";

/// Returns a spec of users, with these keys, and of payments between them.
fn spec(of_nodes: &str, of_edges: &str) -> String {
    format!(
        "name: set\nnodes:\n  - {{name: user, files: [users.csv], key: id, columns: [{{column: x, transform: standardize}}]{of_nodes}}}\n\
         relations:\n  - {{name: pays, files: [pays.csv], src: {{type: user, column: s}}, dst: {{type: user, column: t}}{of_edges}}}\n"
    )
}

const TARGET: &str = ", target: {class: {column: y}}";
const SPLIT: &str =
    ", target: {class: {column: y}}, split: {time: {column: at, val: 2026-03-01, test: 2026-05-01}}";

fn tables(users: &str, pays: &str) -> Tables {
    let tables = Tables::new();
    tables.put("users.csv", users).put("pays.csv", pays);
    tables
}

fn open(tables: &Tables, spec: &str, set: &str) -> Dataset {
    tables.import_with(spec, set, &ImportOptions::default()).unwrap();
    Dataset::open(tables.path(set)).unwrap()
}

fn edge_times(data: &Dataset, relation: usize) -> Vec<i64> {
    match data.graph.relation(relation).graph.columns().get(EdgeColumns::TIMES).map(EdgeColumn::values) {
        Some(ColumnValues::I64(times)) => times.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn micros(text: &str) -> i64 {
    TimeKind::Date.parse(text).unwrap()
}

#[test]
fn times_and_the_split_by_them_are_recorded() {
    let pays = "s,t,when,amount\na,b,2026-03-01T00:00:00+01:00,1\nc,b,1969-12-31 23:00,2\nb,a,2026-05-01,3\n";
    let tables = tables(NODES, pays);
    let of_edges = ", reverse: paid by, weight: amount, time: {column: when}";
    let data = open(&tables, &spec(SPLIT, of_edges), "set");
    let (val, test) = (micros("2026-03-01"), micros("2026-05-01"));
    assert_eq!(data.times.kind, TimeKind::Date);
    assert_eq!(data.times.split, Some(TimeSplit { train: None, val, test }));
    assert_eq!(data.times.node_times(0).unwrap()[..], [val - 1, val, test, micros("1969-12-31")]);
    // By destination and then by source: b -> a, a -> b, c -> b.
    assert_eq!(edge_times(&data, 0), [test, val - 3_600_000_000, micros("1969-12-31T23:00:00Z")]);
    assert_eq!(data.graph.relation(0).graph.weights().unwrap(), [3.0, 1.0, 2.0]);
    assert_eq!(edge_times(&data, 1), [val - 3_600_000_000, test, micros("1969-12-31T23:00:00Z")]);
    // An item with the time of a border is in the later part.
    let parts = data.split().parts().map(|(_, nodes)| nodes.iter().map(|node| node.0).collect::<Vec<_>>());
    assert_eq!(parts, [vec![0, 3], vec![1], vec![2]]);
    // The mean and the deviation of 0 and 1: those of the rows before the validation.
    let features = data.features[0].as_ref().unwrap();
    let of = |node| features.row(kiln_graph::NodeId(node)).unwrap()[0];
    assert_eq!([of(0), of(3), of(1)], [-1.0, 1.0, 3.0]);
    data.validate().unwrap();
    // The edge of a source that is late is not known, and that with a late time is not.
    let graph = data.graph_before(val).unwrap();
    assert_eq!([0, 1].map(|relation| graph.relation(relation).graph.n_edges()), [1, 0]);
}

#[test]
fn rows_without_a_time_are_bad_and_those_of_a_split_are_in_no_part() {
    let users = "id,y,x,at\na,1,0,2026-01-01\nb,2,2,\nc,1,3,2026-04-01\nd,2,1,2026-06-01\n";
    let pays = "s,t,when\na,b,2026-01-01\nc,d,\n";
    let tables = tables(users, pays);
    let error = tables.error_of(&spec(SPLIT, ", time: {column: when}"));
    assert!(error.contains("row 2, column \"when\": missing, expected a time"), "{error}");
    let data = open(&tables, &spec(SPLIT, ", time: {column: when}, drop: [wrong_type]"), "dropped");
    assert_eq!(edge_times(&data, 0), [micros("2026-01-01")]);
    // A node without a time is in no part, and never passes messages.
    assert_eq!(data.times.node_times(0).unwrap()[1], DatasetTimes::NEVER);
    assert_eq!(data.split().parts().map(|(_, nodes)| nodes.len()), [1, 1, 1]);
    let error = tables.error_of(&spec(&format!(", time: {{column: at}}{TARGET}"), ""));
    assert!(error.contains("users.csv, row 2, column \"at\": missing, expected a time"), "{error}");
    let error = tables.error_of(&spec(TARGET, ", time: {column: s}"));
    assert!(error.contains("expected a timestamp, a date such as"), "{error}");
}

#[test]
fn integers_are_times_as_they_are() {
    let users = "id,y,x,at\na,1,0,-3\nb,2,2,35\nc,1,3,40.0\nd,2,1,34\n";
    let tables = tables(users, "s,t,when\na,b,9223372036854775806\nb,a,-7\n");
    let split = ", target: {class: {column: y}}, split: {time: {column: at, unit: integer, train: 0, val: 35, test: 40}}";
    let data = open(&tables, &spec(split, ", time: {column: when, unit: integer}"), "set");
    assert_eq!(
        (data.times.kind, data.times.split),
        (TimeKind::Integer, Some(TimeSplit { train: Some(0), val: 35, test: 40 }))
    );
    assert_eq!(data.times.node_times(0).unwrap()[..], [-3, 35, 40, 34]);
    assert_eq!(edge_times(&data, 0), [-7, i64::MAX - 1]);
    assert_eq!(data.split().parts().map(|(_, nodes)| nodes.len()), [1, 1, 1]);
    let error = tables.error_of(&spec(split, ", time: {column: when}"));
    assert!(
        error.contains("relations[0].time.unit is of the other kind, expected times of one kind"),
        "{error}"
    );
    let dates = split.replace("val: 35", "val: 2026-03-01");
    let error = tables.error_of(&spec(&dates, ""));
    assert!(error.contains("split.time.val is \"2026-03-01\", expected an integer"), "{error}");
}

#[test]
fn zones_are_offsets_of_texts() {
    let users = "id,y,x,at\na,1,0,2026-03-01 00:30\nb,2,2,2026-03-01T01:30Z\nc,1,3,2026-07-01\n";
    let tables = tables(users, "s,t\na,b\n");
    let split = |zone: &str| {
        format!(
            ", target: {{class: {{column: y}}}}, split: {{time: {{column: at, zone: {zone}, val: 2026-03-01, test: 2026-05-01}}}}"
        )
    };
    let data = open(&tables, &spec(&split("'+02:00'"), ""), "set");
    // The border is in the zone, too.
    assert_eq!(data.times.split.unwrap().val, micros("2026-02-28T22:00Z"));
    assert_eq!(
        data.times.node_times(0).unwrap()[..2],
        [micros("2026-02-28T22:30Z"), micros("2026-03-01T01:30Z")]
    );
    let error = tables.error_of(&spec(&split("Europe/Berlin"), ""));
    assert!(error.contains("split.time.zone is \"Europe/Berlin\", expected an offset from UTC"), "{error}");
    assert!(error.contains("daylight saving time"), "{error}");
    let error = tables.error_of(&spec(TARGET, ", time: {column: s, zone: CET}"));
    assert!(error.contains("relations[0].time.zone is \"CET\""), "{error}");
    let error = tables.error_of(&spec(&format!(", time: {{column: at, zone: local}}{TARGET}"), ""));
    assert!(error.contains("nodes[0].time.zone is \"local\""), "{error}");
}

#[test]
fn quantiles_become_the_times_of_their_borders() {
    let rows: String = (0..10).map(|row| format!("{row},1,{row},2026-01-{:02}\n", row + 1)).collect();
    let tables = tables(&format!("id,y,x,at\n{rows}u,,9,2030-01-01\n"), "s,t\n1,2\n");
    let split = |quantiles: &str| {
        format!(", target: {{class: {{column: y}}}}, split: {{time: {{column: at, quantiles: {quantiles}}}}}")
    };
    let data = open(&tables, &spec(&split("{val: 0.5, test: 0.8}"), ""), "set");
    let expected = TimeSplit { train: None, val: micros("2026-01-06"), test: micros("2026-01-09") };
    assert_eq!(data.times.split, Some(expected));
    assert_eq!(data.split().parts().map(|(_, nodes)| nodes.len()), [5, 3, 2]);
    // The record has the times, so that appended rows have the same borders.
    let record = Import::open(tables.path("set")).unwrap();
    assert!(serde_json::to_string(record.spec()).unwrap().contains("\"val\":\"2026-01-06T00:00:00Z\""));
    for (quantiles, expected) in [
        ("{val: 0.9, test: 0.8}", "split.time.quantiles is 0.9 and 0.8, expected shares"),
        ("{val: 0, test: 0.8}", "split.time.quantiles is 0 and 0.8"),
        (
            "{val: 0.5, test: 0.8}, train: 2026-01-01",
            "split.time.train is a time, expected none beside `quantiles`",
        ),
    ] {
        let error = tables.error_of(&spec(&split(quantiles), ""));
        assert!(error.contains(expected), "{error}");
    }
    let without = spec(", target: {class: {column: y}}, split: {time: {column: at, test: 2026-01-05}}", "");
    assert!(tables.error_of(&without).contains("split.time.val is missing, expected a time"));
}

#[test]
fn edges_without_times_have_a_note_beside_a_split_by_time() {
    let tables = tables(NODES, "s,g\na,g1\n");
    let spec = "name: set\nnodes:\n  - {name: user, files: [users.csv], key: id, target: {class: {column: y}}, split: {time: \
                {column: at, val: 2026-03-01, test: 2026-05-01}}}\n  - {name: group, from: relations}\nrelations:\n  - {name: in, \
                files: [pays.csv], src: {type: user, column: s}, dst: {type: group, column: g}, reverse: of}\n";
    let report = tables.import_with(spec, "set", &ImportOptions::default()).unwrap().to_string();
    assert!(
        report.contains("relation `in`: its edges have no times, so they pass messages in each phase"),
        "{report}"
    );
    let one_way = spec.replace(", reverse: of", "");
    let report = tables.import_with(&one_way, "one-way", &ImportOptions::default()).unwrap().to_string();
    assert!(!report.contains("no times"), "{report}");
}

#[test]
fn appended_rows_continue_the_times_of_the_set() {
    let tables = tables(NODES, "s,t,when\na,b,2026-01-01\n");
    let spec = spec(SPLIT, ", time: {column: when}");
    open(&tables, &spec, "set");
    tables.put("users.csv", "id,y,x,at\ne,1,4,2026-07-01\n").put("pays.csv", "s,t,when\ne,a,2026-07-02\n");
    let options = ImportOptions { append_to: Some(tables.path("set")), ..ImportOptions::default() };
    tables.import_with(&spec, "more", &options).unwrap();
    let data = Dataset::open(tables.path("more")).unwrap();
    let first = Dataset::open(tables.path("set")).unwrap();
    assert_eq!(data.times.node_times(0).unwrap()[..4], first.times.node_times(0).unwrap()[..]);
    assert_eq!(data.times.node_times(0).unwrap()[4], micros("2026-07-01"));
    assert_eq!(edge_times(&data, 0), [micros("2026-07-02"), micros("2026-01-01")]);
    assert_eq!(data.times.split, first.times.split);
    // A known row with another time is one with other values, also if its time is missing now.
    for (time, is_known) in [("2026-02-28T23:59:59.999999Z", true), ("2026-02-27", false), ("", false)] {
        tables.put("users.csv", &format!("id,y,x,at\ne,1,4,2026-07-01\na,1,0,{time}\n"));
        let imported = tables.import_with(&spec, &format!("known-{time}"), &options);
        if is_known {
            imported.unwrap();
            continue;
        }
        let error = imported.unwrap_err().to_string();
        let expected = "row 2, column \"at\"";
        assert!(error.contains(expected) && error.contains("the value of the node of this key"), "{error}");
    }
    let untimed = spec.replace(SPLIT, TARGET);
    let error = tables.import_with(&untimed, "untimed", &options).unwrap_err().to_string();
    assert!(error.contains("its nodes have times, and `time` is missing"), "{error}");
}

/// The statistics are those of the edges that pass messages before the validation: an edge is known from its time on, and not
/// before its source. A node always knows itself.
#[test]
fn statistics_of_edges_are_those_of_sources_before_the_validation() {
    // The sources a, d, b and c, of which b and c are late, and a self loop of b.
    let tables = tables(
        NODES,
        "s,t,amount,when\na,b,1,1970-01-01\nd,c,3,1970-01-01\nb,a,90,1970-01-01\nc,d,800,1970-01-01\nb,b,5,1970-01-01\na,d,70,2026-03-01\n",
    );
    let amounts = |of_edges: &str, set: &str| {
        let of_edges = format!(", columns: [{{column: amount, transform: standardize}}]{of_edges}");
        open(&tables, &spec(SPLIT, &of_edges), set);
        let import = Import::open(tables.path(set)).unwrap();
        format!("{:?}", import.relation("pays").unwrap().columns)
    };
    let timed = amounts(", time: {column: when}", "timed");
    // The amounts 1, 3 and 5.
    assert!(timed.contains("mean: 3.0"), "{timed}");
    let untimed = amounts("", "untimed");
    // These and 70, whose edge has no time of its own.
    assert!(untimed.contains("mean: 19.75"), "{untimed}");
}
