//! Task tables: targets of nodes at times.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_data::{Dataset, TaskTable, TimeKind, format};
use kiln_feature::Targets;
use kiln_graph::NodeId;
use kiln_tables::{Import, ImportOptions, plan};

use crate::helpers::{Tables, features};

const USERS: &str = "id,x,joined\nanna,1,2026-01-01\nben,3,2026-01-02\ncarl,500,2026-06-01\n";

/// Returns a spec of users, and of these task tables.
fn spec(tasks: &str) -> String {
    format!(
        "name: set\nnodes:\n  - {{name: item, files: [items.csv], key: id}}\n  - {{name: user, files: [users.csv], key: id, \
         time: {{column: joined}}, columns: [{{column: x, transform: standardize}}], drop: [wrong_type]}}\ntasks:\n{tasks}"
    )
}

/// Returns a task table of users with these other keys.
fn task(name: &str, others: &str) -> String {
    format!(
        "  - {{name: {name}, key: {{type: user, column: user}}, time: {{column: at}}, target: {{class: {{column: churn}}}}, {others}}}\n"
    )
}

const BY_TIME: &str = "files: [churn.csv], split: {time: {column: at, val: 2026-02-01, test: 2026-03-01}}";

fn tables(churn: &str) -> Tables {
    let tables = Tables::new();
    tables.put("items.csv", "id\n1\n2\n").put("users.csv", USERS);
    tables.put("churn.csv", &format!("at,user,churn\n{churn}"));
    tables
}

/// Returns the nodes within their type, and the days of January 2026 of the rows.
fn rows_of(data: &Dataset, table: &TaskTable) -> Vec<(u32, i64)> {
    let first = data.graph.types().range(table.targets.node_type).start;
    let january = TimeKind::Date.parse("2026-01-01").unwrap();
    let day = |time: i64| (time - january) / 86_400_000_000 + 1;
    table.nodes.iter().zip(table.times.iter()).map(|(node, time)| (node.0 - first, day(*time))).collect()
}

fn classes_of(table: &TaskTable) -> Vec<Option<u32>> {
    let Targets::Classes(labels) = &table.targets.values else { panic!("expected classes") };
    (0..table.n_rows() as u32).map(|row| labels.get(NodeId(row))).collect()
}

fn parts_of(table: &TaskTable) -> [Vec<u32>; 3] {
    table.targets.split.parts().map(|(_, rows)| rows.iter().map(|row| row.0).collect())
}

#[test]
fn a_node_is_in_several_rows_of_several_tables() {
    let churn =
        "2026-01-05,ben,no\n2026-02-05,ben,yes\n2026-03-05,anna,no\n2026-01-05,anna,\n2026-01-31,ben,no\n";
    let tables = tables(churn);
    for (part, rows) in [("train", "2026-01-01,anna,2.5\n"), ("val", "2026-01-02,ben,\n2026-01-03,ben,1\n")] {
        tables.put(&format!("{part}.csv"), &format!("at,user,sum\n{rows}"));
    }
    let sales = "  - {name: sales, key: {type: user, column: user}, time: {column: at}, target: {regression: {columns: [sum]}}, \
                 train: [train.csv], val: [val.csv]}\n";
    let data = tables.import(&spec(&(task("churn", BY_TIME) + sales)));
    let churn = data.task_table("churn").unwrap();
    assert_eq!(rows_of(&data, churn), [(1, 5), (1, 36), (0, 64), (0, 5), (1, 31)]);
    assert_eq!(churn.targets.class_names, ["no", "yes"]);
    assert_eq!(classes_of(churn), [Some(0), Some(1), Some(0), None, Some(0)]);
    // The row without a class is in no part.
    assert_eq!(parts_of(churn), [vec![0, 4], vec![1], vec![2]]);
    let sales = data.task_table("sales").unwrap();
    assert_eq!(rows_of(&data, sales), [(0, 1), (1, 2), (1, 3)]);
    assert_eq!(parts_of(sales), [vec![0], vec![2], vec![]]);
    assert_eq!((data.times.kind, data.times.split), (TimeKind::Date, None));
    // The set is written and read again as it is.
    format::write_with_attachments(&data, tables.path("again"), tables.path("set")).unwrap();
    let again = Dataset::open(tables.path("again")).unwrap();
    assert_eq!(again.hash().unwrap(), data.hash().unwrap());
    let hashes = ["set", "again"].map(|set| format::hash(tables.path(set)).unwrap());
    assert_eq!(hashes[0], hashes[1]);
    let summary = data.summary().to_string();
    for line in [
        "task table `churn`, 2026-01-05 to 2026-03-05",
        "split: 2 / 1 / 1 rows to train, validate, test",
        "targets: 1 target columns of user, known for 2 of 3 rows",
    ] {
        assert!(summary.contains(line), "{summary}");
    }
    let plan = plan(tables.path("set.yaml")).unwrap().to_string();
    assert!(plan.ends_with("\ntask table `churn` of `user`: an unknown number of rows\ntask table `sales` of `user`: an unknown number of rows"), "{plan}");
}

