//! Partitions of heterogeneous sets on disk.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use kiln_data::{Dataset, NodeNames};
use kiln_feature::DenseFeatures;
use kiln_graph::{NodeId, NodeTypes};
use kiln_partition::{
    Method, Part, PartitionBooks, PartitionMeta, PartitionStats, part_dir, partition_nodes, write_parts,
};
use kiln_store::{name_key, npy};

use crate::checks::{check_cache, check_part};
use crate::common::{cache, shop, write_typed};
use crate::damage::check_edited_in;

/// The number of partitions, and the function from a node to its partition.
type Way = (usize, fn(u32) -> usize);

#[test]
fn each_node_is_in_one_partition_with_its_edges_and_features() {
    let data = shop();
    let ways: [Way; 4] = [
        (1, |_| 0),
        (2, |node| node as usize % 2),
        (3, |node| [0, 2][node as usize / 3 % 2]),
        (4, |node| node as usize * 7 / 3 % 4),
    ];
    for (n_parts, owner) in ways {
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("parts");
        let written = write_typed(&data, n_parts, owner, None, &out);
        let parts: Vec<_> = (0..n_parts).map(|part| Part::open(part_dir(&out, part)).unwrap()).collect();
        let owners: Vec<u16> = (0..20).map(|node| owner(node) as u16).collect();
        assert_eq!(data.labels().as_slice(), [0, 1, 2, 0, 1, 2, -1]);
        for (part, written) in parts.iter().zip(&written) {
            check_part(part, &data, &owners);
            let report = Part::verify(part_dir(&out, part.index)).unwrap();
            assert_eq!((report.n_owned, report.n_edges), (written.n_owned, written.n_edges));
            assert_eq!((part.n_owned(), part.n_edges()), (written.n_owned, written.n_edges));
            assert_eq!(part.partition_hash, parts[0].partition_hash);
        }
        assert_eq!(written.iter().map(|written| written.n_edges).sum::<u64>(), 80);
        let other = tempfile::tempdir().unwrap();
        write_typed(&data, n_parts, |node| (owner(node) + 1) % n_parts, None, &other.path().join("parts"));
        let other = Part::open(part_dir(other.path().join("parts"), 0)).unwrap();
        assert_eq!(other.partition_hash == parts[0].partition_hash, n_parts == 1);
    }
}

/// Users and shops have no features and one name of a user is empty; items have features, so their names are not needed.
#[test]
fn partitions_have_the_keys_of_nodes_without_features() {
    let mut data = shop();
    data.features[2] = None;
    let owner = |node: u32| node as usize % 2;
    let root = tempfile::tempdir().unwrap();
    let nameless = root.path().join("nameless");
    write_typed(&data, 2, owner, None, &nameless);
    let users: Vec<String> =
        (0..9).map(|user| if user == 3 { String::new() } else { format!("user {user}") }).collect();
    data.names[0] = NodeNames::new(users.iter().map(String::as_str)).into();
    data.names[1] = NodeNames::new((0..7).map(|_| "item")).into();
    let shops: Vec<String> =
        (0..data.graph.types().range(2).len()).map(|shop| format!("shop {shop}")).collect();
    data.names[2] = NodeNames::new(shops.iter().map(String::as_str)).into();
    let first_shop = data.graph.types().range(2).start as usize;
    let out = root.path().join("named");
    write_typed(&data, 2, owner, None, &out);
    for index in 0..2 {
        let part = Part::open(part_dir(&out, index)).unwrap();
        Part::verify(part_dir(&out, index)).unwrap();
        let nodes = part.types[0].old_ids.iter();
        let expected: Vec<u8> = nodes.flat_map(|node| name_key(&users[node.index()])).collect();
        assert_eq!(part.types[0].keys.as_deref(), Some(&expected[..]));
        assert!(part.types[1].keys.is_none());
        let nodes = part.types[2].old_ids.iter();
        let expected: Vec<u8> = nodes.flat_map(|node| name_key(&shops[node.index() - first_shop])).collect();
        assert_eq!(part.types[2].keys.as_deref(), Some(&expected[..]));
        let other = Part::open(part_dir(&nameless, index)).unwrap();
        assert!(other.types[0].keys.is_none());
        assert_eq!(other.partition_hash, part.partition_hash);
        // Without keys, the format is that of older versions of kiln.
        let format = |folder: &Path| -> serde_json::Value {
            serde_json::from_slice(&fs::read(part_dir(folder, index).join("part.json")).unwrap()).unwrap()
        };
        assert_eq!((&format(&out)["format"], &format(&nameless)["format"]), (&2.into(), &1.into()));
    }
    let folder = part_dir(&out, 0);
    let short = vec![0_u8; 4 * 16];
    let expected = "files.keys.0.npy.shape is [4, 16], expected [5, 16]";
    fs::write(folder.join("keys.0.npy"), npy::write(&short, &[4, 16])).unwrap();
    check_edited_in(&folder, "        5,\n        16\n", "        4,\n        16\n", expected);
}

