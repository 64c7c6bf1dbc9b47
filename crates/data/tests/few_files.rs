//! Tests a conversion with a low limit of open files, which is set in a child process.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use kiln_data::convert::{ConvertOptions, ConvertReport, convert};
use kiln_store::npy;

use common::{contents, numbers};

/// The environment variable with the child process's folder.
const FOLDER: &str = "KILN_TEST_FEW_FILES";

/// Converts with a memory limit that allows the buffers of 64 files and requires more than 40 buckets.
fn convert_in_many_buckets(folder: &Path, out: &str) -> ConvertReport {
    let memory_bytes = 499_712 + 8 * 1000 + (64 << 12);
    let options = ConvertOptions { memory_bytes, n_nodes: Some(1000), ..ConvertOptions::default() };
    convert(folder.join("edges.npy"), folder.join(out), &options).unwrap()
}

#[test]
fn low_open_file_limit_makes_convert_read_the_input_more_often() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let converted = convert_in_many_buckets(&PathBuf::from(folder), "few");
        println!("{} readings", converted.n_readings);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let n_edges = 3_000_000;
    let mut next = numbers(9);
    let edges: Vec<u32> = (0..2 * n_edges).map(|_| next(1000) as u32).collect();
    std::fs::write(folder.path().join("edges.npy"), npy::write(&edges, &[2, n_edges])).unwrap();
    let many = convert_in_many_buckets(folder.path(), "many");
    assert_eq!(many.n_readings, 2, "{many:?}");
    assert!(many.n_buckets > 40, "{many:?}");
    for (limit, least_readings) in [("24", 4), ("12", 40)] {
        let output = Command::new("sh")
            .args(["-c", "ulimit -n $1; shift; exec \"$@\"", "sh", limit])
            .arg(std::env::current_exe().unwrap())
            .arg("--nocapture")
            .env(FOLDER, folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let n_readings = said.split(" readings").next().and_then(|before| before.rsplit(['\n', ' ']).next());
        assert!(n_readings.unwrap().parse::<usize>().unwrap() >= least_readings, "{limit}: {said}");
        assert!(contents(&folder.path().join("few")) == contents(&folder.path().join("many")));
        std::fs::remove_dir_all(folder.path().join("few")).unwrap();
    }
}
