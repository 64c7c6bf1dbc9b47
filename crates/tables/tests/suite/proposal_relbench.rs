//! Specs of folders in RelBench's layout.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, Int64Array, ListArray, StringArray, TimestampMicrosecondArray, types::Int64Type,
};
use kiln_data::Dataset;
use kiln_tables::{ImportOptions, Proposal, ProposalOptions, import, propose_spec};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use crate::helpers::Tables;

const DAY: i64 = 86_400_000_000;

/// The values of a column.
enum Values {
    Ints(Vec<i64>),
    Days(Vec<i64>),
    Texts(Vec<&'static str>),
    Lists(Vec<Vec<i64>>),
}

impl Values {
    fn to_array(&self) -> ArrayRef {
        match self {
            Self::Ints(values) => Arc::new(Int64Array::from(values.clone())),
            Self::Days(days) => {
                Arc::new(TimestampMicrosecondArray::from_iter_values(days.iter().map(|day| day * DAY)))
            }
            Self::Texts(texts) => Arc::new(StringArray::from(texts.clone())),
            Self::Lists(lists) => {
                let lists =
                    lists.iter().map(|list| Some(list.iter().map(|item| Some(*item)).collect::<Vec<_>>()));
                Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))
            }
        }
    }
}

/// Writes a table with the entries of RelBench, which `keys` has as JSON: foreign keys, primary key and time.
fn put(tables: &Tables, name: &str, columns: &[(&str, Values)], keys: Option<[&str; 3]>) {
    fs::create_dir_all(tables.path(name).parent().unwrap()).unwrap();
    let entries = keys.map(|[references, key, time]| {
        let entry = |name: &str, value: &str| KeyValue::new(name.to_owned(), value.to_owned());
        vec![entry("fkey_col_to_pkey_table", references), entry("pkey_col", key), entry("time_col", time)]
    });
    let properties = WriterProperties::builder().set_key_value_metadata(entries).build();
    let columns: Vec<(&str, ArrayRef)> =
        columns.iter().map(|(name, values)| (*name, values.to_array())).collect();
    tables.put_parquet(name, &columns, properties);
}

