//! `cargo xtask bench`: runs the benches and turns criterion's files into times and domain rates.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::workspace;

/// The stages, in the order of a step, each a file of `benches/benches`; and what its rate counts.
const STAGES: &[Stage] = &[
    Stage { name: "graph", counts: "edges" },
    Stage { name: "sample", counts: "sampled edges" },
    Stage { name: "gather", counts: "rows" },
    Stage { name: "aggregate", counts: "edges" },
    Stage { name: "step", counts: "seeds" },
];

struct Stage {
    name: &'static str,
    counts: &'static str,
}

/// Options of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs this stage only (graph, sample, gather, aggregate, step); may be given several times
    #[arg(long, value_parser = parse_stage)]
    stage: Vec<String>,
    /// Writes the run to benches/runs/NAME.json
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    save: Option<String>,
    /// Prints how each median compares with the one of benches/runs/NAME.json
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    against: Option<String>,
    /// How many threads parallel loops use; all cores unless given
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
}

fn parse_stage(text: &str) -> Result<String, String> {
    if STAGES.iter().any(|stage| stage.name == text) {
        return Ok(text.to_owned());
    }
    let names: Vec<&str> = STAGES.iter().map(|stage| stage.name).collect();
    Err(format!("expected one of {}", names.join(", ")))
}

fn parse_name(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
        return Ok(text.to_owned());
    }
    Err("expected letters, digits, hyphens and underscores".into())
}

/// A saved run.
#[derive(Debug, Serialize, Deserialize)]
struct Run {
    /// The commit that was measured, with `-dirty` after it when files had been changed.
    commit: String,
    /// Universal time, `2026-01-31`.
    date: String,
    machine: Machine,
    /// As asked for by `--threads`; absent when all cores were used.
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<u32>,
    benches: Vec<Measurement>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Machine {
    cpu: String,
    cores: usize,
}

/// One bench's times for one iteration, over criterion's samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Measurement {
    /// `stage/variant/size`.
    name: String,
    min_ns: f64,
    median_ns: f64,
    max_ns: f64,
    /// How many of the stage's things (sampled edges, rows, …) one iteration handles.
    n_elements: u64,
}

/// Runs the chosen stages, prints a line per bench, then saves and compares as asked.
pub(crate) fn run(args: Args) -> Result<()> {
    // Read first: a name that does not exist should not cost a run.
    let base = args.against.as_deref().map(load_run).transpose()?;
    let scratch = workspace::root()?.join("target").join("bench");
    let mut benches = Vec::new();
    for stage in STAGES {
        if !args.stage.is_empty() && !args.stage.iter().any(|name| name == stage.name) {
            continue;
        }
        let measured = run_stage(stage, &scratch.join(stage.name), args.threads)?;
        for bench in &measured {
            println!("{}", line_of(bench, stage.counts));
        }
        benches.extend(measured);
    }
    if let (Some(base), Some(name)) = (&base, &args.against) {
        print_comparison(&benches, base, name);
    }
    if let Some(name) = &args.save {
        let path = run_path(name)?;
        let run =
            Run { commit: commit(), date: today()?, machine: machine(), threads: args.threads, benches };
        fs::create_dir_all(path.parent().context("a run's file has a folder")?)?;
        fs::write(&path, serde_json::to_string_pretty(&run)? + "\n")
            .with_context(|| format!("{} cannot be written", path.display()))?;
        println!("saved as benches/runs/{name}.json");
    }
    Ok(())
}

/// Runs one bench target in the profile and with the features of the tests, so that nothing is built
/// twice. `folder` is emptied first: what it then holds is of this run.
fn run_stage(stage: &Stage, folder: &Path, threads: Option<u32>) -> Result<Vec<Measurement>> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("{} cannot be emptied", folder.display()))?;
    }
    let mut command = workspace::cargo()?;
    command.args(["bench", "--quiet", "--locked", "--workspace", "--bench", stage.name]);
    command.args(["--", "--noplot", "--quiet"]).env("CRITERION_HOME", folder).stdout(Stdio::null());
    if let Some(threads) = threads {
        command.env("RAYON_NUM_THREADS", threads.to_string());
    }
    workspace::run(&mut command)?;
    let mut measured = Vec::new();
    read_results(folder, &mut measured)?;
    ensure!(!measured.is_empty(), "the benches of {} wrote no result", stage.name);
    measured.sort_by(|a: &Measurement, b| a.name.cmp(&b.name));
    Ok(measured)
}

