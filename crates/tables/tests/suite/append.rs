//! Rows are appended to a set: its nodes keep their rows, and the result is that of an import of all rows.

use std::sync::Arc;

use kiln_data::{Dataset, format};
use kiln_graph::NodeId;
use kiln_tables::{BadRowKind, Error, Import, ImportOptions, ImportReport, hash_bytes};

use crate::helpers::{Tables, edges, features, files, keys};

const SPEC: &str = "
name: shop
nodes:
  - name: user
    files: [users.csv]
    key: id
    columns:
      - {column: age, transform: standardize}
      - {column: town, transform: {one_hot: {max_categories: 3}}}
    target: {class: {column: class}}
    split: {random: {seed: 1, train: 0.6, val: 0.2, test: 0.2}}
  - {name: item, from: relations}
relations:
  - name: buys
    files: [buys.csv]
    src: {type: user, column: user}
    dst: {type: item, column: item}
    weight: w
    edge_columns: [{column: day}]
    reverse: bought by
  - {name: knows, files: [knows.csv], src: {type: user, column: a}, dst: {type: user, column: b}}
  - name: meets
    files: [knows.csv]
    src: {type: user, column: a}
    dst: {type: user, column: b}
    weight: w
    edge_columns: [{column: day}]
    undirected: true
";
const USERS: &str = "id,age,town,class\n";
const BUYS: &str = "user,item,w,day\n";
const KNOWS: &str = "a,b,w,day\n";

/// Returns the lines of users, purchases and friends. Some users have no age and no class, and some edges occur twice: the first
/// two users are friends in many rows, of both directions and with several weights.
fn rows(users: std::ops::Range<usize>) -> [Vec<String>; 3] {
    let n_known = users.end as u64;
    let draw = |row: usize, n: u64| hash_bytes(format!("{row} of {n}").as_bytes()) % n;
    let user = |row: usize| {
        let age = if row % 13 == 3 { String::new() } else { draw(row, 90).to_string() };
        let class = ["p", "q", ""][draw(row, 3) as usize];
        format!("u{row},{age},t{},{class}\n", draw(row, 5))
    };
    let buys = |row: usize| {
        let item = draw(row, 7 + row as u64 / 9);
        format!("u{},i{item},{}.5,{}\n", draw(row, n_known), draw(row, 10), row % 7)
    };
    let knows = |row: usize| {
        let [a, b] = match row % 10 {
            0 => [row / 10 % 2, 1 - row / 10 % 2],
            _ => [draw(row, n_known) as usize, row],
        };
        format!("u{a},u{b},{row}.5,{}\n", row % 7)
    };
    let n_buys = 4 * users.start..4 * users.end;
    [users.clone().map(user).collect(), n_buys.map(buys).collect(), users.map(knows).collect()]
}

fn put(tables: &Tables, [users, buys, knows]: &[Vec<String>; 3]) {
    tables.put("users.csv", &format!("{USERS}{}", users.concat()));
    tables.put("buys.csv", &format!("{BUYS}{}", buys.concat()));
    tables.put("knows.csv", &format!("{KNOWS}{}", knows.concat()));
}

fn appending(tables: &Tables, set: &str) -> ImportOptions {
    ImportOptions { append_to: Some(tables.path(set)), ..ImportOptions::default() }
}

/// Appends the tables to a set, verifies the result and opens it.
fn append(tables: &Tables, spec: &str, set: &str, out: &str) -> (ImportReport, Dataset) {
    let report = tables.import_with(spec, out, &appending(tables, set)).unwrap();
    format::verify(tables.path(out)).unwrap();
    (report, Dataset::open(tables.path(out)).unwrap())
}

/// Returns the number of rows that repeat a pair of users who meet.
fn n_repeated(report: &ImportReport) -> usize {
    let number = |note: &String| {
        let (number, rest) = note.strip_prefix("relation `meets`: ")?.split_once(' ')?;
        rest.starts_with("rows repeat a pair: the first one is kept").then(|| number.parse().ok())?
    };
    report.notes.iter().find_map(number).unwrap()
}

