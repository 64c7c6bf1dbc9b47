//! Partitions of heterogeneous sets on disk.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use kiln_data::{Dataset, NodeNames};
use kiln_feature::FeatureBuffer;
use kiln_graph::{NodeId, NodeTypes};
use kiln_partition::{
    Method, Part, PartitionBooks, PartitionMeta, PartitionRow, PartitionStats, part_dir, partition_nodes,
    write_parts,
};
use kiln_sample::{HeteroNeighborSampler, SamplerConfig};
use kiln_store::{name_key, npy};

use crate::common::{cache, labels, shop, typed_parts, write_typed};
use crate::damage::{check_edited_in, check_forged_in};
use crate::parts::counts_of_epoch;

/// The number of partitions, and the function from a node to its partition.
type Way = (usize, fn(u32) -> usize);

/// Checks that each node is in one partition, with its features and its edges of each relation.
fn check_parts(data: &Dataset, parts: &[Part]) {
    let types = data.graph.types();
    let mut n_owned = 0;
    for part in parts {
        assert_eq!(part.schema, *data.graph.schema());
        assert_eq!(labels(part).as_slice(), [0, 1, 2, 0, 1, 2, -1]);
        let (found, targets) = (part.targets.as_ref().unwrap(), data.targets.as_ref().unwrap());
        assert_eq!((&found.split, found.node_type), (&targets.split, targets.node_type));
        assert_eq!(found.class_names, targets.class_names);
        assert!(part.is_heterogeneous());
        for (node_type, of_type) in part.types.iter().enumerate() {
            let first = types.range(node_type).start;
            for (row, &node) in (0..).map(PartitionRow).zip(&*of_type.old_ids) {
                let place = part.books.place(node).unwrap();
                assert_eq!((place.part, place.row), (part.index, row));
                n_owned += 1;
                let local = NodeId(node.0 - first);
                let (Some(rows), Some(expected)) = (&of_type.features, &data.features[node_type]) else {
                    assert_eq!(of_type.features.is_some(), data.features[node_type].is_some());
                    continue;
                };
                let (mut got, mut whole) =
                    (FeatureBuffer::empty(rows.dtype()), FeatureBuffer::empty(expected.dtype()));
                rows.gather(&[row.local_node()], &mut got).unwrap();
                expected.gather(&[local], &mut whole).unwrap();
                assert_eq!(got, whole, "{node:?}");
            }
        }
        for (of_part, relation) in part.relations.iter().zip(data.graph.iter()) {
            let first = types.range(relation.dst_type).start;
            let nodes = &part.types[relation.dst_type].old_ids;
            for (row, node) in (0..).map(NodeId).zip(&**nodes) {
                let local = NodeId(node.0 - first);
                assert_eq!(of_part.graph.in_neighbors(row), relation.graph.in_neighbors(local));
                assert_eq!(of_part.first_edges[row.index()], relation.graph.first_edge(local).0);
                let weights = |graph: &kiln_graph::Csc, row: NodeId| {
                    let first = graph.first_edge(row).index();
                    graph.weights().map(|all| all[first..first + graph.in_degree(row) as usize].to_vec())
                };
                assert_eq!(weights(&of_part.graph, row), weights(&relation.graph, local));
            }
        }
    }
    assert_eq!(n_owned, types.n_nodes());
}

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
        check_parts(&data, &parts);
        for (part, written) in parts.iter().zip(&written) {
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

/// Recounts, batch by batch, the inputs of the first epoch of each partition's training nodes.
#[test]
fn the_most_frequent_remote_rows_are_cached() {
    let data = shop();
    let types = data.graph.types();
    let owner = |node: u32| node as usize % 2;
    for ratio in [0.0, 0.15, 1.0] {
        let config = cache(ratio);
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("parts");
        let written = write_typed(&data, 2, owner, Some(&config), &out);
        for (index, written) in written.iter().enumerate() {
            let part = Part::open(part_dir(&out, index)).unwrap();
            Part::verify(part_dir(&out, index)).unwrap();
            let train = data.targets.as_ref().unwrap().split.train.iter().copied();
            let fanouts = config.fanouts.iter().map(|&fanout| vec![fanout; 3]).collect();
            let sampler = HeteroNeighborSampler::new(&data.graph, fanouts, SamplerConfig::default()).unwrap();
            let counts = counts_of_epoch(&sampler, train.filter(|node| owner(node.0) == index));
            let count_of = |node: u32| counts.get(&node).copied().unwrap_or(0);
            let is_cacheable = |node: &u32| owner(*node) != index && 9 <= *node && 0 < count_of(*node);
            let mut expected: Vec<u32> = (0..20).filter(is_cacheable).collect();
            let n_remote = expected.iter().map(|node| count_of(*node)).sum::<u32>();
            assert_eq!(written.n_remote, u64::from(n_remote));
            expected.sort_by_key(|node| (std::cmp::Reverse(count_of(*node)), *node));
            expected.truncate((ratio * 20.0) as usize);
            expected.sort_unstable();
            let mut cached = Vec::new();
            for (node_type, of_type) in part.types.iter().enumerate() {
                let Some(cache) = &of_type.cache else { continue };
                let first = types.range(node_type).start;
                let whole = data.features[node_type].as_ref().unwrap();
                for (row, (id, count)) in (0..).map(NodeId).zip(cache.ids.iter().zip(&cache.counts)) {
                    assert_eq!(*count, count_of(first + id.0));
                    let (mut got, mut expected) =
                        (FeatureBuffer::empty(whole.dtype()), FeatureBuffer::empty(whole.dtype()));
                    cache.features.gather(&[row], &mut got).unwrap();
                    whole.gather(&[*id], &mut expected).unwrap();
                    assert_eq!(got, expected);
                    cached.push(first + id.0);
                }
            }
            assert_eq!(cached, expected, "partition {index}, ratio {ratio}");
            assert_eq!(written.n_cached, expected.len());
            assert!(ratio < 1.0 || expected.iter().any(|node| 16 <= *node), "no shop is cached");
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

/// The partition has the even nodes of the graph.
#[test]
fn verify_reports_file_and_position_of_invalid_values() {
    let (_root, folder) = typed_parts();
    let part = Part::open(&folder).unwrap();
    let ids = |node_type: usize| part.types[node_type].old_ids.iter().map(|node| node.0).collect::<Vec<_>>();
    assert_eq!((ids(0), ids(1), ids(2)), (vec![0, 2, 4, 6, 8], vec![10, 12, 14], vec![16, 18]));
    let forged = |name: &str, change: fn(&mut Vec<u32>), values: &[u32], expected: &str| {
        let (_root, folder) = typed_parts();
        let mut values = values.to_vec();
        change(&mut values);
        check_forged_in(&folder, name, &values, &[values.len()], expected);
    };
    let book = part.books.of_type(1).new_ids();
    forged(
        "new_ids.1.npy",
        |ids| ids[1] = 2,
        book,
        "new_ids.1.npy: partition book: the new id of node 1 is 2",
    );
    let expected = "old_ids.1.npy: the node of row 1 is 11, expected the node whose new id is 1";
    forged("old_ids.1.npy", |ids| ids[1] = 11, &ids(1), expected);
    let expected = "old_ids.1.npy: the node of row 0 is 3, expected the node whose new id is 0";
    forged("old_ids.1.npy", |ids| ids[0] = 3, &ids(1), expected);
    let cached: Vec<u32> = part.types[1].cache.as_ref().unwrap().ids.iter().map(|id| id.0).collect();
    let expected = "cache_ids.1.npy: the node of row 0 is 1, expected a node of another partition";
    forged("cache_ids.1.npy", |ids| ids[0] = 1, &cached, expected);
    let expected = "cache_counts.1.npy: the count of row 0 is 0, expected at least 1";
    forged("cache_counts.1.npy", |counts| counts[0] = 0, &vec![1; cached.len()], expected);
    let sources = |relation: usize| -> Vec<u32> {
        part.relations[relation].graph.indices().iter().map(|src| src.0).collect()
    };
    // Node 9 is the first item, and node 16 the first shop.
    let expected = "indices.0.npy: the source of edge 2 is 9, expected a node id below 9";
    forged("indices.0.npy", |srcs| srcs[2] = 9, &sources(0), expected);
    let expected =
        "indices.1.npy: the source of edge 0 is 16, expected a node id from 9 to 15, of the sources' type";
    forged("indices.1.npy", |srcs| srcs[0] = 16, &sources(1), expected);
    let expected = "train.npy: train split entry 1 is node 3, expected a node of the type with targets";
    forged("train.npy", |nodes| nodes[1] = 3, &[9, 10, 11], expected);
    let mut firsts = part.relations[2].first_edges.to_vec();
    firsts[2] = 21;
    let expected = "first_edges.2.npy: the first edge of row 2 is 21, expected at least";
    check_forged_in(&folder, "first_edges.2.npy", &firsts, &[3], expected);
    let (_root, folder) = typed_parts();
    let mut weights = part.relations[0].graph.weights().unwrap().to_vec();
    weights[1] = f32::NAN;
    let expected = "weights.0.npy: the weight of edge 1 is NaN";
    check_forged_in(&folder, "weights.0.npy", &weights, &[weights.len()], expected);
}

#[test]
fn open_rejects_inconsistent_manifests() {
    let check = |from: &str, to: &str, expected: &str| {
        let (_root, folder) = typed_parts();
        check_edited_in(&folder, from, to, expected);
    };
    check("\"format\": 1", "\"format\": 3", "the set has format 3, expected 2");
    check("\"part\": 0", "\"part\": 2", "part is 2, expected below 2, the number of partitions");
    check("\"part\": 0", "\"part\": 1", "files.features.1.npy.shape is [3, 2], expected [4, 2]");
    check("\"n_nodes\": 7", "\"n_nodes\": 8", "files.labels.npy.shape is [7], expected [8]");
    check("\"dim\": 2", "\"dim\": 0", "node_types[1].dim is 0, expected 1 to 16777216, or null");
    check("\"dim\": null", "\"dim\": 2", "files is none, expected an entry features.0.npy");
    check(
        "\"dim\": 2",
        "\"dim\": null",
        "files.cache_counts.1.npy is unknown, expected a file of the format",
    );
    check("\"target_type\": 1", "\"target_type\": 3", "target_type is 3, expected below 3");
    check("\"n_classes\": 3", "\"n_classes\": 4", "class_names is 3 names, expected 4 names or none");
    check("\"dst_type\": 0", "\"dst_type\": 3", "there is no node type `3`");
    check("\"rated by\"", "\"rates\"", "invalid relation `rates`: it occurs twice");
    check("\"n_edges\": 20", "\"n_edges\": 2", "expected at most 2, the edges of the whole relation");
    check("\"user\"", "\"item\"", "invalid node type `item`: it occurs twice");
    check("        5,\n        9\n", "        5\n", "node_types[1].offsets is 3, expected 2 offsets");
    check(
        "        5,\n        9\n",
        "        5,\n        4\n",
        "node_types[0].offsets is 4, expected at least 5",
    );
    check("        5,\n        9\n", "        5,\n        8\n", "the last offset is 8, expected 9");
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
    assert_eq!(error, "the kind of targets is none, expected class labels: train on the whole graph instead");
    let error = write(&data, [9, 8, 4]);
    assert_eq!(error, "the number of nodes of a type in the partition book is 8, expected 7");
    let mut other = data.clone();
    other.targets.as_mut().unwrap().split.val = vec![NodeId(9), NodeId(16)].into();
    let error = write(&other, [9, 7, 4]);
    assert_eq!(error, "a node of the split is 16, expected a node of the type with labels, which are 9..16");
    let mut other = data.clone();
    other.features.pop();
    assert!(write(&other, [9, 7, 4]).contains("types with or without features is 2, expected 3"));
    assert!(!out.exists());
    let error = PartitionBooks::from_parts(data.graph.types().clone(), &[0, 1], 2).unwrap_err();
    assert_eq!(error.to_string(), "the number of assigned nodes is 2, expected 20");
}
