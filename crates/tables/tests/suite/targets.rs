//! Targets and splits.

use kiln_data::Dataset;
use kiln_feature::{Labels, TargetValues, Targets};
use kiln_graph::NodeId;

use crate::helpers::{FORMATS, Tables};

fn import(header: &str, rows: &str, target: &str, split: &str) -> Dataset {
    let tables = Tables::new();
    tables.put("t.csv", &format!("{header}\n{rows}")).put("u.csv", "id\n1\n2\n");
    tables.import(&spec(target, split))
}

fn spec(target: &str, split: &str) -> String {
    format!(
        "
name: t
nodes:
  - {{name: other, files: [u.csv], key: id}}
  - {{name: t, files: [t.csv], key: id, target: {target}{split}}}
"
    )
}

/// Returns the rows of each part of the split.
fn parts(data: &Dataset) -> [Vec<u32>; 3] {
    let split = &data.targets.as_ref().unwrap().split;
    split.parts().map(|(_, nodes)| nodes.iter().map(|node| data.target_row_of(*node).unwrap().0).collect())
}

fn classes_of(data: &Dataset) -> &Labels {
    match &data.targets.as_ref().unwrap().values {
        Targets::Classes(labels) => labels,
        Targets::Values(_) => panic!("the targets should be classes"),
    }
}

fn values_of(data: &Dataset) -> &TargetValues {
    match &data.targets.as_ref().unwrap().values {
        Targets::Values(values) => values,
        Targets::Classes(_) => panic!("the targets should be values"),
    }
}

#[test]
fn classes_are_numbered_in_ascending_order() {
    let rows = "a,10,train\nb,9,val\nc,,train\nd,10,test\ne,9,\n";
    let data = import("id,y,s", rows, "{class: {column: y}}", ", split: {column: {column: s}}");
    let targets = data.targets.as_ref().unwrap();
    assert_eq!(targets.class_names, ["9", "10"]);
    let labels = classes_of(&data);
    let classes: Vec<_> = (0..5).map(|row| labels.get(NodeId(row))).collect();
    assert_eq!(classes, [Some(1), Some(0), None, Some(1), Some(0)]);
    // The node without a class is in no part.
    assert_eq!(parts(&data), [vec![0], vec![1], vec![3]]);
    assert_eq!(targets.split.train[0], NodeId(2));
}

#[test]
fn regression_targets_may_be_missing() {
    let rows = "a,1,2\nb,,4\nc,,\n";
    let split = ", split: {random: {seed: 1, train: 1, val: 0, test: 0}}";
    let data = import("id,y,z", rows, "{regression: {columns: [z, y]}}", split);
    let targets = data.targets.as_ref().unwrap();
    let values = values_of(&data).as_numbers().unwrap().to_vec();
    assert_eq!(values[..3], [2.0, 1.0, 4.0]);
    assert!(values[3..].iter().all(|value| value.is_nan()));
    assert_eq!(targets.class_names, ["z", "y"]);
    assert_eq!(parts(&data), [vec![0, 1], vec![], vec![]]);
}

#[test]
fn several_labels_are_a_list() {
    let rows = "a,y;x\nb,\nc,x\n";
    let data = import("id,l", rows, "{multi_label: {column: l, separator: ';'}}", "");
    let targets = data.targets.as_ref().unwrap();
    assert_eq!(targets.class_names, ["x", "y"]);
    assert_eq!(values_of(&data).as_labels().unwrap(), [1, 1, 255, 255, 1, 0]);
    assert_eq!(parts(&data), [const { Vec::<u32>::new() }; 3]);
}

#[test]
fn random_parts_depend_on_the_key_only() {
    let keys: Vec<String> = (0..200).map(|key| format!("k{key}")).collect();
    let rows =
        |keys: &mut dyn Iterator<Item = &String>| keys.map(|key| format!("{key},1\n")).collect::<String>();
    let split = ", split: {random: {seed: 3, train: 0.5, val: 0.25, test: 0.25}}";
    let import = |rows: &str| import("id,y", rows, "{class: {column: y}}", split);
    let (data, reversed) = (import(&rows(&mut keys.iter())), import(&rows(&mut keys.iter().rev())));
    let names = |data: &Dataset| {
        parts(data).map(|rows| {
            let name = |row: &u32| data.names[1].get(NodeId(*row)).unwrap().to_owned();
            let mut names: Vec<String> = rows.iter().map(name).collect();
            names.sort();
            names
        })
    };
    assert_eq!(names(&data), names(&reversed));
    assert!(parts(&data).iter().all(|part| 20 < part.len()));
    assert_eq!(parts(&data).concat().len(), 200);
}

