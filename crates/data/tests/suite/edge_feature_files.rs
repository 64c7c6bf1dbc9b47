//! Tests of edge features in folders of arrays and in the kiln format, and of their conversion.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use kiln_data::convert::{ConvertOptions, convert};
use kiln_data::{Dataset, Error, Note, format};
use kiln_feature::{EdgeFeatures, FeatureArray, FeatureBuffer, FeatureDType};
use kiln_graph::{CscBuilder, Duplicates, EdgeColumn, EdgeId, SelfLoops};
use kiln_store::Error as StoreError;
use kiln_store::npy;

use crate::common::{contents, notes_of_reading, numbers, put};
use crate::edge_lists::{folder as nodes_alone, gzip};

/// The edges of most tests: 2 -> 0, 3 -> 1, 0 -> 1, 3 -> 3. In CSC order, the second and the third change places.
const EDGES: [u8; 8] = [2, 3, 0, 3, 0, 1, 1, 3];

/// The rows of [`EDGES`].
const ROWS: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5];

/// The rows in CSC order.
const IN_CSC_ORDER: [f32; 8] = [0.0, 0.5, 2.0, 2.5, 1.0, 1.5, 3.0, 3.5];

fn values(data: &Dataset) -> Vec<f32> {
    let features = data.edge_features().unwrap().unwrap();
    let edges: Vec<EdgeId> = (0..features.n_edges()).map(EdgeId).collect();
    let mut rows = FeatureBuffer::default();
    features.gather(&edges, &mut rows).unwrap();
    rows.into_f32()
}

fn owned_bytes(data: &Dataset) -> usize {
    data.edge_features().unwrap().unwrap().rows().owned_bytes()
}

/// Writes a set with an edge list and its rows.
fn list() -> tempfile::TempDir {
    let folder = nodes_alone();
    put(folder.path(), "edges.npy", &EDGES, &[2, 4]);
    put(folder.path(), "edge_features.npy", &ROWS, &[4, 2]);
    folder
}

/// Writes a set with a graph in CSC order and its rows.
fn graph() -> tempfile::TempDir {
    let folder = nodes_alone();
    put(folder.path(), "indptr.npy", &[0_i64, 1, 3, 3, 4], &[5]);
    put(folder.path(), "indices.npy", &[2_i32, 0, 3, 3], &[4]);
    put(folder.path(), "edge_features.npy", &IN_CSC_ORDER, &[4, 2]);
    folder
}

/// Converts a folder and checks that the result has the files that are written for the opened set. Returns the converted
/// set.
fn converted(folder: &Path) -> Dataset {
    let root = tempfile::tempdir().unwrap();
    let out = |name: &str| root.path().join(name);
    convert(folder, out("converted"), &ConvertOptions::default()).unwrap();
    let opened = kiln_data::npy::open(folder).unwrap();
    let name = format::open(out("converted")).unwrap().name;
    format::write(&Dataset { name, ..opened }, out("written")).unwrap();
    assert!(contents(&out("converted")) == contents(&out("written")), "the files should be the same");
    let verified = format::verify(out("converted")).unwrap();
    assert_eq!(verified.n_hashed, contents(&out("converted")).len() - 1);
    let read = format::open(out("converted")).unwrap();
    assert_eq!(owned_bytes(&read), 0);
    read.in_memory()
}

#[test]
fn rows_beside_a_graph_are_mapped_or_copied_with_a_note() {
    let folder = graph();
    let at = folder.path();
    let data = kiln_data::npy::open(at).unwrap();
    assert_eq!((values(&data), owned_bytes(&data)), (IN_CSC_ORDER.to_vec(), 0));
    assert_eq!(notes_of_reading(&data.notes), []);
    assert_eq!(values(&converted(at)), IN_CSC_ORDER);
    put(at, "edge_features.npy", &IN_CSC_ORDER.map(f16::from_f32), &[4, 2]);
    let data = kiln_data::npy::open(at).unwrap();
    assert_eq!((values(&data), owned_bytes(&data)), (IN_CSC_ORDER.to_vec(), 0));
    assert_eq!(converted(at).edge_features().unwrap().unwrap().dtype(), FeatureDType::F16);
    put(at, "edge_features.npy", &IN_CSC_ORDER.map(f64::from), &[4, 2]);
    let data = kiln_data::npy::open(at).unwrap();
    assert_eq!(values(&data), IN_CSC_ORDER);
    let said = notes_of_reading(&data.notes)[0].to_string();
    assert!(said.contains("edge_features.npy: 8 elements of <f8 were copied to 32-bit floats"), "{said}");
    assert_eq!(values(&converted(at)), IN_CSC_ORDER);
    put(at, "edge_features.npy", &IN_CSC_ORDER[..4], &[4]);
    assert_eq!(kiln_data::npy::open(at).unwrap().edge_features().unwrap().unwrap().dim(), 1);
    assert_eq!(values(&converted(at)), IN_CSC_ORDER[..4]);
}

