//! Partitions on disk together contain the whole data set, and each opens without the others.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use kiln_data::{Dataset, LinkSplit, LinkSplitConfig, LinkTargets, Split};
use kiln_feature::Preparation;
use kiln_graph::{Csc, GraphSchema, LinkId, Links, LocalId, NodeId};
use kiln_partition::{Error, Method, Part, PartitionBook, PartitionMeta, part_dir, write_parts};
use kiln_sample::{ExcludedEdges, Fanout, FrontierSampler, NeighborSampler, RngKey, Scratch, Seeds};
use kiln_testkit::{CooGraph, arb_coo};
use proptest::prelude::*;

use crate::checks::{backwards, check_cache, check_part, ends_of_training_links};
use crate::common::{Stored, cache, contents, set, six_nodes, write};

fn arb_stored() -> impl Strategy<Value = Stored> {
    prop::sample::select(vec![Stored::F32, Stored::F16, Stored::BF16, Stored::Sparse])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn partitions_contain_the_data_set(
        coo in arb_coo(),
        parts in prop::collection::vec(0..4_u16, 40),
        stored in arb_stored(),
        ratio in 0.0..1.0_f64,
    ) {
        let (data, parts) = (set(&coo, stored), &parts[..coo.n_nodes]);
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("parts");
        let written = write(&data, parts, 4, Some(&cache(ratio)), &out);
        for (index, written) in written.iter().enumerate() {
            let part = Part::open(part_dir(&out, index)).unwrap();
            prop_assert_eq!(part.index, index);
            check_part(&part, &data, parts);
            let schema = GraphSchema::homogeneous(data.graph.n_nodes(), data.graph.n_edges()).unwrap();
            prop_assert_eq!(&part.schema, &schema);
            check_cache(&part, &data, ratio, written);
            let verified = Part::verify(part_dir(&out, index)).unwrap();
            prop_assert_eq!((verified.n_owned, verified.n_edges), (written.n_owned, written.n_edges));
        }
    }

    #[test]
    fn book_locates_each_node(parts in prop::collection::vec(0..9_u16, 0..200)) {
        let book = PartitionBook::from_parts(&parts, 9).unwrap();
        book.validate().unwrap();
        let old_ids = book.old_ids().unwrap();
        for (node, &part) in parts.iter().enumerate() {
            let place = book.place(NodeId(node as u32)).unwrap();
            prop_assert_eq!(place.part, usize::from(part));
            let new_id = book.owned(place.part).start + place.row.0;
            prop_assert_eq!(book.new_id(NodeId(node as u32)), Some(new_id));
            prop_assert_eq!(old_ids[new_id as usize], NodeId(node as u32));
        }
        for part in 0..9 {
            let owned = book.owned(part);
            prop_assert!(old_ids[owned.start as usize..owned.end as usize].is_sorted());
        }
        prop_assert_eq!(book.place(NodeId(parts.len() as u32)), None);
        prop_assert_eq!(book.part_of(parts.len() as u32), None);
    }
}

#[test]
fn partition_without_nodes_opens() {
    let (coo, root) = (CooGraph { n_nodes: 2, srcs: vec![0], dsts: vec![1] }, tempfile::tempdir().unwrap());
    for (name, stored) in [("dense", Stored::F32), ("sparse", Stored::Sparse)] {
        let (data, out) = (set(&coo, stored), root.path().join(name));
        let written = write(&data, &[2, 2], 4, Some(&cache(1.0)), &out);
        assert_eq!(written.iter().map(|part| part.n_owned).collect::<Vec<_>>(), [0, 0, 2, 0]);
        for index in [0, 1, 3] {
            let part = Part::open(part_dir(&out, index)).unwrap();
            let n_rows = part.types[0].features.as_ref().unwrap().n_rows();
            assert_eq!((part.relations[0].graph.n_nodes(), part.n_edges(), n_rows), (0, 0, 0));
            assert!(part.types[0].cache.is_none());
            check_part(&part, &data, &[2, 2]);
            Part::verify(part_dir(&out, index)).unwrap();
        }
    }
}

