//! The order of the edges by time that a folder stores.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::sync::Arc;

use kiln_data::convert::{ColumnFormat, ConvertOptions, EdgeChunk, EdgeSource, convert};
use kiln_data::format::{self, RelationTypes, SetWriter};
use kiln_data::{Dataset, DatasetTimes, Error, TimeError};
use kiln_graph::{EdgeColumn, EdgeColumns, EdgeTimes, NodeTypes, RelationEdges, Relations};
use kiln_store::Error as StoreError;
use kiln_store::array_folder::FolderWriter;
use serde_json::{Value, json};

use crate::common::put;

const N_NODES: u32 = 30;

/// A change of a manifest.
type Change<'a> = &'a dyn Fn(&mut Value);

/// Returns numbers that look random.
fn numbers(n: u32, stream: u32, limit: u32) -> Vec<u32> {
    (0..n).map(|number| (number * 2_654_435_761_u32.wrapping_add(stream * 97_531)) / 7 % limit).collect()
}

fn times(n: u32, stream: u32) -> Vec<i64> {
    let time = |number: u32| match number {
        0 => DatasetTimes::ALWAYS,
        1 => DatasetTimes::NEVER,
        number => i64::from(number) - 20,
    };
    numbers(n, stream, 50).into_iter().map(time).collect()
}

fn plain(has_edge_times: bool, has_node_times: bool) -> Dataset {
    let [srcs, dsts] = [0, 1].map(|stream| numbers(200, stream, N_NODES));
    let mut builder = Dataset::builder(N_NODES as usize)
        .edges(&srcs, &dsts)
        .features(vec![0.0; N_NODES as usize], 1)
        .labels(vec![0; N_NODES as usize], 1)
        .split(vec![0], vec![1], vec![2]);
    if has_edge_times {
        builder = builder.edge_column(EdgeColumns::TIMES, EdgeColumn::new(times(200, 2), 1).unwrap());
    }
    if has_node_times {
        builder = builder.node_times(times(N_NODES, 3));
    }
    builder.build().unwrap()
}

/// A set with a relation with times of edges, one whose sources have times, one between nodes of one type, and one without.
fn typed() -> Dataset {
    let [srcs, dsts] = [4, 5].map(|stream| numbers(150, stream, N_NODES));
    let columns =
        EdgeColumns::default().with(EdgeColumns::TIMES, EdgeColumn::new(times(150, 6), 1).unwrap()).unwrap();
    let of = |name, src, dst| RelationEdges::new(name, src, dst, &srcs, &dsts);
    let types = NodeTypes::new([("a", N_NODES as usize), ("b", N_NODES as usize)]).unwrap();
    let data = Dataset::builder_with_types(types)
        .relation(of("none", "a", "b"))
        .relation(RelationEdges { columns: Some(&columns), ..of("edges", "a", "b") })
        .relation(of("srcs", "b", "a"))
        .relation(RelationEdges { columns: Some(&columns), ..of("both", "b", "b") })
        .build()
        .unwrap();
    data.with_node_times(1, times(N_NODES, 7)).unwrap()
}

fn by_time(data: &Dataset) -> Arc<Relations> {
    data.times.graph_by_time(&data.graph).unwrap()
}

/// Checks that two graphs have the same times and orders, and that those of `got` are mapped if `is_mapped`.
fn check(got: &Relations, expected: &Relations, is_mapped: bool) {
    for (got, expected) in got.iter().zip(expected.iter()) {
        let [got, expected] = [got, expected].map(|relation| relation.graph.edge_times());
        let parts = |times: &EdgeTimes| (times.times().to_vec(), times.order().to_vec(), times.scale());
        assert_eq!(got.map(parts), expected.map(parts));
        assert!(got.is_none_or(|times| times.order_path().is_some() == is_mapped));
    }
}

fn manifest(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("kiln.json")).unwrap()).unwrap()
}

fn write_manifest(folder: &Path, manifest: &Value) {
    std::fs::write(folder.join("kiln.json"), serde_json::to_vec_pretty(manifest).unwrap()).unwrap();
}

/// Sets the hash of a changed file, so that only its values tell.
fn hash_again(folder: &Path, file: &str) {
    let mut json = manifest(folder);
    json["files"][file]["sha256"] = json!(kiln_store::sha256(&std::fs::read(folder.join(file)).unwrap()));
    write_manifest(folder, &json);
}

/// Replaces the values of an array, which begin at byte 128.
fn change(folder: &Path, file: &str, change: impl Fn(&mut [u8])) {
    let mut bytes = std::fs::read(folder.join(file)).unwrap();
    change(&mut bytes[128..]);
    std::fs::write(folder.join(file), bytes).unwrap();
}