/// Imports the same rows from each format, and checks their parts.
fn check_parts(header: &[&str], rows: &[&[&str]], split: &str, expected: [&[u32]; 3]) {
    for format in FORMATS {
        let tables = Tables::new();
        let name = format!("t.{format}");
        tables.put("u.csv", "id\n1\n2\n").put_table(&name, header, rows);
        let spec = spec("{class: {column: y}}", split).replace("t.csv", &name);
        assert_eq!(parts(&tables.import(&spec)), expected.map(<[u32]>::to_vec), "{format}");
    }
}

/// The masks of PyG and DGL, as pandas, R and NumPy write booleans. A node without a target is in no part.
#[test]
fn masks_split_nodes() {
    let rows: [&[&str]; 7] = [
        &["a", "1", "True", "False", ""],
        &["b", "0", "0", "1", "0"],
        &["c", "1", "FALSE", "false", "TRUE"],
        &["d", "1", "0.0", "", "1.0"],
        &["e", "1", "", "False", "0"],
        &["f", "", "1", "0", "0"],
        &["g", "0", "true", "0", "false"],
    ];
    let header = ["id", "y", "train_mask", "val_mask", "test_mask"];
    let split = ", split: {masks: {train: train_mask, val: val_mask, test: test_mask}}";
    check_parts(&header, &rows, split, [&[0, 6], &[1], &[2, 3]]);
    check_parts(
        &header,
        &rows,
        ", split: {masks: {train: train_mask, test: test_mask}}",
        [&[0, 6], &[], &[2, 3]],
    );
    let tables = Tables::new();
    tables.put("u.csv", "id\n1\n").put("t.csv", "id,y,a,b\n1,1,1,1\n2,1,no,\n");
    let error = tables.error_of(&spec("{class: {column: y}}", ", split: {masks: {train: a, val: b}}"));
    assert!(
        error.contains(
            "row 1, column \"b\": \"1\", expected false, because the row is in the part of another mask"
        ),
        "{error}"
    );
    assert!(
        error.contains("row 2, column \"a\": \"no\", expected true, false, 1, 0 or a missing"),
        "{error}"
    );
}

/// The steps of Elliptic: up to 34 for training, later ones for test.
#[test]
fn steps_split_nodes() {
    let rows: [&[&str]; 6] = [
        &["a", "1", "1"],
        &["b", "1", "34.0"],
        &["c", "1", "35"],
        &["d", "1", "49"],
        &["e", "1", ""],
        &["f", "1", "-5"],
    ];
    let split = ", split: {steps: {column: step, val_from: 35, test_from: 35}}";
    check_parts(&["id", "y", "step"], &rows, split, [&[0, 1, 5], &[], &[2, 3]]);
    let split = ", split: {steps: {column: step, val_from: 34, test_from: 49}}";
    check_parts(&["id", "y", "step"], &rows, split, [&[0, 5], &[1, 2], &[3]]);
    let tables = Tables::new();
    tables.put("u.csv", "id\n1\n").put("t.csv", "id,y,step\n1,1,1.5\n");
    let error = tables.error_of(&spec("{class: {column: y}}", split));
    assert!(
        error.contains("row 1, column \"step\": \"1.5\", expected an integer or a missing value"),
        "{error}"
    );
}

#[test]
fn times_split_nodes() {
    let rows = "a,1,2023-05-01\nb,1,2024-01-01\nc,1,2024-06-30\nd,1,\n";
    let split = ", split: {time: {column: at, val_from: '2024-01-01', test_from: '2024-06-01'}}";
    let data = import("id,y,at", rows, "{class: {column: y}}", split);
    assert_eq!(parts(&data), [vec![0], vec![1], vec![2]]);
}