/// Criterion's `benchmark.json`, as far as it is read here.
#[derive(Debug, Deserialize)]
struct BenchmarkFile {
    full_id: String,
    throughput: Option<Throughput>,
}

#[derive(Debug, Deserialize)]
enum Throughput {
    Elements(u64),
}

/// Criterion's `sample.json`: the time of each sample in nanoseconds, and its iterations.
#[derive(Debug, Deserialize)]
struct SampleFile {
    iters: Vec<f64>,
    times: Vec<f64>,
}

/// Collects every `…/new/benchmark.json` below a folder, with the sample beside it.
fn read_results(folder: &Path, found: &mut Vec<Measurement>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() && path.ends_with("new") {
            let bench: BenchmarkFile = read_json(&path.join("benchmark.json"))?;
            found.push(measurement(bench, &read_json(&path.join("sample.json"))?)?);
        } else if path.is_dir() {
            read_results(&path, found)?;
        }
    }
    Ok(())
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not as expected", path.display()))
}

fn measurement(bench: BenchmarkFile, sample: &SampleFile) -> Result<Measurement> {
    let name = bench.full_id;
    let Some(Throughput::Elements(n_elements)) = bench.throughput else {
        bail!("bench {name} does not say how many elements it handles");
    };
    let mut times: Vec<f64> = sample.times.iter().zip(&sample.iters).map(|(ns, n)| ns / n).collect();
    times.sort_by(f64::total_cmp);
    let (Some(&min_ns), Some(&max_ns)) = (times.first(), times.last()) else {
        bail!("bench {name} has no sample");
    };
    // Two middle values of an even number are averaged.
    let median_ns = (times[(times.len() - 1) / 2] + times[times.len() / 2]) / 2.0;
    Ok(Measurement { name, min_ns, median_ns, max_ns, n_elements })
}

/// `sample/neighbor/rmat-17   1.20 / 1.25 / 1.40 ms   80.1 M sampled edges/s`: minimum, median, maximum,
/// and the rate of the median.
fn line_of(bench: &Measurement, counts: &str) -> String {
    let Measurement { name, min_ns, median_ns, max_ns, n_elements } = bench;
    let (unit, unit_ns) = match *median_ns {
        ns if ns < 1e3 => ("ns", 1.0),
        ns if ns < 1e6 => ("µs", 1e3),
        ns if ns < 1e9 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    let [min, median, max] = [min_ns, median_ns, max_ns].map(|ns| ns / unit_ns);
    let per_second = *n_elements as f64 / median_ns * 1e9;
    let (prefix, rate) = match per_second {
        rate if rate < 1e3 => ("", rate),
        rate if rate < 1e6 => ("k ", rate / 1e3),
        rate => ("M ", rate / 1e6),
    };
    format!("{name:<48} {min:.3} / {median:.3} / {max:.3} {unit}  {rate:.2} {prefix}{counts}/s")
}

fn print_comparison(benches: &[Measurement], base: &Run, name: &str) {
    let threads = base.threads.map_or("all".to_owned(), |threads| threads.to_string());
    let Machine { cpu, cores } = &base.machine;
    println!(
        "\nagainst {name}: commit {}, {}, {cpu}, {cores} cores, {threads} threads",
        base.commit, base.date
    );
    let base: BTreeMap<&str, f64> =
        base.benches.iter().map(|bench| (bench.name.as_str(), bench.median_ns)).collect();
    for bench in benches {
        match base.get(bench.name.as_str()) {
            Some(median_ns) => println!("{:<48} {:.3}x the time", bench.name, bench.median_ns / median_ns),
            None => println!("{:<48} not in {name}", bench.name),
        }
    }
}

fn run_path(name: &str) -> Result<PathBuf> {
    Ok(workspace::root()?.join("benches").join("runs").join(format!("{name}.json")))
}

fn load_run(name: &str) -> Result<Run> {
    read_json(&run_path(name)?)
}

/// The checked-out commit; `none` outside a repository or before its first commit.
fn commit() -> String {
    let git = |args: &[&str]| {
        let root = workspace::root()?;
        workspace::stdout_of(Command::new("git").current_dir(root).args(args))
    };
    match (git(&["rev-parse", "--short=12", "HEAD"]), git(&["status", "--porcelain"])) {
        (Ok(hash), Ok(changes)) if changes.is_empty() => hash.trim().to_owned(),
        (Ok(hash), _) => format!("{}-dirty", hash.trim()),
        (Err(_), _) => "none".to_owned(),
    }
}

fn machine() -> Machine {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpu = model.map_or("unknown", |(_, model)| model).to_owned();
    Machine { cpu, cores: std::thread::available_parallelism().map_or(1, usize::from) }
}

fn today() -> Result<String> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?.as_secs();
    Ok(date_of(seconds / 86_400))
}

