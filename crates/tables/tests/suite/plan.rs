//! A dry run reads headers only.

use std::sync::Arc;

use arrow_array::{Int64Array, StringArray};
use kiln_tables::{Error, PlannedColumn, SpecError, TableFileError, plan};
use parquet::file::properties::WriterProperties;

use crate::helpers::Tables;

const SPEC: &str = "
name: shop
nodes:
  - name: user
    files: [users.parquet, users.parquet]
    key: id
    columns:
      - {column: age, transform: standardize}
      - {column: town, transform: {one_hot: {max_categories: 5}}}
    target: {class: {column: town}}
  - {name: item, from: relations}
relations:
  - {name: buys, files: [buys.csv], src: {type: user, column: u}, dst: {type: item, column: i}, reverse: bought by}
";

#[test]
fn plan_states_types_relations_and_widths() {
    let tables = Tables::new();
    let ids = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let towns = Arc::new(StringArray::from(vec!["a", "b", "c"]));
    let columns: [(&str, arrow_array::ArrayRef); 3] = [("id", ids.clone()), ("age", ids), ("town", towns)];
    tables.put_parquet("users.parquet", &columns, WriterProperties::default());
    tables.put("buys.csv", "u,i\nrows are not read\n").put("spec.yaml", SPEC);
    let found = plan(tables.path("spec.yaml")).unwrap();
    assert!(found.errors.is_empty(), "{:?}", found.errors);
    let [user, item] = &found.node_types[..] else { panic!("{found}") };
    assert_eq!((user.n_rows, item.n_rows, user.has_target, item.has_target), (Some(6), None, true, false));
    let column =
        |column: &str, min_width, max_width| PlannedColumn { column: column.into(), min_width, max_width };
    assert_eq!(user.columns, [column("age", 1, 2), column("town", 0, 7)]);
    assert_eq!(
        found.to_string(),
        "shop: 2 node types, 2 relations
node type `user`: 6 rows, with targets
  column \"age\": 1 to 2 feature columns
  column \"town\": 0 to 7 feature columns
node type `item`: an unknown number of rows
relation `buys` from `user` to `item`: an unknown number of rows
relation `bought by` from `item` to `user`: an unknown number of rows"
    );
}

#[test]
fn plan_lists_all_errors() {
    let tables = Tables::new();
    tables.put("users.parquet", "not Parquet").put("buys.csv", "u,x\n").put("spec.yaml", SPEC);
    let errors = plan(tables.path("spec.yaml")).unwrap().errors;
    assert_eq!(errors.len(), 3);
    assert!(
        matches!(
            errors[..],
            [
                Error::TableFile(TableFileError::Parquet { .. }),
                Error::TableFile(TableFileError::Parquet { .. }),
                Error::Spec(SpecError::Column { .. })
            ]
        ),
        "{errors:?}"
    );
    tables.put("spec.yaml", "name: x");
    assert!(matches!(plan(tables.path("spec.yaml")), Err(Error::Spec(SpecError::SpecSyntax { .. }))));
    assert!(plan(tables.path("none.yaml")).unwrap_err().to_string().contains("none.yaml: "));
}
