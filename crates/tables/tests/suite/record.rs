//! The record of an import transforms new rows as the imported ones.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kiln_data::Dataset;
use kiln_tables::{
    BadRowKind, EarlierImportError, Error, FittedTransform, Import, ImportOptions, hash_bytes,
};

use crate::helpers::{Tables, features, keys};

const SPEC: &str = "
name: people
nodes:
  - name: person
    files: [people.csv]
    key: id
    columns:
      - {column: age, transform: standardize}
      - {column: income, transform: quantile}
      - {column: town, transform: {one_hot: {max_categories: 3}}}
      - {column: text, transform: {text: {columns: 16}}}
      - {column: at, transform: {time: {parts: [hour, month]}}}
    target: {class: {column: town}}
    drop: [wrong_type]
relations:
  - {name: knows, files: [knows.csv], src: {type: person, column: a}, dst: {type: person, column: b}}
";
const HEADER: &str = "id,age,income,town,text,at\n";

/// Returns the lines of people; some lack an age.
fn people() -> Vec<String> {
    let person = |row: u64| {
        let draw = hash_bytes(&row.to_le_bytes());
        let age = if row.is_multiple_of(13) { String::new() } else { (draw % 90).to_string() };
        format!(
            "p{row},{age},{}.5,t{},w{} w{},{}\n",
            draw % 9973,
            draw % 5,
            draw % 11,
            draw % 17,
            draw % (1 << 31)
        )
    };
    (0..500).map(person).collect()
}

fn import() -> (Tables, Dataset) {
    let tables = Tables::new();
    tables.put("people.csv", &format!("{HEADER}{}", people().concat()));
    tables.put("knows.csv", "a,b\np1,p2\np3,p1\n");
    let data = tables.import(SPEC);
    (tables, data)
}

/// Returns the features of each key.
fn by_key(keys: Vec<String>, features: &[f32]) -> BTreeMap<String, Vec<f32>> {
    let dim = features.len() / keys.len();
    keys.into_iter().zip(features.chunks(dim).map(<[f32]>::to_vec)).collect()
}

#[test]
fn rows_in_another_order_and_other_files_have_the_same_features() {
    let (tables, data) = import();
    let expected = by_key(keys(&data, 0), &features(&data, 0));
    let import = Import::open(tables.path("set")).unwrap();
    let mut lines = people();
    lines.sort_by_key(|line| hash_bytes(line.as_bytes()));
    tables.put("a.csv.gz", &format!("{HEADER}{}", lines[..200].concat()));
    // Another order of the columns, without the target.
    let object = |line: &String| {
        let [id, age, income, town, text, at] = line.trim().split(',').collect::<Vec<_>>()[..] else {
            panic!()
        };
        format!(
            "{{\"at\": {at}, \"id\": \"{id}\", \"age\": \"{age}\", \"income\": {income}, \"town\": \"{town}\", \"text\": \"{text}\"}}\n"
        )
    };
    tables.put("b.jsonl", &lines[200..].iter().map(object).collect::<String>());
    let (mut found, mut order) = (BTreeMap::new(), Vec::new());
    let files = [tables.path("a.csv.gz"), tables.path("b.jsonl")];
    let dropped = import.transform("person", &files, &mut |rows| {
        order.extend(rows.keys.clone());
        assert_eq!(rows.features.len(), rows.keys.len() * rows.dim);
        found.extend(by_key(rows.keys, &rows.features));
        Ok(())
    });
    assert_eq!(dropped.unwrap(), []);
    assert_eq!((found.len(), &order[0]), (500, &lines[0][..lines[0].find(',').unwrap()].to_owned()));
    assert!(found == expected, "the features of a key should not depend on its file");

    // An import of the same rows with the earlier transforms has them, too.
    let spec =
        SPEC.replace("people.csv", "b.jsonl, a.csv.gz").replace("    target: {class: {column: town}}\n", "");
    let options = ImportOptions { transforms_of: Some(Arc::new(import)), ..ImportOptions::default() };
    tables.import_with(&spec, "again", &options).unwrap();
    let again = Dataset::open(tables.path("again")).unwrap();
    assert!(by_key(keys(&again, 0), &features(&again, 0)) == expected);
    assert!(again.targets.is_none());
}

