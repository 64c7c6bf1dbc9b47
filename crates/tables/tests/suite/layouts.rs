//! Several files of a table: patterns, folders, Hive partitions, and files with different columns.

use std::fs;

use kiln_tables::{Import, ImportOptions};

use crate::helpers::{FORMATS, Tables, edges, features, files, keys, pairs};

/// A spec whose node table and edge table have the given entries.
fn spec(nodes: &str, relations: &str) -> String {
    format!(
        "
name: t
nodes:
  - {{name: user, files: [{nodes}], key: id, columns: [{{column: x, transform: numeric}}, {{column: year, transform: numeric}}]}}
relations:
  - {{name: knows, files: [{relations}], src: {{type: user, column: a}}, dst: {{type: user, column: b}}, weight: year}}
"
    )
}

/// Writes the same rows below `nodes` and `knows`, with other files beside them.
fn put_partitions(tables: &Tables, format: &str) {
    let name = |folder: &str, part: u32| format!("{folder}/part-{part}.{format}");
    tables.put_table(&name("nodes/year=2024", 10), &["id", "x"], &[&["d", "4"]]);
    tables.put_table(&name("nodes/year=2024", 0), &["id", "x"], &[&["b", "2"], &["c", "3"]]);
    tables.put_table(&name("nodes/year=2023", 0), &["id", "x"], &[&["a", "1"]]);
    tables.put_table(&name("nodes/year=__HIVE_DEFAULT_PARTITION__", 0), &["id", "x"], &[&["e", "5"]]);
    tables.put_table(&name("knows/year=2024", 0), &["a", "b"], &[&["a", "b"], &["e", "b"]]);
    tables.put_table(&name("knows/year=2023", 1), &["a", "b"], &[&["d", "a"]]);
    for hidden in
        ["nodes/_SUCCESS", "nodes/year=2024/.part-0.crc", "nodes/year=2024/.x.csv", "knows/_log/x.csv"]
    {
        fs::create_dir_all(tables.path(hidden).parent().unwrap()).unwrap();
        tables.put(hidden, "no table");
    }
}

#[test]
fn folders_patterns_and_lists_of_the_same_files_are_equal() {
    for format in FORMATS {
        let tables = Tables::new();
        put_partitions(&tables, format);
        let mut sets = Vec::new();
        let list = |folder: &str, parts: &[(&str, u32)]| {
            let entries =
                parts.iter().map(|(year, part)| format!("{folder}/year={year}/part-{part}.{format}"));
            entries.collect::<Vec<_>>().join(", ")
        };
        let nodes =
            list("nodes", &[("2023", 0), ("2024", 0), ("2024", 10), ("__HIVE_DEFAULT_PARTITION__", 0)]);
        let knows = list("knows", &[("2023", 1), ("2024", 0)]);
        for (position, (nodes, knows)) in [
            (nodes.as_str(), knows.as_str()),
            ("nodes", "knows/"),
            ("nodes/*/*", "knows/year=*"),
            ("nodes/**", "'knows/year=202[34]/part-?.*'"),
            ("nodes/year=2023, nodes/year=2024, nodes/year=_*", "./knows"),
        ]
        .into_iter()
        .enumerate()
        {
            let out = format!("set{position}");
            let report = tables.import_with(&spec(nodes, knows), &out, &ImportOptions::default()).unwrap();
            assert_eq!(report.notes, Vec::<String>::new(), "{nodes}");
            let bytes = files(&tables.path(&out));
            let bytes: Vec<_> =
                bytes.into_iter().filter(|(name, _)| name != "import.json" && name != "kiln.json").collect();
            sets.push(bytes);
            assert!(sets[0] == sets[position], "{format}: {nodes}; {knows}");
        }
        let data = kiln_data::Dataset::open(tables.path("set1")).unwrap();
        assert_eq!(keys(&data, 0), ["a", "b", "c", "d", "e"], "{format}");
        let expected =
            [[1.0, 2023.0, 0.0], [2.0, 2024.0, 0.0], [3.0, 2024.0, 0.0], [4.0, 2024.0, 0.0], [5.0, 0.0, 1.0]];
        assert_eq!(features(&data, 0), expected.concat(), "{format}");
        assert_eq!(edges(&data, 0), pairs(&[("d", "a"), ("a", "b"), ("e", "b")]), "{format}");
        assert_eq!(data.graph.relation(0).graph.weights().unwrap(), [2023.0, 2024.0, 2024.0], "{format}");
    }
}

