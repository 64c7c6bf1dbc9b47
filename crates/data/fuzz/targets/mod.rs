//! The bodies of the fuzz targets. Each takes the bytes of one input, opens them with a reader, and panics
//! where the reader breaks a promise; the fuzzer and `tests/corpus.rs` run the same ones.
//!
//! What is promised: no panic, no memory beyond a bound, no hang; every error says which file it is about;
//! what opens can be validated, gathered and walked, sound or not.
#![allow(clippy::unwrap_used, reason = "what fails here fails a test")]

mod check;
mod folder;

use half::f16;
use kiln_data::npy::{self, DType, Element, Header};
use kiln_data::{Dataset, Result};

/// One target: its name, which is that of its folder of the corpus, and what it runs on an input. The second
/// argument walks over the graph of a set that opened.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) body: fn(&[u8], Walk),
}

/// Walks over the graph of a set that opened, as training would.
pub(crate) type Walk = fn(&Dataset);

/// All targets.
pub(crate) const TARGETS: &[Target] =
    &[Target { name: "npy_array", body: npy_array }, Target { name: "npy_folder", body: npy_folder }];

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

/// Unpacks a folder, opens it and looks at what came of it.
fn open_with(input: &[u8], walk: Walk, open: impl FnOnce(&std::path::Path) -> Result<Dataset>) {
    let scratch = folder::unpack(input);
    match open(scratch.path()) {
        Ok(data) => {
            check::notes(&data.notes, scratch.path());
            check::dataset(&data);
            walk(&data);
        }
        Err(error) => check::error(&error, scratch.path()),
    }
}
