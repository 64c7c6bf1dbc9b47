//! Helpers of the tests of edge lists and conversions.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use kiln_data::convert::{ConvertOptions, ConvertReport, convert};
use kiln_data::{Error, Note};
use kiln_store::npy::{self, Element};

pub(crate) fn put<T: Element>(folder: &Path, name: &str, values: &[T], shape: &[usize]) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, npy::write(values, shape)).unwrap();
}

/// Writes a `.npy` file of booleans, `[n]`.
pub(crate) fn put_mask(folder: &Path, name: &str, values: &[u8]) {
    let values: Vec<bool> = values.iter().map(|&value| value != 0).collect();
    fs::write(folder.join(name), npy::write_mask(&values)).unwrap();
}

/// Returns the `.npy` file of a column-major array.
pub(crate) fn by_columns<T: Element>(values: &[T], shape: &[usize]) -> Vec<u8> {
    let bytes = npy::write(values, shape);
    let at = bytes.windows(5).position(|word| word == b"False").unwrap();
    [&bytes[..at], &b"True "[..], &bytes[at + 5..]].concat()
}

pub(crate) fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    entries.map(|path| (name(&path), fs::read(&path).unwrap())).collect()
}

/// Returns the names of the files and folders in a folder, ascending.
pub(crate) fn contents_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns the notes that are not on classes: the parts of the small sets, of one node each, have different ones.
pub(crate) fn notes_of_reading(notes: &[Note]) -> Vec<Note> {
    notes.iter().filter(|note| !matches!(note, Note::UntrainedClasses { .. })).cloned().collect()
}

/// Returns the note on one node that is in both parts of a split.
pub(crate) fn overlap(parts: [&'static str; 2]) -> Note {
    Note::SplitsOverlap { item: "node", parts, n_items: 1 }
}

/// Converts with the smallest sufficient memory limit. After each failure it tries the limit that the error states.
pub(crate) fn convert_with_least(
    input: &Path,
    out: &Path,
    options: &ConvertOptions,
) -> (ConvertReport, ConvertOptions) {
    let mut options = ConvertOptions { memory_bytes: 1, ..*options };
    loop {
        match convert(input, out, &options) {
            Ok(converted) => return (converted, options),
            Err(Error::Memory { needed_bytes, budget_bytes, .. }) => {
                assert_eq!(budget_bytes, options.memory_bytes);
                assert!(budget_bytes < needed_bytes);
                options.memory_bytes = needed_bytes;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns a simple generator of pseudorandom numbers, which are identical on every machine.
pub(crate) fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}