#[test]
fn features_know_nothing_of_the_first_evaluated_row() {
    // Carl joins after the first row of the validation, by a border or in a file of its own.
    let tables = tables("2026-01-05,ben,no\n2026-03-05,anna,yes\n");
    tables
        .put("train.csv", "at,user,churn\n2026-01-05,ben,no\n")
        .put("test.csv", "at,user,churn\n2026-02-01,ben,no\n");
    for (set, others) in [("by-time", BY_TIME), ("by-file", "train: [train.csv], test: [test.csv]")] {
        tables.import_with(&spec(&task("churn", others)), set, &ImportOptions::default()).unwrap();
        let data = Dataset::open(tables.path(set)).unwrap();
        // The mean of 1 and 3 is 2, and their standard deviation 1.
        assert_eq!(features(&data, 1), [-1.0, 1.0, 498.0], "{set}");
    }
}

#[test]
fn bad_rows_are_errors_with_their_file_or_dropped() {
    let rows = "2026-01-05,ben,no\n,ben,no\n2026-01-06,dora,no\n2026-01-07,,yes\nsoon,anna,no\n2026-01-08,anna,yes\n";
    let tables = tables(rows);
    let message = tables.error_of(&spec(&task("churn", BY_TIME)));
    for line in [
        "task table `churn`: 1 row has a key that its node type does not have: correct them, or add `drop: [dangling]`",
        "churn.csv, row 3, column \"user\": \"dora\", expected a key of node type `user`",
        "task table `churn`: 1 row has no key",
        "churn.csv, row 4, column \"user\": missing, expected a key of node type `user`",
        "task table `churn`: 2 rows have a value of the wrong type",
        "churn.csv, row 2, column \"at\": missing, expected a time",
        "churn.csv, row 5, column \"at\": \"soon\", expected ",
    ] {
        assert!(message.contains(line), "{line}\n{message}");
    }
    let dropping = format!("{BY_TIME}, drop: [dangling, missing_key, wrong_type]");
    let report =
        tables.import_with(&spec(&task("churn", &dropping)), "set", &ImportOptions::default()).unwrap();
    let report = report.to_string();
    assert!(report.contains("split of churn: 2 train, 0 val, 0 test"), "{report}");
    assert!(report.contains("note: no row of `churn` is in the val part"), "{report}");
    assert!(report.contains("dropped from task table `churn`: 2 rows, wrong_type"), "{report}");
    let data = Dataset::open(tables.path("set")).unwrap();
    assert_eq!(rows_of(&data, data.task_table("churn").unwrap()), [(1, 5), (0, 8)]);
}

