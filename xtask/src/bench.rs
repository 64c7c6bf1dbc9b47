//! `cargo xtask bench`: measures the machine's ceilings, runs the benches, and converts criterion's files to times,
//! rates and fractions of the ceilings. With `--peers`, it starts the comparison with DGL in `benches/peers`.

mod ceilings;
mod lines;
mod measure;
mod runs;
mod settings;
mod work;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use self::ceilings::Machine;
use self::runs::Run;
use self::settings::{Settings, n_cores};
use crate::workspace;

/// The bench stages, in the order of a training step. Each stage is a file in `benches/benches`.
const STAGES: [&str; 8] = ["graph", "sample", "gather", "remote", "aggregate", "dense", "step", "models"];

/// The stage that `--device` runs instead of the others.
const DEVICE_STAGE: &str = "device";

/// Options of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs only this stage (graph, sample, gather, remote, aggregate, dense, step); may be given several times
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(STAGES), conflicts_with = "peers")]
    stage: Vec<String>,
    /// Runs the device stage instead of the others, on this device: cuda, cuda:1, wgpu or cube-cpu
    #[arg(long, value_name = "NAME", value_parser = crate::test::device, conflicts_with_all = ["stage", "peers"])]
    device: Option<String>,
    /// Runs only the bench of this name, such as sample/uniform-10-10-10/arxiv-like
    #[arg(long, value_name = "NAME", value_parser = parse_bench, conflicts_with_all = ["stage", "device", "peers"])]
    only: Option<String>,
    /// Benches the data set in this folder (any supported format) instead of the built-in inputs; `fake` selects the
    /// random graph of the GCN bench; may be given several times
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
    /// Copies the data sets of --data into memory instead of mapping them
    #[arg(long)]
    in_memory: bool,
    /// Fanouts for one data set, input layer first, such as NAME=15,10,5; default 10,10,10; may be given several times
    #[arg(long, value_name = "NAME=LIST", value_parser = parse_fanouts, conflicts_with = "peers")]
    fanouts: Vec<String>,
    /// Number of threads of parallel loops; default all cores
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "peers")]
    threads: Option<u32>,
    /// Writes the run to benches/runs/NAME.json
    #[arg(long, value_name = "NAME", value_parser = parse_name, conflicts_with = "peers")]
    save: Option<String>,
    /// Compares each median with that of the run in benches/runs/NAME.json
    #[arg(long, value_name = "NAME", value_parser = parse_name, conflicts_with = "peers")]
    against: Option<String>,
    /// Writes a JSON object per bench to this file, one per line
    #[arg(long, value_name = "FILE", conflicts_with = "peers")]
    json: Option<PathBuf>,
    /// Reads the machine's ceilings from this saved run instead of measuring them
    #[arg(long, value_name = "FILE", conflicts_with = "peers")]
    ceilings: Option<PathBuf>,
    /// Compares the benches with DGL, and writes the comparison to docs/benchmarks unless --row selects rows
    #[arg(long)]
    peers: bool,
    /// Python interpreter with DGL, for --peers; default: an environment in target/peers, with downloaded packages
    #[arg(long, value_name = "PATH", requires = "peers")]
    python: Option<PathBuf>,
    /// Number of times (1 to 99) that each row is measured, alternating between kiln and DGL, for --peers
    #[arg(long, default_value = "2", requires = "peers", value_parser = clap::value_parser!(u32).range(1..100))]
    rounds: u32,
    /// Measures only this row of benches/peers/rows.py, for --peers; may be given several times
    #[arg(long, value_name = "ROW", requires = "peers")]
    row: Vec<String>,
}

fn parse_name(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
        return Ok(text.to_owned());
    }
    Err("expected letters, digits, hyphens and underscores".into())
}

fn parse_bench(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((stage, _)) if STAGES.contains(&stage) => Ok(text.to_owned()),
        _ => Err(format!("expected STAGE/VARIANT/DATA, the stage being one of {}", STAGES.join(", "))),
    }
}

fn parse_fanouts(text: &str) -> Result<String, String> {
    let list = text.split_once('=').filter(|(name, _)| !name.is_empty() && !name.contains(';'));
    match list {
        Some((_, list)) if list.split(',').all(|number: &str| number.parse::<u32>().is_ok()) => {
            Ok(text.to_owned())
        }
        _ => Err("expected NAME=15,10,5, a number per layer".into()),
    }
}

