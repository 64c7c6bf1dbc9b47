//! Tests of the memory limit of compressed edge lists, in which a few bytes can contain any number of edges.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;

use kiln_data::convert::{ConvertOptions, convert};
use kiln_data::{Error, open_within};

use crate::common::put;
use crate::edge_lists::{folder, gzip};
use crate::ogb;

/// Opens a list of 100,000 edges in a file of 2 KB. This must succeed only if the limit is at least the size of the
/// edges in memory, or if the list is uncompressed.
#[test]
fn rejects_compressed_edge_lists_above_the_memory_limit() {
    let (folder, n_edges) = (folder(), 100_000);
    let at = folder.path();
    let lines = "0,1\n1,2\n2,3\n3,0\n".repeat(n_edges / 4);
    fs::write(at.join("edges.csv.gz"), gzip(lines.as_bytes())).unwrap();
    let opened = |limit| open_within(at, limit).map(|data| data.graph.n_edges());
    let needed = 8 * n_edges as u64;
    match opened(needed - 1) {
        Err(Error::EdgeListTooLarge { path, n_edges: most, budget_bytes }) => {
            assert_eq!((path, most, budget_bytes), (at.join("edges.csv.gz"), 99_999, needed - 1));
        }
        other => panic!("{other:?}"),
    }
    let said = opened(1 << 10).unwrap_err().to_string();
    assert!(said.contains("convert it once (kiln data convert)"), "{said}");
    assert_eq!(opened(needed).unwrap(), n_edges as u64);
    assert_eq!(kiln_data::open(at).unwrap().graph.n_edges(), n_edges as u64);
    // The same folder can be converted within 700 KiB.
    let root = tempfile::tempdir().unwrap();
    let options = ConvertOptions { memory_bytes: 700 << 10, ..ConvertOptions::default() };
    assert_eq!(convert(at, root.path().join("out"), &options).unwrap().n_edges, n_edges);

    // The weights of the list count towards the limit, too: an edge takes 12 bytes. Types beside it are mapped.
    put(at, "edge_types.npy", &vec![0_u8; n_edges], &[n_edges]);
    assert_eq!(opened(needed).unwrap(), n_edges as u64);
    fs::write(at.join("edges.csv.gz"), gzip("0,1,0.5\n".repeat(n_edges).as_bytes())).unwrap();
    assert!(matches!(opened(12 * n_edges as u64 - 1), Err(Error::EdgeListTooLarge { n_edges: 99_999, .. })));
    assert_eq!(opened(12 * n_edges as u64).unwrap(), n_edges as u64);
    fs::remove_file(at.join("edges.csv.gz")).unwrap();
    fs::remove_file(at.join("edge_types.npy")).unwrap();
    fs::write(at.join("edges.csv"), lines).unwrap();
    assert_eq!(opened(0).unwrap(), n_edges as u64);
}

#[test]
fn rejects_compressed_ogb_edges_above_the_memory_limit() {
    let (_parent, at) = ogb::folder("ogbn_arxiv");
    assert_eq!(open_within(&at, 8 * 4).unwrap().graph.n_edges(), 4);
    match open_within(&at, 8 * 4 - 1) {
        Err(Error::EdgeListTooLarge { path, n_edges: 3, budget_bytes: 31 }) => {
            assert_eq!(path, at.join("raw/edge.csv.gz"));
        }
        other => panic!("{other:?}"),
    }
}
