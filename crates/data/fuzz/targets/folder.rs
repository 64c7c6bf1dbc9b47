//! One input as a folder of files:
//!
//! ```text
//! ==> indptr.npy.txt <==
//! <i8 5
//! 0 0 1 4 4
//! ==> raw/edge.csv.gz <==
//! 0,1
//! ```
//!
//! Most files are their content as it stands. Some are made of it, so that a mutation of the content changes
//! what it says and not only a checksum: `NAME.npy.txt` becomes the array `NAME.npy` of that type and shape,
//! `NAME.gz` is compressed, and `NAME.raw` becomes `NAME` without that, for damaged files. In `kiln.json` the
//! text `@NAME` becomes the SHA-256 of the file `NAME`.

use std::fs;
use std::io::Write;
use std::path::{Component, Path};

use flate2::Compression;
use flate2::write::GzEncoder;
use half::f16;
use kiln_data::npy::{self, Element};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// More files than a reader looks for.
const MAX_FILES: usize = 48;

/// Writes the files of an input below a new folder, in memory where the system has such a place.
pub(super) fn unpack(input: &[u8]) -> TempDir {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.expect("a scratch folder should be possible");
    let files = files(input).into_iter().take(MAX_FILES);
    let (manifests, others): (Vec<_>, Vec<_>) = files.partition(|(name, _)| *name == "kiln.json");
    for (name, content) in others {
        write(folder.path(), name, content);
    }
    for (name, content) in manifests {
        put(folder.path(), name, &with_hashes(folder.path(), content));
    }
    folder
}

/// The names and contents in an input. What comes before the first name is not read.
fn files(input: &[u8]) -> Vec<(&str, &[u8])> {
    let mut found: Vec<(&str, &[u8])> = Vec::new();
    let (mut name, mut start, mut at) = (None, 0, 0);
    while at < input.len() {
        let line = &input[at..at + input[at..].iter().position(|&byte| byte == b'\n').unwrap_or(input.len() - at)];
        let next = (at + line.len() + 1).min(input.len());
        if let Some(new) = line.strip_prefix(b"==> ").and_then(|rest| rest.strip_suffix(b" <==")) {
            // The line break before a name belongs to the name.
            found.extend(name.map(|name| (name, &input[start..start.max(at.saturating_sub(1))])));
            (name, start) = (std::str::from_utf8(new).ok(), next);
        }
        at = next;
    }
    found.extend(name.map(|name| (name, &input[start..])));
    found
}

fn write(folder: &Path, name: &str, content: &[u8]) {
    let is_plain = |part| matches!(part, Component::Normal(_));
    if name.is_empty() || name.len() > 80 || name.contains('\0') || !Path::new(name).components().all(is_plain) {
        return;
    }
    if let Some(name) = name.strip_suffix(".raw") {
        put(folder, name, content);
    } else if let Some(name) = name.strip_suffix(".npy.txt") {
        put(folder, &format!("{name}.npy"), &npy_of_text(content).unwrap_or_else(|| content.to_vec()));
    } else if name.ends_with(".gz") {
        put(folder, name, &gz(content));
    } else {
        put(folder, name, content);
    }
}

/// A name that cannot be a file, as one that is a folder already, is left out.
fn put(folder: &Path, name: &str, bytes: &[u8]) {
    let path = folder.join(name);
    if path.parent().is_some_and(|parent| fs::create_dir_all(parent).is_ok()) {
        let _ = fs::write(path, bytes);
    }
}

/// The text of a manifest with the hash of each file that it asks for.
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

/// The bytes compressed with gzip.
fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory should take bytes");
    encoder.finish().expect("memory should take bytes")
}

/// The array of a text: a line with the type and the shape, then numbers. Where there are too few or too many of
/// them for the shape, the shape stays and the file is too short or too long.
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
    // The header is written anew, as the shape may be one that the values do not have.
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
