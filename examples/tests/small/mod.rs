//! A small random graph on disk, whole and in partitions, for tests of the programs.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(dead_code, reason = "not every test uses every function")]

use std::path::{Path, PathBuf};

use kiln::data::synthetic::{FakeConfig, fake};
use kiln::partition::{Method, PartitionBook, PartitionMeta};
use kiln::prelude::*;

/// Returns a graph of about `n_nodes` nodes.
fn graph(n_nodes: usize) -> Dataset {
    fake(FakeConfig { avg_num_nodes: n_nodes, seed: 3, ..Default::default() }).unwrap()
}

/// Writes a graph of about `n_nodes` nodes in the kiln format, and returns its folder.
pub(crate) fn write(n_nodes: usize, folder: &Path) -> PathBuf {
    let set = folder.join("set");
    kiln::data::format::write(&graph(n_nodes), &set).unwrap();
    set
}

/// Writes the two partitions of a graph of about `n_nodes` nodes, and returns their folder.
pub(crate) fn write_parts(n_nodes: usize, folder: &Path) -> PathBuf {
    let (data, parts) = (graph(n_nodes), folder.join("parts"));
    let owners: Vec<u16> = (0..data.graph.n_nodes() as u16).map(|node| node % 2).collect();
    let book = PartitionBook::from_parts(&owners, 2).unwrap();
    let (hash, method) = (data.hash().unwrap(), Method::Random);
    let meta = PartitionMeta { hash, method, n_cut_edges: 0 };
    kiln::partition::write_parts(&data, &book, &meta, None, &parts).unwrap();
    parts
}