/// The Gregorian date of a day counted from 1970-01-01, by Hinnant (2021), "chrono-Compatible Low-Level
/// Date Algorithms", `civil_from_days`; here for days after 1970 only.
fn date_of(days: u64) -> String {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    // Years begin in March, so that a leap day is a year's last.
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(throughput: &str) -> BenchmarkFile {
        let json = format!(r#"{{"full_id": "gather/dense/rmat", "title": "x", "throughput": {throughput}}}"#);
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn times_are_for_one_iteration_and_the_median_is_the_middle() {
        let sample = SampleFile { iters: vec![1.0, 2.0, 4.0, 2.0], times: vec![9e6, 4e6, 4e6, 6e6] };
        let found = measurement(bench(r#"{"Elements": 5}"#), &sample).unwrap();
        assert_eq!((found.min_ns, found.median_ns, found.max_ns), (1e6, 2.5e6, 9e6));
        assert_eq!(found.n_elements, 5);
    }

    #[test]
    fn a_line_has_times_and_the_rate_of_the_median() {
        let sample = SampleFile { iters: vec![1.0, 1.0, 1.0], times: vec![1e6, 2e6, 3e6] };
        let line = line_of(&measurement(bench(r#"{"Elements": 1000}"#), &sample).unwrap(), "rows");
        assert!(line.ends_with("1.000 / 2.000 / 3.000 ms  500.00 k rows/s"), "{line}");
    }

    #[test]
    fn a_bench_without_a_rate_or_a_sample_is_refused() {
        let sample = SampleFile { iters: vec![1.0], times: vec![1.0] };
        assert!(measurement(bench("null"), &sample).is_err());
        let empty = SampleFile { iters: vec![], times: vec![] };
        assert!(measurement(bench(r#"{"Elements": 5}"#), &empty).is_err());
    }

    #[test]
    fn names_of_runs_stay_inside_their_folder() {
        assert!(parse_name("two-cores_1").is_ok());
        assert!(parse_name("../x").is_err());
        assert!(parse_name("").is_err());
    }

    #[test]
    fn every_stage_has_a_bench_file_and_every_bench_file_is_a_stage() {
        let folder = workspace::root().unwrap().join("benches").join("benches");
        let mut files: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        files.sort();
        let mut stages: Vec<&str> = STAGES.iter().map(|stage| stage.name).collect();
        stages.sort();
        assert_eq!(files, stages);
    }

    #[test]
    fn dates_around_leap_days_are_right() {
        for (days, date) in
            [(0, "1970-01-01"), (11_016, "2000-02-29"), (11_017, "2000-03-01"), (20_819, "2027-01-01")]
        {
            assert_eq!(date_of(days), date);
        }
    }
}
