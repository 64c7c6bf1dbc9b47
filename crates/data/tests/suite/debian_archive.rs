//! Tests of the content of the embedded set `debian-archive`, that its targets do not leak, and that damaged files are
//! rejected.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use kiln_data::{Dataset, Error, debian_archive, debian_packages, format, read_debian_archive};
use kiln_feature::{FeatureBuffer, Targets};
use kiln_graph::NodeId;
use kiln_store::Error as StoreError;
use serde_json::Value;

use crate::debian::{gunzip, gzip, hex};

/// The hash of the set. A change of the graph, the features, the targets or the split changes it.
const HASH: &str = "0a2ed21d5c562017076e6accbc4b05eba8a4549756772b0af6545af1851996fe";

const SOURCES: [&str; 3] = ["debian-packages", "debian-tags", "debian-archive"];

fn folder(set: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets").join(set)
}

fn manifest() -> Value {
    serde_json::from_slice(&fs::read(folder("debian-archive").join("manifest.json")).unwrap()).unwrap()
}

/// Returns the edges of a relation by name, as pairs of positions in the types of source and destination.
fn edges(data: &Dataset, name: &str) -> Vec<(u32, u32)> {
    let relation = data.graph.relation(data.graph.position(name).unwrap());
    let first = data.graph.types().range(relation.src_type).start;
    let mut edges = Vec::new();
    for dst in 0..relation.graph.n_nodes() as u32 {
        edges.extend(relation.graph.in_neighbors(NodeId(dst)).iter().map(|src| (src.0 - first, dst)));
    }
    edges
}

/// Returns the classes of the sources, by their position; -1 without one.
fn classes(data: &Dataset) -> Vec<i32> {
    match &data.targets.as_ref().unwrap().values {
        Targets::Classes(labels) => (0..labels.len() as u32)
            .map(|node| labels.get(NodeId(node)).map_or(-1, |class| class as i32))
            .collect(),
        Targets::Values(_) => panic!("the set should have classes"),
    }
}

/// Returns the positions of the sources in each part of the split.
fn parts(data: &Dataset) -> [Vec<u32>; 3] {
    let rows = |nodes: &[NodeId]| nodes.iter().map(|&node| data.target_row_of(node).unwrap().0).collect();
    data.targets.as_ref().unwrap().split.parts().map(|(_, nodes)| rows(nodes))
}

#[test]
fn archive_files_match_the_manifest_and_take_at_most_half_a_megabyte() {
    let manifest = manifest();
    let hashes = manifest["sha256"].as_object().unwrap();
    assert_eq!(hashes.len(), 5);
    let mut n_bytes = 0;
    for (name, hash) in hashes {
        let path = folder("debian-archive").join(name);
        assert_eq!(*hash, hex(gunzip(&path)), "{name}");
        n_bytes += path.metadata().unwrap().len();
    }
    assert!(n_bytes <= 500_000, "{n_bytes} bytes");
    // The sources belong to the packages of the embedded set.
    let names = hex(gunzip(&folder("debian-packages").join("names.txt.gz")));
    assert_eq!(manifest["source"]["package_names_sha256"], names);
}

