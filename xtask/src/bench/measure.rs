//! Runs a bench target, and reads the files that it writes: criterion's samples, and the work per iteration of each
//! bench.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::ceilings::Machine;
use super::settings::Settings;
use super::work::Work;
use crate::workspace;

/// The minimum, median and maximum time per iteration of a bench, over criterion's samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Measurement {
    /// The name of the bench: `stage/variant/size`.
    pub(super) name: String,
    pub(super) min_ns: f64,
    pub(super) median_ns: f64,
    pub(super) max_ns: f64,
    /// The work of an iteration; `None` in old runs, which did not record it.
    #[serde(default)]
    pub(super) work: Option<Work>,
    /// The lower bound that follows from the machine's ceilings, divided by the median time. For a bench on a device,
    /// the rate divided by the rate of the bench `copy`. `None` for a bench without a ceiling.
    #[serde(default)]
    pub(super) ceiling_fraction: Option<f64>,
    /// The fraction of the ceiling of random rows, if the bound of the rows was replayed instead.
    #[serde(default)]
    pub(super) random_rows_fraction: Option<f64>,
}

/// A line of `work.jsonl`.
#[derive(Debug, Deserialize)]
struct Declared {
    bench: String,
    #[serde(flatten)]
    work: Work,
}

/// The part of criterion's `benchmark.json` that is used.
#[derive(Debug, Deserialize)]
struct BenchmarkFile {
    full_id: String,
}

/// Criterion's `sample.json`: the time of each sample in nanoseconds, and its number of iterations.
#[derive(Debug, Deserialize)]
struct SampleFile {
    iters: Vec<f64>,
    times: Vec<f64>,
}

impl Measurement {
    /// Returns the number of elements that are processed per second at the median, and their unit.
    pub(super) fn rate(&self) -> Option<(f64, &str)> {
        let work = self.work.as_ref()?;
        Some((work.elements as f64 / self.median_ns * 1e9, &work.unit))
    }
}

/// Runs one bench target, with the feature of the device if one is set. The result is empty if the target has no bench
/// for the selected data.
pub(super) fn run_stage(stage: &str, settings: &Settings, machine: &Machine) -> Result<Vec<Measurement>> {
    let folder = workspace::root()?.join("target").join("bench").join(stage);
    // The results of earlier runs are removed, because `read_folder` would read them, too.
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut command = workspace::cargo()?;
    command.args(["bench", "--quiet", "--locked", "--package", "kiln-benches", "--bench", stage]);
    if let Some(device) = &settings.device {
        command.args(["--features", crate::test::feature(device)]);
    }
    command.args(["--", "--noplot", "--quiet"]).env("CRITERION_HOME", &folder).envs(settings.env()?);
    if let Some(only) = &settings.only {
        command.args(["--exact", only]);
    }
    workspace::run(command.stdout(Stdio::null()))?;
    read_folder(&folder, machine)
}

/// Reads the results of all benches below a folder, sorted by name.
fn read_folder(folder: &Path, machine: &Machine) -> Result<Vec<Measurement>> {
    let path = folder.join("work.jsonl");
    let mut work = BTreeMap::new();
    for line in fs::read_to_string(&path).unwrap_or_default().lines() {
        let Declared { bench, work: of_bench } =
            serde_json::from_str(line).with_context(|| format!("cannot parse {}", path.display()))?;
        work.insert(bench, of_bench);
    }
    let mut measured = Vec::new();
    read_results(folder, &mut work, machine, &mut measured)?;
    measured.sort_by(|a: &Measurement, b| a.name.cmp(&b.name));
    compare_with_copy(&mut measured);
    Ok(measured)
}

/// Sets the ceiling fractions of device benches: for benches that count bytes, their rate divided by the rate of the
/// bench `copy`; for others, `None`. If the bench `copy` did not run, the fractions do not change.
fn compare_with_copy(benches: &mut [Measurement]) {
    let bytes = |bench: &Measurement| bench.rate().filter(|(_, unit)| *unit == "bytes").map(|(rate, _)| rate);
    let Some(copy) = benches.iter().find(|bench| bench.name.starts_with("device/copy/")).and_then(bytes)
    else {
        return;
    };
    for bench in benches {
        bench.ceiling_fraction = bytes(bench).map(|rate| rate / copy);
    }
}

/// Collects every `…/new/benchmark.json` below a folder, with the `sample.json` in the same folder.
fn read_results(
    folder: &Path,
    work: &mut BTreeMap<String, Work>,
    machine: &Machine,
    found: &mut Vec<Measurement>,
) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() && path.ends_with("new") {
            let BenchmarkFile { full_id } = read_json(&path.join("benchmark.json"))?;
            let Some(work) = work.remove(&full_id) else {
                bail!("bench {full_id} has no entry in work.jsonl: run it with kiln_benches::Stage");
            };
            found.push(measurement(full_id, work, &read_json(&path.join("sample.json"))?, machine)?);
        } else if path.is_dir() {
            read_results(&path, work, machine, found)?;
        }
    }
    Ok(())
}

pub(super) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))
}