/// 2023-05-01, 2024-01-01 and 2024-06-30 in seconds since 1970, by Python's `calendar.timegm`.
const SECONDS: [i64; 3] = [1_682_899_200, 1_704_067_200, 1_719_705_600];

/// Returns the rows of a table with a time each, which is `factor` times the seconds.
fn rows_at(factor: i64) -> String {
    let rows = SECONDS.iter().enumerate().map(|(row, seconds)| format!("{row},1,{}\n", seconds * factor));
    rows.collect()
}

fn time_split(unit: &str) -> String {
    format!(", split: {{time: {{column: at{unit}, val_from: '2024-01-01', test_from: '2024-06-01'}}}}")
}

#[test]
fn integer_times_of_another_unit_are_an_error_that_names_the_unit() {
    let target = "{class: {column: y}}";
    for (factor, name) in
        [(1000, "milliseconds"), (1_000_000, "microseconds"), (1_000_000_000, "nanoseconds")]
    {
        let tables = Tables::new();
        tables.put("u.csv", "id\n1\n").put("t.csv", &format!("id,y,at\n{}", rows_at(factor)));
        let error = tables.error_of(&spec(target, &time_split("")));
        let expected = format!(
            "t.csv, row 1, column \"at\": \"{}\", expected a time from the year 1 to the year 9999: if it counts {name}, \
             add `unit: {name}`",
            SECONDS[0] * factor
        );
        assert!(error.contains(&expected), "{error}\n    expected {expected}");
        let data = import("id,y,at", &rows_at(factor), target, &time_split(&format!(", unit: {name}")));
        assert_eq!(parts(&data), [vec![0], vec![1], vec![2]]);
    }
    let data = import("id,y,at", &rows_at(1), target, &time_split(""));
    assert_eq!(parts(&data), [vec![0], vec![1], vec![2]]);
}

#[test]
fn the_report_has_the_sizes_of_the_split_and_names_empty_parts() {
    let report = |times: &str, target: &str, split: &str| {
        let tables = Tables::new();
        tables.put("u.csv", "id\n1\n").put("t.csv", &format!("id,y,at\n{times}"));
        let spec = spec(target, split);
        tables.import_with(&spec, "set", &Default::default()).expect("the tables should be imported")
    };
    let target = "{class: {column: y}}";
    let whole = report(&rows_at(1), target, &time_split(""));
    let split = whole.split.as_ref().expect("the report should have the split");
    assert_eq!((split.name.as_str(), split.n_train, split.n_val, split.n_test), ("t", 1, 1, 1));
    let text = whole.to_string();
    assert_eq!(text, "node type other: 1 node\nnode type t: 3 nodes\nsplit of t: 1 train, 1 val, 1 test");
    let early =
        report("a,1,2020-01-01\nb,1,2024-06-30\nc,,2024-03-01\n", target, &time_split("")).to_string();
    assert!(
        early.contains("\nsplit of t: 1 train, 0 val, 1 test\nnote: no node of `t` is in the val part"),
        "{early}"
    );
    assert_eq!(report(&rows_at(1), target, "").split, None);
}

#[test]
fn wrong_targets_and_parts_are_named() {
    let tables = Tables::new();
    tables.put("u.csv", "id\n1\n");
    for (rows, target, split, expected) in [
        ("a,x,", "{regression: {columns: [y]}}", "", "row 1, column \"y\": \"x\", expected a finite number"),
        (
            "a,1,dev",
            "{class: {column: y}}",
            ", split: {column: {column: s}}",
            "\"dev\", expected train, val, test",
        ),
        (
            "a,,",
            "{regression: {columns: [y, s]}}",
            "",
            "node type `t`: no row has a target, expected at least one",
        ),
        ("a,,", "{multi_label: {column: y, separator: ';'}}", "", "node type `t`: no row has a target"),
        ("a,,", "{class: {column: y}}", "", "node type `t`: no row has a target, expected at least one"),
    ] {
        tables.put("t.csv", &format!("id,y,s\n{rows}\n"));
        let error = tables.error_of(&spec(target, split));
        assert!(error.contains(expected), "{error}");
    }
}
