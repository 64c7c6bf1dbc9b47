//! `cargo xtask bench`: measures the machine, runs the benches, and turns criterion's files into times, rates and
//! fractions of what the machine can do; with `--peers`, side by side with another library.

mod ceilings;
mod lines;
mod measure;
mod peers;
mod runs;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use self::ceilings::Machine;
use self::runs::Run;

/// The stages, in the order of a step, each a file of `benches/benches`.
const STAGES: [&str; 7] = ["graph", "sample", "gather", "remote", "aggregate", "dense", "step"];

/// What `--device` runs, in place of these.
const DEVICE_STAGE: &str = "device";

/// Options of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs this stage only (graph, sample, gather, remote, aggregate, dense, step); may be given several times
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(STAGES), conflicts_with = "peers")]
    stage: Vec<String>,
    /// Runs the stage of devices on this one, cuda, cuda:1, wgpu or cube-cpu, in place of the others
    #[arg(long, value_name = "NAME", value_parser = crate::test::device, conflicts_with_all = ["stage", "peers"])]
    device: Option<String>,
    /// Benches the data set of this folder, of any kind that is recognised, in place of the built-in inputs; may be
    /// given several times
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
    /// Copies the data sets of --data into memory before they are benched; else they are mapped
    #[arg(long)]
    in_memory: bool,
    /// Neighbours for each layer of one data set, input layer first, as NAME=15,10,5; 10,10,10 where none are
    /// given; may be given several times
    #[arg(long, value_name = "NAME=LIST", value_parser = parse_fanouts, conflicts_with = "peers")]
    fanouts: Vec<String>,
    /// How many threads parallel loops use; all cores unless given
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "peers")]
    threads: Option<u32>,
    /// Writes the run to benches/runs/NAME.json
    #[arg(long, value_name = "NAME", value_parser = parse_name, conflicts_with = "peers")]
    save: Option<String>,
    /// Prints how each median compares with the one of benches/runs/NAME.json
    #[arg(long, value_name = "NAME", value_parser = parse_name, conflicts_with = "peers")]
    against: Option<String>,
    /// Writes one JSON object a line to this file
    #[arg(long, value_name = "FILE", conflicts_with = "peers")]
    json: Option<PathBuf>,
    /// Runs DGL beside the benches, in turn, and writes the comparison to docs/benchmarks
    #[arg(long)]
    peers: bool,
    /// With --peers: the Python that has DGL; without it one is made below target/peers, which fetches packages
    #[arg(long, value_name = "PATH", requires = "peers")]
    python: Option<PathBuf>,
    /// With --peers: how often each pair is measured, ours and DGL's in turn
    #[arg(long, default_value = "2", requires = "peers", value_parser = clap::value_parser!(u32).range(1..100))]
    rounds: u32,
    /// With --peers: measures these rows only; may be given several times
    #[arg(long, value_name = "ROW", requires = "peers", value_parser = clap::builder::PossibleValuesParser::new(peers::names()))]
    row: Vec<String>,
}

fn parse_name(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
        return Ok(text.to_owned());
    }
    Err("expected letters, digits, hyphens and underscores".into())
}

fn parse_fanouts(text: &str) -> Result<String, String> {
    let list = text.split_once('=').filter(|(name, _)| !name.is_empty() && !name.contains(';'));
    let is_number = |number: &str| number.parse::<u32>().is_ok();
    match list {
        Some((_, list)) if list.split(',').all(is_number) => Ok(text.to_owned()),
        _ => Err("expected NAME=15,10,5, one number a layer".into()),
    }
}

/// What bench processes are told.
#[derive(Debug, Clone, Default)]
struct Settings {
    /// Folders in place of the built-in inputs; none for those.
    data: Vec<PathBuf>,
    /// Whether these are copied into memory.
    in_memory: bool,
    /// `NAME=15,10,5`.
    fanouts: Vec<String>,
    /// Threads of parallel loops; all cores unless given.
    threads: Option<u32>,
    /// The only bench that is to run; all unless given.
    only: Option<String>,
    /// The device of the stage of devices.
    device: Option<String>,
}

