//! The bodies of the fuzz targets. Each opens the bytes of one input with a reader and panics if the reader violates an
//! invariant. The fuzzer and `tests/corpus.rs` run the same bodies.
//!
//! The invariants: a reader neither panics nor hangs, and its memory is bounded; every error names its file; and an
//! opened set, valid or not, can be validated, gathered and sampled without a panic.
#![allow(clippy::unwrap_used, reason = "what fails here fails a test")]

mod check;
mod folder;

use std::path::Path;

use half::f16;
use kiln_data::{
    Dataset, Error, GraphDataset, Result, convert, detect_format, format, gin, graphbolt, ogb, tu,
};
use kiln_store::npy::{self, DType, Element, Header};

/// A fuzz target: its name, which is also the name of its folder in the corpus, and its body, which runs on an input.
/// The second argument of the body is a function that samples the graph of an opened set. The body returns true if the
/// reader opened the input.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) body: fn(&[u8], Walk) -> bool,
}

/// The memory limit of conversions, in bytes. It is so low that edges are sorted in several buckets.
const MEMORY_BYTES: u64 = 504_000;

/// The memory limit of conversions of edge lists with edge features, which are sorted in memory.
const IN_MEMORY_BYTES: u64 = 256 << 20;

/// The memory limit of readers of heterogeneous sets, in bytes.
const TYPED_BYTES: u64 = 16 << 20;

/// A function that samples the graph of an opened set, as training does.
pub(crate) type Walk = fn(&Dataset);

/// All targets.
pub(crate) const TARGETS: &[Target] = &[
    Target { name: "npy_array", body: npy_array },
    Target { name: "npy_folder", body: npy_folder },
    Target { name: "kiln_folder", body: kiln_folder },
    Target { name: "typed_folder", body: typed_folder },
    Target { name: "tu", body: tu },
    Target { name: "gin", body: gin },
    Target { name: "edge_list", body: edge_list },
    Target { name: "graphbolt", body: graphbolt },
    Target { name: "typed_graphbolt", body: typed_graphbolt },
    Target { name: "ogb", body: ogb },
    Target { name: "typed_ogb", body: typed_ogb },
    Target { name: "open_any", body: open_any },
];

/// Reads an input as one `.npy` file.
fn npy_array(input: &[u8], _: Walk) -> bool {
    if let Err(error) = Header::read(input) {
        assert!(!error.to_string().is_empty());
    }
    let is_read = [
        read_as::<u8>(input),
        read_as::<i8>(input),
        read_as::<u16>(input),
        read_as::<i16>(input),
        read_as::<u32>(input),
        read_as::<i32>(input),
        read_as::<u64>(input),
        read_as::<i64>(input),
        read_as::<f16>(input),
        read_as::<f32>(input),
        read_as::<f64>(input),
    ];
    is_read.contains(&true)
}

/// Checks that an array that can be read matches its header, and that writing it keeps its values.
fn read_as<T: Element>(input: &[u8]) -> bool {
    match npy::read::<T>(input) {
        Ok(array) => {
            let header = Header::read(input).expect("an array that was read should have a header");
            assert!(header.dtype == T::DTYPE && header.shape == array.shape);
            assert_eq!(header.n_values(), array.values.len());
            let bytes = npy::write(&array.values, &array.shape);
            let values =
                &bytes[Header::read(&bytes).expect("a written array should be readable").data_offset..];
            assert!(values == &input[header.data_offset..], "writing the array should keep its values");
            true
        }
        Err(error) => {
            let is_told =
                matches!(&error, npy::Error::WrongType { expected, .. } if *expected == T::DTYPE.descr());
            let is_other_type = Header::read(input).is_ok_and(|header| header.dtype != T::DTYPE);
            assert_eq!(is_told, is_other_type && T::DTYPE != DType::Bool, "{error}");
            false
        }
    }
}

/// Opens an input as a folder of arrays.
fn npy_folder(input: &[u8], walk: Walk) -> bool {
    open_with(input, walk, |folder| kiln_data::npy::open(folder))
}

