//! Frozen values: batches, descriptions of models and files of runs, for plain and for heterogeneous graphs, whole and on
//! partitions. A change of a digest or of a golden file breaks checkpoints, saved models or the determinism contract.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod batches;
mod files;
mod parity;
pub(crate) mod partitions;
mod targets;

use kiln::graph::{NodeTypes, Relations};
use kiln::prelude::*;

use crate::relation::relation;

const N_NODES: u32 = 240;
const N_USERS: u32 = 90;
const N_CLASSES: u32 = 3;
const WIDTH: u32 = 4;

/// Returns a pseudorandom number that depends only on `number`.
fn wild(number: u32) -> u32 {
    let mixed = (number ^ 0x9e37_79b9).wrapping_mul(0x85eb_ca6b);
    (mixed ^ (mixed >> 13)).wrapping_mul(0xc2b2_ae35) >> 8
}

/// Returns the features of nodes: multiples of 1/8, whose sums are exact in any order.
fn features(n_nodes: u32) -> Vec<f32> {
    (0..n_nodes * WIDTH).map(|value| (wild(value + 9_000) % 17) as f32 / 8.0 - 1.0).collect()
}

fn classes(n_nodes: u32) -> Vec<i32> {
    (0..n_nodes).map(|node| (wild(node + 500) % N_CLASSES) as i32).collect()
}

/// Returns the nodes for training, validation and test.
fn parts(n_nodes: u32) -> [Vec<u32>; 3] {
    [0..6, 6..8, 8..10]
        .map(|range| (0..n_nodes).filter(|node| range.contains(&(wild(node + 70_000) % 10))).collect())
}

/// Returns a plain data set.
fn plain() -> Dataset {
    let n_edges = 5 * N_NODES;
    let srcs: Vec<u32> = (0..n_edges).map(|edge| wild(edge) % N_NODES).collect();
    let dsts: Vec<u32> = (0..n_edges).map(|edge| wild(edge + n_edges) % N_NODES).collect();
    let [train, val, test] =
        parts(N_NODES).map(|nodes| nodes.into_iter().map(NodeId).collect::<Vec<NodeId>>());
    Dataset::builder(N_NODES as usize)
        .name("plain")
        .edges(&srcs, &dsts)
        .features(features(N_NODES), WIDTH as usize)
        .labels(classes(N_NODES), N_CLASSES as usize)
        .split(train, val, test)
        .build()
        .unwrap()
}

/// Returns [`plain`] as a heterogeneous data set with one type of nodes and one relation.
fn of_one_type(plain: &Dataset) -> Dataset {
    let [train, val, test] = parts(N_NODES);
    Dataset::builder_with_relations(&Relations::of_graph(plain.csc().unwrap().clone()))
        .name("plain")
        .nodes("node")
        .feature_store(plain.node_features().unwrap().clone())
        .nodes("node")
        .labels(classes(N_NODES), N_CLASSES as usize)
        .split(train.clone(), val.clone(), test.clone())
        .build()
        .unwrap()
}

/// Returns a heterogeneous data set: users without features, who buy items with features and classes.
fn heterogeneous() -> Dataset {
    let n_edges = 6 * N_NODES;
    let users: Vec<u32> = (0..n_edges).map(|edge| wild(edge + 3) % N_USERS).collect();
    let items: Vec<u32> = (0..n_edges).map(|edge| edge % N_NODES).collect();
    let buys = relation("buys", ["user", "item"], &users, &items);
    let bought_by = relation("bought by", ["item", "user"], &items, &users);
    let [train, val, test] = parts(N_NODES);
    let types = NodeTypes::new([("user", N_USERS as usize), ("item", N_NODES as usize)]).unwrap();
    Dataset::builder_with_types(types)
        .name("shop")
        .relation(buys)
        .relation(bought_by)
        .nodes("item")
        .features(features(N_NODES), WIDTH as usize)
        .nodes("item")
        .labels(classes(N_NODES), N_CLASSES as usize)
        .split(train.clone(), val.clone(), test.clone())
        .build()
        .unwrap()
}

fn links() -> LinkSplitConfig {
    LinkSplitConfig { val: 0.1, test: 0.1, ..LinkSplitConfig::default() }
}

fn link_split(data: &Dataset) -> LinkSplit {
    LinkSplit::random(&data.graph, &links(), 3).unwrap()
}

fn relation_split(data: &Dataset, relation: &str, reverse: Option<&str>) -> LinkSplit {
    LinkSplit::random_relation(&data.graph, relation, reverse, &links(), 3).unwrap()
}