#[test]
fn partitions_data_without_edge_data_and_class_names() {
    let data = kiln_data::synthetic::ring(10).unwrap();
    let root = tempfile::tempdir().unwrap();
    write(&data, &[0, 1, 0, 1, 0, 1, 0, 1, 0, 1], 2, None, &root.path().join("parts"));
    let part = Part::open(part_dir(root.path().join("parts"), 1)).unwrap();
    let edges = &part.relations[0];
    assert!(edges.graph.weights().is_none() && edges.graph.edge_types().is_none());
    assert!(edges.graph.columns().is_empty() && part.types[0].cache.is_none());
    assert_eq!(part.targets.unwrap().class_names, data.class_names());
}

#[test]
fn equal_data_sets_give_identical_files() {
    let ((_one, one), (_two, two)) = (six_nodes(Stored::F16), six_nodes(Stored::F16));
    assert_eq!(contents(&one), contents(&two));
    assert_eq!(fs::read_dir(one.parent().unwrap()).unwrap().count(), 2);
}

#[test]
fn write_parts_overwrites_nothing_and_cleans_up_after_errors() {
    let data = kiln_data::synthetic::ring(10).unwrap();
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("parts");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("mine"), "mine").unwrap();
    let book = PartitionBook::from_parts(&[0; 10], 1).unwrap();
    let meta = PartitionMeta { hash: String::new(), method: Method::Fennel, n_cut_edges: 0 };
    let error = write_parts(&data, &book, &meta, None, &out).unwrap_err();
    assert!(matches!(error, Error::Store(kiln_store::Error::NotEmpty { .. })), "{error}");
    fs::remove_file(out.join("mine")).unwrap();

    let bad = |data: &Dataset, book: &PartitionBook, ratio: f64, batch_size: usize, expected: &str| {
        let cache = kiln_partition::CacheConfig { batch_size, ..cache(ratio) };
        let error = write_parts(data, book, &meta, Some(&cache), &out).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\n    expected {expected}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
    };
    let short = PartitionBook::from_parts(&[0; 9], 1).unwrap();
    bad(&data, &short, 0.5, 1, "the number of nodes in the partition book is 9, expected 10");
    bad(&data, &book, 1.5, 1, "the cache's share of the nodes is 1.5, expected 0 to 1");
    bad(&data, &book, f64::NAN, 1, "the cache's share of the nodes is NaN, expected 0 to 1");
    bad(&data, &book, 0.5, 0, "the batch size is 0, expected at least 1");
    let mut other = data.clone();
    other.targets.as_mut().unwrap().split.train = [NodeId(3), NodeId(10)].into_iter().collect();
    bad(&other, &book, 0.5, 1, "a training node is 10, expected below 10, the number of nodes");
    let mut named = data.clone();
    named.targets.as_mut().unwrap().class_names = vec!["one".into()];
    bad(&named, &book, 0.5, 1, "class_names is 1 names, expected");
    write_parts(&data, &book, &meta, None, &out).unwrap();
}

/// Returns a ring with a split of its links.
fn ring_with_links(n_nodes: u32) -> Dataset {
    let ring = kiln_data::synthetic::ring(n_nodes as usize).unwrap();
    let config = LinkSplitConfig { val: 0.25, test: 0.5, ..LinkSplitConfig::default() };
    let split = LinkSplit::random(&ring.graph, &config, 1).unwrap();
    Dataset { links: Some(Arc::new(split.targets().clone()).into()), ..ring }
}

