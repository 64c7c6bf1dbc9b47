//! An import with the transforms of an earlier one reports, or rejects, whatever gives its columns another meaning. And any
//! import notes options without effect.

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, StringArray, TimestampMillisecondArray};
use kiln_data::Dataset;
use kiln_feature::Targets;
use kiln_graph::NodeId;
use kiln_tables::{DriftKind, Import, ImportOptions, ImportReport};

use crate::helpers::{Tables, features};

const SPEC: &str = "
name: people
nodes:
  - name: person
    files: [people.csv]
    key: id
    missing: [none]
    columns:
      - {column: age, transform: numeric}
      - {column: income, transform: quantile}
      - {column: size, transform: standardize}
      - {column: town, transform: {one_hot: {max_categories: 9}}}
      - {column: job, transform: {one_hot: {max_categories: 2}}}
      - {column: rank, transform: {ordinal: {max_categories: 9}}}
      - {column: is_new, transform: {one_hot: {max_categories: 9}}}
      - {column: tags, transform: {multi_hot: {max_categories: 9, separator: ';'}}}
      - {column: at, transform: {time: {parts: [hour]}}}
    target: {class: {column: class}}
  - {name: item, from: relations}
relations:
  - {name: buys, files: [buys.csv], src: {type: person, column: a}, dst: {type: item, column: b}, weight: w}
";
const HEADER: [&str; 11] =
    ["id", "age", "income", "size", "town", "job", "rank", "is_new", "tags", "at", "class"];

/// Returns the rows of the table: 20 people, of whom 2 have a job that is not among the first two.
fn people() -> Vec<Vec<String>> {
    let person = |row: usize| {
        let job = if row < 2 { "other" } else { ["baker", "miner"][row % 2] };
        [
            format!("p{row}"),
            format!("{}", 20 + row),
            format!("{}", 1000 * row),
            format!("{}.5", 150 + row),
            ["rome", "oslo"][row % 2].to_owned(),
            job.to_owned(),
            ["low", "high", "none"][row % 3].to_owned(),
            ["True", "False"][row % 2].to_owned(),
            ["x;y", "y"][row % 2].to_owned(),
            format!("{}", 3600 * row),
            ["p", "q", "r"][row % 3].to_owned(),
        ]
        .to_vec()
    };
    (0..20).map(person).collect()
}

/// Imports people with a spec, as `out`.
fn import(
    tables: &Tables,
    spec: &str,
    people: &[Vec<String>],
    out: &str,
    earlier: bool,
) -> Result<ImportReport, String> {
    let rows: String = people.iter().map(|row| row.join(",") + "\n").collect();
    tables.put("people.csv", &format!("{}\n{rows}", HEADER.join(",")));
    tables.put("buys.csv", "a,b,w,v\np1,i,1,2\n");
    let transforms_of = earlier.then(|| Arc::new(Import::open(tables.path("first")).unwrap()));
    let options = ImportOptions { transforms_of, ..ImportOptions::default() };
    tables.import_with(spec, out, &options).map_err(|error| error.to_string())
}

/// Sets a column of the first rows.
fn with(column: &str, n_rows: usize, value: impl Fn(&str) -> String) -> Vec<Vec<String>> {
    let column = HEADER.iter().position(|name| *name == column).unwrap();
    let mut people = people();
    for row in &mut people[..n_rows] {
        row[column] = value(&row[column]);
    }
    people
}