/// Opens an input as a folder in the kiln format. A verified set must be valid.
fn kiln_folder(input: &[u8], walk: Walk) -> bool {
    let is_sound = |data: &Dataset| data.validate().is_ok();
    let scratch = folder::unpack(input);
    if !has_manifest(scratch.path()) {
        return open_with(input, walk, |folder| format::open(folder));
    }
    let verified = format::verify(scratch.path());
    match (&verified, format::open_graph(scratch.path())) {
        (Ok(verified), Ok(graph)) => {
            check::notes(&verified.notes, scratch.path());
            assert_eq!((verified.n_nodes, verified.n_edges), (graph.n_nodes(), graph.n_edges()));
        }
        (Ok(_), Err(error)) => panic!("a verified set should open: {error}"),
        (Err(error), _) => check::error(error, scratch.path()),
    }
    open_with(input, walk, |folder| {
        let opened = format::open(folder);
        if let Ok(data) = &opened {
            assert!(is_sound(data) || verified.is_err(), "a verified set should be valid");
        }
        opened
    })
}

/// Whether `verify` reads `folder` as a set in the kiln format. It reads a folder without a manifest as a folder of plain
/// arrays, which `format::open` refuses.
fn has_manifest(folder: &Path) -> bool {
    folder.join("kiln.json").exists()
}

/// Reads an input as the folder of a heterogeneous set in the kiln format.
fn typed_folder(input: &[u8], _: Walk) -> bool {
    open_typed_with(input, |folder| {
        if !has_manifest(folder) {
            return format::open(folder);
        }
        let (verified, opened) = (format::verify(folder), format::open(folder));
        match (&verified, &opened) {
            (Ok(verified), Ok(data)) => {
                assert_eq!(
                    (verified.n_nodes, verified.n_edges),
                    (data.graph.n_nodes(), data.graph.n_edges())
                );
                assert_eq!(data.validate().expect("a verified set should be valid"), verified.notes);
            }
            (Ok(_), Err(error)) => panic!("a verified set should open: {error}"),
            (Err(error), _) => check::error(error, folder),
        }
        opened
    })
}

/// Opens an input as a GraphBolt folder with several node types.
fn typed_graphbolt(input: &[u8], _: Walk) -> bool {
    open_typed_with(input, |folder| graphbolt::open_heterogeneous_within(folder, TYPED_BYTES))
}

/// Opens an input as an OGB folder with several node types.
fn typed_ogb(input: &[u8], _: Walk) -> bool {
    open_typed_with(input, |folder| ogb::open_heterogeneous_within(folder, TYPED_BYTES))
}

/// Unpacks the folder of a heterogeneous set, opens it and checks the result. Writing and opening a valid set must return
/// an equal set.
fn open_typed_with(input: &[u8], open: impl FnOnce(&Path) -> Result<Dataset>) -> bool {
    let scratch = folder::unpack(input);
    match open(scratch.path()) {
        Ok(data) => {
            check::notes(&data.notes, scratch.path());
            if check::typed(&data) {
                let written = scratch.path().with_file_name("written");
                format::write(&data, &written).expect("a valid set should be written");
                format::verify(&written).expect("a written set should be valid");
                let again = format::open(&written).expect("a written set should open");
                assert_eq!(again.hash().unwrap(), data.hash().unwrap());
                assert_eq!((&again.name, &again.names), (&data.name, &data.names));
            }
            true
        }
        Err(error) => {
            check::error(&error, scratch.path());
            false
        }
    }
}

/// Reads an input as a folder of the TU collection.
fn tu(input: &[u8], _: Walk) -> bool {
    let scratch = folder::unpack(input);
    graphs(tu::read(scratch.path()), scratch.path())
}

/// Reads an input as a GIN file.
fn gin(input: &[u8], _: Walk) -> bool {
    let scratch = folder::unpack(&[b"==> graphs.txt <==\n", input].concat());
    graphs(gin::read(scratch.path().join("graphs.txt")), scratch.path())
}