#[test]
fn excludes_the_edge_of_a_link_whose_destination_had_unsorted_neighbors() {
    // 7 -> 0, 3 -> 0 and 2 -> 1: a binary search for 3 among the neighbours 7 and 3 misses it.
    let indptr = vec![0, 2, 3, 3, 3, 3, 3, 3, 3];
    let graph = Csc::new(indptr.into(), vec![7_u32, 3, 2].into()).unwrap();
    let link = Links::new(vec![3_u32], vec![0_u32]).unwrap();
    let targets = LinkTargets::of_parts(&link, &Links::default(), &Links::default()).unwrap();
    let split = LinkSplit::new(&kiln_graph::Relations::of_graph(Arc::new(graph)), targets).unwrap();
    let excluded = Arc::new(ExcludedEdges::new([split.links().pair(LinkId(0))]));
    let sampler = NeighborSampler::new(split.message().relation(0).graph.clone(), vec![Fanout::All]);
    let seeds = Seeds::nodes(vec![NodeId(0), NodeId(1)]);
    let srcs_of = |seeds: &Seeds| {
        let blocks = sampler.sample_blocks(seeds, RngKey::new(0), &mut Scratch::default()).unwrap().blocks;
        let global = |src: &LocalId| blocks[0].srcs()[src.index()];
        blocks[0].indices().iter().map(global).collect::<Vec<_>>()
    };
    assert_eq!(srcs_of(&seeds), [3, 7, 2].map(NodeId));
    assert_eq!(srcs_of(&seeds.excluding(Some(excluded))), [7, 2].map(NodeId));
}

#[test]
fn rejects_links_with_a_graph_whose_neighbors_do_not_ascend() {
    let data = ring_with_links(10);
    let unsorted = Dataset { graph: backwards(data.csc().unwrap()).into(), ..data };
    let out = tempfile::tempdir().unwrap();
    let book = PartitionBook::from_parts(&[0; 10], 1).unwrap();
    let meta = PartitionMeta { hash: String::new(), method: Method::Fennel, n_cut_edges: 0 };
    let write = |data: &Dataset| write_parts(data, &book, &meta, None, out.path().join("parts"));
    let error = write(&unsorted).unwrap_err();
    assert!(matches!(error, Error::UnsortedNeighbors), "{error}");
    assert!(error.to_string().contains("kiln data convert"), "{error}");
    // Node tasks leave out no edges.
    write(&Dataset { links: None, ..unsorted }).unwrap();
}

