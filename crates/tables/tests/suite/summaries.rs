//! What the record of an import adds to the summary of its set.

use std::sync::Arc;

use kiln_data::{ColumnSummary, Dataset};
use kiln_tables::{Import, ImportOptions};

use crate::helpers::Tables;

const SPEC: &str = "
name: shop
nodes:
  - name: user
    files: [USERS]
    key: id
    missing: [NA]
    columns:
      - {column: age, transform: standardize}
      - {column: size, transform: quantile}
      - {column: n, transform: numeric}
      - {column: plan, transform: {one_hot: {max_categories: 2}}}
      - {column: at, transform: {time: {parts: [hour, month]}}}
    drop: [duplicate]
";

fn summary(
    tables: &Tables,
    file: &str,
    out: &str,
    options: &ImportOptions,
) -> (Vec<ColumnSummary>, Vec<String>) {
    tables.import_with(&SPEC.replace("USERS", file), out, options).unwrap();
    let set = tables.path(out);
    let mut summary = Dataset::open(&set).unwrap().summary();
    let notes = Import::describe_set(&set, &mut summary);
    (summary.types.remove(0).columns, notes)
}

fn shown(columns: &[ColumnSummary]) -> String {
    let lines = columns.iter().map(|column| {
        let ColumnSummary { name, width, meaning, range, missing_share, .. } = column;
        format!("{name} {width} {meaning} {range:?} {missing_share:?}\n")
    });
    lines.collect()
}

#[test]
fn ranges_are_those_of_the_tables_and_missing_values_are_not_guessed() {
    let tables = Tables::new();
    let header = "id,age,size,n,plan,at\n";
    tables.put("users.csv", &format!("{header}a,20,1,5,x,2024-01-01\nb,NA,30,6,y,2024-02-01\nc,40,4,7,x,2024-03-01\nd,50,9,9,z,\na,1,1,1,x,\n"));
    tables.put("new.csv", &format!("{header}e,25,NA,5,x,2024-01-01\nf,30,30,6,y,2024-02-01\n"));
    let (columns, notes) = summary(&tables, "users.csv", "set", &ImportOptions::default());
    assert_eq!(
        shown(&columns),
        "\
age 1 standardize Some([20.0, 50.0]) Some(0.25)
size 1 quantile Some([1.0, 30.0]) Some(0.0)
n 1 numeric Some([5.0, 9.0]) Some(0.0)
plan 3 one_hot: x, y, other Some([0.0, 1.0]) Some(0.0)
at 4 time: Hour, Month Some([0.0, 1.0]) Some(0.25)
"
    );
    assert_eq!(notes, ["dropped from node type `user`: 1 row, duplicate"]);

    // The record has the statistics of the earlier import, which are not those of the new rows.
    let earlier = Some(Arc::new(Import::open(tables.path("set")).unwrap()));
    let options = ImportOptions { transforms_of: earlier, ..ImportOptions::default() };
    let (columns, notes) = summary(&tables, "new.csv", "new", &options);
    let [low, high] = columns[0].range.unwrap();
    assert!((low - 25.0).abs() < 1e-4 && (high - 30.0).abs() < 1e-4, "{low} {high}");
    assert_eq!(
        columns.iter().map(|column| column.missing_share).collect::<Vec<_>>(),
        [Some(0.0), None, None, None, Some(0.0)]
    );
    assert!(notes[0].contains("the statistics are those of the earlier import"), "{notes:?}");
}

#[test]
fn a_set_without_a_record_and_one_with_a_damaged_record_are_summarised() {
    let tables = Tables::new();
    tables.put("users.csv", "id,age,size,n,plan,at\na,20,1,5,x,2024-01-01\n");
    let (columns, _) = summary(&tables, "users.csv", "set", &ImportOptions::default());
    std::fs::write(tables.path("set/import.json"), "{}").unwrap();
    let mut of_features = Dataset::open(tables.path("set")).unwrap().summary();
    let notes = Import::describe_set(tables.path("set"), &mut of_features);
    assert!(notes[0].contains("import.json"), "{notes:?}");
    assert_eq!(of_features.types[0].columns[0].missing_share, None);
    assert_eq!(columns[0].missing_share, Some(0.0));
    assert!(Import::describe_set("sbm", &mut of_features).is_empty());
}
