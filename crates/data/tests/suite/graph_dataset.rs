//! Tests of the checks of `GraphDataset`, and of random splits and folds.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use kiln_data::{BuildError, Error, GraphDataset, Split};
use kiln_feature::{DenseFeatures, Labels};
use kiln_graph::{Csc, CscBuilder, EdgeColumn, EdgeColumns, GraphId, ItemId, NodeId};

/// Returns a graph with the edges 0 -> 1, 1 -> 0 and 3 -> 2.
fn graph() -> Csc {
    CscBuilder::new(4).build(&[0, 1, 3], &[1, 0, 2]).unwrap()
}

fn labels<I: ItemId>(classes: &[i32]) -> Labels<I> {
    Labels::new(classes.to_vec(), 2)
}

#[test]
fn rejects_inconsistent_arrays() {
    let new = |offsets: &[u32], classes: &[i32]| {
        GraphDataset::new("set", graph(), offsets.to_vec(), labels(classes)).map(|data| data.n_graphs())
    };
    assert_eq!(new(&[0, 2, 2, 4], &[0, -1, 1]).unwrap(), 3);
    let cases = [
        (new(&[], &[]), "set: the number of node offsets is 0, expected 2"),
        (new(&[0], &[]), "set: the number of node offsets is 1, expected 2"),
        (new(&[1, 4], &[0]), "set: the first node offset is 1, expected 0"),
        (new(&[0, 2], &[0]), "set: the last node offset is 2, expected 4"),
        (new(&[0, 5, 4], &[0, 0]), "set: node offset 2 is 4, expected at least 5, the previous offset"),
        (
            new(&[0, 3, 4], &[0, 0]),
            "set: the source of edge 2 is node 3, expected a node of graph 0, the graph of its destination",
        ),
        (new(&[0, 2, 4], &[0]), "set: the number of graph labels is 1, expected 2"),
        (
            new(&[0, 2, 4], &[0, 2]),
            "cannot use the features or labels: graph 1 has label 2, expected a class below 2",
        ),
    ];
    for (result, expected) in cases {
        let said = result.unwrap_err().to_string();
        assert!(said.starts_with(expected), "{said}, not {expected}");
    }
}

#[test]
fn self_loops_have_their_own_type_and_count_in_degrees() {
    // 0 -> 1 and 3 -> 2 of type 0, and a loop of type 1 on node 1.
    let graph = CscBuilder::new(4).edge_types(&[0, 1, 0]).build(&[0, 1, 3], &[1, 1, 2]).unwrap();
    let features = EdgeColumn::new(vec![1.0_f32, 3.0, 5.0], 1).unwrap();
    let graph = graph.with_column(EdgeColumns::FEATURES, features).unwrap();
    let mut data = GraphDataset::new("set", graph.clone(), vec![0, 2, 4], labels(&[0, 1])).unwrap();
    data.edge_type_names = ["near", "same", "unused"].map(str::to_owned).to_vec();
    let looped = data.add_self_loops().unwrap();
    let ends: Vec<(u32, u32)> =
        looped.graph().indices().iter().zip(looped.graph().dsts()).map(|(src, dst)| (src.0, dst.0)).collect();
    assert_eq!(ends, [(0, 0), (0, 1), (1, 1), (2, 2), (3, 2), (3, 3)]);
    assert_eq!(looped.graph().edge_types(), Some(&[3, 0, 1, 3, 0, 3][..]));
    assert_eq!(looped.edge_type_names, ["near", "same", "unused", "self loop"]);
    let features = looped.graph().columns().get(EdgeColumns::FEATURES).unwrap();
    let values: Vec<f32> = (0..features.n_rows()).map(|edge| features.value(edge)).collect();
    assert_eq!(values, [0.0, 1.0, 3.0, 5.0, 5.0, 0.0]);
    // No loop is missing: nothing changes.
    let again = looped.clone().add_self_loops().unwrap();
    assert_eq!(again.graph().indices(), looped.graph().indices());
    assert_eq!(again.edge_type_names, looped.edge_type_names);
    let graph = graph.with_column("other", EdgeColumn::new(vec![1.0_f32; 3], 1).unwrap()).unwrap();
    let data = GraphDataset::new("set", graph, vec![0, 2, 4], labels(&[0, 1])).unwrap();
    let error = data.add_self_loops().unwrap_err();
    assert!(matches!(error, Error::Build(BuildError::NoEdgeFeatures { .. })), "{error}");
}

