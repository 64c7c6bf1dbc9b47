//! What a split by time may read: messages, items and statistics of features.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_data::{Dataset, DatasetTimes, Error, LinkSplit, LinkSplitConfig, TimeError, TimeSplit};
use kiln_graph::{EdgeColumn, EdgeColumns, NodeId, NodeTypes, RelationEdges};

const NEVER: i64 = DatasetTimes::NEVER;

fn times_column(times: &[i64]) -> EdgeColumn {
    EdgeColumn::new(times.to_vec(), 1).unwrap()
}

/// Six nodes with the times 1 to 6, and a feature for which the statistics of later nodes differ.
fn plain(times: &[i64]) -> Dataset {
    Dataset::builder(6)
        .edges(&[0, 1, 2, 4, 4, 5], &[1, 2, 3, 4, 5, 5])
        .edge_column(EdgeColumns::TIMES, times_column(&[1, 2, 3, 4, 5, NEVER]))
        .features(vec![0.0, 2.0, 4.0, 100.0, 200.0, 300.0], 1)
        .labels(vec![0, 1, 0, 1, 0, 1], 2)
        .split(vec![0, 1], vec![2, 3], vec![4, 5])
        .node_times(times.to_vec())
        .build()
        .unwrap()
}

fn split() -> TimeSplit {
    TimeSplit::new(None, 4, 5).unwrap()
}

#[test]
fn a_node_always_knows_itself() {
    // Loops of the late nodes 2 and 3, of which that of 3 is an event of its own that is late.
    let times = [1, 1, 9, 9];
    let columns = EdgeColumns::default().with(EdgeColumns::TIMES, times_column(&[1, 1, 7, 1])).unwrap();
    let edges = RelationEdges {
        columns: Some(&columns),
        ..RelationEdges::new("edge", "node", "node", &[0, 2, 3, 2], &[1, 2, 3, 3])
    };
    // The second type has no times: its nodes always existed, and have loops by themselves.
    let typed = Dataset::builder_with_types(NodeTypes::new([("other", 2), ("node", 4)]).unwrap())
        .relation(RelationEdges::new("of others", "other", "other", &[1], &[1]))
        .relation(edges)
        .nodes("node")
        .features(vec![0.0; 4], 1)
        .node_times(times.to_vec())
        .build()
        .unwrap();
    let cut = typed.graph_before(5).unwrap();
    let of_node = |node| cut.relation(1).graph.in_neighbors(NodeId(node)).to_vec();
    assert_eq!([0, 1, 2, 3].map(of_node), [vec![], vec![NodeId(2)], vec![NodeId(4)], vec![]]);
    assert_eq!(cut.relation(0).graph.n_edges(), 1);
    // Loops that are added, and then stored, are those that a loader adds.
    let data = plain(&[1, 2, 3, 4, 5, 6]).add_self_loops().unwrap();
    let cut = data.graph_before(3).unwrap();
    for node in (0..6).map(NodeId) {
        let is_itself = cut.relation(0).graph.in_neighbors(node).contains(&node);
        // The stored edges 4 -> 4 and 5 -> 5 have late times of their own.
        assert_eq!(is_itself, node.0 < 4, "{node:?}");
    }
}

#[test]
fn items_without_a_time_are_in_no_part() {
    let data = plain(&[1, 2, NEVER, 4, 5, NEVER]).with_time_split(split()).unwrap();
    let parts = data.split().parts().map(|(_, nodes)| nodes.iter().map(|node| node.0).collect::<Vec<_>>());
    assert_eq!(parts, [vec![0, 1], vec![3], vec![4]]);
    // A part whose items have no times is empty.
    let error = plain(&[1, 2, 3, 4, NEVER, NEVER]).with_time_split(split()).unwrap_err();
    assert!(
        error.to_string().contains("the test part, from 5 on; the times of the items are 1 to 4"),
        "{error}"
    );
    let data = plain(&[1; 6]);
    let links = |split| LinkSplit::temporal(&data, "edge", None, split, &LinkSplitConfig::default());
    // The loops 4 -> 4 and 5 -> 5 are no links, and the time of 5 -> 5 is missing.
    let parts = links(TimeSplit::new(None, 2, 3).unwrap()).unwrap();
    assert_eq!(parts.split().parts().map(|(_, links)| links.len()), [1, 1, 2]);
    let error = links(TimeSplit::new(None, 2, 9).unwrap()).unwrap_err().to_string();
    assert!(error.contains("the times of the items are 1 to 5"), "{error}");
    let quantiles = TimeSplit::from_quantiles(&[1, 2, 3, 4, NEVER, NEVER, NEVER, NEVER], 0.5, 0.75);
    assert_eq!(quantiles, TimeSplit::new(None, 3, 4));
}

/// The feature of each node.
fn feature(data: &Dataset) -> Vec<f32> {
    let features = data.features[0].as_ref().unwrap();
    (0..6).map(|node| features.row(NodeId(node)).unwrap()[0]).collect()
}

#[test]
fn standardization_reads_the_nodes_before_the_validation_only() {
    let data = plain(&[1, 2, 3, 4, 5, 6]);
    let known = data.clone().with_time_split(split()).unwrap().standardize().unwrap();
    // The mean of 0, 2 and 4 is 2, and their deviation that of 8 / 3.
    let deviation = (8.0_f32 / 3.0).sqrt();
    let expected = [0.0, 2.0, 4.0, 100.0, 200.0, 300.0].map(|value| (value - 2.0) / deviation);
    for (got, expected) in feature(&known).into_iter().zip(expected) {
        assert!((got - expected).abs() < 1e-4 * expected.abs().max(1.0), "{got}, expected {expected}");
    }
    // Other splits read all nodes, and so do nodes without times.
    let all = data.clone().standardize().unwrap();
    assert!(feature(&all).iter().sum::<f32>().abs() < 1e-4);
    let mut links = data.clone();
    links.times.nodes = Vec::new();
    links.times.split = Some(split());
    assert_eq!(feature(&links.standardize().unwrap()), feature(&all));
    // A split after the scaling comes too late, of nodes as of links.
    let links = LinkSplit::temporal(&all, "edge", None, split(), &LinkSplitConfig::default()).unwrap_err();
    for error in [all.with_time_split(split()).unwrap_err(), links] {
        assert!(matches!(error, Error::Time(TimeError::Scaled { .. })), "{error}");
    }
    let late = data.with_node_times(0, vec![7; 6]).unwrap();
    let late = Dataset { times: DatasetTimes { split: Some(split()), ..late.times.clone() }, ..late };
    let error = late.standardize().unwrap_err().to_string();
    assert!(error.contains("in the train part, before 4; the times of the items are 7 to 7"), "{error}");
}
