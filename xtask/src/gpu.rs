//! `cargo xtask gpu`: packs the programs that test and measure kiln on a machine with a GPU but without cargo and
//! network, and tests that machine's script, `benches/gpu/run.sh`, on the stub of the CUDA driver.

mod dry_run;
mod pack;

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

use crate::workspace;

/// Options of `cargo xtask gpu`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Builds `kiln`, the benches and the device tests for CUDA and NCCL, strips them, computes the results that the GPU
    /// must reproduce, and packs all into target/gpu-day/package.
    Pack {
        /// Largest size of the package in MiB
        #[arg(long, value_name = "MiB", default_value = "45", value_parser = clap::value_parser!(u64).range(1..=1024))]
        limit: u64,
    },
    /// Runs the days of benches/gpu/run.sh with small data on the stub of the CUDA driver, each in a new copy of the
    /// checkout with the package, and fails if a part fails, or if a day leaves a process, or files beyond the limits.
    DryRun {
        /// Days to run; default all
        #[arg(value_name = "DAY", value_parser = clap::builder::PossibleValuesParser::new(dry_run::DAYS))]
        days: Vec<String>,
        /// Time limit of a day in seconds; the stub is slower than a GPU
        #[arg(long, value_name = "SECONDS", default_value = "540")]
        budget: u64,
    },
}

/// Packs the programs, or runs the days on the stub.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.action {
        Action::Pack { limit } => pack::run(limit << 20),
        Action::DryRun { days, budget } => dry_run::run(&days, budget),
    }
}

/// Returns the folder of the package and of the results, which git ignores.
fn folder() -> Result<PathBuf> {
    Ok(workspace::root()?.join("target/gpu-day"))
}

/// The name of the package's folder in [`folder`].
const PACKAGE: &str = "package";

/// The file of the package that lists its programs.
const PROGRAMS: &str = "programs.json";

fn mib(n_bytes: u64) -> String {
    format!("{:.1} MiB", n_bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Command;

    use super::*;

    #[test]
    fn python_unit_tests_of_the_script_and_its_tables_pass() {
        let folder = workspace::root().unwrap().join("benches/gpu");
        let mut python = Command::new("python3");
        python.args(["-m", "unittest", "discover"]).arg(folder).env("PYTHONDONTWRITEBYTECODE", "1");
        match python.output() {
            Ok(tests) => assert!(tests.status.success(), "{}", String::from_utf8_lossy(&tests.stderr)),
            Err(_) => {
                let skip = "kiln-skip: other: the script for GPU machines: python3 cannot be started";
                writeln!(std::io::stdout(), "{skip}").unwrap();
            }
        }
    }

    /// Runs `run.sh` in a new folder that has no package, and returns its exit status and its table.
    fn run_without_package(args: &[&str]) -> (Option<i32>, String) {
        let checkout = tempfile::tempdir().unwrap();
        let folder = checkout.path().join("benches/gpu");
        std::fs::create_dir_all(&folder).unwrap();
        for file in ["run.sh", "flags.sh"] {
            let path = workspace::root().unwrap().join("benches/gpu").join(file);
            std::fs::copy(path, folder.join(file)).unwrap();
        }
        let out = checkout.path().join("out");
        let mut script = Command::new("bash");
        script.arg(folder.join("run.sh")).args(args).env("OUT", &out).env_remove("BUDGET");
        let status = script.output().unwrap().status.code();
        (status, std::fs::read_to_string(out.join("table.txt")).unwrap_or_default())
    }

    #[test]
    fn a_day_without_a_package_fails_and_its_table_states_the_fix() {
        let (status, table) = run_without_package(&["day2"]);
        assert_eq!(status, Some(2));
        assert!(table.starts_with("kiln\tno package, parts bench torch pyg ncu sanitize, "), "{table}");
        assert!(table.ends_with("run `cargo xtask gpu pack` on the machine with cargo\n"), "{table}");
        assert_eq!(run_without_package(&["day3"]), (Some(2), String::new()));
    }

    /// The rest of a day's 300 and 380 seconds is for unpacking the programs and packing the logs.
    #[test]
    fn the_days_fit_into_their_seconds() {
        assert_eq!(
            dry_run::DAYS.map(|day: &str| {
                let (_, table) = run_without_package(&[day]);
                let seconds = table.lines().next().unwrap().rsplit_once("budget ").unwrap().1;
                seconds.strip_suffix(" s").unwrap().parse::<u32>().unwrap()
            }),
            [285, 365]
        );
    }
}