/// Opens an input as a folder with an edge list, and converts it. The results must be equal.
fn edge_list(input: &[u8], walk: Walk) -> bool {
    open_with(input, walk, |folder| {
        let opened = kiln_data::npy::open(folder);
        // `convert` would read a folder with a manifest in the kiln format instead of its edge list, so it is not
        // called for such a folder.
        if has_manifest(folder) {
            return opened;
        }
        let out = folder.with_file_name("converted");
        let has_features = folder.join("edge_features.npy").exists();
        let memory_bytes = if has_features { IN_MEMORY_BYTES } else { MEMORY_BYTES };
        let options = convert::ConvertOptions { memory_bytes, ..Default::default() };
        match (convert::convert(folder, &out, &options), &opened) {
            (Ok(converted), _) => check_converted(&converted, &out, opened.as_ref().ok()),
            (Err(Error::Memory { .. }), _) => {}
            (Err(error), Ok(data)) => {
                assert!(data.validate().is_err(), "a valid set should be converted: {error}")
            }
            (Err(error), Err(_)) => check::error(&error, folder),
        }
        opened
    })
}

/// Checks that the converted set opens and equals the set in memory.
fn check_converted(converted: &convert::ConvertReport, out: &Path, opened: Option<&Dataset>) {
    let graph = format::open_graph(out).expect("a converted set should open");
    assert_eq!((graph.n_nodes(), graph.n_edges()), (converted.n_nodes, converted.n_edges as u64));
    let Some(data) = opened else { return };
    let is_sound = data.validate().is_ok();
    let again = format::open(out).expect("a set with node data should be converted with it");
    assert!(!is_sound || format::verify(out).is_ok(), "the conversion of a valid set should be valid");
    assert_eq!(
        (graph.indptr(), graph.indices()),
        (data.csc().unwrap().indptr(), data.csc().unwrap().indices())
    );
    if is_sound {
        check::same(&Dataset { name: again.name.clone(), ..data.clone() }, &again);
    }
}

/// Opens an input as a GraphBolt folder.
fn graphbolt(input: &[u8], walk: Walk) -> bool {
    open_with(input, walk, |folder| graphbolt::open(folder))
}

/// Opens an input as an OGB folder, for nodes and of graphs.
fn ogb(input: &[u8], walk: Walk) -> bool {
    let scratch = folder::unpack(input);
    let opened = ogb::open_graphs(scratch.path()).map(|(data, _)| data);
    let has_graphs = graphs(opened, scratch.path());
    open_with(input, walk, |folder| ogb::open(folder)) || has_graphs
}

/// Opens an input as a folder or file of any format, which is detected.
fn open_any(input: &[u8], walk: Walk) -> bool {
    open_with(input, walk, |folder| {
        let files = folder.read_dir().into_iter().flatten().flatten();
        for file in files.map(|entry| entry.path()).filter(|path| path.is_file()) {
            if let Err(error) = detect_format(&file) {
                check::error(&error, folder);
            }
        }
        kiln_data::open(folder)
    })
}

/// Unpacks a folder, opens it and checks the result. Writing and opening a valid set must return an equal set.
fn open_with(input: &[u8], walk: Walk, open: impl FnOnce(&Path) -> Result<Dataset>) -> bool {
    let scratch = folder::unpack(input);
    match open(scratch.path()) {
        Ok(data) => {
            check::notes(&data.notes, scratch.path());
            let is_sound = check::dataset(&data);
            walk(&data);
            if is_sound {
                let written = scratch.path().with_file_name("written");
                format::write(&data, &written).expect("a valid set should be written");
                format::verify(&written).expect("a written set should be valid");
                check::same(&format::open(&written).expect("a written set should open"), &data);
            }
            true
        }
        Err(error) => {
            check::error(&error, scratch.path());
            false
        }
    }
}

fn graphs(opened: Result<GraphDataset>, folder: &Path) -> bool {
    match opened {
        Ok(data) => {
            check::notes(&data.notes, folder);
            check::graphs(&data);
            true
        }
        Err(error) => {
            check::error(&error, folder);
            false
        }
    }
}
