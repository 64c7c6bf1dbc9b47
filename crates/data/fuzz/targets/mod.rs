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
use kiln_data::{
    Dataset, Error, GraphDataset, Result, convert, detect_format, format, gin, graphbolt, ogb, tu,
};
use kiln_store::npy::{self, DType, Element, Header};

/// One target: its name, which is that of its folder of the corpus, and what it runs on an input. The second
/// argument walks over the graph of a set that opened; the result says whether anything did.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) body: fn(&[u8], Walk) -> bool,
}

/// What a conversion may take: little, so that there are several buckets.
const MEMORY_BYTES: u64 = 504_000;

/// Walks over the graph of a set that opened, as training would.
pub(crate) type Walk = fn(&Dataset);

/// All targets.
pub(crate) const TARGETS: &[Target] = &[
    Target { name: "npy_array", body: npy_array },
    Target { name: "npy_folder", body: npy_folder },
    Target { name: "kiln_folder", body: kiln_folder },
    Target { name: "tu", body: tu },
    Target { name: "gin", body: gin },
    Target { name: "edge_list", body: edge_list },
    Target { name: "graphbolt", body: graphbolt },
    Target { name: "ogb", body: ogb },
    Target { name: "open_any", body: open_any },
];

/// The bytes of one `.npy` file.
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

/// What reads must be what its header says, and survive being written.
fn read_as<T: Element>(input: &[u8]) -> bool {
    match npy::read::<T>(input) {
        Ok(array) => {
            let header = Header::read(input).expect("what reads should have a header");
            assert!(header.dtype == T::DTYPE && header.shape == array.shape);
            assert_eq!(header.n_values(), array.values.len());
            let bytes = npy::write(&array.values, &array.shape);
            let values = &bytes[Header::read(&bytes).expect("what was written should read").data_offset..];
            assert!(values == &input[header.data_offset..], "the values changed on the way");
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

/// A folder of arrays.
fn npy_folder(input: &[u8], walk: Walk) -> bool {
    open_with(input, walk, |folder| kiln_data::npy::open(folder))
}

/// A folder in kiln's own form. What is verified is sound.
fn kiln_folder(input: &[u8], walk: Walk) -> bool {
    let is_sound = |data: &Dataset| data.validate().is_ok();
    let scratch = folder::unpack(input);
    // Without a manifest, a folder of arrays is what is verified.
    if !scratch.path().join("kiln.json").exists() {
        return open_with(input, walk, |folder| format::open(folder));
    }
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
    })
}

/// A folder of the TU collection.
fn tu(input: &[u8], _: Walk) -> bool {
    let scratch = folder::unpack(input);
    graphs(tu::read(scratch.path()), scratch.path())
}

/// A file of graphs as the authors of GIN have them.
fn gin(input: &[u8], _: Walk) -> bool {
    let scratch = folder::unpack(&[b"==> graphs.txt <==\n", input].concat());
    graphs(gin::read(scratch.path().join("graphs.txt")), scratch.path())
}

/// A folder with an edge list, in memory and converted. Both must be the same.
fn edge_list(input: &[u8], walk: Walk) -> bool {
    open_with(input, walk, |folder| {
        let opened = kiln_data::npy::open(folder);
        // With a manifest, it is a folder in kiln's own form that is converted.
        if folder.join("kiln.json").exists() {
            return opened;
        }
        let out = folder.with_file_name("converted");
        let options = convert::ConvertOptions { memory_bytes: MEMORY_BYTES, ..Default::default() };
        match (convert::convert(folder, &out, &options), &opened) {
            (Ok(converted), _) => check_converted(&converted, &out, opened.as_ref().ok()),
            (Err(Error::Memory { .. }), _) => {}
            (Err(error), Ok(data)) => assert!(data.validate().is_err(), "sound, but not converted: {error}"),
            (Err(error), Err(_)) => check::error(&error, folder),
        }
        opened
    })
}

/// What was converted opens, and is what was opened in memory.
fn check_converted(converted: &convert::ConvertReport, out: &Path, opened: Option<&Dataset>) {
    let graph = format::open_graph(out).expect("what was converted should open");
    assert_eq!((graph.n_nodes(), graph.n_edges()), (converted.n_nodes, converted.n_edges as u64));
    let Some(data) = opened else { return };
    let is_sound = data.validate().is_ok();
    let again = format::open(out).expect("a whole set should be converted as one");
    assert!(!is_sound || format::verify(out).is_ok(), "a sound set became a damaged one");
    assert_eq!((graph.indptr(), graph.indices()), (data.graph.indptr(), data.graph.indices()));
    if is_sound {
        check::same(&Dataset { name: again.name.clone(), ..data.clone() }, &again);
    }
}

/// A folder of DGL GraphBolt.
fn graphbolt(input: &[u8], walk: Walk) -> bool {
    open_with(input, walk, |folder| graphbolt::open(folder))
}

/// A folder of OGB's library.
fn ogb(input: &[u8], walk: Walk) -> bool {
    open_with(input, walk, |folder| ogb::open(folder))
}

/// A folder or file of any kind, told by its names.
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

/// Unpacks a folder, opens it and looks at what came of it. A sound set survives being written.
fn open_with(input: &[u8], walk: Walk, open: impl FnOnce(&Path) -> Result<Dataset>) -> bool {
    let scratch = folder::unpack(input);
    match open(scratch.path()) {
        Ok(data) => {
            check::notes(&data.notes, scratch.path());
            let is_sound = check::dataset(&data);
            walk(&data);
            if is_sound {
                let written = scratch.path().with_file_name("written");
                format::write(&data, &written).expect("a sound set should be written");
                format::verify(&written).expect("what was written should be sound");
                check::same(&format::open(&written).expect("what was written should open"), &data);
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
