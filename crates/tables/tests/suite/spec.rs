//! Invalid specs are errors with their place.

use std::path::Path;

use kiln_tables::{Error, ImportSpec, SpecError};

use crate::schema::FULL;

fn error_of(text: &str) -> Error {
    ImportSpec::parse(Path::new("spec.yaml"), text.as_bytes()).unwrap_err()
}

#[test]
fn syntax_errors_have_the_line() {
    for (text, expected) in [
        ("name: a\nnodes: [\n", "spec.yaml: "),
        ("name: a\nnodes: []\nedges: []\n", "edges"),
        (&FULL.replace("key: id", "id: key"), "unknown key `id`"),
        (&FULL.replace("transform: numeric", "transform: log"), "unknown value `log`"),
        (&FULL.replace("{one_hot: {max_categories: 5}}", "{one_hot: {max_categories: 5, min: 2}}"), "min"),
        (&FULL.replace("drop: [dangling]", "drop: [all]"), "all"),
        (&FULL.replace("name: has", "name: has\n    name: had"), "duplicate"),
        (&FULL.replace("max_categories: 5", "max_categories: -5"), "line 16 column 59"),
        ("\u{0}", "spec.yaml: "),
        (&FULL.replace("separator: tab", "separator: tabs"), "expected one character, or `tab`"),
    ] {
        let error = error_of(text);
        assert!(matches!(error, Error::Spec(SpecError::SpecSyntax { .. })), "{error}");
        assert!(error.to_string().contains(expected), "{error}\n    expected {expected}");
        assert!(error.to_string().ends_with("(spec.schema.json lists the keys)"), "{error}");
    }
    let error = ImportSpec::parse(Path::new("spec.yaml"), b"name: \xff").unwrap_err().to_string();
    assert!(error.contains("not UTF-8"), "{error}");
    let error = error_of(&"#".repeat(1 << 21)).to_string();
    assert!(error.contains("more than 1048576 bytes"), "{error}");
}

#[test]
fn invalid_values_have_their_place() {
    for (old, new, expected) in [
        ("name: everything", "name: ''", "name is empty, expected a name"),
        ("name: tag", "name: user", "nodes[1].name is \"user\", which occurs twice"),
        ("key: id", "", "nodes[0].key is missing, expected the column of the keys"),
        (
            "users.parquet",
            "users.xls",
            "nodes[0].files[0] is \"users.xls\", expected a name that ends in .parquet",
        ),
        (
            "files: [users.parquet, more.csv.gz]",
            "",
            "nodes[0].files is missing, expected files with a key, or `from",
        ),
        (
            "from: relations",
            "from: relations, key: k",
            "nodes[1].key is a column, expected none: a type from",
        ),
        (
            "type: tag",
            "type: tags",
            "relations[0].dst.type is \"tags\", expected the name of a node type: tag, user",
        ),
        ("reverse: of", "reverse: has", "relations[0].reverse is \"has\", which occurs twice"),
        (
            "reverse: of",
            "undirected: true",
            "relations[0].undirected is true, from \"user\" to \"tag\", expected false between two node types",
        ),
        ("files: [has.jsonl, more/, \"part-*.csv\"]", "files: []", "relations[0].files is an empty list"),
        (
            "{hash: {columns: 8}}",
            "{hash: {columns: 0}}",
            "nodes[0].columns[5].transform.hash.columns is 0, expected 1 to",
        ),
        ("max_n: 3", "max_n: 1", "nodes[0].columns[8].transform.text.max_n is 1, expected min_n to 8"),
        ("separator: \";\"", "separator: \"\"", "columns[6].transform.multi_hot.separator is empty"),
        (
            "{ordinal: {max_categories: 5}}",
            "{ordinal: {max_categories: 70000}}",
            "is 70000, expected 1 to 65536",
        ),
        (
            "target: {class: {column: y}}",
            "",
            "nodes[0].split is a split, expected none, because there is no target",
        ),
        ("{class: {column: y}}", "{regression: {columns: []}}", "target.regression.columns is 0"),
        (
            "{column: {column: s}}",
            "{random: {seed: 1, train: 0.9, val: 0.2, test: 0}}",
            "split.random is 1.1",
        ),
        ("{column: {column: s}}", "{masks: {train: a, test: a}}", "split.masks is a column of two parts"),
        (
            "{column: {column: s}}",
            "{steps: {column: s, val_from: 35, test_from: 34}}",
            "split.steps.test_from is 34, expected a step that is not before val_from",
        ),
        ("separator: ';'", "separator: x", "nodes[0].csv.separator is 'x', expected a character such as ';'"),
        ("decimal: \",\"", "decimal: \":\"", "nodes[0].csv.decimal is ':', expected ',' or '.'"),
        ("escape: \"\\\\\"", "escape: \";\"", "nodes[0].csv.escape is ';', expected a character such as"),
        (
            "names: [id, a, kind]",
            "names: [id, id]",
            "nodes[0].csv.names[1] is \"id\", expected the name of a column",
        ),
        (
            "kind: [user, \"1\"]",
            "kind: [nan]",
            "nodes[0].where.kind is \"nan\", expected values: a missing value",
        ),
        ("kind: [user, \"1\"]", "kind: []", "nodes[0].where.kind is 0, expected 1 to 4096"),
        ("from: relations", "from: relations, csv: {}", "nodes[1].csv is the form of files, expected none"),
        ("from: relations", "from: relations, where: {a: [b]}", "nodes[1].where is columns with values"),
        (
            "{column: {column: s}}",
            "{random: {seed: 1, train: .nan, val: 0.2, test: 0}}",
            "split.random.train is NaN",
        ),
        (
            "{column: {column: s}}",
            "{time: {column: s, val_from: soon, test_from: '2024-01-01'}}",
            "split.time.val is \"soon\", expected a time, such as 2024-01-01",
        ),
        (
            "{column: {column: s}}",
            "{time: {column: s, val_from: '2024-02-01', test_from: '2024-01-01'}}",
            "split.time.test is 2024-01-01, expected a time that is not before val",
        ),
        (
            "src: {type: user, column: u}\n    dst: {type: tag",
            "src: {type: user, column: u}\n    dst: {type: user",
            "nodes[1].from is no relation has it",
        ),
    ] {
        assert!(FULL.contains(old), "{old}");
        let error = error_of(&FULL.replacen(old, new, 1));
        assert!(matches!(error, Error::Spec(SpecError::Spec { .. })), "{error}");
        assert!(error.to_string().contains(expected), "{error}\n    expected {expected}");
    }
    let two = FULL.replace(
        "{name: tag, from: relations}",
        "{name: tag, files: [t.csv], key: k, target: {class: {column: c}}}",
    );
    assert!(error_of(&two).to_string().contains("nodes is 2, expected at most one node type with a target"));
}