#[test]
fn archive_has_four_types_and_ten_relations() {
    let data = debian_archive().unwrap();
    let types = data.graph.types();
    let sizes: Vec<_> =
        types.names().iter().map(|name| types.range(types.position(name).unwrap()).len()).collect();
    assert_eq!(types.names(), ["package", "source", "maintainer", "tag"]);
    assert_eq!(sizes, [63_437, 34_169, 2_105, 130]);
    assert_eq!(data.dims(), [Some(128), None, None, None]);
    let n_names: Vec<_> = data.names.iter().map(|names| names.len()).collect();
    assert_eq!(n_names, [63_437, 34_169, 0, 130]);
    let relations: Vec<_> =
        data.graph.iter().map(|relation| (&*relation.name, relation.graph.n_edges())).collect();
    let expected = [
        ("depends", 269_142),
        ("recommends", 52_431),
        ("built-from", 63_420),
        ("maintained-by", 34_169),
        ("tagged", 97_684),
    ];
    assert_eq!(relations[..5], expected);
    for (name, n_edges) in expected {
        let reversed = edges(&data, &format!("rev-{name}")).into_iter().map(|(src, dst)| (dst, src));
        let (mut forward, mut reversed) = (edges(&data, name), reversed.collect::<Vec<_>>());
        forward.sort_unstable();
        reversed.sort_unstable();
        assert_eq!(forward.len() as u64, n_edges);
        assert_eq!(forward, reversed, "{name}");
        forward.dedup();
        assert_eq!(forward.len() as u64, n_edges, "{name} has an edge twice");
    }
    let expected = "debian-archive: 99841 nodes of 4 types, 1033692 edges of 10 relations, 38 classes of source; \
        20036 / 6678 / 6678 nodes to train, validate, test";
    assert_eq!(data.to_string(), expected);
}

#[test]
fn archive_is_valid_and_has_its_golden_hash() {
    let data = debian_archive().unwrap();
    assert_eq!(data.validate().unwrap(), []);
    assert_eq!(data.hash().unwrap(), HASH);
    assert_eq!(Dataset::open("debian-archive").unwrap().hash().unwrap(), HASH);
    let [packages, tags, archive] = SOURCES.map(folder);
    assert_eq!(read_debian_archive(packages, tags, archive).unwrap().hash().unwrap(), HASH);
}

#[test]
fn archive_round_trips_through_the_kiln_format() {
    let (data, folder) = (debian_archive().unwrap(), tempfile::tempdir().unwrap());
    let written = folder.path().join("set");
    format::write(&data, &written).unwrap();
    assert_eq!(format::verify(&written).unwrap().n_edges, data.graph.n_edges());
    let opened = format::open(&written).unwrap();
    assert_eq!(opened.hash().unwrap(), HASH);
    assert_eq!(
        (&opened.names, opened.targets.unwrap().class_names),
        (&data.names, data.targets.unwrap().class_names)
    );
}

#[test]
fn packages_are_those_of_debian_packages() {
    let (data, packages) = (debian_archive().unwrap(), debian_packages().unwrap());
    assert_eq!(data.names[0], packages.names[0]);
    let nodes: Vec<NodeId> = (0..63_437).step_by(97).map(NodeId).collect();
    let (mut rows, mut expected) = (FeatureBuffer::default(), FeatureBuffer::default());
    data.features[0].as_ref().unwrap().gather(&nodes, &mut rows).unwrap();
    packages.node_features().unwrap().gather(&nodes, &mut expected).unwrap();
    assert_eq!(rows.into_f32(), expected.into_f32());
    // Types 0 and 1 are Depends and Pre-Depends, types 2 and 3 are Recommends and Suggests.
    let types = packages.csc().unwrap().edge_types().unwrap();
    for (name, kept) in [("depends", [0, 1]), ("recommends", [2, 3])] {
        let mut expected = BTreeSet::new();
        for dst in 0..63_437 {
            let first = packages.csc().unwrap().first_edge(NodeId(dst)).index();
            for (edge, src) in packages.csc().unwrap().in_neighbors(NodeId(dst)).iter().enumerate() {
                if kept.contains(&types[first + edge]) {
                    expected.insert((src.0, dst));
                }
            }
        }
        assert!(edges(&data, name).into_iter().collect::<BTreeSet<_>>() == expected, "{name}");
    }
}

