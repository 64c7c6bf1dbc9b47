//! Arrays that are written in place while they are converted: the result is that of the arrays as they were when they were opened, or
//! an error names the file.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use kiln_data::convert::{ConvertOptions, convert};

use crate::common::{contents, put};

const N_NODES: usize = 3_000;
const N_EDGES: usize = 60_000;
const DIM: usize = 40;

/// The files whose creation is awaited, in the order of a conversion.
const EVENTS: [&str; 5] = ["features.npy", "labels.npy", "indptr.npy", "indices.npy", "kiln.json"];

fn write(folder: &Path) {
    fs::create_dir(folder).unwrap();
    let ends =
        |factor: usize| -> Vec<i64> { (0..N_EDGES).map(|edge| (edge * factor % N_NODES) as i64).collect() };
    put(folder, "src.npy", &ends(7), &[N_EDGES]);
    put(folder, "dst.npy", &ends(13), &[N_EDGES]);
    let features: Vec<f32> = (0..N_NODES * DIM).map(|value| value as f32).collect();
    put(folder, "features.npy", &features, &[N_NODES, DIM]);
    put(folder, "labels.npy", &(0..N_NODES).map(|node| node as i32 % 5).collect::<Vec<i32>>(), &[N_NODES]);
    for (part, name) in ["train.npy", "val.npy", "test.npy"].into_iter().enumerate() {
        put(
            folder,
            name,
            &(0..1_000_i64).map(|node| node + 1_000 * part as i64).collect::<Vec<i64>>(),
            &[1_000],
        );
    }
}

/// Exchanges the values in the middle of an array by others, without a change of its length.
fn write_in_place(path: &Path) {
    let n_bytes = fs::metadata(path).unwrap().len();
    let mut file = File::options().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(128 + (n_bytes - 128) / 16 * 8)).unwrap();
    file.write_all(&[0; 64]).unwrap();
}

/// Returns true if an unfinished folder beside the output has a file.
fn has_file(root: &Path, name: &str) -> bool {
    let Ok(entries) = fs::read_dir(root) else { return false };
    let folders =
        entries.flatten().filter(|entry| entry.file_name().to_string_lossy().contains(".unfinished-"));
    folders.into_iter().any(|folder| folder.path().join(name).exists())
}

#[test]
fn arrays_that_are_written_in_place_are_read_as_they_were_opened_or_named() {
    let good = tempfile::tempdir().unwrap();
    write(&good.path().join("input"));
    convert(good.path().join("input"), good.path().join("set"), &ConvertOptions::default()).unwrap();
    let expected = contents(&good.path().join("set"));
    for name in ["src.npy", "dst.npy", "features.npy", "labels.npy"] {
        for event in EVENTS {
            let root = tempfile::tempdir().unwrap();
            let input = root.path().join("input");
            write(&input);
            let is_done = AtomicBool::new(false);
            let outcome = thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        if has_file(root.path(), event) {
                            return write_in_place(&input.join(name));
                        }
                        thread::yield_now();
                    }
                });
                let outcome = convert(&input, root.path().join("set"), &ConvertOptions::default());
                is_done.store(true, Ordering::Relaxed);
                outcome
            });
            match outcome {
                Ok(_) => {
                    // An array that was opened after it was written has the values of now.
                    let now = root.path().join("now");
                    convert(&input, &now, &ConvertOptions::default()).unwrap();
                    let found = contents(&root.path().join("set"));
                    assert!(found == expected || found == contents(&now), "{name} at {event}");
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.contains(name), "{name} at {event}: {error}");
                    assert!(!root.path().join("set").exists(), "{name} at {event}");
                }
            }
        }
    }
}
