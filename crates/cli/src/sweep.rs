//! `kiln sweep`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, FromArgMatches};
use kiln::comm::{EXIT_RETRY, error_text};
use kiln::data::convert::parse_bytes;
use kiln::store::counted;
use kiln_sweep::{CoreShare, MemoryLimits, Plan, RunCommand, Sweep, SweepConfig};
use kiln_usage::{Description, advise, error_message, read_given};

use crate::flags::parse;
use crate::output::{log, print_rank_zero, print_result};
use crate::train::{self, TrainArgs};
use crate::usage::LISTS;

/// The arguments of `kiln sweep`.
#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// File of the sweep: a TOML, YAML or JSON table of flags of `kiln train`, as `run.toml` is, with a table `sweep` of those that vary,
    /// each with a list of values. A table `random` with `trials` draws values instead of trying all combinations; it allows ranges.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Folder of the sweep. The same command continues a sweep that was stopped. Default: `runs/NAME` for a file `NAME.toml`.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Maximum number of runs at a time. Default: a run per core, or for each `threads-per-rank`; 1 on a GPU.
    #[arg(long, value_parser = parse::size)]
    parallel: Option<usize>,
    /// Memory limit of all runs together, such as 16GiB. The peak of the first run decides how many fit. Default: the available memory.
    #[arg(long, value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Memory that each run needs, instead of the measured peak.
    #[arg(long, value_parser = parse_bytes)]
    memory_per_run: Option<u64>,
    /// Lists the runs and their states only.
    #[arg(long)]
    dry_run: bool,
}

/// Runs `kiln sweep`. `command` is the parser of the program.
pub(crate) fn run(args: &SweepArgs, command: &clap::Command) -> anyhow::Result<ExitCode> {
    let plan = Plan::read(&args.file).map_err(kiln_sweep::Error::from)?;
    plan.check(|flags| check_run(flags, command)).map_err(kiln_sweep::Error::from)?;
    let name = args.file.file_stem().map(PathBuf::from).unwrap_or_default();
    let folder = args.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(name));
    let memory = MemoryLimits { total_bytes: args.memory, run_bytes: args.memory_per_run };
    memory.check()?;
    if args.dry_run {
        let sweep = Sweep::preview(plan, &folder)?;
        print_result(sweep.table(&Default::default()).list_runs())?;
        return Ok(ExitCode::SUCCESS);
    }
    let n_cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = CoreShare::new(&plan, args.parallel, n_cores);
    let config = SweepConfig { parallel: cores.parallel, memory, stop: kiln::stop_on_signals()? };
    let program = std::env::current_exe().context("the program could not be found")?;
    let subcommand = command.find_subcommand("train").cloned().unwrap_or_default();
    let train = RunCommand { program, subcommand, cores };
    let sweep = Sweep::open(plan, &folder)?;
    let outcome = sweep.execute(&config, |run| train.build(&sweep, run), |line| print_rank_zero(line))?;
    let table = sweep.table(&outcome.failures);
    print_result(&table)?;
    for file in table.write_files(&folder)? {
        print_result(format_args!("written: {}", file.display()))?;
    }
    for (name, reason) in &outcome.failures {
        log(&format!("Error: {name} has failed: {reason} (see logs/{name}.log in {})", folder.display()));
    }
    Ok(match (outcome.failures.is_empty(), outcome.n_interrupted) {
        (true, 0) => ExitCode::SUCCESS,
        (false, 0) => ExitCode::FAILURE,
        (_, n_interrupted) => {
            let left = counted(n_interrupted as u64, "run");
            print_rank_zero(format_args!("{left} left: the same command continues the sweep"));
            ExitCode::from(EXIT_RETRY)
        }
    })
}

/// Checks the command line of a run by the parser of `kiln train`, before the first run starts.
fn check_run(flags: &Description, command: &clap::Command) -> Result<(), String> {
    let arguments = || -> anyhow::Result<Vec<OsString>> {
        let train = command.find_subcommand("train").context("the program should train")?;
        let flags = flags.arguments(train, &BTreeSet::new())?;
        Ok(["kiln", "train"].map(OsString::from).into_iter().chain(flags).collect())
    };
    let arguments = arguments().map_err(|error| error_text(error.as_ref()))?;
    let matches = command.clone().try_get_matches_from(&arguments);
    let matches = matches.map_err(|error| error_message(&advise(error, command, &arguments, &LISTS)))?;
    let given = read_given(command, &matches);
    let of_train = matches.subcommand_matches("train").unwrap_or(&matches);
    let parsed = TrainArgs::from_arg_matches(of_train).map_err(|error| error_message(&error))?;
    train::check(&parsed, &given).map_err(|error| error_text(error.as_ref()))
}