#[test]
fn sources_have_the_section_of_their_packages() {
    let (data, packages) = (debian_archive().unwrap(), debian_packages().unwrap());
    let (classes, targets) = (classes(&data), data.targets.as_ref().unwrap());
    let mut sections = BTreeMap::<u32, Vec<&str>>::new();
    for (package, source) in edges(&data, "built-from") {
        let class = packages.labels().get(NodeId(package));
        let section = class.map_or("", |class| packages.class_names()[class as usize].as_str());
        sections.entry(source).or_default().push(section);
    }
    // Each source has a package.
    assert_eq!(sections.len(), classes.len());
    let mut n_checked = 0;
    for (source, sections) in sections {
        // The labels of debian-packages leave out rare sections.
        if 0 <= classes[source as usize] && !sections.contains(&"") {
            let class = &*targets.class_names[classes[source as usize] as usize];
            assert!(sections.contains(&class), "{source} has {class}, its packages {sections:?}");
            n_checked += 1;
        }
    }
    assert!(33_000 < n_checked, "{n_checked}");
    let first = data.graph.types().range(1).start;
    for (name, section) in [("libxml2", "libs"), ("mutt", "mail"), ("perl", "perl"), ("coreutils", "utils")] {
        let source = (0..classes.len()).find(|&row| data.node_name(NodeId(first + row as u32)) == Some(name));
        assert_eq!(targets.class_names[classes[source.unwrap()] as usize], section, "{name}");
    }
}

#[test]
fn split_has_each_labelled_source_once_and_each_class_in_each_part() {
    let data = debian_archive().unwrap();
    let (classes, parts) = (classes(&data), parts(&data));
    assert_eq!(parts.each_ref().map(Vec::len), [20_036, 6_678, 6_678]);
    let mut in_split = parts.concat();
    in_split.sort_unstable();
    let labelled: Vec<u32> =
        (0..classes.len() as u32).filter(|&source| 0 <= classes[source as usize]).collect();
    assert_eq!(in_split, labelled);
    let class_names = &data.targets.as_ref().unwrap().class_names;
    assert_eq!(class_names.len(), 38);
    for (class, name) in (0..).zip(class_names) {
        let n =
            parts.each_ref().map(|part| part.iter().filter(|&&row| classes[row as usize] == class).count());
        assert!(100 <= n.iter().sum::<usize>(), "{name}: {n:?}");
        assert!(n.iter().all(|&n| 10 <= n), "{name}: {n:?}");
    }
}

/// Returns the share of the test sources whose class is the most frequent class of the training sources with the same
/// key; sources with a new key have the most frequent class of all.
fn lookup_accuracy(data: &Dataset, key: impl Fn(u32) -> Vec<u32>) -> f64 {
    let (classes, [train, _, test]) = (classes(data), parts(data));
    let mut counts = BTreeMap::<Option<Vec<u32>>, BTreeMap<i32, usize>>::new();
    for &source in &train {
        for key in [None, Some(key(source))] {
            *counts.entry(key).or_default().entry(classes[source as usize]).or_default() += 1;
        }
    }
    let guess = |source| {
        let counts = counts.get(&Some(key(source))).unwrap_or(&counts[&None]);
        *counts.iter().max_by_key(|(_, n)| **n).unwrap().0
    };
    let n_right = test.iter().filter(|&&source| guess(source) == classes[source as usize]).count();
    n_right as f64 / test.len() as f64
}

#[test]
fn no_neighbour_states_the_section_of_a_source() {
    let data = debian_archive().unwrap();
    let mut packages = BTreeMap::<u32, Vec<u32>>::new();
    for (package, source) in edges(&data, "built-from") {
        packages.entry(source).or_default().push(package);
    }
    let mut neighbors = [("tagged", 0.4), ("depends", 0.6), ("recommends", 0.4)].map(|(name, most)| {
        let mut of_package = BTreeMap::<u32, Vec<u32>>::new();
        for (package, dst) in edges(&data, name) {
            of_package.entry(package).or_default().push(dst);
        }
        (name, most, of_package)
    });
    let maintainers: BTreeMap<u32, u32> = edges(&data, "maintained-by").into_iter().collect();
    let mut found =
        vec![("maintained-by", 0.75, lookup_accuracy(&data, |source| vec![maintainers[&source]]))];
    for (name, most, of_package) in &mut neighbors {
        let all = |source: u32| -> Vec<u32> {
            let of_source = packages[&source].iter().filter_map(|package| of_package.get(package)).flatten();
            of_source.copied().collect::<BTreeSet<u32>>().into_iter().collect()
        };
        found.push((name, *most, lookup_accuracy(&data, all)));
    }
    let majority = lookup_accuracy(&data, |_| Vec::new());
    for (name, most, accuracy) in found {
        assert!(
            majority < accuracy && accuracy < most,
            "{name}: {accuracy}, of the largest class {majority}"
        );
    }
}

