//! Tests of the content of the embedded set `mutag`.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use kiln_data::{mutag, tu};
use kiln_graph::NodeId;
use sha2::{Digest, Sha256};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets/mutag")
}

#[test]
fn files_match_the_hashes_in_the_readme() {
    let description = fs::read_to_string(folder().join("README.md")).unwrap();
    let mut n_files = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_name().unwrap().to_str().unwrap().strip_suffix(".gz") else { continue };
        let mut plain = Vec::new();
        GzDecoder::new(fs::File::open(&path).unwrap()).read_to_end(&mut plain).unwrap();
        let hash: String = Sha256::digest(plain).iter().map(|byte| format!("{byte:02x}")).collect();
        let line = description.lines().find(|line| line.starts_with(&format!("| `{name}`"))).unwrap();
        assert!(line.ends_with(&format!("`{hash}` |")), "{name} has the hash {hash}");
        n_files += 1;
    }
    assert_eq!(n_files, 5);
}

#[test]
fn counts_match_the_published_set() {
    let data = mutag().unwrap();
    assert_eq!(data.to_string(), "mutag: 188 graphs of 17.93 nodes and 39.59 edges on average, 2 classes");
    assert_eq!((data.graph().n_nodes(), data.graph().n_edges()), (3_371, 7_442));
    assert_eq!(data.class_names, ["-1", "1"]);
    let count = |classes: &[i32], class| classes.iter().filter(|&&other| other == class).count();
    assert_eq!([0, 1].map(|class| count(data.labels().as_slice(), class)), [63, 125]);
    let atoms = data.node_labels().unwrap().as_slice();
    assert_eq!([0, 1, 2, 3, 4, 5, 6].map(|class| count(atoms, class)), [2395, 345, 593, 12, 1, 23, 2]);
    assert_eq!(data.node_label_names, ["C", "N", "O", "F", "I", "Cl", "Br"]);
    let bonds: Vec<i32> = data.graph().edge_types().unwrap().iter().map(|&ty| ty.into()).collect();
    assert_eq!([0, 1, 2, 3].map(|class| count(&bonds, class)), [4708, 2008, 724, 2]);
    assert_eq!(data.edge_type_names, ["aromatic", "single", "double", "triple"]);
    assert!(data.features().is_none());
    assert_eq!(data.notes, []);
}

#[test]
fn molecules_have_10_to_28_atoms_and_edge_types_follow_their_edges() {
    let data = mutag().unwrap();
    let sizes: Vec<usize> = (0..data.n_graphs()).map(|graph| data.nodes(graph).len()).collect();
    assert_eq!((sizes.iter().min(), sizes.iter().max()), (Some(&10), Some(&28)));
    // Both directions of a bond have the same type. If the types were not in the order of the edges, the types of some
    // bonds would differ between the directions.
    let graph = data.graph();
    let types = graph.edge_types().unwrap();
    for dst in (0..graph.n_nodes() as u32).map(NodeId) {
        for (position, &src) in graph.in_neighbors(dst).iter().enumerate() {
            let reverse = graph.in_neighbors(src).binary_search(&dst).unwrap();
            let [forward, reverse] = [(dst, position), (src, reverse)]
                .map(|(node, nth)| types[graph.first_edge(node).index() + nth]);
            assert_eq!(forward, reverse, "{} -> {}", src.0, dst.0);
        }
    }
}

#[test]
fn folder_reader_returns_the_built_in_set() {
    let (built_in, read) = (mutag().unwrap(), tu::read(folder()).unwrap());
    assert_eq!(read.name, "MUTAG");
    assert_eq!(read.graph().indptr(), built_in.graph().indptr());
    assert_eq!(read.graph().indices(), built_in.graph().indices());
    assert_eq!(read.graph().edge_types(), built_in.graph().edge_types());
    assert_eq!(read.node_offsets(), built_in.node_offsets());
    assert_eq!(read.labels().as_slice(), built_in.labels().as_slice());
    assert_eq!(read.node_label_names, ["0", "1", "2", "3", "4", "5", "6"]);
}