fn measurement(name: String, work: Work, sample: &SampleFile, machine: &Machine) -> Result<Measurement> {
    let mut times: Vec<f64> = sample.times.iter().zip(&sample.iters).map(|(ns, n)| ns / n).collect();
    ensure!(!times.is_empty(), "bench {name} has no samples");
    times.sort_by(f64::total_cmp);
    let min_ns = times[0];
    let median_ns = median(&times);
    let max_ns = times[times.len() - 1];
    let fraction = |work: &Work| machine.bound_seconds(work).map(|seconds| seconds * 1e9 / median_ns);
    let ceiling_fraction = fraction(&work);
    let is_replayed = 0.0 < work.replayed;
    let random_rows_fraction =
        is_replayed.then(|| fraction(&Work { replayed: 0.0, ..work.clone() })).flatten();
    let work = Some(work);
    Ok(Measurement { name, min_ns, median_ns, max_ns, work, ceiling_fraction, random_rows_fraction })
}

/// Returns the median of ascending values.
fn median(ascending: &[f64]) -> f64 {
    (ascending[(ascending.len() - 1) / 2] + ascending[ascending.len() / 2]) / 2.0
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::ceilings::tests::machine;
    use super::super::work::Access;
    use super::*;

    /// Returns a bench with samples of 1, 2 and 3 ms. Its 100,000 cache lines take at least 1 ms, its 8 MB of streamed
    /// bytes at least 4 ms.
    pub(in super::super) fn bench(name: &str) -> Measurement {
        let sample = SampleFile { iters: vec![1.0, 1.0, 1.0], times: vec![1e6, 2e6, 3e6] };
        measurement(name.into(), work(), &sample, &machine()).unwrap()
    }

    fn work() -> Work {
        let text = r#"{"elements": 1000, "unit": "edges", "threads": 1, "streamed": 8000000,
                       "row_traffic": 0, "access": "nothing", "lines": 100000, "among": 1000, "flop": 0}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn device_ceiling_fractions_are_relative_to_the_copy_rate() {
        let of_bytes = |name: &str, elements| {
            let work = Work { elements, unit: "bytes".into(), ..work() };
            Measurement { work: Some(work), ..bench(name) }
        };
        let edges = Measurement { ceiling_fraction: None, ..bench("device/sample-5/x") };
        let mut benches = vec![of_bytes("device/copy/x", 8000), of_bytes("device/mean/x", 6000), edges];
        compare_with_copy(&mut benches);
        let fractions: Vec<_> = benches.iter().map(|bench| bench.ceiling_fraction).collect();
        assert_eq!(fractions, [Some(1.0), Some(0.75), None]);
    }

    #[test]
    fn times_are_for_one_iteration_and_the_median_is_the_middle() {
        let sample = SampleFile { iters: vec![1.0, 2.0, 4.0, 2.0], times: vec![9e6, 4e6, 4e6, 6e6] };
        let found = measurement("a".into(), work(), &sample, &machine()).unwrap();
        assert_eq!((found.min_ns, found.median_ns, found.max_ns), (1e6, 2.5e6, 9e6));
        assert_eq!(found.rate(), Some((400_000.0, "edges")));
    }

    #[test]
    fn ceiling_fraction_uses_the_largest_lower_bound() {
        // 8 MB take 4 ms at 2 GB/s, which is more than the lines' 1 ms.
        assert_eq!(bench("a").ceiling_fraction, Some(2.0));
        let without = Work { streamed: 0, lines: 0, ..work() };
        let sample = SampleFile { iters: vec![1.0], times: vec![1e6] };
        assert_eq!(measurement("a".into(), without, &sample, &machine()).unwrap().ceiling_fraction, None);
    }

    #[test]
    fn replayed_rows_replace_the_ceiling_of_random_rows() {
        let sample = SampleFile { iters: vec![1.0], times: vec![1e6] };
        let read = |replayed| {
            let rows =
                Work { streamed: 0, lines: 0, row_traffic: 1 << 20, access: Access::Read(512), ..work() };
            measurement("a".into(), Work { replayed, ..rows }, &sample, &machine()).unwrap()
        };
        let random = read(0.0);
        let replayed = read(0.0005);
        assert_eq!((random.random_rows_fraction, replayed.ceiling_fraction), (None, Some(0.5)));
        assert!(random.ceiling_fraction.is_some());
        assert_eq!(replayed.random_rows_fraction, random.ceiling_fraction);
    }

    #[test]
    fn joins_results_with_the_work_of_their_bench() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path().join("sample").join("a").join("b").join("new");
        fs::create_dir_all(&new).unwrap();
        fs::write(new.join("benchmark.json"), r#"{"full_id": "sample/a/b", "title": "x"}"#).unwrap();
        fs::write(new.join("sample.json"), r#"{"iters": [2], "times": [4e6]}"#).unwrap();
        let error = read_folder(folder.path(), &machine()).unwrap_err().to_string();
        assert!(error.contains("sample/a/b has no entry in work.jsonl"), "{error}");
        let line = r#"{"bench": "sample/a/b", "elements": 3, "unit": "rows", "threads": 1, "streamed": 0,
                       "row_traffic": 1, "access": {"gather": 400}, "lines": 0, "among": 5, "flop": 0}"#;
        fs::write(folder.path().join("work.jsonl"), line.replace('\n', " ")).unwrap();
        let found = read_folder(folder.path(), &machine()).unwrap();
        assert_eq!((found.len(), found[0].name.as_str(), found[0].median_ns), (1, "sample/a/b", 2e6));
        assert_eq!(found[0].work.as_ref().unwrap().access, Access::Gather(400));
    }

    #[test]
    fn rejects_a_bench_without_samples() {
        let empty = SampleFile { iters: vec![], times: vec![] };
        assert!(measurement("a".into(), work(), &empty, &machine()).is_err());
    }
}
