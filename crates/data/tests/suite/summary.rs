//! Tests of summaries of homogeneous and heterogeneous sets.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_data::{Dataset, debian_packages, debian_tags, synthetic};
use kiln_feature::{FeatureColumn, TargetKind};

use crate::sets::papers;

#[test]
fn summary_of_a_heterogeneous_set_has_a_line_per_type_and_relation() {
    let data = papers();
    let expected = "\
papers: 9 nodes, 10 edges

node type  nodes  features                  names
author     3      500 columns, f32, sparse  yes
paper      4      2 columns, f32            no
venue      2      none                      no

column of author  width  values  range     missing
columns 0 to 499  500            0 to 1.5  not recorded

column of paper  width  values  range     missing
columns 0 to 1   2              0 to 3.5  not recorded

relation   from    to     edges        in-degree: min, median, max
writes     author  paper  5, weighted  0, 1, 2
cites      paper   paper  3            0, 0, 2
publishes  venue   paper  2            0, 0, 1

targets: 3 classes of paper, known for 3 of 4 nodes
split: 1 / 1 / 1 nodes to train, validate, test

class  nodes  train  val  test
a      1      0      0    1
b      1      0      1    0
c      1      1      0    0";
    assert_eq!(data.summary().to_string(), expected);
    let without = kiln_data::Dataset { targets: None, ..papers() };
    assert!(without.summary().to_string().ends_with("\n\ntargets: none"));
}

#[test]
fn summary_of_a_homogeneous_set_has_one_type_and_one_relation() {
    let data = synthetic::ring(60).unwrap();
    let summary = data.summary();
    assert_eq!((summary.types.len(), summary.relations.len(), summary.edge_types.len()), (1, 1, 0));
    let degrees = summary.relations[0].in_degrees.unwrap();
    assert_eq!((degrees.min, degrees.median, degrees.max), (2, 2, 2));
    assert_eq!(summary.to_string().lines().next(), Some("ring: 60 nodes, 120 edges"));
}

#[test]
fn summary_has_the_edges_of_each_edge_type() {
    let data = debian_packages().unwrap();
    let summary = data.summary();
    assert_eq!(summary.edge_types.len(), 10);
    assert_eq!(summary.edge_types.iter().map(|ty| ty.n_edges).sum::<u64>(), data.graph.n_edges());
    for (forward, reverse) in (0..5).map(|ty| (ty, ty + 5)) {
        let [forward, reverse] = [forward, reverse].map(|ty| &summary.edge_types[ty]);
        assert_eq!(
            (forward.n_edges, format!("{} (reversed)", forward.name)),
            (reverse.n_edges, reverse.name.clone())
        );
    }
    // The hub is libc6, which 21,822 edges reach or leave.
    assert_eq!(summary.relations[0].in_degrees.unwrap().max, 21_822);
}

#[test]
fn summary_counts_nodes_with_any_of_several_labels() {
    let targets = debian_tags().unwrap().summary().targets.unwrap();
    assert_eq!((targets.kind, targets.n_outputs, targets.n_labelled), (TargetKind::MultiLabel, 130, 30_300));
    assert_eq!(targets.n_split, [18_101, 5_765, 6_147]);
}

#[test]
fn median_of_an_even_number_of_nodes_is_the_lower_one() {
    let build = |n_nodes, srcs: &[u32], dsts: &[u32]| {
        let data = Dataset::builder(n_nodes).edges(srcs, dsts).features(vec![0.0; n_nodes], 1);
        data.build().unwrap().summary().relations[0].in_degrees
    };
    let degrees = build(4, &[0, 0, 0, 1, 1, 2], &[0, 1, 1, 2, 2, 2]).unwrap();
    assert_eq!((degrees.min, degrees.median, degrees.max), (0, 1, 3));
    assert_eq!(build(1, &[], &[]).map(|degrees| degrees.max), Some(0));
}

#[test]
fn columns_of_a_table_are_summarised_together() {
    // The values of age, of two categories and others, of two parts of a time, and the missing ages.
    let rows = [
        [-1.0, 0.0, 1.0, 0.0, 0.0, 0.5, 0.5, f32::NAN],
        [2.0, 0.0, 0.0, 1.0, 0.0, -0.5, 1.0, 7.0],
        [0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 3.0],
        [0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 4.0],
    ];
    let columns = [
        ("age", "standardize: mean 40, deviation 10"),
        ("age=missing", "1 if missing"),
        ("plan=free", "one_hot"),
        ("plan=pro", "one_hot"),
        ("plan=other", "one_hot: other than 2 categories"),
        ("joined.Hour.sin", "time, integers in seconds"),
        ("joined.Hour.cos", "time, integers in seconds"),
        ("size", "numeric"),
    ];
    let mut data = Dataset::builder(4).edges(&[0], &[1]).features(rows.concat(), 8).build().unwrap();
    data.feature_columns = vec![columns.map(|(name, meaning)| FeatureColumn::new(name, meaning)).to_vec()];
    let summary = data.summary();
    let expected = "
column of node  width  values                              range      missing
age             1      standardize: mean 40, deviation 10  -1 to 2    50.0 %
plan            3      one_hot: free, pro, other           0 to 1     not recorded
joined          2      time: Hour                          -0.5 to 1  not recorded
size            1      numeric                             3 to 7     25.0 %
";
    assert!(summary.to_string().contains(expected), "{summary}");
}

#[test]
fn classes_labels_and_numbers_have_their_nodes_in_each_part() {
    let builder = || Dataset::builder(4).edges(&[0], &[1]).features(vec![0.0; 4], 1);
    let numbers = vec![1.0, f32::NAN, -2.5, 3.0, 0.5, f32::NAN, f32::NAN, f32::NAN];
    let data =
        builder().regression(numbers, 2).split(vec![0, 1], vec![2], Vec::<u32>::new()).build().unwrap();
    let expected = "
target  nodes  train  val  test  range
0       3      2      1    0     -2.5 to 1
1       1      1      0    0     3";
    let shown = data.summary().to_string();
    assert!(shown.ends_with(expected), "{shown}");

    let labels = vec![1, 0, 1, 1, 0, 0, 255, 255];
    let data = builder().multi_label(labels, 2).split(vec![0], vec![1], vec![2]).build().unwrap();
    let targets = data.summary().targets.unwrap();
    let found: Vec<_> = targets.outputs.iter().map(|output| (output.n_items, output.n_split)).collect();
    assert_eq!(found, [(2, [1, 1, 0]), (1, [0, 1, 0])]);

    let labels: Vec<i32> = (0..60).map(|node| node % 57).collect();
    let data = Dataset::builder(60).edges(&[0], &[1]).features(vec![0.0; 60], 1).labels(labels, 57);
    let shown = data.split(vec![0], vec![1], vec![2]).build().unwrap().summary().to_string();
    assert!(
        shown.contains("\n2      2      0      0    1\n") && shown.ends_with("\n7 more classes: 7 nodes"),
        "{shown}"
    );
}
