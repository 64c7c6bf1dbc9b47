//! The bodies of the fuzz targets. Each takes the bytes of one input, opens them with a reader, and panics
//! where the reader breaks a promise; the fuzzer and `tests/corpus.rs` run the same ones.
//!
//! What is promised: no panic, no memory beyond a bound, no hang; every error says which file it is about;
//! what opens can be validated, gathered and walked, sound or not.
#![allow(clippy::unwrap_used, reason = "what fails here fails a test")]

mod check;
mod folder;

use std::path::Path;

use half::f16;
use kiln_data::npy::{self, DType, Element, Header};
use kiln_data::{Dataset, GraphDataset, Result, format, gin, tu};

/// One target: its name, which is that of its folder of the corpus, and what it runs on an input. The second
/// argument walks over the graph of a set that opened.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) body: fn(&[u8], Walk),
}

/// Walks over the graph of a set that opened, as training would.
pub(crate) type Walk = fn(&Dataset);

/// All targets.
pub(crate) const TARGETS: &[Target] = &[
    Target { name: "npy_array", body: npy_array },
    Target { name: "npy_folder", body: npy_folder },
    Target { name: "kiln_folder", body: kiln_folder },
    Target { name: "tu", body: tu },
    Target { name: "gin", body: gin },
];

/// The bytes of one `.npy` file.
fn npy_array(input: &[u8], _: Walk) {
    if let Err(error) = Header::read(input) {
        assert!(!error.to_string().is_empty());
    }
    read_as::<u8>(input);
    read_as::<i8>(input);
    read_as::<u16>(input);
    read_as::<i16>(input);
    read_as::<u32>(input);
    read_as::<i32>(input);
    read_as::<u64>(input);
    read_as::<i64>(input);
    read_as::<f16>(input);
    read_as::<f32>(input);
    read_as::<f64>(input);
}

/// What reads must be what its header says, and survive being written.
fn read_as<T: Element>(input: &[u8]) {
    match npy::read::<T>(input) {
        Ok(array) => {
            let header = Header::read(input).expect("what reads should have a header");
            assert!(header.dtype == T::DTYPE && header.shape == array.shape);
            assert_eq!(header.n_values(), array.values.len());
            let bytes = npy::write(&array.values, &array.shape);
            let values = &bytes[Header::read(&bytes).expect("what was written should read").data_offset..];
            assert!(values == &input[header.data_offset..], "the values changed on the way");
        }
        Err(error) => {
            let is_told = matches!(&error, npy::Error::WrongType { expected, .. } if *expected == T::DTYPE.descr());
            let is_other_type = Header::read(input).is_ok_and(|header| header.dtype != T::DTYPE);
            assert_eq!(is_told, is_other_type && T::DTYPE != DType::Bool, "{error}");
        }
    }
}

/// A folder of arrays.
fn npy_folder(input: &[u8], walk: Walk) {
    open_with(input, walk, |folder| npy::open(folder));
}

/// A folder in kiln's own form. What is verified is sound.
fn kiln_folder(input: &[u8], walk: Walk) {
    let is_sound = |data: &Dataset| data.validate().is_ok();
    let scratch = folder::unpack(input);
    let verified = format::verify(scratch.path());
    match (&verified, format::open_graph(scratch.path())) {
        (Ok(verified), Ok(graph)) => {
            check::notes(&verified.notes, scratch.path());
            assert_eq!((verified.n_nodes, verified.n_edges), (graph.n_nodes(), graph.n_edges()));
        }
        (Ok(_), Err(error)) => panic!("verified, but does not open: {error}"),
        (Err(error), _) => check::error(error, scratch.path()),
    }
    open_with(input, walk, |folder| {
        let opened = format::open(folder);
        if let Ok(data) = &opened {
            assert!(is_sound(data) || verified.is_err(), "verified, but not sound");
        }
        opened
    });
}

/// A folder of the TU collection.
fn tu(input: &[u8], _: Walk) {
    let scratch = folder::unpack(input);
    graphs(tu::read(scratch.path()), scratch.path());
}

/// A file of graphs as the authors of GIN have them.
fn gin(input: &[u8], _: Walk) {
    let scratch = folder::unpack(&[b"==> graphs.txt <==\n", input].concat());
    graphs(gin::read(scratch.path().join("graphs.txt")), scratch.path());
}

/// Unpacks a folder, opens it and looks at what came of it. A sound set survives being written.
fn open_with(input: &[u8], walk: Walk, open: impl FnOnce(&Path) -> Result<Dataset>) {
    let scratch = folder::unpack(input);
    match open(scratch.path()) {
        Ok(data) => {
            check::notes(&data.notes, scratch.path());
            let is_sound = check::dataset(&data);
            walk(&data);
            if is_sound {
                let written = scratch.path().join("written");
                format::write(&data, &written).expect("a sound set should be written");
                format::verify(&written).expect("what was written should be sound");
                check::same(&format::open(&written).expect("what was written should open"), &data);
            }
        }
        Err(error) => check::error(&error, scratch.path()),
    }
}

fn graphs(opened: Result<GraphDataset>, folder: &Path) {
    match opened {
        Ok(data) => {
            check::notes(&data.notes, folder);
            check::graphs(&data);
        }
        Err(error) => check::error(&error, folder),
    }
}