#[test]
fn tables_of_another_meaning_are_noted() {
    let tables = Tables::new();
    let first = import(&tables, SPEC, &people(), "first", false).unwrap();
    assert_eq!((first.notes, first.drift), (vec![], vec![]));
    let same = import(&tables, SPEC, &people(), "same", true).unwrap();
    // The rows with another job are as many as in the earlier import, and so are those without a rank.
    assert!(same.notes.is_empty() && same.drift.iter().all(|drift| !drift.is_notable()), "{same}");
    assert!(matches!(same.drift[0].kind, DriftKind::Category) && same.drift[0].n_found == 2, "{same:?}");
    let constant = |value: &'static str| move |_: &str| value.to_owned();
    let times = |factor: f64| move |value: &str| (value.parse::<f64>().unwrap() * factor).to_string();
    for (number, (people, expected)) in [
        (with("town", 5, constant("bern")), "column \"town\": 5 of 20 values (25.0 %) have none of the categories"),
        (with("town", 20, |town| town.to_uppercase()), "column \"town\": 20 of 20 values (100.0 %) have none"),
        (with("job", 10, constant("poet")), "column \"job\": 10 of 20 values (50.0 %) have none of the categories of the earlier import, where 10.0 % were such"),
        (with("rank", 1, constant("mid")), "column \"rank\": 1 of 14 values (7.1 %) have none of the categories"),
        (with("is_new", 20, |flag| u8::from(flag == "True").to_string()), "column \"is_new\": 20 of 20 values"),
        (with("tags", 2, constant("x;z")), "column \"tags\": 2 of 31 values (6.5 %) have none"),
        (with("age", 20, times(365.0)), "column \"age\": 20 of 20 values (100.0 %) are outside of those of the earlier import, 20 to 39"),
        (with("income", 20, times(-1.0)), "column \"income\": 19 of 20 values (95.0 %) are outside of those"),
        (
            with("income", 20, times(0.001)),
            "column \"income\": 20 of 20 values have the mean and standard deviation 9.5 ± 5.766, in the earlier import \
             9500 ± 5766: check the unit",
        ),
        (with("size", 3, times(0.01)), "column \"size\": 3 of 20 values (15.0 %) are outside of those of the earlier import, 150.5 to 169.5"),
        (with("age", 4, constant("")), "column \"age\": 4 of 20 rows (20.0 %) have no value, and no feature marks them"),
        (with("rank", 20, constant("none")), "column \"rank\": 20 of 20 rows (100.0 %) have no value, where 30.0 % were such"),
    ]
    .into_iter()
    .enumerate()
    {
        let report = import(&tables, SPEC, &people, &format!("set{number}"), true).unwrap().to_string();
        let notes: Vec<&str> = report.lines().filter(|line| line.starts_with("note: ")).collect();
        assert!(notes.len() == 1 && notes[0].starts_with("note: node type `person`, ") && notes[0].contains(expected), "{report}\n    expected {expected}");
    }
}