#[test]
fn edges_that_every_row_knows_have_a_note() {
    let tables = tables("2026-01-05,ben,no\n");
    tables.put("rel.csv", "a,b\n1,2\n").put("buys.csv", "user,item\nben,1\n");
    let relation = |name: &str, src: &str, dst: &str| {
        format!("  - {{name: {name}, files: [{name}.csv], src: {{type: {src}}}, dst: {{type: {dst}}}}}\n")
    };
    let relations = relation("rel", "item, column: a", "item, column: b")
        + &relation("buys", "user, column: user", "item, column: item");
    let spec = spec(&task("churn", BY_TIME)).replace("tasks:\n", &format!("relations:\n{relations}tasks:\n"));
    let report = tables.import_with(&spec, "set", &ImportOptions::default()).unwrap();
    // A user who buys an item is known from a time on.
    let expected = "relation `rel`: its edges have no times, so each row of a task table knows them: add `time` if some are later";
    assert_eq!(report.notes, [expected]);
}

#[test]
fn specs_that_state_no_table_are_rejected() {
    let tables = tables("2026-01-05,ben,no\n");
    let both = "files: [churn.csv], train: [churn.csv]";
    for (task, expected) in [
        (task("churn", "files: [churn.csv]"), "tasks[0].split is none, expected a split of the rows"),
        (
            task("churn", "missing: [NA]"),
            "tasks[0].files is none, expected files with a `split`, or files of `train`",
        ),
        (task("churn", both), "tasks[0].files is a list of files, expected none beside files of `train`"),
        (
            task("churn", "test: [churn.csv]"),
            "tasks[0].train is none, expected files of the rows for training",
        ),
        (task("churn", BY_TIME).repeat(2), "tasks[1].name is \"churn\", which occurs twice"),
        (task("churn", BY_TIME).replace("type: user", "type: usr"), "(did you mean `user`?)"),
        (task("churn", &format!("{BY_TIME}, drop: [duplicate]")), "a key may be in several rows"),
        (task("churn", BY_TIME).replace("{column: at}", "{column: at, unit: integer}"), "times of one kind"),
        (task("churn", BY_TIME).replace("column: churn", "column: gone"), "gone"),
        (task("churn", BY_TIME).replace("time: {column: at},", ""), "time"),
    ] {
        let message = tables.error_of(&spec(&task));
        assert!(message.contains(expected), "{expected}\n{message}");
    }
    tables.put("churn.csv", "at,user,churn\n2026-01-05,ben,\n");
    let message = tables.error_of(&spec(&task("churn", BY_TIME)));
    assert!(message.contains("task table `churn`: no row has a target"), "{message}");
}

#[test]
fn new_rows_have_the_classes_of_the_earlier_import() {
    let tables = tables("2026-01-05,ben,no\n2026-01-06,anna,yes\n2026-02-06,anna,yes\n");
    tables.import(&spec(&task("churn", BY_TIME)));
    let earlier = Import::open(tables.path("set")).unwrap();
    assert_eq!(earlier.task("churn").unwrap().target.names(), ["no", "yes"]);
    let options = ImportOptions { transforms_of: Some(earlier.into()), ..ImportOptions::default() };
    tables.put("churn.csv", "at,user,churn\n2026-01-05,ben,yes\n");
    tables.import_with(&spec(&task("churn", BY_TIME)), "new", &options).unwrap();
    let data = Dataset::open(tables.path("new")).unwrap();
    let churn = data.task_table("churn").unwrap();
    assert_eq!((classes_of(churn), churn.targets.class_names.len()), (vec![Some(1)], 2));
    tables.put("churn.csv", "at,user,churn\n2026-01-05,ben,maybe\n");
    let error = tables.import_with(&spec(&task("churn", BY_TIME)), "other", &options).unwrap_err();
    assert!(error.to_string().contains("\"maybe\", expected a class of the earlier import"), "{error}");
    // Rows cannot be appended to a set with task tables.
    let options = ImportOptions { append_to: Some(tables.path("set")), ..ImportOptions::default() };
    let error = tables.import_with(&spec(&task("churn", BY_TIME)), "more", &options).unwrap_err();
    assert!(
        error.to_string().contains("the set has task tables, to which no rows can be appended"),
        "{error}"
    );
}
