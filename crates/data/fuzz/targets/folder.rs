//! Unpacks one input into a folder of files:
//!
//! ```text
//! ==> indptr.npy.txt <==
//! <i8 5
//! 0 0 1 4 4
//! ==> raw/edge.csv.gz <==
//! 0,1
//! ```
//!
//! Most files have the given content. Some are generated from it, so that a mutation of the content changes the data
//! and not only a checksum: `NAME.npy.txt` becomes the array `NAME.npy` of that type and shape, `NAME.gz` is
//! compressed, `A.npz!NAME` becomes a member of the archive `A.npz`, and `NAME.raw` becomes `NAME` without any of
//! these conversions, for damaged files. In `kiln.json` the text `@NAME` becomes the SHA-256 of the file `NAME`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Write};
use std::path::{Component, Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use half::f16;
use kiln_store::npy::{self, Element};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The maximum number of files of an input, which is more than any reader looks for.
const MAX_FILES: usize = 48;

/// A folder of files in a scratch folder, which is removed when this is dropped.
pub(super) struct Unpacked {
    _root: TempDir,
    path: PathBuf,
}

impl Unpacked {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Writes the files of an input to a new folder, in `/dev/shm` if it exists.
pub(super) fn unpack(input: &[u8]) -> Unpacked {
    let memory = Path::new("/dev/shm");
    let root = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let root = root.expect("a scratch folder should be created");
    let path = root.path().join("set");
    fs::create_dir(&path).expect("the set's folder should be created");
    let (mut archives, mut manifests) = (BTreeMap::new(), Vec::new());
    for (name, content) in files(input).into_iter().take(MAX_FILES).filter(|(name, _)| is_plain(name)) {
        match name.split_once(".npz!") {
            Some((archive, member)) => {
                archives.entry(archive).or_insert_with(Vec::new).push((member, content))
            }
            None if name == "kiln.json" => manifests.push(content),
            None => put(&path, file(name, content)),
        }
    }
    for (archive, members) in archives {
        put(&path, (format!("{archive}.npz"), npz(members)));
    }
    for content in manifests {
        put(&path, ("kiln.json".into(), with_hashes(&path, content)));
    }
    Unpacked { _root: root, path }
}

/// Returns the names and contents of the files in an input. Bytes before the first name are ignored.
fn files(input: &[u8]) -> Vec<(&str, &[u8])> {
    let mut found: Vec<(&str, &[u8])> = Vec::new();
    let (mut name, mut start, mut at) = (None, 0, 0);
    while at < input.len() {
        let line =
            &input[at..at + input[at..].iter().position(|&byte| byte == b'\n').unwrap_or(input.len() - at)];
        let next = (at + line.len() + 1).min(input.len());
        if let Some(new) = line.strip_prefix(b"==> ").and_then(|rest| rest.strip_suffix(b" <==")) {
            // The line break in front of a line with a file name is not part of the previous file.
            found.extend(name.map(|name| (name, &input[start..start.max(at.saturating_sub(1))])));
            (name, start) = (std::str::from_utf8(new).ok(), next);
        }
        at = next;
    }
    found.extend(name.map(|name| (name, &input[start..])));
    found
}

fn is_plain(name: &str) -> bool {
    let is_normal = |part| matches!(part, Component::Normal(_));
    (1..=80).contains(&name.len()) && !name.contains('\0') && Path::new(name).components().all(is_normal)
}

/// Returns the name and the bytes of the file that a name and a content in the input describe.
fn file(name: &str, content: &[u8]) -> (String, Vec<u8>) {
    if let Some(name) = name.strip_suffix(".raw") {
        (name.to_owned(), content.to_vec())
    } else if let Some(name) = name.strip_suffix(".npy.txt") {
        (format!("{name}.npy"), npy_of_text(content).unwrap_or_else(|| content.to_vec()))
    } else if name.ends_with(".gz") {
        (name.to_owned(), gz(content))
    } else {
        (name.to_owned(), content.to_vec())
    }
}

/// Writes a file. A file that cannot be written, for example because a folder has its name, is skipped.
fn put(folder: &Path, (name, bytes): (String, Vec<u8>)) {
    let path = folder.join(name);
    if path.parent().is_some_and(|parent| fs::create_dir_all(parent).is_ok()) {
        let _ = fs::write(path, bytes);
    }
}

/// Returns an archive of these members. Long members are compressed.
fn npz(members: Vec<(&str, &[u8])>) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in members {
        let (name, bytes) = file(name, content);
        let is_long = bytes.len() > 256;
        let method = if is_long { CompressionMethod::Deflated } else { CompressionMethod::Stored };
        let options = SimpleFileOptions::default().compression_method(method);
        // `start_file` fails for a duplicate name, and the file is skipped.
        if archive.start_file(name, options).is_ok() {
            archive.write_all(&bytes).expect("writing to memory should succeed");
        }
    }
    archive.finish().expect("writing to memory should succeed").into_inner()
}

/// Returns the text of a manifest with each `@NAME` replaced by the hash of that file.
fn with_hashes(folder: &Path, manifest: &[u8]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(manifest) else { return manifest.to_vec() };
    let mut parts = text.split("\"@");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('"').unwrap_or((part, ""));
        let is_here = !name.contains(['/', '\0']);
        let bytes = is_here.then(|| fs::read(folder.join(name)).ok()).flatten().unwrap_or_default();
        let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        filled.extend(["\"", &hash, "\"", rest]);
    }
    filled.into_bytes()
}

/// Returns the bytes, compressed with gzip.
fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("writing to memory should succeed");
    encoder.finish().expect("writing to memory should succeed")
}

/// Returns the `.npy` file for a text: a line with the type and the shape, then numbers. If their number does not
/// match the shape, the header states the shape anyway and the file is too short or too long.
pub(super) fn npy_of_text(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let (first, numbers) = text.split_once('\n')?;
    let (dtype, shape) = first.split_once(' ')?;
    let numbers = numbers.split_ascii_whitespace();
    let bytes = match dtype {
        "|b1" | "|u1" => array::<u8>(numbers),
        "|i1" => array::<i8>(numbers),
        "<u2" => array::<u16>(numbers),
        "<i2" => array::<i16>(numbers),
        "<u4" => array::<u32>(numbers),
        "<i4" => array::<i32>(numbers),
        "<u8" => array::<u64>(numbers),
        "<i8" => array::<i64>(numbers),
        "<f2" => array::<f16>(numbers),
        "<f8" => array::<f64>(numbers),
        _ => array::<f32>(numbers),
    }?;
    // The header is replaced, because the stated shape may differ from the number of values.
    let values = &bytes[npy::Header::read(&bytes).ok()?.data_offset..];
    let shape = shape.trim();
    let comma = if shape.contains(',') { "" } else { "," };
    let header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({shape}{comma}), }}");
    let header = format!("{header:<117}\n");
    let n_header = u16::try_from(header.len()).ok()?.to_le_bytes();
    Some([b"\x93NUMPY\x01\x00", &n_header[..], header.as_bytes(), values].concat())
}

fn array<'a, T: Element + std::str::FromStr>(numbers: impl Iterator<Item = &'a str>) -> Option<Vec<u8>> {
    let values: Vec<T> = numbers.map(|number| number.parse().ok()).collect::<Option<_>>()?;
    Some(npy::write(&values, &[values.len()]))
}