#[test]
fn rows_beside_an_edge_list_are_permuted() {
    let folder = list();
    let at = folder.path();
    let check = || {
        assert_eq!(values(&kiln_data::npy::open(at).unwrap()), IN_CSC_ORDER);
        assert_eq!(values(&converted(at)), IN_CSC_ORDER);
    };
    check();
    put(at, "edge_features.npy", &ROWS.map(f16::from_f32), &[4, 2]);
    check();
    put(at, "edge_features.npy", &ROWS.map(f64::from), &[4, 2]);
    check();
    fs::remove_file(at.join("edges.npy")).unwrap();
    fs::write(at.join("edges.csv.gz"), gzip(b"src,dst\n2,0\n3,1\n0,1\n3,3\n")).unwrap();
    check();
    fs::remove_file(at.join("edges.csv.gz")).unwrap();
    fs::write(at.join("edges.csv"), "2,0,.5\n3,1,1\n0,1,2\n3,3,4\n").unwrap();
    check();
    put(at, "edge_types.npy", &[0_u8, 1, 2, 3], &[4]);
    check();
}

#[test]
fn a_conversion_with_options_equals_the_builder() {
    let (n_nodes, n_edges) = (40, 500);
    let mut number = numbers(1);
    let mut ends = || (0..n_edges).map(|_| number(n_nodes) as u32).collect::<Vec<_>>();
    let (srcs, dsts) = (ends(), ends());
    let weights: Vec<f32> = (0..n_edges).map(|edge| edge as f32).collect();
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    put(at, "src.npy", &srcs, &[n_edges]);
    put(at, "dst.npy", &dsts, &[n_edges]);
    put(at, "weights.npy", &weights, &[n_edges]);
    put(at, "features.npy", &vec![0.0_f32; n_nodes], &[n_nodes, 1]);
    put(at, "edge_features.npy", &weights, &[n_edges, 1]);
    for (case, (symmetrize, duplicates, self_loops)) in [
        (true, Duplicates::Remove, SelfLoops::Keep),
        (true, Duplicates::Keep, SelfLoops::Remove),
        (false, Duplicates::Remove, SelfLoops::Keep),
        (false, Duplicates::Keep, SelfLoops::Remove),
    ]
    .into_iter()
    .enumerate()
    {
        let options = ConvertOptions { symmetrize, duplicates, self_loops, ..Default::default() };
        let out = at.join(format!("out{case}"));
        let report = convert(at, &out, &options).unwrap();
        let data = format::open(&out).unwrap();
        let mut builder =
            CscBuilder::new(n_nodes).weights(&weights).duplicates(duplicates).self_loops(self_loops);
        if symmetrize {
            builder = builder.symmetrize();
        }
        let expected = builder.build(&srcs, &dsts).unwrap();
        assert_eq!(data.csc().unwrap().indices(), expected.indices());
        assert_eq!(data.csc().unwrap().weights(), expected.weights());
        assert_eq!(values(&data), expected.weights().unwrap());
        assert_eq!((report.n_coo_edges, report.n_edges), (500, values(&data).len()));
    }
}

#[test]
fn a_conversion_tells_what_it_cannot_do() {
    let folder = list();
    let at = folder.path();
    let out = at.join("out");
    let options = ConvertOptions { self_loops: SelfLoops::Add, ..Default::default() };
    let error = convert(at, &out, &options).unwrap_err();
    assert!(matches!(error, Error::BadParameter { what: "the treatment of self loops", .. }), "{error}");
    let options = ConvertOptions { memory_bytes: 1, ..Default::default() };
    let Error::Memory { needed_bytes, .. } = convert(at, &out, &options).unwrap_err() else {
        panic!("the limit should be too low")
    };
    convert(at, &out, &ConvertOptions { memory_bytes: needed_bytes, ..options }).unwrap();
}