#[test]
fn requires_one_feature_row_and_label_per_node() {
    let data = GraphDataset::new("set", graph(), vec![0, 2, 4], labels(&[0, 1])).unwrap();
    assert_eq!(data.class_names, ["0", "1"]);
    let three = Arc::new(DenseFeatures::from_f32(vec![0.0; 3], 1).unwrap());
    let error = data.clone().with_features(three).unwrap_err();
    assert_eq!(
        error.to_string(),
        "set: the number of feature rows is 3, expected 4: correct this file or the files it must match"
    );
    let error = data.clone().with_node_labels(labels(&[0; 5])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "set: the number of node labels is 5, expected 4: correct this file or the files it must match"
    );
    let error = data.clone().with_node_labels(labels(&[0, 1, 2, 0])).unwrap_err();
    assert!(matches!(error, Error::Feature(_)), "{error}");
    let four = Arc::new(DenseFeatures::from_f32(vec![0.0; 4], 1).unwrap());
    let data = data.with_features(four).unwrap().with_node_labels(labels(&[0, 1, 1, 0])).unwrap();
    assert_eq!(data.features().unwrap().n_rows(), 4);
    assert_eq!(data.node_labels().unwrap().as_slice(), [0, 1, 1, 0]);
    assert_eq!(data.node_label_names, ["0", "1"]);
}

fn parts(split: &Split) -> [Vec<u32>; 3] {
    split.parts().map(|(_, items)| items.iter().map(|item| item.0).collect())
}

#[test]
fn random_split_has_each_item_once_and_depends_only_on_the_seed() {
    let split = Split::random(10, [0.7, 0.1], 1).unwrap();
    let items = parts(&split);
    assert_eq!(items.each_ref().map(Vec::len), [7, 1, 2]);
    assert!(items.iter().all(|part| part.is_sorted()));
    let mut all = items.concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..10));
    assert_eq!(split, Split::random(10, [0.7, 0.1], 1).unwrap());
    assert_ne!(split, Split::random(10, [0.7, 0.1], 2).unwrap());
    assert_eq!(parts(&Split::random(3, [0.5, 0.5], 1).unwrap()).map(|part| part.len()), [2, 1, 0]);
}

/// Checks the example in `docs/rng.md`. The expected value was computed by an independent program.
#[test]
fn random_split_of_seed_7_matches_the_docs() {
    let split = Split::random(10, [0.7, 0.1], 7).unwrap();
    assert_eq!(parts(&split), [vec![0, 1, 3, 4, 5, 8, 9], vec![6], vec![2, 7]]);
}

#[test]
fn rejects_split_shares_out_of_range() {
    let cases = [
        ([-0.1, 0.5], "a share of the split is -0.1, expected 0 to 1"),
        ([0.5, f64::NAN], "a share of the split is NaN, expected 0 to 1"),
        ([0.75, 0.5], "the sum of the shares is 1.25, expected at most 1"),
    ];
    for (shares, expected) in cases {
        assert_eq!(Split::<NodeId>::random(10, shares, 1).unwrap_err().to_string(), expected);
    }
}

fn folds(classes: &[i32], n_folds: usize, seed: u64) -> Result<Vec<Vec<u32>>, Error> {
    let folds = Split::folds(&labels::<GraphId>(classes), n_folds, seed)?;
    Ok(folds.into_iter().map(|fold| fold.into_iter().map(|item| item.0).collect()).collect())
}

/// Checks the example in `docs/rng.md`. The expected value was computed by an independent program.
#[test]
fn folds_of_seed_7_match_the_docs() {
    let classes = [0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1];
    let expected = [vec![1, 2, 6, 9], vec![7, 10, 11, 12], vec![0, 8, 13], vec![3, 4, 5]];
    assert_eq!(folds(&classes, 4, 7).unwrap(), expected);
}

#[test]
fn folds_have_each_labelled_item_once_and_are_stratified() {
    let classes: Vec<i32> =
        (0..188).map(|item| if item % 11 == 0 { -1 } else { i32::from(item % 3 > 0) }).collect();
    for n_folds in [2, 3, 10, 170] {
        let folds = folds(&classes, n_folds, 5).unwrap();
        assert_eq!(folds.len(), n_folds);
        assert!(folds.iter().all(|fold| fold.is_sorted()));
        let mut all = folds.concat();
        all.sort_unstable();
        assert!(all.into_iter().eq((0..188).filter(|item| item % 11 != 0)));
        for class in [None, Some(0), Some(1)] {
            let is_of = |item: &&u32| class.is_none_or(|class| classes[**item as usize] == class);
            let sizes: Vec<usize> = folds.iter().map(|fold| fold.iter().filter(is_of).count()).collect();
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            assert!(most - least <= 1, "{n_folds} folds, class {class:?}: {sizes:?}");
        }
    }
    assert_eq!(folds(&classes, 10, 5).unwrap(), folds(&classes, 10, 5).unwrap());
    assert_ne!(folds(&classes, 10, 5).unwrap(), folds(&classes, 10, 6).unwrap());
}

#[test]
fn rejects_too_few_and_too_many_folds() {
    let cases = [
        (0, "n_folds is 0, expected at least 2"),
        (1, "n_folds is 1, expected at least 2"),
        (4, "n_folds is 4, expected at most one per labelled item"),
    ];
    for (n_folds, expected) in cases {
        assert_eq!(folds(&[0, -1, 1, 1], n_folds, 0).unwrap_err().to_string(), expected);
    }
    assert!(folds(&[0, -1, 1, 1], 3, 0).is_ok());
    assert!(matches!(folds(&[0, 2], 2, 0), Err(Error::Feature(_))));
}