/// Returns the arrays of a set.
fn arrays(tables: &Tables, set: &str) -> Vec<(String, Vec<u8>)> {
    files(&tables.path(set)).into_iter().filter(|(name, _)| name.ends_with(".npy")).collect()
}

/// The set of the first 200 users.
fn first() -> Tables {
    let tables = Tables::new();
    put(&tables, &rows(0..200));
    tables.import(SPEC);
    tables
}

#[test]
fn appended_set_has_the_arrays_of_an_import_of_all_rows() {
    let tables = first();
    let before = files(&tables.path("set"));
    put(&tables, &rows(200..300));
    let (report, data) = append(&tables, SPEC, "set", "more");
    assert!(files(&tables.path("set")) == before, "the set should not change");
    assert_eq!(data.new_rows(0), Some(200..300));
    assert!(data.summary().to_string().contains("300, 100 new"), "{}", data.summary());
    let appended = report.appended.as_ref().unwrap();
    assert_eq!((appended.new_nodes[0], &appended.known_rows[..]), (100, &[0, 0][..]));
    assert_eq!(appended.new_edges[..3], [400, 400, 100]);
    assert_eq!(n_repeated(&report), 10, "{report}");
    assert!(report.to_string().contains("node type user: 300 nodes, 100 new"), "{report}");
    assert!(report.to_string().contains("relation bought by: 1200 edges, 400 new"), "{report}");

    for (out, n_threads) in [("one", 1), ("four", 4)] {
        let options = ImportOptions { n_threads: Some(n_threads), ..appending(&tables, "set") };
        assert_eq!(tables.import_with(SPEC, out, &options).unwrap().to_string(), report.to_string());
        assert!(files(&tables.path(out)) == files(&tables.path("more")), "{out}");
    }

    let [old, new] = [rows(0..200), rows(200..300)];
    put(&tables, &[0, 1, 2].map(|table| [&old[table][..], &new[table]].concat()));
    let transforms_of = Some(Arc::new(Import::open(tables.path("set")).unwrap()));
    let options = ImportOptions { transforms_of, ..ImportOptions::default() };
    let report = tables.import_with(SPEC, "all", &options).unwrap();
    assert_eq!(n_repeated(&report), 29, "{report}");
    let [all, more] = ["all", "more"].map(|set| arrays(&tables, set));
    assert!(all.len() > 15, "a set should have more than 15 arrays");
    assert_eq!(
        all.iter().map(|file| &file.0).collect::<Vec<_>>(),
        more.iter().map(|file| &file.0).collect::<Vec<_>>()
    );
    for ((name, all), (_, more)) in all.iter().zip(&more) {
        assert!(all == more, "{name} should be that of an import of all rows");
    }
}

#[test]
fn set_grows_again_and_keeps_the_transforms_of_the_first_import() {
    let tables = first();
    put(&tables, &rows(200..230));
    append(&tables, SPEC, "set", "second");
    put(&tables, &rows(230..250));
    let (_, third) = append(&tables, SPEC, "second", "third");
    assert_eq!(third.new_rows(0), Some(230..250));
    let [old, new] = [rows(200..230), rows(230..250)];
    put(&tables, &[0, 1, 2].map(|table| [&old[table][..], &new[table]].concat()));
    append(&tables, SPEC, "set", "both");
    assert!(arrays(&tables, "third") == arrays(&tables, "both"));
    let import = Import::open(tables.path("third")).unwrap();
    assert_eq!(import.appended().len(), 2);
    let first = Import::open(tables.path("set")).unwrap();
    assert_eq!((import.spec(), import.node_type("user")), (first.spec(), first.node_type("user")));
    // The statistics repeat, and the set is written with its new rows.
    let options = ImportOptions { transforms_of: Some(Arc::new(import)), ..ImportOptions::default() };
    put(&tables, &rows(0..30));
    tables.import_with(SPEC, "apart", &options).unwrap();
    assert_eq!(Dataset::open(tables.path("apart")).unwrap().new_rows(0), None);
    format::write(&third, tables.path("copy")).unwrap();
    assert_eq!(Dataset::open(tables.path("copy")).unwrap().first_new, third.first_new);
    let without = Dataset { first_new: None, ..third };
    format::write(&without, tables.path("without")).unwrap();
    let [with, without] = ["copy", "without"].map(|set| format::hash(tables.path(set)).unwrap());
    assert_eq!(with, without);
}