#[test]
fn training_links_that_do_not_exist_are_an_error() {
    let data = ring_with_links(10);
    let links = data.links.as_ref().unwrap();
    let graph = kiln_graph::CscBuilder::new(3).build(&[], &[]).unwrap();
    let error = Dataset { graph: graph.into(), ..data.clone() }.training_nodes().unwrap_err().to_string();
    assert!(error.contains("expected a node id below 3"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("set");
    kiln_data::format::write(&data, &at).unwrap();
    // The last entry of the file of ids becomes one that no link has.
    let path = at.join("train_links.npy");
    let mut bytes = std::fs::read(&path).unwrap();
    let (end, n_links) = (bytes.len(), links.targets.links().len() as u32);
    bytes[end - 4..].copy_from_slice(&n_links.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let damaged = kiln_data::open(&at).unwrap();
    let error = damaged.training_nodes().unwrap_err().to_string();
    assert!(error.contains("train_links.npy") && error.contains("expected a link id below"), "{error}");
    let book = PartitionBook::from_parts(&[0; 10], 1).unwrap();
    let meta = PartitionMeta { hash: String::new(), method: Method::Fennel, n_cut_edges: 0 };
    let error =
        write_parts(&damaged, &book, &meta, Some(&cache(0.2)), folder.path().join("parts")).unwrap_err();
    assert!(error.to_string().contains("train_links.npy"), "{error}");
}

/// A set of links may have no split of nodes.
#[test]
fn caches_the_rows_that_training_links_read() {
    let ring = kiln_data::synthetic::ring(40).unwrap();
    let config = LinkSplitConfig { val: 0.25, test: 0.5, ..LinkSplitConfig::default() };
    let split = LinkSplit::random(&ring.graph, &config, 1).unwrap();
    let links = Some(split.dataset_links().clone());
    let data = Dataset { links, ..ring }.with_split(Split::default()).unwrap();
    assert_eq!(data.training_nodes().unwrap().to_vec(), ends_of_training_links(&data));
    let root = tempfile::tempdir().unwrap();
    let parts: Vec<u16> = (0..40).map(|node| node % 2).collect();
    let out = root.path().join("parts");
    let written = write(&data, &parts, 2, Some(&cache(0.2)), &out);
    for (index, written) in written.iter().enumerate() {
        let part = Part::open(part_dir(&out, index)).unwrap();
        check_cache(&part, &data, 0.2, written);
        assert!(0 < written.n_cached, "remote neighbours should be cached");
    }
}

#[test]
fn empty_fanouts_cache_no_rows() {
    let data = kiln_data::synthetic::ring(12).unwrap();
    let root = tempfile::tempdir().unwrap();
    let none = kiln_partition::CacheConfig { fanouts: Vec::<Fanout>::new(), ..cache(1.0) };
    let parts: Vec<u16> = (0..12).map(|node| node % 2).collect();
    let written = write(&data, &parts, 2, Some(&none), &root.path().join("parts"));
    assert_eq!((written[0].n_remote, written[0].n_cached), (0, 0));
}

#[test]
fn rejects_invalid_books() {
    let said = |offsets: &[u32], new_ids: &[u32]| {
        let book = PartitionBook::new(offsets.to_vec(), new_ids.to_vec().into());
        book.and_then(|book| book.validate()).unwrap_err().to_string()
    };
    assert_eq!(said(&[], &[]), "the number of partitions is 0, expected 1 to 65535");
    assert_eq!(said(&[0], &[]), "the number of partitions is 0, expected 1 to 65535");
    let again = "partition the data set again";
    assert_eq!(said(&[1, 2], &[0, 1]), format!("partition book: the first offset is 1, expected 0: {again}"));
    assert!(said(&[0, 2, 1, 2], &[0, 1]).contains("an offset is 1, expected at least 2, the previous one"));
    assert!(said(&[0, 2], &[0, 1, 2]).contains("the last offset is 2, expected 3, the number of nodes"));
    assert!(
        said(&[0, 2], &[0, 0]).contains("the new id of node 1 is 0, expected 1, the next of partition 0")
    );
    assert!(said(&[0, 1, 2], &[1, 2]).contains("the new id of node 1 is 2, expected below 2"));
    let error = PartitionBook::from_parts(&[0, 3], 3).unwrap_err().to_string();
    assert_eq!(error, "the partition of a node is 3, expected below 3, the number of partitions");
}

fn check_preparation(root: &Path, expected: Option<&Preparation>) {
    for part in 0..2 {
        assert_eq!(Part::open(part_dir(root, part)).unwrap().preparation.as_ref(), expected);
        Part::verify(part_dir(root, part)).unwrap();
    }
}

#[test]
fn partitions_record_the_preparation_of_their_data_and_those_of_version_1_have_none() {
    let coo = CooGraph { n_nodes: 4, srcs: vec![0, 1, 2], dsts: vec![1, 2, 3] };
    let raw = set(&coo, Stored::F32);
    let root = tempfile::tempdir().unwrap();
    for (name, data) in [("raw", raw.clone()), ("prepared", raw.standardize().unwrap())] {
        let out = root.path().join(name);
        write(&data, &[0, 1, 0, 1], 2, None, &out);
        assert_eq!(data.preparation.steps.len(), usize::from(name == "prepared"));
        check_preparation(&out, Some(&data.preparation));
        for part in 0..2 {
            let path = part_dir(&out, part).join("part.json");
            let mut manifest: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            manifest["format"] = 1.into();
            manifest.as_object_mut().unwrap().remove("preparation").unwrap();
            fs::write(&path, manifest.to_string()).unwrap();
        }
        check_preparation(&out, None);
    }
}

#[test]
fn rejects_a_scaling_of_another_width_and_newer_manifests() {
    let (_root, folder) = six_nodes(Stored::F32);
    let path = folder.join("part.json");
    let text = fs::read_to_string(&path).unwrap();
    for (from, to, expected) in [
        (
            "\"preparation\": []",
            "\"preparation\": [{\"scale\": {\"means\": [0], \"factors\": [1]}}]",
            "steps for 2 feature columns",
        ),
        ("\"preparation\": []", "\"preparation\": [\"other\"]", "unknown variant"),
        ("\"format\": 2", "\"format\": 4", "4"),
    ] {
        assert!(text.contains(from), "{text}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let error = Part::open(&folder).unwrap_err();
        assert!(matches!(error, Error::Store(_)) && error.to_string().contains(expected), "{error}");
    }
}