/// Writes races whose names no rule guesses, with drivers, results without a key, and tasks.
fn races(is_declared: bool) -> Tables {
    let tables = Tables::new();
    let keys = |keys: [&'static str; 3]| is_declared.then_some(keys);
    let rows = || 0..20_i64;
    put(
        &tables,
        "f1/db/drivers.parquet",
        &[("driverId", Values::Ints((0..5).collect())), ("born", Values::Days((0..5).collect()))],
        keys(["{}", "\"driverId\"", "null"]),
    );
    put(
        &tables,
        "f1/db/races.parquet",
        &[
            ("raceId", Values::Ints(rows().collect())),
            ("date", Values::Days(rows().map(|row| 100 + row).collect())),
            ("weather", Values::Texts(rows().map(|row| ["dry", "wet"][row as usize % 2]).collect())),
        ],
        keys(["{}", "\"raceId\"", "\"date\""]),
    );
    put(
        &tables,
        "f1/db/results.parquet",
        &[
            ("raceId", Values::Ints(rows().collect())),
            ("driverId", Values::Ints(rows().map(|row| row % 5).collect())),
            ("points", Values::Ints(rows().map(|row| row % 7).collect())),
            ("date", Values::Days(rows().map(|row| 100 + row).collect())),
        ],
        keys(["{\"raceId\": \"races\", \"driverId\": \"drivers\"}", "null", "\"date\""]),
    );
    put(
        &tables,
        "f1/db/notes.parquet",
        &[("text", Values::Texts(vec!["a", "b"]))],
        keys(["{}", "null", "null"]),
    );
    for (part, first) in [("train", 105), ("val", 112), ("test", 115)] {
        let days = || Values::Days((first..first + 10).collect());
        let drivers = || Values::Ints((0..10).map(|row| row % 5).collect());
        let of_drivers = || keys(["{\"driverId\": \"drivers\"}", "null", "\"date\""]);
        let dnf = Values::Ints((0..10).map(|row| row % 2).collect());
        let columns = [("date", days()), ("driverId", drivers()), ("did_not_finish", dnf)];
        put(&tables, &format!("f1/tasks/driver-dnf/{part}.parquet"), &columns, of_drivers());
        let races = Values::Lists((0..10).map(|row| vec![row, row + 1]).collect());
        let columns = [("date", days()), ("driverId", drivers()), ("raceId", races)];
        let both = keys(["{\"driverId\": \"drivers\", \"raceId\": \"races\"}", "null", "\"date\""]);
        put(&tables, &format!("f1/tasks/next-races/{part}.parquet"), &columns, both);
    }
    tables
}

fn propose(tables: &Tables) -> Proposal {
    let options = ProposalOptions { spec: tables.path("f1.yaml"), ..ProposalOptions::default() };
    propose_spec(&[tables.path("f1")], &options).unwrap()
}

#[test]
fn declared_keys_and_times_become_a_whole_spec() {
    let tables = races(true);
    let proposal = propose(&tables);
    let text = proposal.to_string();
    let spec = &proposal.spec;
    let names: Vec<&str> = spec.nodes.iter().map(|node_type| node_type.name.as_str()).collect();
    assert_eq!(names, ["driver", "race"], "{text}");
    assert!(spec.nodes[0].time.is_none() && spec.nodes[1].time.is_some(), "{text}");
    let results = &spec.relations[0];
    assert_eq!((results.name.as_str(), spec.relations.len()), ("results", 1), "{text}");
    assert_eq!([&results.src.node_type, &results.dst.node_type], ["race", "driver"], "{text}");
    assert!(results.time.is_some() && results.reverse.is_some() && results.target.is_none(), "{text}");
    let [task] = &spec.tasks[..] else { panic!("{text}") };
    assert_eq!(
        (task.name.as_str(), task.key.node_type.as_str(), task.key.column.as_str()),
        ("driver-dnf", "driver", "driverId")
    );
    assert_eq!(
        (task.time.column.as_str(), task.train.len(), task.val.len(), task.test.len()),
        ("date", 1, 1, 1)
    );
    assert!(text.contains("target: {class: {column: did_not_finish}}"), "{text}");
    assert!(text.contains("The task next-races is left out: its target is a list of keys"), "{text}");
    assert!(
        text.contains("db/notes.parquet is left out: no primary key, and fewer than two foreign keys"),
        "{text}"
    );
    fs::write(tables.path("f1.yaml"), &text).unwrap();
    import(tables.path("f1.yaml"), tables.path("set"), &ImportOptions::default()).unwrap();
    let data = Dataset::open(tables.path("set")).unwrap();
    let table = data.task_table("driver-dnf").unwrap();
    assert_eq!((table.n_rows(), table.targets.split.parts().map(|(_, rows)| rows.len())), (30, [10; 3]));
}

#[test]
fn keys_that_no_file_declares_are_found_as_in_other_tables() {
    let text = propose(&races(false)).to_string();
    for line in [
        "- name: driver\n",
        "- name: race\n",
        "src: {type: race, column: raceId}",
        "dst: {type: driver, column: driverId}",
        "key: {type: driver, column: driverId}",
        "target: {class: {column: did_not_finish}}",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn a_folder_without_tables_or_a_task_without_training_is_an_error() {
    let tables = Tables::new();
    let options = ProposalOptions { spec: tables.path("f1.yaml"), ..ProposalOptions::default() };
    let error = || propose_spec(&[tables.path("f1")], &options).unwrap_err().to_string();
    fs::create_dir_all(tables.path("f1/db")).unwrap();
    assert!(error().contains("has no table, expected files such as customers.parquet"), "{}", error());
    tables.put("f1/db/users.csv", "id,x\n1,2\n2,3\n");
    fs::create_dir_all(tables.path("f1/tasks/churn")).unwrap();
    tables.put("f1/tasks/churn/val.csv", "id,y\n");
    assert!(error().contains("has no table `train`"), "{}", error());
    // A task whose columns are not known is a comment.
    tables.put("f1/tasks/churn/train.csv", "at,who,y\n2026-01-01,1,a\n2026-01-02,2,b\n");
    let proposal = propose_spec(&[tables.path("f1")], &options).unwrap();
    let text = proposal.to_string();
    assert!(
        proposal.spec.tasks.is_empty() && text.contains("The task churn is left out: no column has the keys"),
        "{text}"
    );
}