impl Settings {
    /// The environment of a bench process.
    fn env(&self) -> Result<BTreeMap<&'static str, OsString>> {
        let mut env = BTreeMap::new();
        if !self.data.is_empty() {
            let paths =
                env::join_paths(&self.data).context("a folder's path cannot stand in a list of paths")?;
            env.insert("KILN_BENCH_DATA", paths);
        }
        if self.in_memory {
            env.insert("KILN_BENCH_IN_MEMORY", "1".into());
        }
        if !self.fanouts.is_empty() {
            env.insert("KILN_BENCH_FANOUTS", self.fanouts.join(";").into());
        }
        if let Some(device) = &self.device {
            env.insert("KILN_DEVICE", device.into());
        }
        if let Some(threads) = self.threads {
            env.insert("RAYON_NUM_THREADS", threads.to_string().into());
        }
        Ok(env)
    }

    fn n_threads(&self) -> usize {
        self.threads.map_or_else(runs::n_cores, |threads| threads as usize)
    }
}

/// Measures the machine, runs the chosen stages, prints a line per bench, then saves and compares as asked.
pub(crate) fn run(args: Args) -> Result<()> {
    let mut data = Vec::new();
    for folder in &args.data {
        data.push(fs::canonicalize(folder).with_context(|| format!("{} cannot be read", folder.display()))?);
    }
    let in_memory = args.in_memory;
    if args.peers {
        let options =
            peers::Options { python: args.python, rounds: args.rounds, rows: args.row, data, in_memory };
        return peers::run(&options);
    }
    let (fanouts, threads, device) = (args.fanouts, args.threads, args.device);
    let settings = Settings { data, in_memory, fanouts, threads, only: None, device };
    if let Some(device) = &settings.device {
        crate::llvm::run_for(crate::test::feature(device))?;
    }
    // Read first: a name that does not exist should not cost a run.
    let base = args.against.as_deref().map(runs::load).transpose()?;
    let machine = Machine::measure(settings.n_threads())?;
    print!("{machine}");
    let mut benches = Vec::new();
    let is_asked_for = |stage: &&str| args.stage.is_empty() || args.stage.iter().any(|name| name == stage);
    let stages: Vec<&str> = match &settings.device {
        Some(_) => vec![DEVICE_STAGE],
        None => STAGES.into_iter().filter(is_asked_for).collect(),
    };
    for stage in stages {
        let measured = measure::run_stage(stage, &settings, &machine)?;
        for bench in &measured {
            println!("{}", lines::of(bench));
        }
        benches.extend(measured);
    }
    if benches.is_empty() {
        bail!("no bench of these stages runs on this data");
    }
    let run = Run::now(threads, Some(machine), benches)?;
    if let Some(path) = &args.json {
        fs::write(path, lines::json(&run)?)
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    if let (Some(base), Some(name)) = (&base, &args.against) {
        print!("{}", lines::comparison(&run.benches, base, name));
    }
    args.save.map_or(Ok(()), |name| runs::save(&name, &run))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn names_of_runs_stay_inside_their_folder() {
        assert!(parse_name("two-cores_1").is_ok());
        assert!(parse_name("../x").is_err());
        assert!(parse_name("").is_err());
    }

    #[test]
    fn fanouts_name_their_set() {
        assert!(parse_fanouts("products-like=15,10,5").is_ok());
        for wrong in ["15,10,5", "=15", "a=", "a=15,x", "a;b=15"] {
            assert!(parse_fanouts(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_bench_process_is_told_what_was_asked_for() {
        let fanouts = vec!["a=1".into(), "b=2,3".into()];
        let data = vec!["x/a".into(), "y/b".into()];
        let device = Some("cuda:1".into());
        let env = Settings { data, in_memory: true, fanouts, threads: Some(2), only: None, device };
        let env = env.env().unwrap();
        let values: Vec<_> = env.iter().map(|(name, value)| (*name, value.to_str().unwrap())).collect();
        let data = env::join_paths(["x/a", "y/b"]).unwrap();
        let expected = [
            ("KILN_BENCH_DATA", data.to_str().unwrap()),
            ("KILN_BENCH_FANOUTS", "a=1;b=2,3"),
            ("KILN_BENCH_IN_MEMORY", "1"),
            ("KILN_DEVICE", "cuda:1"),
            ("RAYON_NUM_THREADS", "2"),
        ];
        assert_eq!(values, expected);
        assert!(Settings::default().env().unwrap().is_empty());
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