#[test]
fn a_graph_without_node_data_keeps_its_rows() {
    let (root, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    put(folder.path(), "edges.npy", &EDGES, &[2, 4]);
    put(folder.path(), "edge_features.npy", &ROWS, &[4, 2]);
    let out = root.path().join("graph");
    convert(folder.path(), &out, &ConvertOptions::default()).unwrap();
    let written = npy::read::<f32>(&fs::read(out.join("edge_features.npy")).unwrap()).unwrap();
    assert_eq!((written.values, written.shape), (IN_CSC_ORDER.to_vec(), vec![4, 2]));
    assert_eq!(format::verify(&out).unwrap().n_hashed, 3);
    assert_eq!(format::open_graph(&out).unwrap().n_edges(), 4);
    let copy = root.path().join("copy");
    convert(&out, &copy, &ConvertOptions::default()).unwrap();
    assert!(contents(&copy) == contents(&out));
    // The check of the values includes the rows.
    let mut rows = ROWS;
    rows[6] = f32::INFINITY;
    put(folder.path(), "edge_features.npy", &rows, &[4, 2]);
    let bad = convert(folder.path(), root.path().join("bad"), &ConvertOptions::default());
    let error = bad.unwrap_err().to_string();
    assert!(error.contains("edge_features.npy") && error.contains("a feature of edge 3"), "{error}");
}

#[test]
fn rejects_invalid_arrays() {
    let check = |folder: &Path, expected: &str| {
        let out = folder.join("out");
        for error in [
            kiln_data::npy::open(folder).unwrap_err(),
            convert(folder, &out, &ConvertOptions::default()).unwrap_err(),
        ] {
            let error = error.to_string();
            assert!(error.contains("edge_features.npy") && error.contains(expected), "{error}");
        }
        assert!(!out.exists());
    };
    for folder in [graph(), list()] {
        let at = folder.path();
        put(at, "edge_features.npy", &ROWS[..6], &[3, 2]);
        check(at, "the number of edge feature rows is 3, expected 4");
        put(at, "edge_features.npy", &ROWS, &[8, 1]);
        check(at, "the number of edge feature rows is 8, expected 4");
        put(at, "edge_features.npy", &[0_i32; 4], &[4, 1]);
        check(at, "<f4 or <f2");
        put(at, "edge_features.npy", &[0.0_f32; 0], &[4, 0]);
        check(at, "the number of columns is 0");
        put(at, "edge_features.npy", &[0.0_f32; 8], &[2, 2, 2]);
        check(at, "(n, dim)");
        put(at, "edge_features.npy", &[0.0, 0.0, 1e300, 0.0], &[4, 1]);
        check(at, "a feature of edge 2");
    }
}

/// Writes a set with rows of this element type in the kiln format.
fn written(rows: FeatureArray, dim: usize) -> (tempfile::TempDir, PathBuf) {
    let folder = graph();
    let rows = EdgeFeatures::new(rows, dim).unwrap().to_column();
    let data = kiln_data::npy::open(folder.path()).unwrap().with_edge_column(0, "features", rows).unwrap();
    let out = folder.path().join("set");
    format::write(&data, &out).unwrap();
    assert_eq!(format::open(&out).unwrap().hash().unwrap(), data.hash().unwrap());
    (folder, out)
}

#[test]
fn every_element_type_is_written_mapped_and_copied() {
    let cases: [FeatureArray; 3] = [
        ROWS.to_vec().into(),
        ROWS.map(f16::from_f32).to_vec().into(),
        ROWS.map(bf16::from_f32).to_vec().into(),
    ];
    for rows in cases {
        let (root, out) = written(rows.clone(), 2);
        let read = format::open(&out).unwrap();
        assert_eq!((values(&read), owned_bytes(&read)), (ROWS.to_vec(), 0));
        let features = read.edge_features().unwrap().unwrap();
        assert_eq!((features.dtype(), features.dim(), features.n_edges()), (rows.dtype(), 2, 4));
        assert_eq!(format::verify(&out).unwrap().n_hashed, contents(&out).len() - 1);
        let copy = root.path().join("copy");
        convert(&out, &copy, &ConvertOptions::default()).unwrap();
        assert!(contents(&copy) == contents(&out), "a copy should have the same files");
        let in_memory = read.in_memory();
        drop(root);
        assert_eq!(values(&in_memory), ROWS);
        assert_eq!(owned_bytes(&in_memory), 8 * rows.dtype().bytes());
    }
}

#[test]
fn the_hash_of_the_manifest_covers_the_rows() {
    let hash = |rows: [f32; 8], dim| format::hash(written(rows.to_vec().into(), dim).1).unwrap();
    let mut other = ROWS;
    other[5] = 9.0;
    let mut all = vec![hash(ROWS, 2), hash(ROWS, 2), hash(other, 2)];
    let folder = graph();
    let plain = kiln_data::npy::open(folder.path()).unwrap().without_edge_rows().unwrap();
    format::write(&plain, folder.path().join("plain")).unwrap();
    all.push(format::hash(folder.path().join("plain")).unwrap());
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 3);
}