#[test]
fn the_most_frequent_remote_rows_are_cached() {
    let data = shop();
    for ratio in [0.0, 0.15, 1.0] {
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("parts");
        let written = write_typed(&data, 2, |node| node as usize % 2, Some(&cache(ratio)), &out);
        for (index, written) in written.iter().enumerate() {
            let part = Part::open(part_dir(&out, index)).unwrap();
            Part::verify(part_dir(&out, index)).unwrap();
            check_cache(&part, &data, ratio, written);
            assert!(ratio < 1.0 || part.types[2].cache.is_some(), "no shop is cached");
        }
    }
}

#[test]
fn partitioners_assign_the_nodes_of_all_types() {
    let data = shop();
    let (whole, train) = (data.graph.to_homogeneous().unwrap(), &data.targets.as_ref().unwrap().split.train);
    for method in [Method::Random, Method::Fennel] {
        let parts = partition_nodes(&whole, train, 2, method, 0).unwrap();
        let stats = PartitionStats::of(&whole, train, &parts, 2).unwrap();
        let n_cut = data.graph.iter().map(|relation| {
            let first = data.graph.types().range(relation.dst_type).start;
            let dsts = relation.graph.dsts().into_iter().map(|dst| first + dst.0);
            let edges = relation.graph.indices().iter().zip(dsts);
            edges.filter(|(src, dst)| parts[src.index()] != parts[*dst as usize]).count() as u64
        });
        assert_eq!(stats.n_cut_edges, n_cut.sum::<u64>(), "{method}");
        assert!(stats.node_balance <= 1.05, "{method}: {stats}");
    }
}

#[test]
fn sets_that_cannot_be_partitioned_are_errors() {
    let (data, root) = (shop(), tempfile::tempdir().unwrap());
    let out = root.path().join("parts");
    let write = |data: &Dataset, sizes: [usize; 3]| {
        let types = NodeTypes::new(["user", "item", "shop"].into_iter().zip(sizes)).unwrap();
        let owners = vec![0; types.n_nodes()];
        let book = PartitionBooks::from_parts(types, &owners, 1).unwrap();
        let meta = PartitionMeta { hash: "hash".into(), method: Method::Random, n_cut_edges: 0 };
        write_parts(data, &book, &meta, None, &out).unwrap_err().to_string()
    };
    let without = Dataset { targets: None, ..data.clone() };
    let error = write(&without, [9, 7, 4]);
    let expected = "class labels, several labels, numbers or links: train on the whole graph instead";
    assert_eq!(error, format!("the kind of targets is none, expected {expected}"));
    let error = write(&data, [9, 8, 4]);
    assert_eq!(error, "the number of nodes of a type in the partition book is 8, expected 7");
    let mut other = data.clone();
    other.targets.as_mut().unwrap().split.val = vec![NodeId(9), NodeId(16)].into();
    let error = write(&other, [9, 7, 4]);
    assert_eq!(error, "a node of the split is 16, expected a node of the type with targets, which are 9..16");
    let mut other = data.clone();
    other.features.pop();
    assert!(write(&other, [9, 7, 4]).contains("types with or without features is 2, expected 3"));
    let mut other = data.clone();
    let features = other.features.iter_mut().flatten().next().unwrap();
    let dim = features.dim();
    let mut values = vec![0.5; features.n_rows() * dim];
    values[dim] = f32::NAN;
    *features = Arc::new(DenseFeatures::from_f32(values, dim).unwrap());
    let error = write(&other, [9, 7, 4]);
    assert!(error.contains("a feature of node 1 is NaN, expected finite numbers"), "{error}");
    assert!(!out.exists());
    let error = PartitionBooks::from_parts(data.graph.types().clone(), &[0, 1], 2).unwrap_err();
    assert_eq!(error.to_string(), "the number of assigned nodes is 2, expected 20");
}
