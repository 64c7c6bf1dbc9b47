//! One table as Polars and pyarrow write it has the features that `fixtures/programs/make.py` computes with numpy.

use std::fs;
use std::path::{Path, PathBuf};

use kiln_tables::Import;

use crate::helpers::{Tables, features, keys};

/// The columns of `expected.json`; those of `pair` have no names.
const NAMES: [&str; 15] = [
    "x",
    "x=missing",
    "small",
    "flag",
    "word=books",
    "word=kitchen",
    "word=music",
    "word=outdoor",
    "word=toys",
    "word=missing",
    "items=books",
    "items=kitchen",
    "items=music",
    "items=outdoor",
    "items=toys",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/programs")
}

#[test]
fn tables_of_other_programs_have_the_features_of_numpy() {
    let expected = fs::read(folder().join("expected.json")).unwrap();
    let expected: Vec<Vec<f32>> = serde_json::from_slice(&expected).unwrap();
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = entries.filter(|path| path.to_string_lossy().contains("/table.")).collect();
    assert_eq!(files.len(), 12);
    for file in files {
        let tables = Tables::new();
        let name = file.file_name().unwrap().to_str().unwrap();
        fs::copy(&file, tables.path(name)).unwrap();
        let spec = format!(
            "
name: t
nodes:
  - name: t
    files: [{name}]
    key: id
    columns:
      - {{column: x, transform: numeric}}
      - {{column: small, transform: numeric}}
      - {{column: flag, transform: numeric}}
      - {{column: word, transform: {{one_hot: {{max_categories: 5}}}}}}
      - {{column: items, transform: {{multi_hot: {{max_categories: 5}}}}}}
      - {{column: pair, transform: {{vector: {{columns: 2}}}}}}
      - {{column: long, transform: {{hash: {{columns: 7}}}}}}
"
        );
        let data = tables.import(&spec);
        let ids: Vec<String> = (1000..1400).map(|id| id.to_string()).collect();
        assert_eq!(keys(&data, 0), ids, "{name}");
        let import = Import::open(tables.path("set")).unwrap();
        let columns = &import.node_type("t").unwrap().columns;
        let names: Vec<String> = columns.iter().flat_map(|column| column.feature_names()).collect();
        let found = features(&data, 0);
        let rows: Vec<&[f32]> = found.chunks(names.len()).collect();
        assert_eq!(rows.len(), expected.len(), "{name}");
        // The columns after those with names: two of `pair`, and seven of `long`.
        let others: Vec<usize> =
            (0..names.len()).filter(|at| !NAMES.contains(&names[*at].as_str())).collect();
        assert_eq!(others.len(), 9, "{name}: {names:?}");
        for (row, (found, expected)) in rows.iter().zip(&expected).enumerate() {
            for (column, value) in NAMES.iter().zip(expected) {
                let position = names.iter().position(|name| name == column).unwrap();
                assert_eq!(found[position], *value, "{name}, row {row}, {column}");
            }
            assert_eq!(found[others[0]..=others[1]], expected[15..], "{name}, row {row}");
            let text = format!("row {row} of a table whose texts exceed the twelve bytes of a view");
            let hash = kiln_tables::hash_bytes(text.as_bytes());
            let bucket = ((u128::from(hash) * 7) >> 64) as usize;
            assert_eq!(found[others[2 + bucket]], 1.0, "{name}, row {row}");
        }
    }
}