#[test]
fn new_values_use_the_stored_statistics() {
    let (tables, data) = import();
    let import = Import::open(tables.path("set")).unwrap();
    let dim = data.dims()[0].unwrap();
    let person = import.node_type("person").unwrap();
    assert_eq!(person.columns.iter().map(|column| column.width()).sum::<usize>(), dim);
    let FittedTransform::Standardize { mean, std } = person.columns[0].transform else { panic!() };
    // A town that the import did not have is one of the others; there was no missing income.
    tables.put("new.csv", &format!("{HEADER}x,{},,elsewhere,,\nbad,old,1,t1,,1\n", mean + 2.0 * std));
    let mut found = Vec::new();
    let dropped = import.transform("person", &[tables.path("new.csv")], &mut |rows| {
        assert_eq!(rows.keys, ["x"]);
        found.extend(rows.features);
        Ok(())
    });
    let dropped = dropped.unwrap();
    assert_eq!((dropped.len(), dropped[0].kind, dropped[0].n_rows), (1, BadRowKind::WrongType, 1));
    assert!((found[0] - 2.0).abs() < 1e-6, "{found:?}");
    assert_eq!(found[1..7], [0.0, 0.5, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!(found[7..], vec![0.0; dim - 7]);
    tables.put("new.csv", "id,age,income,town,text,at\n,1,1,t1,,1\n");
    let error = import.transform("person", &[tables.path("new.csv")], &mut |_| Ok(())).unwrap_err();
    assert!(matches!(error, Error::BadRows(_)), "{error}");
    let error = import.transform("people", &[], &mut |_| Ok(())).unwrap_err();
    assert!(matches!(error, Error::EarlierImport(EarlierImportError::OtherTransforms { .. })), "{error}");
}

#[test]
fn transforms_keep_ten_examples_of_each_kind() {
    let (tables, _) = import();
    let import = Import::open(tables.path("set")).unwrap();
    // Several batches of rows, each with examples of its own.
    let rows: String = (0..20_000).map(|row| format!("p{row},old,1,t1,,1\n")).collect();
    tables.put("new.csv", &format!("{HEADER}{rows}"));
    let dropped = import.transform("person", &[tables.path("new.csv")], &mut |_| Ok(())).unwrap();
    assert_eq!((dropped.len(), dropped[0].n_rows), (1, 20_000));
    let rows: Vec<u64> = dropped[0].examples.iter().map(|example| example.row).collect();
    assert_eq!(rows, (1..=10).collect::<Vec<_>>());
}

#[test]
fn another_spec_cannot_use_the_transforms() {
    let (tables, _) = import();
    let earlier = Arc::new(Import::open(tables.path("set")).unwrap());
    let options = ImportOptions { transforms_of: Some(earlier), ..ImportOptions::default() };
    for (old, new) in [
        ("quantile", "numeric"),
        ("class: {column: town}", "regression: {columns: [age]}"),
        ("name: person", "name: people"),
    ] {
        let spec = SPEC
            .replace(old, new)
            .replace("type: person", if old == "name: person" { "type: people" } else { "type: person" });
        let error = tables.import_with(&spec, "other", &options).unwrap_err();
        assert!(matches!(error, Error::EarlierImport(EarlierImportError::OtherTransforms { .. })), "{error}");
    }
    // A class that the earlier import did not have is a value of a wrong type.
    tables.put("people.csv", &format!("{HEADER}p1,1,1,t1,,\np2,1,1,t9,,\np3,1,1,t0,,\n"));
    let report = tables.import_with(SPEC, "other", &options);
    let Err(Error::BadRows(found)) = report else { panic!("{report:?}") };
    assert!(
        found[0].is_dropped && found[0].examples[0].expected == "a class of the earlier import",
        "{found:?}"
    );
}

#[test]
fn record_must_fit_its_spec() {
    let (tables, _) = import();
    let text = std::fs::read_to_string(tables.path("set/import.json")).unwrap();
    assert!(
        !text.contains(&*tables.path("").to_string_lossy()),
        "the record should have no path of this machine"
    );
    let path = Path::new("import.json");
    Import::parse(path, text.as_bytes()).unwrap();
    for (old, new, expected) in [
        ("\"format\": 2", "\"format\": 1", "its format is 1, expected 2"),
        (
            "\"name\": \"person\",\n      \"columns\"",
            "\"name\": \"people\",\n      \"columns\"",
            "the name of node type",
        ),
        ("\"mean\": ", "\"mean\": 1e999, \"x\": ", "import.json: "),
        ("\"dropped\": []", "\"dropped\": [], \"more\": 1", "unknown field `more`"),
    ] {
        assert!(text.contains(old), "{old}");
        let error = Import::parse(path, text.replacen(old, new, 1).as_bytes()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = Import::open(tables.path("")).unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
}

#[test]
fn record_must_have_the_separators_and_targets_of_its_spec() {
    const SPEC: &str = "
name: t
nodes:
  - name: t
    files: [t.csv]
    key: id
    columns: [{column: x, transform: {multi_hot: {max_categories: 9, separator: ';'}}}]
    target: {multi_label: {column: y, separator: '|'}}
";
    let tables = Tables::new();
    tables.put("t.csv", "id,x,y\n1,a;b,p|q\n").import(SPEC);
    let bytes = std::fs::read(tables.path("set/import.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let path = Path::new("import.json");
    Import::parse(path, &bytes).unwrap();
    for (pointer, value, expected) in [
        ("/node_types/0/columns/0/transform/multi_hot/separator", serde_json::json!(null), "column \"x\""),
        ("/node_types/0/columns/0/transform/multi_hot/separator", "|".into(), "column \"x\""),
        ("/node_types/0/target/multi_label/separator", ";".into(), "the target"),
        ("/node_types/0/target/multi_label/column", "x".into(), "the target"),
        ("/node_types/0/target", serde_json::json!({ "regression": { "columns": ["y"] } }), "the target"),
        (
            "/node_types/0/target",
            serde_json::json!({ "class": { "column": "y", "classes": ["p", "q"] } }),
            "the target",
        ),
        ("/spec/nodes/0/target", serde_json::json!({ "regression": { "columns": ["y"] } }), "the target"),
    ] {
        let mut changed = record.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        let bytes = serde_json::to_vec(&changed).unwrap();
        let error = Import::parse(path, &bytes).unwrap_err();
        assert!(
            matches!(error, Error::EarlierImport(EarlierImportError::Record { .. }))
                && error.to_string().contains(expected),
            "{error}"
        );
    }
}

#[test]
fn a_set_without_a_record_has_no_import() {
    let root = tempfile::tempdir().unwrap();
    let types = kiln_graph::NodeTypes::new([("node", 1)]).unwrap();
    let data = Dataset::builder_with_types(types).build().unwrap();
    kiln_data::format::write(&data, root.path().join("set")).unwrap();
    let error = Import::open(root.path().join("set")).unwrap_err();
    assert!(matches!(error, Error::EarlierImport(EarlierImportError::NoImport { .. })), "{error}");
}