#[test]
fn specs_of_another_meaning_are_errors_or_noted() {
    let tables = Tables::new();
    import(&tables, SPEC, &people(), "first", false).unwrap();
    let columns = |first: &str, second: &str| {
        let [first, second] = [first, second].map(|line| format!("      - {line}\n"));
        (format!("{first}{second}"), format!("{second}{first}"))
    };
    let (in_order, reversed) =
        columns("{column: age, transform: numeric}", "{column: income, transform: quantile}");
    let cases = [
        ("{column: age,", "{column: at,", "columns[0] is \"at\", expected \"age\""),
        (in_order.as_str(), reversed.as_str(), "columns[0] is \"income\", expected \"age\""),
        (
            "transform: quantile",
            "transform: standardize",
            "the transform of column \"income\" is \"standardize\", expected \"quantile\"",
        ),
        (
            "{one_hot: {max_categories: 2}}",
            "{one_hot: {max_categories: 3}}",
            "the transform of column \"job\" is {\"one_hot\":{\"max_categories\":3}}, expected",
        ),
        ("parts: [hour]", "parts: [hour], unit: milliseconds", "the transform of column \"at\" is"),
        ("separator: ';'", "separator: ','", "the transform of column \"tags\" is"),
        (
            "      - {column: at, transform: {time: {parts: [hour]}}}\n",
            "",
            "columns[8] is missing, expected \"at\"",
        ),
        (
            "    target",
            "      - {column: age, transform: numeric}\n    target",
            "columns[9] is \"age\", expected none",
        ),
        (
            "class: {column: class}",
            "class: {column: town}",
            "its target is {\"class\":{\"column\":\"town\"}}, expected",
        ),
        ("key: id", "key: id\n    key_type: integer", "its key_type is \"integer\", expected \"text\""),
        (
            "name: item, from: relations",
            "name: item, files: [people.csv], key: id, columns: [{column: age, transform: numeric}]",
            "node type `item`: columns[0] is \"age\", expected none",
        ),
    ];
    for (old, new, expected) in cases {
        assert!(SPEC.contains(old), "{old}");
        let error = import(&tables, &SPEC.replacen(old, new, 1), &people(), "failed", true).unwrap_err();
        assert!(error.contains(expected), "{error}\n    expected {expected}");
        assert!(
            error.ends_with("use the spec of the earlier import, which is in its import.json"),
            "{error}"
        );
    }
    let table = SPEC.find("    files: [people").unwrap()..SPEC.find("  - {name: item").unwrap();
    let without_table = format!("{}    from: relations\n{}", &SPEC[..table.start], &SPEC[table.end..]);
    let error = import(&tables, &without_table, &people(), "failed", true).unwrap_err();
    assert!(error.contains("node type `person`: columns[0] is missing, expected \"age\""), "{error}");
    let error = import(&tables, &SPEC.replace("person", "people"), &people(), "failed", true).unwrap_err();
    assert!(
        error.contains(
            "node type `people`: the earlier import has no such type, expected one of person, item"
        ),
        "{error}"
    );
    for (number, (old, new, expected)) in [
        (
            "missing: [none]",
            "missing: []",
            "node type `person`: `missing` is [], in the earlier import [\"none\"]",
        ),
        ("weight: w", "weight: v", "relation `buys`: `weight` is \"v\", in the earlier import \"w\""),
        (
            "weight: w",
            "edge_columns: [{column: w}]",
            "relation `buys`: `edge_columns` is [{\"column\":\"w\"}], in the",
        ),
        ("name: buys", "name: sells", "the spec has no relation `buys`, which the earlier import has"),
    ]
    .into_iter()
    .enumerate()
    {
        let report =
            import(&tables, &SPEC.replacen(old, new, 1), &people(), &format!("set{number}"), true).unwrap();
        assert!(
            report.to_string().contains(&format!("\nnote: {expected}")),
            "{report}\n    expected {expected}"
        );
    }
}

#[test]
fn classes_are_those_of_the_earlier_import_by_name() {
    let tables = Tables::new();
    import(&tables, SPEC, &people(), "first", false).unwrap();
    let two = with("class", 20, |class| if class == "p" { "r".to_owned() } else { class.to_owned() });
    import(&tables, SPEC, &two, "two", true).unwrap();
    let targets = Dataset::open(tables.path("two")).unwrap().targets.unwrap();
    let Targets::Classes(labels) = &targets.values else { panic!() };
    let found: Vec<_> = (0..3).map(|row| labels.get(NodeId(row))).collect();
    assert_eq!((targets.class_names.concat(), found), ("pqr".to_owned(), vec![Some(2), Some(1), Some(2)]));
    let unknown = with("class", 3, |_| "s".to_owned());
    let error = import(&tables, SPEC, &unknown, "failed", true).unwrap_err();
    assert!(
        error.contains("3 rows have a value of the wrong type")
            && error.contains("\"s\", expected a class of the earlier"),
        "{error}"
    );
}

