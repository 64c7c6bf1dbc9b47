//! A set whole and in parts, for the tests of programs that train on parts.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;

use kiln_data::format;
use kiln_data::synthetic::{FakeConfig, fake};
use kiln_partition::{CacheConfig, Method, PartitionBook, PartitionMeta, partition_nodes, write_parts};

/// Writes a set in kiln's own form as `whole`, and the same in two parts as `parts`.
pub(crate) fn write(config: FakeConfig, cache: Option<&CacheConfig>, folder: &Path) {
    let data = fake(config).unwrap();
    format::write(&data, folder.join("whole")).unwrap();
    let owners = partition_nodes(&data.graph, &data.split.train, 2, Method::Fennel, 0).unwrap();
    let book = PartitionBook::from_parts(&owners, 2).unwrap();
    let hash = format::hash(folder.join("whole")).unwrap();
    let meta = PartitionMeta { hash, method: Method::Fennel, n_cut_edges: 0 };
    write_parts(&data, &book, &meta, cache, folder.join("parts")).unwrap();
}
