//! Runs each bench once. Criterion measures only if it finds the argument `--bench`.

use kiln_benches::Result;

#[path = "../benches/aggregate.rs"]
mod aggregate;
#[path = "../benches/dense.rs"]
mod dense;
#[path = "../benches/device.rs"]
mod device;
#[path = "../benches/gather.rs"]
mod gather;
#[path = "../benches/graph.rs"]
mod graph;
#[path = "../benches/models.rs"]
mod models;
#[path = "../benches/remote.rs"]
mod remote;
#[path = "../benches/sample.rs"]
mod sample;
#[path = "../benches/step.rs"]
mod step;

/// The name of a bench program, and its main function.
type Bench = (&'static str, fn() -> Result);

fn main() -> Result {
    let benches: [Bench; 9] = [
        ("aggregate", aggregate::main),
        ("dense", dense::main),
        ("device", device::main),
        ("gather", gather::main),
        ("graph", graph::main),
        ("models", models::main),
        ("remote", remote::main),
        ("sample", sample::main),
        ("step", step::main),
    ];
    let mut files: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/benches"))? {
        files.extend(entry?.path().file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    files.sort();
    assert_eq!(
        benches.map(|(name, _)| name).as_slice(),
        files,
        "each file of the folder should be a bench here"
    );
    let mut failed = Vec::new();
    for (name, bench) in benches {
        if let Err(error) = bench() {
            failed.push(format!("{name}: {error}"));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n").into()) }
}