#[test]
fn entries_without_tables_are_errors_with_the_pattern() {
    let tables = Tables::new();
    put_partitions(&tables, "csv");
    fs::create_dir(tables.path("empty")).unwrap();
    fs::write(tables.path("plain"), "id\n").unwrap();
    for (nodes, expected) in [
        (
            "nodes/*.csv",
            "node type `user`: `nodes/*.csv` matches no table, expected at least one file with a name",
        ),
        ("empty", "node type `user`: `empty` matches no table"),
        ("nodes/_*", "node type `user`: `nodes/_*` matches no table"),
        ("plain", "node type `user`: `plain` is no table by its name, expected a name that ends in .parquet"),
        ("'nodes/[a'", "node type `user`: `nodes/[a` is no pattern: invalid range pattern at character"),
        (
            "nodes, nodes/year=2023",
            "`nodes/year=2023` matches nodes/year=2023/part-0.csv, which another entry has",
        ),
        (
            "nodes/year=2023/part-0.csv, nodes",
            "`nodes` matches nodes/year=2023/part-0.csv, which another entry",
        ),
        ("nothing", "node type `user`: `nothing` does not exist, expected a file, a folder or a pattern"),
        ("nothing.csv", "nothing.csv: "),
    ] {
        let error = tables.error_of(&spec(nodes, "knows"));
        assert!(error.contains(expected), "{error}\n    expected {expected}");
    }
    let error = tables.error_of(&spec("nodes", "knows/*.parquet"));
    assert!(error.starts_with("relation `knows`: `knows/*.parquet` matches no table"), "{error}");
    let plan = {
        fs::write(tables.path("plan.yaml"), spec("nodes/*.csv", "knows/x*")).unwrap();
        kiln_tables::plan(tables.path("plan.yaml")).unwrap()
    };
    assert_eq!(plan.errors.len(), 2, "{plan}");
}

#[test]
fn other_files_in_a_folder_are_noted() {
    let tables = Tables::new();
    put_partitions(&tables, "csv");
    tables.put("nodes/readme.txt", "a").put("nodes/year=2024/z.xls", "b");
    let report = tables.import_with(&spec("nodes", "knows"), "set", &ImportOptions::default()).unwrap();
    let note = "node type `user`: `nodes`: 2 files with other names than those of tables, such as nodes/readme.txt, not read";
    assert_eq!(report.notes, [note]);
}

#[test]
fn columns_that_some_files_do_not_have_are_missing_there() {
    let spec = |nodes: &str, knows: &str| {
        format!(
            "
name: t
nodes:
  - {{name: user, files: [{nodes}], key: id, columns: [{{column: x, transform: numeric}}]}}
relations:
  - {{name: knows, files: [{knows}], src: {{type: user, column: a}}, dst: {{type: user, column: b}}, weight: w, drop: [wrong_type]}}
"
        )
    };
    for format in FORMATS {
        let tables = Tables::new();
        let name = |name: &str| format!("{name}.{format}");
        tables.put_table(&name("n/0"), &["id", "y"], &[&["a", "1"]]);
        tables.put_table(&name("n/1"), &["x", "id"], &[&["2", "b"], &["", "c"]]);
        tables.put_table(&name("k/0"), &["a", "b"], &[&["a", "b"]]);
        tables.put_table(&name("k/1"), &["w", "b", "a"], &[&["3", "a", "c"]]);
        let report = tables.import_with(&spec("n", "k"), "set", &ImportOptions::default()).unwrap();
        let is_json = format.starts_with("jsonl");
        let expected = [
            format!(
                "node type `user`: 1 file of 2 without the column \"x\", such as n/0.{format}: its values are missing there"
            ),
            format!(
                "relation `knows`: 1 file of 2 without the column \"w\", such as k/0.{format}: its values are missing there"
            ),
        ];
        assert_eq!(report.notes, if is_json { &[][..] } else { &expected }, "{format}");
        let data = kiln_data::Dataset::open(tables.path("set")).unwrap();
        assert_eq!(keys(&data, 0), ["a", "b", "c"], "{format}");
        assert_eq!(features(&data, 0), [0.0, 1.0, 2.0, 0.0, 0.0, 1.0], "{format}");
        // An edge needs its weight.
        assert_eq!(edges(&data, 0), pairs(&[("c", "a")]), "{format}");
        // A column that no file has, and a file without keys, are errors.
        let error = tables.error_of(&spec("n", "k").replace("column: x", "column: z"));
        assert!(error.contains("no column is named \"z\""), "{format}: {error}");
        tables.put_table(&name("n/2"), &["x", "y"], &[&["2", "b"]]);
        let error = tables.error_of(&spec("n", "k"));
        let of_json = "the tables have bad rows:\nnode type `user`: 1 row";
        let expected = if is_json { of_json } else { "no column is named \"id\", expected one of: x, y" };
        assert!(error.contains(expected), "{format}: {error}");
    }
}

/// The files of a table may have different formats, and a column of the file counts, not that of its folder.
#[test]
fn a_folder_may_have_files_of_several_formats() {
    let tables = Tables::new();
    tables.put_table("n/0.parquet", &["id", "x"], &[&["a", "1"]]);
    tables.put_table("n/1.csv", &["id", "x"], &[&["b", "2"]]);
    tables.put_table("n/k=7/2.jsonl.gz", &["id"], &[&["c"]]);
    tables.put_table("n/k=7/3.csv", &["id", "k"], &[&["d", "8"]]);
    let spec = "{name: t, nodes: [{name: user, files: [n], key: id,
                 columns: [{column: x, transform: numeric}, {column: k, transform: numeric}]}]}";
    let data = tables.import(spec);
    assert_eq!(keys(&data, 0), ["a", "b", "c", "d"]);
    let expected = [[1., 0., 0., 1.], [2., 0., 0., 1.], [0., 1., 7., 0.], [0., 1., 8., 0.]];
    assert_eq!(features(&data, 0), expected.concat());
    // New rows of the same folder are transformed with the stored statistics.
    let import = Import::open(tables.path("set")).unwrap();
    let mut found = Vec::new();
    import
        .transform("user", &[tables.path("n")], &mut |rows| {
            found.extend(rows.features);
            Ok(())
        })
        .unwrap();
    assert_eq!(found, expected.concat());
}
