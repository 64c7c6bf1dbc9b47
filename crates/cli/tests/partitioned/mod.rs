//! A dataset on disk, whole and partitioned, for tests of training on partitions.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;

use kiln::data::format;
use kiln::data::synthetic::{FakeConfig, fake};
use kiln::partition::{CacheConfig, Method, PartitionBook, PartitionMeta, partition_nodes, write_parts};

/// Writes a dataset in the kiln format to `whole`, and its two partitions to `parts`.
pub(crate) fn write(config: FakeConfig, cache: Option<&CacheConfig>, folder: &Path) {
    let data = fake(config).unwrap();
    format::write(&data, folder.join("whole")).unwrap();
    let owners = partition_nodes(data.csc().unwrap(), &data.split().train, 2, Method::Fennel, 0).unwrap();
    let book = PartitionBook::from_parts(&owners, 2).unwrap();
    let hash = format::hash(folder.join("whole")).unwrap();
    let meta = PartitionMeta { hash, method: Method::Fennel, n_cut_edges: 0 };
    write_parts(&data, &book, &meta, cache, folder.join("parts")).unwrap();
}
