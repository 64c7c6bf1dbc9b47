//! The bytes and the hashes of folders in the kiln format: one plain and one heterogeneous set, each with all optional arrays.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_data::{Dataset, LinkSplit, LinkSplitConfig, LinkTargets, format};
use kiln_graph::{LinkId, LinkNegatives, Links, NodeId, NodeTypes, RelationEdges};
use kiln_store::sha256;
use kiln_testkit::check_golden;

use crate::common::contents;
use crate::sets::{relation, written};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/golden").join(name)
}

/// Returns the manifest of a folder, and the size and the hash of each other file.
fn listing(folder: &Path) -> String {
    let mut lines = Vec::new();
    for (name, bytes) in contents(folder) {
        match name.as_str() {
            "kiln.json" => lines.push(format!("{name}\n{}", String::from_utf8(bytes).unwrap())),
            _ => lines.push(format!("{name} {} {}", bytes.len(), sha256(&bytes))),
        }
    }
    lines.join("\n") + "\n"
}

/// A plain set with weights, types and features of edges, names, and links with negatives.
fn plain() -> Dataset {
    let links = |pairs: &[(u32, u32)]| {
        let (srcs, dsts): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
        Links::new(srcs, dsts).unwrap()
    };
    let targets = LinkTargets::of_parts(&links(&[(0, 1), (3, 1)]), &links(&[(2, 0)]), &links(&[(1, 3)]));
    let negatives = LinkNegatives::of_dsts(vec![LinkId(3)], 2, vec![0_u32, 2]).unwrap();
    let targets = targets.unwrap().with_negatives(None, Some(negatives)).unwrap();
    let data = Dataset::builder(4)
        .name("small")
        .edges(&[0, 3, 2, 1, 0], &[1, 1, 0, 2, 3])
        .edge_weights(&[0.5, 1.0, 1.5, 2.0, 2.5])
        .edge_types(&[0, 1, 1, 0, 2])
        .edge_features(vec![1.0, 2.0, 3.0, 4.0, 5.0], 1)
        .features(vec![0.25, -0.5, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 2)
        .labels(vec![0, 1, -1, 1], 2)
        .split(vec![NodeId(0)], vec![NodeId(1)], vec![NodeId(3)])
        .node_names(["a", "b", "c", "d"])
        .class_names(["low", "high"])
        .edge_type_names(["near", "far", "other"])
        .build()
        .unwrap();
    Dataset { links: Some(Arc::new(targets).into()), ..data }
}

/// A heterogeneous set with weights, names and links; users have no features.
fn heterogeneous() -> Dataset {
    let users = [0, 1, 1, 2, 2, 0, 1, 2];
    let items = [0, 0, 2, 1, 3, 3, 1, 2];
    let weights = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0];
    let rates = relation("rates", ["user", "item"], &users, &items);
    let data = Dataset::builder_with_types(NodeTypes::new([("user", 3), ("item", 4)]).unwrap())
        .name("shop")
        .relation(RelationEdges { weights: Some(&weights), ..rates })
        .relation(relation("rated by", ["item", "user"], &items, &users))
        .nodes("item")
        .features(vec![0.25, -0.5, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 2)
        .nodes("item")
        .labels(vec![0, 1, -1, 1], 2)
        .split(vec![0], vec![1], vec![3])
        .nodes("user")
        .node_names(["a", "b", "c"])
        .class_names(["low", "high"])
        .build()
        .unwrap();
    let config = LinkSplitConfig { val: 0.25, test: 0.25, ..Default::default() };
    let split = LinkSplit::random_relation(&data.graph, "rates", Some("rated by"), &config, 3).unwrap();
    Dataset { graph: split.message().clone(), links: Some(split.dataset_links().clone()), ..data }
}

#[test]
fn the_folders_of_both_layouts_are_frozen() {
    for (name, data) in [("plain.txt", plain()), ("heterogeneous.txt", heterogeneous())] {
        let (_root, folder) = written(&data);
        let hashes = format!("data {}\nfolder {}\n", data.hash().unwrap(), format::hash(&folder).unwrap());
        check_golden(golden(name), &(hashes + &listing(&folder)));
    }
}