/// Copies the archive, changes the decompressed contents of one file, and returns the error of reading the copy.
fn read_with(file: &str, change: impl Fn(Vec<u8>) -> Vec<u8>) -> Error {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder("debian-archive")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    let path = copy.path().join(file);
    let changed = match file.ends_with(".gz") {
        true => gzip(&change(gunzip(&path))),
        false => change(fs::read(&path).unwrap()),
    };
    fs::write(&path, changed).unwrap();
    read_debian_archive(folder("debian-packages"), folder("debian-tags"), copy.path()).unwrap_err()
}

/// Returns a change of an array that overwrites its last value.
fn last_bytes<const N: usize>(value: [u8; N]) -> impl Fn(Vec<u8>) -> Vec<u8> {
    move |mut bytes| {
        let end = bytes.len() - N;
        bytes[end..].copy_from_slice(&value);
        bytes
    }
}

#[test]
fn rejects_damaged_archive_files() {
    let [packages, tags, _] = SOURCES.map(folder);
    let missing = read_debian_archive(&packages, &tags, "no/such/folder").unwrap_err();
    assert!(matches!(missing, Error::Store(StoreError::Io { .. })), "{missing}");
    let swapped = read_debian_archive(&packages, &packages, folder("debian-archive")).unwrap_err();
    assert!(matches!(swapped, Error::Store(StoreError::Manifest { .. })), "{swapped}");
    let no_json = read_with("manifest.json", |_| b"{".to_vec());
    assert!(matches!(no_json, Error::Store(StoreError::Manifest { .. })), "{no_json}");
    let manifest_with = |from: &'static str, to: &'static str| {
        read_with("manifest.json", |bytes| {
            let text = String::from_utf8(bytes).unwrap();
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1).into_bytes()
        })
        .to_string()
    };
    let format = manifest_with("\"format\": 1", "\"format\": 2");
    assert!(format.contains("the set has format 2, expected 1"), "{format}");
    let many = manifest_with("\"maintainers\": 2105", "\"maintainers\": 4000000000");
    let expected = "maintainers.npy.gz: the number of maintainers is 2105, expected 4000000000";
    assert!(many.starts_with(expected), "{many}");
    for (file, value, expected) in [
        ("sources.npy.gz", 34_169_u32, "sources.npy.gz: an out-of-range source id is 34169, expected 34168"),
        ("maintainers.npy.gz", 2_105, "maintainers.npy.gz: the number of maintainers is 2106, expected 2105"),
    ] {
        let error = read_with(file, last_bytes(value.to_le_bytes())).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let part = read_with("split.npy.gz", last_bytes([3])).to_string();
    assert!(part.starts_with("split.npy.gz: a node's part is 3, expected 255"), "{part}");
    let label = read_with("labels.npy.gz", last_bytes([38])).to_string();
    assert!(label.contains("38"), "{label}");
    let shorter =
        read_with("sources.npy.gz", |_| gunzip(&folder("debian-archive").join("maintainers.npy.gz")));
    let expected = "sources.npy.gz: the number of packages is 34169, expected 63437";
    assert!(shorter.to_string().starts_with(expected), "{shorter}");
    let name = read_with("source_names.txt.gz", |bytes| [bytes, b"more\n".to_vec()].concat()).to_string();
    assert!(name.starts_with("maintainers.npy.gz: the number of sources is 34169, expected 34170"), "{name}");
}