#[test]
fn a_value_has_the_same_category_from_another_format() {
    let tables = Tables::new();
    let flags: ArrayRef = Arc::new(arrow_array::BooleanArray::from(vec![true, false, true]));
    let ids: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
    tables.put_parquet("t.parquet", &[("id", ids), ("x", flags)], Default::default());
    tables.put("t.csv", "id,x\na,True\nb,False\nc,True\n");
    let spec = |file: &str| {
        format!(
            "{{name: t, nodes: [{{name: t, files: [{file}], key: id, columns: [{{column: x, transform: {{one_hot: {{max_categories: 9}}}}}}]}}]}}"
        )
    };
    let data = tables.import(&spec("t.parquet"));
    let transforms_of = Some(Arc::new(Import::open(tables.path("set")).unwrap()));
    let options = ImportOptions { transforms_of, ..ImportOptions::default() };
    let report = tables.import_with(&spec("t.csv"), "again", &options).unwrap();
    assert_eq!(report.drift, []);
    assert_eq!(features(&Dataset::open(tables.path("again")).unwrap(), 0), features(&data, 0));
}

#[test]
fn options_without_effect_are_noted() {
    let ids = || -> ArrayRef { Arc::new(StringArray::from(vec!["a", "b"])) };
    let mut lists = ListBuilder::new(StringBuilder::new());
    lists.append_value([Some("x")]);
    lists.append_value([Some("y")]);
    let lists: ArrayRef = Arc::new(lists.finish());
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![1, 2]));
    let texts = |values: [&str; 2]| -> ArrayRef { Arc::new(StringArray::from(values.to_vec())) };
    let split = "{column: x, unit: nanoseconds, val_from: '2024-01-01', test_from: '2024-01-02'}";
    let time_split = format!(", target: {{class: {{column: id}}}}, split: {{time: {split}}}");
    let list_target = ", target: {multi_label: {column: x, separator: ';'}}";
    for (array, transform, more, expected) in [
        (
            lists.clone(),
            "{multi_hot: {max_categories: 2, separator: ';'}}",
            "",
            "column \"x\": no value is a text, so `separator` has no effect",
        ),
        (
            lists,
            "{multi_hot: {max_categories: 2}}",
            list_target,
            "column \"x\": no value is a text, so `separator`",
        ),
        (
            times.clone(),
            "{time: {parts: [hour], unit: milliseconds}}",
            "",
            "column \"x\": no value is an integer, so `unit` has no effect",
        ),
        (
            times,
            "{time: {parts: [hour]}}",
            ", missing: [NA]",
            "no value is missing by its text: `missing: [\"NA\"]` has no effect",
        ),
        (
            texts(["1.5", "1.50"]),
            "standardize",
            "",
            "column \"x\": all values are equal, so the feature is 0",
        ),
        (
            texts(["2024-01-01", "2024-01-02"]),
            "{hash: {columns: 2}}",
            &time_split,
            "column \"x\": no value is an integer, so `unit`",
        ),
        (
            texts(["a", "b"]),
            "{hash: {columns: 2}}",
            ", target: {class: {column: x}}",
            "column \"x\": it is a feature and a target",
        ),
        (texts(["", ""]), "numeric", "", "column \"x\": no row has a value"),
        (
            texts(["1.1", "1.10"]),
            "{one_hot: {max_categories: 2}}",
            "",
            "column \"x\": the texts \"1.1\" and \"1.10\" are the same number",
        ),
    ] {
        let tables = Tables::new();
        tables.put_parquet("t.parquet", &[("id", ids()), ("x", array)], Default::default());
        let spec = format!(
            "{{name: t, nodes: [{{name: t, files: [t.parquet], key: id, columns: [{{column: x, transform: {transform}}}]{more}}}]}}"
        );
        let report = tables.import_with(&spec, "set", &ImportOptions::default()).unwrap();
        let notes: Vec<&String> = report.notes.iter().filter(|note| note.contains(expected)).collect();
        assert!(
            notes.len() == 1 && notes[0].starts_with("node type `t`"),
            "{report}\n    expected {expected}"
        );
        assert!(report.to_string().contains(&format!("\nnote: {}", notes[0])), "{report}");
    }
}
