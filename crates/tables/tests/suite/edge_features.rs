//! Columns of a relation's table that become features of its edges, by the transforms of nodes.

use std::path::Path;

use kiln_graph::EdgeColumns;
use kiln_tables::{Import, ImportOptions, import, plan};

use crate::helpers::Tables;

const SPEC: &str = "name: payments
nodes:
  - {name: account, files: [accounts.csv], key: id}
  - {name: shop, from: relations}
relations:
  - name: pays
    files: [payments.csv]
    src: {type: account, column: account}
    dst: {type: shop, column: shop}
    weight: w
    edge_columns: [{column: day}]
    columns:
      - {column: amount, transform: standardize}
      - {column: kind, transform: {one_hot: {max_categories: 4}}}
    reverse: paid by
    drop: [dangling, wrong_type]
";

/// Rows with a dangling key, an amount that is no number, and a missing amount. Those that are dropped count in no statistics.
const PAYMENTS: &str = "account,shop,w,day,amount,kind
a,x,1,10,2,card
b,x,2,11,4,cash
c,x,3,12,1000,gold
a,y,4,13,much,gold
a,y,5,14,6,card
b,y,6,15,,cash
";

fn tables(payments: &str) -> Tables {
    let tables = Tables::new();
    tables.put("accounts.csv", "id\na\nb\n");
    tables.put("payments.csv", payments);
    tables
}

/// Returns the features of the edges of a relation by their `day`.
fn features(data: &kiln_data::Dataset, relation: usize) -> Vec<(f32, Vec<f32>)> {
    let columns = data.graph.relation(relation).graph.columns();
    let features = columns.get(EdgeColumns::FEATURES).unwrap();
    let day = columns.get("day").unwrap();
    let mut rows = Vec::new();
    for edge in 0..features.n_rows() {
        let row = (0..features.width()).map(|column| features.value(edge * features.width() + column));
        rows.push((day.value(edge), row.collect()));
    }
    rows.sort_by(|(day, _), (other, _)| day.total_cmp(other));
    rows
}

#[test]
fn edges_and_their_reverses_have_the_transforms_of_the_kept_rows() {
    let data = tables(PAYMENTS).import(SPEC);
    assert_eq!(data.validate().unwrap(), []);
    // The amounts 2, 4 and 6 have the mean 4 and the deviation sqrt(8 / 3); `gold` occurs in dropped rows only.
    let one = (2.0_f64 / (8.0_f64 / 3.0).sqrt()) as f32;
    let expected = [
        (10.0, vec![-one, 0.0, 1.0, 0.0]),
        (11.0, vec![0.0, 0.0, 0.0, 1.0]),
        (14.0, vec![one, 0.0, 1.0, 0.0]),
        (15.0, vec![0.0, 1.0, 0.0, 1.0]),
    ];
    for relation in 0..2 {
        assert_eq!(features(&data, relation), expected);
    }
}

#[test]
fn a_value_that_its_transform_cannot_read_is_a_bad_row() {
    let error = tables(PAYMENTS).error_of(&SPEC.replace("drop: [dangling, wrong_type]", "drop: [dangling]"));
    assert!(
        error.contains("row 4, column \"amount\": ") && error.contains("expected a finite number"),
        "{error}"
    );
}

#[test]
fn features_have_a_name_of_their_own() {
    let error = tables(PAYMENTS).error_of(&SPEC.replace("{column: day}", "{column: day, name: features}"));
    assert!(error.contains("relations[0].edge_columns[0].name") && error.contains("`columns`"), "{error}");
    let error = tables(PAYMENTS).error_of(&SPEC.replace("max_categories: 4", "max_categories: 0"));
    assert!(error.contains("relations[0].columns[1].transform.one_hot.max_categories"), "{error}");
}

#[test]
fn later_imports_use_the_statistics_of_the_first_one() {
    let tables = tables(PAYMENTS);
    let spec = tables.put("spec.yaml", SPEC).path("spec.yaml");
    let set = tables.path("set");
    let report = import(&spec, &set, &ImportOptions::default()).unwrap();
    assert!(report.notes.is_empty(), "{report}");
    let of_set = Import::open(&set).unwrap();
    assert_eq!(of_set.relation("pays").unwrap().columns[0].n_rows, 4);
    assert_eq!(of_set.relation("paid by"), None);

    let rows = "account,shop,w,day,amount,kind\nb,z,1,20,9000,coin\n";
    tables.put("payments.csv", rows);
    tables.put("accounts.csv", "id\na\nb\n");
    let one = (8996.0 / (8.0_f64 / 3.0).sqrt()) as f32;
    let of_new = (20.0, vec![one, 0.0, 0.0, 0.0]);

    let options = ImportOptions { append_to: Some(set.clone()), ..ImportOptions::default() };
    let more = tables.path("more");
    let report = import(&spec, &more, &options).unwrap().to_string();
    assert!(
        report.contains("relation `pays`, column \"amount\": 1 of 1 values (100.0 %) are outside"),
        "{report}"
    );
    assert!(report.contains("relation `pays`, column \"kind\": 1 of 1 values"), "{report}");
    let data = kiln_data::Dataset::open(&more).unwrap();
    let found = features(&data, 0);
    assert_eq!((found.len(), found.last()), (5, Some(&of_new)));
    assert_eq!(found[..4], features(&kiln_data::Dataset::open(&set).unwrap(), 0));

    let options = ImportOptions { transforms_of: Some(of_set.into()), ..ImportOptions::default() };
    let alone = tables.path("alone");
    import(&spec, &alone, &options).unwrap();
    assert_eq!(features(&kiln_data::Dataset::open(&alone).unwrap(), 1), [of_new]);

    let of_numbers = SPEC.replace("standardize", "numeric");
    let other = tables.put("other.yaml", &of_numbers).path("other.yaml");
    for options in [options, ImportOptions { append_to: Some(set), ..ImportOptions::default() }] {
        let error = import(&other, tables.path("none"), &options).unwrap_err().to_string();
        let expected =
            "relation `pays`: the transform of column \"amount\" is \"numeric\", expected \"standardize\"";
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn record_of_edges_must_fit_its_spec() {
    let tables = tables(PAYMENTS);
    tables.import(SPEC);
    let bytes = std::fs::read(tables.path("set/import.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let path = Path::new("import.json");
    Import::parse(path, &bytes).unwrap();
    let error_of = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut changed = record.clone();
        change(&mut changed);
        Import::parse(path, changed.to_string().as_bytes()).unwrap_err().to_string()
    };
    let error = error_of(&|record| record["relations"][0]["name"] = "paid by".into());
    assert!(error.contains("the name of relation \"pays\" does not fit its spec"), "{error}");
    let error = error_of(&|record| record["relations"][0]["columns"][0]["column"] = "kind".into());
    assert!(error.contains("column \"kind\" of relation \"pays\" does not fit its spec"), "{error}");
    let error = error_of(&|record| record["relations"] = serde_json::Value::Array(Vec::new()));
    assert!(error.contains("the number of relations whose edges have features"), "{error}");
}

#[test]
fn a_plan_shows_the_columns_of_edges() {
    let tables = tables(PAYMENTS);
    let shown = plan(tables.put("spec.yaml", SPEC).path("spec.yaml")).unwrap().to_string();
    let expected = "\n  column \"amount\": 1 to 2 feature columns\n  column \"kind\": 0 to 6 feature columns";
    assert_eq!(shown.matches(expected).count(), 2, "{shown}");
}