#[test]
fn a_stored_order_is_mapped_and_is_that_of_a_set_without_one() {
    let root = tempfile::tempdir().unwrap();
    let sets = [("edges", plain(true, false)), ("nodes", plain(false, true)), ("both", plain(true, true))];
    for (name, data) in sets.into_iter().chain([("typed", typed())]) {
        let folder = root.path().join(name);
        format::write(&data, &folder).unwrap();
        let opened = format::open(&folder).unwrap();
        let expected = by_time(&data);
        check(&by_time(&opened), &expected, true);
        check(&by_time(&opened.clone().in_memory()), &expected, false);
        assert!(opened.times.orders.has_any() && !data.times.orders.has_any());
        assert!(opened.summary().to_string().contains("the order of the edges by time is stored"));
        format::verify(&folder).unwrap();
        // An older set has no orders. The data are the same.
        let mut json = manifest(&folder);
        let orders = json.as_object_mut().unwrap().remove("orders").unwrap();
        for file in orders.as_object().unwrap().keys() {
            json["files"].as_object_mut().unwrap().remove(file).unwrap();
            std::fs::remove_file(folder.join(file)).unwrap();
        }
        let hash = format::hash(&folder).unwrap();
        write_manifest(&folder, &json);
        assert_eq!(format::hash(&folder).unwrap(), hash);
        let older = format::open(&folder).unwrap();
        assert_eq!(older.hash().unwrap(), opened.hash().unwrap());
        check(&by_time(&older), &expected, false);
        format::verify(&folder).unwrap();
    }
    let folder = root.path().join("without");
    format::write(&plain(false, false), &folder).unwrap();
    assert!(manifest(&folder).get("orders").is_none());
    assert!(!folder.join("edges_by_time.npy").exists());
}

#[test]
fn changed_edges_and_times_are_ordered_anew() {
    let root = tempfile::tempdir().unwrap();
    for (name, data) in [("plain", plain(true, true)), ("typed", typed())] {
        let folder = root.path().join(name);
        format::write(&data, &folder).unwrap();
        let opened = format::open(&folder).unwrap();
        let relation = data.graph.n_relations() - 1;
        let node_type = data.graph.types().n_types() - 1;
        let n_edges = data.graph.relation(relation).graph.n_edges() as u32;
        let other = EdgeColumn::new(times(n_edges, 9), 1).unwrap();
        let changes: [(&str, &dyn Fn(Dataset) -> Dataset); 2] = [
            ("edge times", &|set| set.with_edge_column(relation, EdgeColumns::TIMES, other.clone()).unwrap()),
            ("node times", &|set| set.with_node_times(node_type, times(N_NODES, 8)).unwrap()),
        ];
        for (what, change) in changes {
            let changed = change(opened.clone());
            let graph = by_time(&changed);
            let last = graph.relation(relation).graph.edge_times().unwrap();
            assert!(last.order_path().is_none(), "{name}: {what}");
            let fresh = by_time(&change(data.clone()));
            assert_eq!(last.order(), fresh.relation(relation).graph.edge_times().unwrap().order());
        }
        // A written set has the order of its own edges.
        let again = root.path().join(format!("{name}-again"));
        let changed = changes[0].1(opened.clone());
        format::write(&changed, &again).unwrap();
        check(&by_time(&format::open(&again).unwrap()), &by_time(&changes[0].1(data.clone())), true);
        if name == "plain" {
            for changed in [
                opened.clone().symmetrize().unwrap(),
                opened.clone().add_self_loops().unwrap(),
                Dataset { graph: opened.graph_before(5).unwrap(), ..opened.clone() },
            ] {
                let times = DatasetTimes { orders: Default::default(), ..changed.times.clone() };
                check(&by_time(&changed), &times.graph_by_time(&changed.graph).unwrap(), false);
            }
        }
    }
}

