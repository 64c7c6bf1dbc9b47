//! Partitioners assign each node once, balance partitions and cut fewer edges than random.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use kiln_data::synthetic::{self, SbmConfig};
use kiln_graph::{Csc, CscBuilder, NodeId};
use kiln_partition::{Error, MAX_PARTS, Method, PartitionBook, PartitionStats, partition_nodes};
use kiln_testkit::arb_coo;
use proptest::prelude::*;

/// The partitioners that are compiled into this build.
fn methods() -> Vec<Method> {
    let metis = cfg!(feature = "metis").then_some(Method::Metis);
    [Method::Random, Method::Fennel].into_iter().chain(metis).collect()
}

/// The maximum number of nodes per partition for `n` nodes in `n_parts` partitions.
fn most(n: usize, n_parts: usize) -> usize {
    n.div_ceil(n_parts).max((1.05 * n as f64 / n_parts as f64) as usize)
}

/// Checks the guarantees of every partitioner: complete, balanced and reproducible assignments.
fn check_parts(graph: &Csc, train: &[NodeId], n_parts: usize, method: Method) -> Vec<u16> {
    let parts = partition_nodes(graph, train, n_parts, method, 7).unwrap();
    assert_eq!(parts.len(), graph.n_nodes());
    let book = PartitionBook::from_parts(&parts, n_parts).unwrap();
    let mut n_train = vec![0; n_parts];
    for node in train {
        n_train[book.place(*node).unwrap().part] += 1;
    }
    let what =
        format!("{method}, {n_parts} partitions, {} nodes, {} training nodes", parts.len(), train.len());
    for (part, n_train) in n_train.into_iter().enumerate() {
        assert!(
            book.n_owned(part) <= most(parts.len(), n_parts),
            "{what}: a partition has {} nodes",
            book.n_owned(part)
        );
        assert!(n_train <= most(train.len(), n_parts), "{what}: a partition has {n_train} training nodes");
    }
    assert!(
        partition_nodes(graph, train, n_parts, method, 7).unwrap() == parts,
        "{what}: both runs should give the same assignment"
    );
    parts
}

proptest! {
    #[test]
    fn assigns_each_node_once_and_balances_partitions(
        coo in arb_coo(),
        is_train in prop::collection::vec(any::<bool>(), 40),
        n_parts in 1..50_usize,
    ) {
        let graph = coo.csc();
        let nodes = (0..graph.n_nodes() as u32).map(NodeId);
        let train: Vec<NodeId> = nodes.filter(|node| is_train[node.index()]).collect();
        for method in methods() {
            check_parts(&graph, &train, n_parts, method);
        }
    }
}

/// A graph of 8 communities with most edges inside a community.
fn groups() -> kiln_data::Dataset {
    let (n_nodes, n_classes, degree, homophily) = (4000, 8, 20, 0.8);
    synthetic::sbm(SbmConfig { n_nodes, n_classes, degree, homophily, dim: 1, noise: 1.0, seed: 3 }).unwrap()
}

#[test]
fn partitioners_cut_fewer_edges_than_random() {
    let data = groups();
    let (graph, train) = (&data.graph, &data.split().train);
    for n_parts in [2, 4, 7] {
        let cut = |method| {
            let parts = check_parts(&graph.relation(0).graph, train, n_parts, method);
            let stats = PartitionStats::of(&graph.relation(0).graph, train, &parts, n_parts).unwrap();
            assert!(stats.node_balance <= 1.05 && stats.train_balance <= 1.05, "{method}: {stats:?}");
            stats.cut
        };
        let by_chance = cut(Method::Random);
        assert!(
            (by_chance - (1.0 - 1.0 / n_parts as f64)).abs() < 0.02,
            "random cuts {by_chance} with {n_parts} partitions"
        );
        for method in methods().into_iter().skip(1) {
            let cut = cut(method);
            println!("{n_parts} partitions: {method} cuts {cut:.3}, random {by_chance:.3}");
            assert!(cut < 0.8 * by_chance, "{n_parts} partitions: {method} cuts {cut}, random {by_chance}");
        }
    }
}

#[test]
fn more_partitions_than_nodes_leave_some_empty() {
    let graph = kiln_testkit::ring(5);
    for method in methods() {
        let parts = check_parts(&graph, &[NodeId(1), NodeId(4)], 9, method);
        let mut used = parts.clone();
        used.sort_unstable();
        used.dedup();
        assert_eq!(used.len(), 5, "{method}: {parts:?}");
        assert_eq!(
            partition_nodes(&CscBuilder::new(0).build(&[], &[]).unwrap(), &[], 3, method, 0).unwrap(),
            [0; 0]
        );
    }
}

#[test]
fn duplicate_training_nodes_count_once() {
    let graph = kiln_testkit::ring(8);
    let train = [NodeId(3), NodeId(3), NodeId(3), NodeId(6)];
    for method in methods() {
        let parts = partition_nodes(&graph, &train, 2, method, 0).unwrap();
        assert_ne!(parts[3], parts[6], "{method}");
    }
}

#[test]
fn rejects_invalid_parameters_and_damaged_graphs() {
    let graph = kiln_testkit::ring(8);
    for n_parts in [0, MAX_PARTS + 1] {
        let error = partition_nodes(&graph, &[], n_parts, Method::Fennel, 0).unwrap_err().to_string();
        assert_eq!(error, format!("the number of partitions is {n_parts}, expected 1 to 65535"));
    }
    let error =
        partition_nodes(&graph, &[NodeId(0), NodeId(8)], 2, Method::Random, 0).unwrap_err().to_string();
    assert_eq!(error, "a training node is 8, expected below 8, the number of nodes");
    let error = PartitionStats::of(&graph, &[], &[0, 1, 0, 1, 0, 1, 0, 2], 2).unwrap_err().to_string();
    assert_eq!(error, "the partition of a node is 2, expected below 2, the number of partitions");
    let damaged = Arc::new(Csc::new(vec![0, 1].into(), vec![NodeId(7)].into()).unwrap());
    for method in methods() {
        assert!(matches!(partition_nodes(&damaged, &[], 2, method, 0), Err(Error::Graph(_))), "{method}");
    }
    if !cfg!(feature = "metis") {
        assert!(matches!(partition_nodes(&graph, &[], 2, Method::Metis, 0), Err(Error::NoMetis)));
    }
}

#[test]
fn method_names_parse_and_auto_chooses_by_size() {
    for method in [Method::Random, Method::Fennel, Method::Metis] {
        assert_eq!(method.name().parse::<Method>().unwrap(), method);
    }
    let error = "ldg".parse::<Method>().unwrap_err().to_string();
    assert_eq!(error, "the method is ldg, expected random, fennel or metis");
    let auto = if cfg!(feature = "metis") { Method::Metis } else { Method::Fennel };
    assert_eq!(Method::auto(1000), auto);
    assert_eq!(Method::auto(u64::MAX), Method::Fennel);
}