#[test]
fn damaged_sets_are_rejected() {
    let mut rows = ROWS;
    rows[3] = f32::NAN;
    let (_root, out) = written(ROWS.to_vec().into(), 2);
    put(&out, "edge_features.npy", &rows, &[4, 2]);
    // A folder without the manifest has no hashes, by which the change would be found first.
    let kept = fs::read(out.join("kiln.json")).unwrap();
    fs::remove_file(out.join("kiln.json")).unwrap();
    let error = format::verify(&out).unwrap_err();
    fs::write(out.join("kiln.json"), kept).unwrap();
    let Error::Store(StoreError::BadValue { path, what, position, .. }) = &error else { panic!("{error}") };
    assert_eq!((path, *what, *position), (&out.join("edge_features.npy"), "a feature of edge", 1));
    assert!(format::open(&out).is_ok(), "opening reads no values");

    let (_root, out) = written(ROWS.to_vec().into(), 2);
    let manifest = fs::read_to_string(out.join("kiln.json")).unwrap();
    let entry = manifest.find("edge_features.npy").unwrap();
    let shape = |new: &str| {
        let start = entry + manifest[entry..].find('[').unwrap();
        let end = start + manifest[start..].find(']').unwrap() + 1;
        fs::write(out.join("kiln.json"), [&manifest[..start], new, &manifest[end..]].concat()).unwrap();
        let error = format::open(&out).unwrap_err();
        assert!(matches!(error, Error::Store(StoreError::Metadata { .. })), "{error}");
        error.to_string()
    };
    for (new, expected) in [("[3, 2]", "[4, 2]"), ("[8]", "[4, 1]"), ("[4, 0]", "1 to "), ("[4, 3]", "")] {
        let error = shape(new);
        assert!(error.contains("edge_features.npy") && error.contains(expected), "{new}: {error}");
    }
    fs::write(out.join("kiln.json"), manifest.replace("edge_features.npy", "edge_rows.npy")).unwrap();
    assert!(format::open(&out).is_err());
}

#[test]
fn rejects_columns_with_another_number_of_rows() {
    let folder = graph();
    let rows = EdgeColumn::new(vec![0.0_f32; 3], 1).unwrap();
    let error =
        kiln_data::npy::open(folder.path()).unwrap().with_edge_column(0, "features", rows).unwrap_err();
    assert!(error.to_string().contains("edge column `features` has 3 rows, expected 4"), "{error}");
}

#[test]
fn features_in_ogb_folders_are_noted() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("raw/edge.csv", "0,1\n2,1\n"),
        ("raw/num-node-list.csv", "3\n"),
        ("raw/num-edge-list.csv", "2\n"),
        ("raw/node-feat.csv", "0\n1\n2\n"),
        ("raw/node-label.csv", "0\n1\n0\n"),
        ("raw/edge-feat.csv", "0.5\n1.5\n"),
        ("split/any/train.csv", "0\n"),
        ("split/any/valid.csv", "1\n"),
        ("split/any/test.csv", "2\n"),
    ] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let data = kiln_data::ogb::open(folder.path()).unwrap();
    assert!(data.edge_features().unwrap().is_none());
    let is_told =
        |note: &Note| note.to_string().contains("edge-feat.csv are not read: write edge_features.npy");
    assert!(data.notes.iter().any(is_told), "{:?}", data.notes);
}

/// Writes the edges of [`list`] or [`graph`] with further columns, of which two are none.
fn with_columns(folder: &Path, times: [f32; 4]) {
    put(folder, "edge_time.npy", &times, &[4]);
    put(folder, "edge_weights.npy", &[1.0_f64; 4], &[4]);
    put(folder, "edge_index.npy", &[0_i64; 8], &[2, 4]);
}

#[test]
fn further_columns_are_read_and_converted_and_other_arrays_are_noted() {
    let in_list_order = [7.0, 8.0, 9.0, 10.0];
    let in_csc_order = [7.0, 9.0, 8.0, 10.0];
    for (folder, times) in [(list(), in_list_order), (graph(), in_csc_order)] {
        let at = folder.path();
        with_columns(at, times);
        let opened = kiln_data::npy::open(at).unwrap();
        for file in ["edge_weights.npy is not read", "edge_index.npy is not read"] {
            assert!(opened.notes.iter().any(|note| note.to_string().contains(file)), "{:?}", opened.notes);
        }
        let columns = |data: &Dataset| {
            let columns = data.csc().unwrap().columns();
            assert_eq!(columns.names().collect::<Vec<_>>(), ["features", "time"]);
            (0..4).map(|edge| columns.get("time").unwrap().value(edge)).collect::<Vec<_>>()
        };
        assert_eq!(columns(&opened), in_csc_order);
        assert_eq!(columns(&converted(at)), in_csc_order);
        let hash = opened.hash().unwrap();
        assert_ne!(hash, opened.without_edge_rows().unwrap().hash().unwrap());
    }
}

#[test]
fn a_column_that_the_manifest_does_not_list_is_an_error() {
    let (_root, out) = written(ROWS.to_vec().into(), 2);
    put(&out, "edge_time.npy", &[0.0_f32; 4], &[4]);
    let error = format::open(&out).unwrap_err().to_string();
    assert!(error.contains("edge_time.npy"), "{error}");
}
