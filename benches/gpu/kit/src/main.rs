//! The program `kit`: what `benches/gpu/run.sh` runs on a machine with a GPU, besides the device tests. If it is started
//! by the name `kiln`, it is the program `kiln`, whose code would be in the package twice otherwise.
//!
//! ```text
//! kit device [CRITERION FLAGS]     the bench `device`
//! kit expect FILE                  writes the results of the fixed cases, computed on the CPU
//! kit probe FILE                   compares the results of the device with those of the file
//! kit first-step FOLDER            opens a data set and trains for one step
//! kit batches FOLDER OUT N         writes N sampled batches as .npy files
//! kit steps FOLDER N               times the steps on these batches
//! ```
//!
//! The device is the one that the environment variable `KILN_DEVICE` names, by default the CPU.

mod batches;
#[path = "../../../benches/device.rs"]
mod bench;
mod cases;
mod outcome;
mod probe;
mod steps;

use std::path::Path;
use std::process::ExitCode;

use kiln_benches::Result;

const USAGE: &str =
    "expected device, expect FILE, probe FILE, first-step FOLDER, batches FOLDER OUT N or steps FOLDER N";

fn main() -> Result<ExitCode> {
    let args: Vec<String> = std::env::args().collect();
    if args.first().is_some_and(|program| Path::new(program).ends_with("kiln")) {
        return Ok(kiln_cli::main());
    }
    let args: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    run(&args)?;
    Ok(ExitCode::SUCCESS)
}

fn run(args: &[&str]) -> Result {
    match *args {
        // Criterion reads the command line itself, and takes the subcommand for a filter, which matches all benches of the
        // stage `device`.
        ["device", ..] => bench::main(),
        ["expect", file] => probe::write(Path::new(file)),
        ["probe", file] => probe::compare(Path::new(file)),
        ["first-step", folder] => steps::first(Path::new(folder)),
        ["batches", folder, out, n] => batches::write(Path::new(folder), Path::new(out), n.parse()?),
        ["steps", folder, n] => steps::time(Path::new(folder), n.parse()?),
        _ => Err(USAGE.into()),
    }
}