#[test]
fn tables_without_new_rows_may_be_absent() {
    let tables = first();
    let old = Dataset::open(tables.path("set")).unwrap();
    // A known user buys a known and a new item.
    tables.put("new.csv", "user,item,w,day\nu7,i1,2,3\nu7,new,1.5,4\n");
    let spec = "name: shop
nodes: []
relations:
  - name: buys
    files: [new.csv]
    src: {type: user, column: user}
    dst: {type: item, column: item}
    weight: w
    edge_columns: [{column: day}]
    reverse: bought by
";
    let (report, data) = append(&tables, spec, "set", "more");
    assert_eq!(report.appended.unwrap().new_edges, [2, 2, 0, 0]);
    let n_items = keys(&old, 1).len() as u32;
    assert_eq!(
        [0, 1].map(|node_type| data.new_rows(node_type)),
        [Some(200..200), Some(n_items..n_items + 1)]
    );
    assert!(keys(&data, 1).ends_with(&["new".to_owned()]));
    assert!(features(&data, 0) == features(&old, 0));
    assert_eq!(edges(&data, 2), edges(&old, 2));
    let bought = |data: &Dataset| edges(data, 0).iter().filter(|(user, _)| user == "u7").count();
    assert_eq!(bought(&data), bought(&old) + 2);
    // The targets and the split are those of the set.
    let [old_split, split] = [&old, &data].map(|data| data.split().clone());
    assert_eq!(
        [&*split.train, &*split.val, &*split.test],
        [&*old_split.train, &*old_split.val, &*old_split.test]
    );
    assert_eq!(data.labels().as_slice(), old.labels().as_slice());
    for (spec, expected) in [
        ("name: shop\nnodes: []\n", "nodes is without any table, expected a table with new rows"),
        ("name: shop\nnodes: [{name: item, from: relations}]\n", "nodes is without any table"),
        ("name: shop\n", "nodes"),
    ] {
        let error = tables.import_with(spec, "other", &appending(&tables, "set")).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn rows_of_known_nodes_must_agree_with_the_set() {
    let tables = first();
    let [users, ..] = rows(0..200);
    let [known, other] = [users[5].as_str(), users[6].as_str()];
    let fields: Vec<&str> = known.trim().split(',').collect();
    let [id, age, town, class] = fields[..] else { panic!("{fields:?}") };
    let spec = SPEC.split("relations:\n  - name").next().unwrap();
    // Equal rows, without a class, and twice; and a new node.
    tables.put("users.csv", &format!("{USERS}{known}{known}{id},{age},{town},\n{other}new,4,t1,q\n"));
    let (report, data) = append(&tables, spec, "set", "same");
    assert_eq!(report.appended.as_ref().unwrap().known_rows, [4, 0]);
    assert!(
        report.to_string().contains("note: node type user: 4 rows of nodes that the set has"),
        "{report}"
    );
    assert_eq!(data.new_rows(0), Some(200..201));
    assert_eq!(data.labels().get(NodeId(200)), Some(1));

    let another_class = if class == "p" { "q" } else { "p" };
    for (row, column) in [
        (format!("{id},{age}1,{town},{class}"), "age"),
        (format!("{id},{age},,{class}"), "town"),
        (format!("{id},{age},{town},{another_class}"), "class"),
    ] {
        tables.put("users.csv", &format!("{USERS}{known}{row}\nnew,4,t1,q\n"));
        let error = tables.import_with(spec, "failed", &appending(&tables, "set")).unwrap_err();
        let message = error.to_string();
        let Error::BadRows(found) = error else { panic!("{message}") };
        assert_eq!((found.len(), found[0].kind, found[0].n_rows), (1, BadRowKind::Duplicate, 1), "{message}");
        assert_eq!((found[0].examples[0].row, &*found[0].examples[0].column), (2, column));
        for part in
            ["or that of a node of the set with other values (1)", "`drop: [duplicate]`", "in the set"]
        {
            assert!(message.contains(part), "{message}");
        }
        assert!(!tables.path("failed").exists());
        // If such rows are dropped, the node stays as it is.
        let spec = spec.replace("    key: id\n", "    key: id\n    drop: [duplicate]\n");
        let (report, dropped) = append(&tables, &spec, "set", &format!("dropped-{column}"));
        assert_eq!((report.dropped.len(), report.appended.unwrap().known_rows[0]), (1, 1));
        assert_eq!(features(&dropped, 0)[..800], features(&data, 0)[..800]);
        assert_eq!(dropped.labels().as_slice(), data.labels().as_slice());
        let import = Import::open(tables.path(&format!("dropped-{column}"))).unwrap();
        assert_eq!((import.dropped().len(), import.appended()[0].dropped.len()), (0, 1));
    }
    // Two new rows of one key are duplicates, and a known node is none.
    tables.put("users.csv", &format!("{USERS}new,4,t1,q\n{known}new,4,t1,q\n"));
    let error = tables.import_with(spec, "failed", &appending(&tables, "set")).unwrap_err().to_string();
    assert!(error.contains("1 row has the key of an earlier row: "), "{error}");
    assert!(error.contains("row 3, column \"id\": \"new\""), "{error}");
}

#[test]
fn new_values_are_counted_as_drift() {
    let tables = first();
    let spec = SPEC.split("relations:\n  - name").next().unwrap();
    let known = &rows(0..200)[0][5];
    tables.put("users.csv", &format!("{USERS}{known}x,4,elsewhere,p\ny,5000,t1,p\n"));
    let (report, _) = append(&tables, spec, "set", "more");
    let drift = report.drift.iter().find(|drift| drift.column == "age").unwrap();
    assert_eq!((drift.n_found, drift.n_values), (1, 2), "{report:?}");
}

/// Imports one user with targets, and appends one with targets and one without, by the same spec and by one without targets.
fn check_targets(target: &str, columns: &str, first: &str, second: &str, missing: &str) -> [Dataset; 2] {
    let tables = Tables::new();
    let spec = format!(
        "name: t
nodes:
  - name: t
    files: [t.csv]
    key: id
    columns: [{{column: x, transform: numeric}}]
    target: {{{target}}}
    split: {{column: {{column: part}}}}
"
    );
    tables.put("t.csv", &format!("id,x,{columns},part\na,1,{first},train\n")).import(&spec);
    tables
        .put("t.csv", &format!("id,x,{columns},part\na,1,{first},\nb,2,{second},val\nc,3,{missing},test\n"));
    let (report, with_targets) = append(&tables, &spec, "set", "with");
    assert!(report.to_string().contains("split of t: 1 train, 1 val, 0 test"), "{report}");
    assert_eq!(&*with_targets.split().val, [NodeId(1)]);
    let without: String = spec
        .lines()
        .filter(|line| !line.contains("target") && !line.contains("split"))
        .fold(String::new(), |text, line| text + line + "\n");
    let (report, without_targets) = append(&tables, &without, "set", "without");
    assert!(report.to_string().contains("split of t: 1 train, 0 val, 0 test"), "{report}");
    assert_eq!(with_targets.class_names(), without_targets.class_names());
    [with_targets, without_targets]
}

#[test]
fn new_rows_may_lack_targets_of_any_kind() {
    let labels = |data: &Dataset| data.labels().as_slice().to_vec();
    let data = check_targets("class: {column: y}", "y", "p", "p", "");
    assert_eq!(data.each_ref().map(labels), [vec![0, 0, -1], vec![0, -1, -1]]);
    let numbers = |data: &Dataset| {
        let values = data.target_values().unwrap().as_numbers().unwrap().to_vec();
        values.iter().map(|value| if value.is_nan() { -1.0 } else { *value }).collect::<Vec<f32>>()
    };
    let data = check_targets("regression: {columns: [y, z]}", "y,z", "1,2", ",4", ",");
    assert_eq!(
        data.each_ref().map(numbers),
        [vec![1.0, 2.0, -1.0, 4.0, -1.0, -1.0], vec![1.0, 2.0, -1.0, -1.0, -1.0, -1.0]]
    );
    let many = |data: &Dataset| data.target_values().unwrap().as_labels().unwrap().to_vec();
    let data = check_targets("multi_label: {column: y, separator: ';'}", "y", "p;q", "q", "");
    assert_eq!(data.each_ref().map(many), [vec![1, 1, 0, 1, 255, 255], vec![1, 1, 255, 255, 255, 255]]);
}

#[test]
fn dry_run_states_the_rows_and_the_set() {
    let tables = first();
    put(&tables, &rows(200..210));
    let spec = SPEC.split("  - {name: knows").next().unwrap();
    tables.put("new.yaml", spec);
    let plan = kiln_tables::plan_append(tables.path("new.yaml"), tables.path("set")).unwrap();
    assert!(plan.errors.is_empty(), "{plan}");
    let text = plan.to_string();
    for part in [
        "node type `user`: an unknown number of rows, and 200 nodes of the set, with targets",
        "  column \"age\": 2 feature columns",
        "relation `bought by` from `item` to `user`: an unknown number of rows, and 800 edges of the set",
        "relation `knows` from `user` to `user`: 0 rows, and 200 edges of the set",
    ] {
        assert!(text.contains(part), "{text}");
    }
    tables.put("new.yaml", &spec.replace("column: age", "column: size"));
    let error = kiln_tables::plan_append(tables.path("new.yaml"), tables.path("set")).unwrap_err();
    assert!(error.to_string().contains("columns[0] is \"size\", expected \"age\""), "{error}");
}

#[test]
fn keys_of_the_set_may_exceed_the_memory() {
    let tables = Tables::new();
    let spec = "
name: long
nodes:
  - {name: t, files: [t.csv], key: id, columns: [{column: x, transform: numeric}], drop: [duplicate]}
relations:
  - {name: to, files: [e.csv], src: {type: t, column: a}, dst: {type: t, column: b}}
";
    // Keys of 6 MB in all, in a limit that leaves 4 MiB.
    let key = |row: usize| format!("{row:0200}");
    let rows =
        |rows: std::ops::Range<usize>| rows.map(|row| format!("{},{row}\n", key(row))).collect::<String>();
    tables.put("t.csv", &format!("id,x\n{}", rows(0..30_000)));
    tables.put("e.csv", &format!("a,b\n{},{}\n", key(1), key(2)));
    tables.import(spec);
    // Known rows, one of them with another value, a duplicate, and new rows; edges between known and new nodes.
    tables.put(
        "t.csv",
        &format!("id,x\n{}{},7\n{}{}", rows(5..9), key(9), rows(30_000..30_100), rows(30_007..30_008)),
    );
    let edges = (0..3000).map(|edge| format!("{},{}\n", key(edge * 7919 % 30_100), key(30_000 + edge % 100)));
    tables.put("e.csv", &format!("a,b\n{}", edges.collect::<String>()));
    for (out, mebibytes) in [("whole", 1024), ("parts", 20)] {
        let options = ImportOptions { memory_bytes: mebibytes << 20, ..appending(&tables, "set") };
        let report = tables.import_with(spec, out, &options).unwrap();
        assert_eq!((report.dropped[0].n_rows, report.appended.unwrap().known_rows), (2, vec![4]));
    }
    assert!(files(&tables.path("whole")) == files(&tables.path("parts")), "the sets should be equal");
    let data = Dataset::open(tables.path("parts")).unwrap();
    assert_eq!((data.new_rows(0), data.graph.n_edges()), (Some(30_000..30_100), 3001));
    let options = ImportOptions { memory_bytes: 1 << 20, ..appending(&tables, "set") };
    let error = tables.import_with(spec, "small", &options).unwrap_err();
    assert!(matches!(error, Error::Memory { .. }), "{error}");
}
