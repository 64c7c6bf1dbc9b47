//! What the feature columns of a set mean, in the kiln format.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_data::{Dataset, Layout, format};
use kiln_feature::FeatureColumn;

use crate::sets::{edit, papers, rows, small, written};

/// Describes the features of each type as one column.
fn described(data: Dataset) -> Dataset {
    let mut feature_columns = Vec::new();
    for dim in data.dims() {
        let column = |width| FeatureColumn { width, ..FeatureColumn::new("about", "text: 1 to 2 word") };
        feature_columns.push(dim.map(column).into_iter().collect());
    }
    Dataset { feature_columns, ..data }
}

#[test]
fn feature_columns_of_both_layouts_round_trip_without_a_change_of_the_hash() {
    for data in [small(rows()), papers()] {
        let plain = data.layout == Layout::Plain;
        let (_root, without) = written(&data);
        let data = described(data);
        let (_root, folder) = written(&data);
        let opened = format::open(&folder).unwrap();
        assert_eq!(opened.feature_columns, data.feature_columns);
        assert_eq!(format::hash(&folder).unwrap(), format::hash(&without).unwrap());
        format::verify(&folder).unwrap();
        edit(&folder, "\"meaning\": \"text", "\"meaning\": \"other text");
        let changed = format::open(&folder).unwrap().feature_columns;
        assert!(changed.concat().iter().any(|column| column.meaning == "other text: 1 to 2 word"));
        let key = if plain { "feature_columns" } else { "node_types[0].feature_columns" };
        edit(&folder, "\"name\": \"about\"", "\"name\": \"about\", \"width\": 7");
        let error = format::open(&folder).unwrap_err().to_string();
        let is_refused = error.contains(key) || error.contains("duplicate field `width`");
        assert!(is_refused, "{error}");
    }
}

#[test]
fn feature_columns_of_another_width_are_not_written() {
    let data = described(papers());
    let mut feature_columns = data.feature_columns.clone();
    feature_columns[0][0].width = 7;
    let root = tempfile::tempdir().unwrap();
    let error = format::write(&Dataset { feature_columns, ..data }, root.path().join("set")).unwrap_err();
    assert!(error.to_string().contains("the width of the named feature columns"), "{error}");
}