#[test]
fn damaged_and_stale_orders_are_errors() {
    let root = tempfile::tempdir().unwrap();
    let data = plain(true, true);
    let file = "edges_by_time.npy";
    let folder_of = |name: &str| {
        let folder = root.path().join(name);
        format::write(&data, &folder).unwrap();
        folder
    };
    let folder = folder_of("permuted");
    let order = by_time(&data).relation(0).graph.edge_times().unwrap().order().to_vec();
    let position = order.windows(2).position(|pair| pair[0] != pair[1]).unwrap();
    change(&folder, file, |bytes| {
        let (before, after) = bytes.split_at_mut(4 * position + 4);
        before[4 * position..].swap_with_slice(&mut after[..4]);
    });
    let error = format::verify(&folder).unwrap_err();
    assert!(matches!(error, Error::Store(StoreError::HashMismatch { .. })), "{error}");
    hash_again(&folder, file);
    match format::verify(&folder).unwrap_err() {
        Error::Store(StoreError::BadValue { path, position: at, expected, .. }) => {
            assert_eq!((path, at), (folder.join(file), position as u64));
            assert!(expected.contains("write the set again"), "{expected}");
        }
        error => panic!("{error}"),
    }
    // Times that were replaced together with their hash.
    let folder = folder_of("stale");
    change(&folder, "edge_times.npy", |bytes| bytes[..8].copy_from_slice(&7_i64.to_le_bytes()));
    hash_again(&folder, "edge_times.npy");
    match format::open(&folder).unwrap_err() {
        Error::Time(TimeError::StaleOrder { path }) => assert_eq!(path, folder.join(file)),
        error => panic!("{error}"),
    }
    let changes: [(&str, Change<'_>, &str); 5] = [
        ("no-entry", &|json| json["orders"] = json!({}), "an entry, because the file is listed"),
        ("no-file", &|json| drop(json["files"].as_object_mut().unwrap().remove(file)), file),
        ("shift", &|json| json["orders"][file]["shift"] = json!(64), "a number below 64"),
        (
            "name",
            &|json| json["orders"]["features.npy"] = json["orders"][file].clone(),
            "the names of orders",
        ),
        ("shape", &|json| json["files"][file]["shape"] = json!([3]), "shape"),
    ];
    for (name, change, expected) in changes {
        let folder = folder_of(name);
        let mut json = manifest(&folder);
        change(&mut json);
        write_manifest(&folder, &json);
        let error = format::open(&folder).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("kiln.json"), "{name}: {error}");
    }
    // Another scale is that of other times.
    let folder = folder_of("scale");
    let mut json = manifest(&folder);
    json["orders"][file]["first"] = json!(-3);
    write_manifest(&folder, &json);
    let error = format::verify(&folder).unwrap_err().to_string();
    assert!(error.contains("the scale of the times"), "{error}");
    let folder = folder_of("truncated");
    std::fs::write(folder.join(file), &std::fs::read(folder.join(file)).unwrap()[..200]).unwrap();
    assert!(format::open(&folder).unwrap_err().to_string().contains(file));
}

/// An edge list in memory.
struct List(Vec<u32>, Vec<u32>);

impl EdgeSource for List {
    fn columns(&self) -> Vec<ColumnFormat> {
        Vec::new()
    }

    fn for_each_chunk(
        &self,
        _: usize,
        visit: &mut dyn FnMut(&mut EdgeChunk) -> kiln_data::Result<()>,
    ) -> kiln_data::Result<()> {
        visit(&mut EdgeChunk { srcs: self.0.clone(), dsts: self.1.clone(), columns: Vec::new() })
    }
}

#[test]
fn sets_that_are_written_part_by_part_or_converted_have_orders() {
    let root = tempfile::tempdir().unwrap();
    let types = NodeTypes::new([("user", 2), ("item", 3)]).unwrap();
    let mut set = SetWriter::new(FolderWriter::create(root.path().join("parts")).unwrap(), "shop", &types);
    let mut times = set.node_times(1).unwrap();
    times.push(&[9_i64, 7, 8]).unwrap();
    set.add(times).unwrap();
    let rated = RelationTypes { name: "rated by", src_type: 1, dst_type: 0 };
    let list = List(vec![0, 1, 2, 0], vec![1, 1, 1, 0]);
    set.write_relation(rated, &list, &ConvertOptions::default()).unwrap();
    set.commit().unwrap();
    let opened = format::open(root.path().join("parts")).unwrap();
    let graph = by_time(&opened);
    let of_edges = graph.relation(0).graph.edge_times().unwrap();
    assert_eq!(of_edges.times(), [9, 9, 7, 8]);
    // The second user has three edges, whose positions take two bits.
    assert_eq!(of_edges.order()[1..].iter().map(|entry| entry & 3).collect::<Vec<u32>>(), [1, 2, 0]);
    assert!(of_edges.order_path().is_some());

    format::write(&plain(true, true), root.path().join("set")).unwrap();
    convert(root.path().join("set"), root.path().join("copy"), &ConvertOptions::default()).unwrap();
    check(&by_time(&format::open(root.path().join("copy")).unwrap()), &by_time(&plain(true, true)), true);
    // The list without features becomes a graph alone, which has no items and no order.
    let list = root.path().join("list");
    std::fs::create_dir(&list).unwrap();
    put(&list, "edges.npy", &[2_u32, 0, 1, 1], &[2, 2]);
    put(&list, "edge_times.npy", &[20_i64, 10], &[2]);
    convert(&list, root.path().join("graph"), &ConvertOptions::default()).unwrap();
    assert!(!root.path().join("graph/edges_by_time.npy").exists());
    format::verify(root.path().join("graph")).unwrap();
}