/// Measures the machine, runs the selected stages, prints a line per bench, and saves and compares the run if
/// requested.
pub(crate) fn run(mut args: Args) -> Result<()> {
    args.data = args.data.iter().map(|folder| existing(folder)).collect::<Result<_>>()?;
    if args.peers {
        return run_peers(&args);
    }
    let Args { data, in_memory, fanouts, threads, only, device, .. } = args;
    let settings = Settings { data, in_memory, fanouts, threads, only, device };
    if let Some(device) = &settings.device {
        crate::llvm::run_for(crate::test::feature(device))?;
    }
    // The base run is loaded first, so that a missing file is reported before the benches run.
    let base = args.against.as_deref().map(runs::load).transpose()?;
    let machine = match &args.ceilings {
        Some(path) => runs::ceilings(path)?,
        None => Machine::measure(settings.n_threads())?,
    };
    print!("{machine}");
    let mut benches = Vec::new();
    for stage in stages(&args.stage, &settings) {
        let measured = measure::run_stage(stage, &settings, &machine)?;
        for bench in &measured {
            println!("{}", lines::of(bench));
        }
        benches.extend(measured);
    }
    if benches.is_empty() {
        bail!("the selected stages have no bench for this data");
    }
    let run = Run::now(threads, Some(machine), benches)?;
    if let Some(path) = &args.json {
        fs::write(path, lines::json(&run)?).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let (Some(base), Some(name)) = (&base, &args.against) {
        print!("{}", lines::comparison(&run.benches, base, name));
    }
    args.save.map_or(Ok(()), |name| runs::save(&name, &run))
}

/// Returns the absolute path of a data set's folder, or an error if the folder does not exist. The name `fake`, which
/// selects the graph that the benches generate, is returned unchanged.
fn existing(folder: &Path) -> Result<PathBuf> {
    if folder == Path::new("fake") {
        return Ok(folder.to_owned());
    }
    fs::canonicalize(folder).with_context(|| format!("cannot read {}", folder.display()))
}

/// Returns the stages to run. If a device is set, this is only the device stage. Otherwise, if a single bench is
/// selected, it is only the stage of that bench. Otherwise it is the stages in `asked`, or all stages if `asked` is
/// empty.
fn stages<'a>(asked: &[String], settings: &'a Settings) -> Vec<&'a str> {
    match (&settings.device, &settings.only) {
        (Some(_), _) => vec![DEVICE_STAGE],
        (_, Some(name)) => name.split('/').take(1).collect(),
        _ => STAGES
            .into_iter()
            .filter(|stage: &&str| asked.is_empty() || asked.iter().any(|name| name == stage))
            .collect(),
    }
}

/// Measures the machine and starts the comparison with DGL, which runs `cargo xtask bench` for each of its rows.
fn run_peers(args: &Args) -> Result<()> {
    let root = workspace::root()?;
    let machine = Machine::measure(n_cores())?;
    print!("{machine}");
    let path = root.join("target").join("peers").join("machine.json");
    runs::write(&path, &Run::now(None, Some(machine), Vec::new())?)?;
    let mut command = Command::new("python3");
    command.arg(root.join("benches").join("peers").join("compare.py")).arg("--machine").arg(&path);
    command.arg("--rounds").arg(args.rounds.to_string()).args(args.in_memory.then_some("--in-memory"));
    for folder in &args.data {
        command.arg("--data").arg(folder);
    }
    if let Some(python) = &args.python {
        command.arg("--python").arg(python);
    }
    for row in &args.row {
        command.args(["--row", row]);
    }
    workspace::run(workspace::without_own_package(&mut command))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn rejects_run_names_that_contain_a_path() {
        assert!(parse_name("two-cores_1").is_ok());
        assert!(parse_name("../x").is_err());
        assert!(parse_name("").is_err());
    }

    #[test]
    fn selects_the_stages_of_a_bench_or_a_device() {
        let only = Some(parse_bench("sample/uniform-10-10-10/arxiv-like").unwrap());
        assert!(parse_bench("sample").is_err() && parse_bench("train/a/b").is_err());
        assert_eq!(stages(&[], &Settings { only, ..Settings::default() }), ["sample"]);
        assert_eq!(stages(&["dense".into()], &Settings::default()), ["dense"]);
        let device = Some("cuda".into());
        assert_eq!(stages(&[], &Settings { device, ..Settings::default() }), [DEVICE_STAGE]);
    }

    #[test]
    fn python_unit_tests_of_the_peer_comparison_pass() {
        let folder = workspace::root().unwrap().join("benches").join("peers");
        let mut python = Command::new("python3");
        python.args(["-m", "unittest", "discover"]).arg(folder).env("PYTHONDONTWRITEBYTECODE", "1");
        match python.output() {
            Ok(tests) => assert!(tests.status.success(), "{}", String::from_utf8_lossy(&tests.stderr)),
            Err(_) => {
                let skip = "kiln-skip: other: the comparison with peers: python3 cannot be started";
                writeln!(std::io::stdout(), "{skip}").unwrap();
            }
        }
    }

    #[test]
    fn fanouts_must_name_their_data_set() {
        assert!(parse_fanouts("products-like=15,10,5").is_ok());
        for wrong in ["15,10,5", "=15", "a=", "a=15,x", "a;b=15"] {
            assert!(parse_fanouts(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_stage_has_a_bench_file_and_every_bench_file_is_a_stage() {
        let folder = workspace::root().unwrap().join("benches").join("benches");
        let mut files: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        files.sort();
        let mut stages = [&STAGES[..], &[DEVICE_STAGE]].concat();
        stages.sort();
        assert_eq!(files, stages);
    }
}
