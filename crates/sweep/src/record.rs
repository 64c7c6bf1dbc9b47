use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use kiln_store::whole_file::{UNFINISHED, read_whole, write_whole};
use kiln_train::canonical_setting;
use serde::{Deserialize, Serialize};

use crate::error::{Error, io_error};
use crate::plan::{Flags, PATHS, Plan, canonical_flags, cell_of};
use crate::search::{SearchRecord, compare_searches, describe_change, list_values};

/// The file in the folder of a sweep that names its runs.
const RECORD_FILE: &str = "sweep.json";

/// The version of the file.
const VERSION: u32 = 1;

/// The maximum size of the file in bytes.
const MOST_BYTES: u64 = 1 << 28;

/// A run of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepRun {
    /// The name of its folder, such as `cell-001-seed-0`.
    pub name: String,
    /// The number of its cell, from 1. Runs with the same settings except the seed have the same number.
    pub cell: usize,
    /// Its flags.
    pub flags: Flags,
}

/// The content of the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SweepRecord {
    version: u32,
    /// The search that drew the cells; `None` for a grid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    random: Option<SearchRecord>,
    runs: Vec<SweepRun>,
}

impl SweepRecord {
    /// Records a plan whose runs have names.
    pub(crate) fn new(plan: &Plan, runs: &[SweepRun]) -> Self {
        Self { version: VERSION, random: plan.search().cloned(), runs: runs.to_vec() }
    }
}

/// Reads the record of the sweep in a folder; one without runs if the folder is absent or empty.
pub(crate) fn read_record(folder: &Path) -> Result<SweepRecord, Error> {
    let path = folder.join(RECORD_FILE);
    let bytes = match read_whole(&path, MOST_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return if is_empty(folder)? {
                Ok(SweepRecord { version: VERSION, random: None, runs: Vec::new() })
            } else {
                Err(Error::NotEmpty { folder: folder.to_owned() })
            };
        }
        read => read.map_err(io_error(&path))?,
    };
    let bad = |reason: String| Error::BadRecord { path: path.clone(), reason };
    let record: SweepRecord = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
    if record.version != VERSION {
        return Err(bad(format!("it has version {} of the format, expected {VERSION}", record.version)));
    }
    // The names become paths.
    let bad_run = record.runs.iter().find(|run| run.name != name_of(run.cell, &run.flags));
    match bad_run {
        Some(run) => Err(bad(format!(
            "the run `{}` should have the name `{}`",
            run.name,
            name_of(run.cell, &run.flags)
        ))),
        None => Ok(record),
    }
}

pub(crate) fn write_record(folder: &Path, record: &SweepRecord) -> Result<(), Error> {
    let path = folder.join(RECORD_FILE);
    let mut bytes = serde_json::to_vec_pretty(record).map_err(|error| io_error(&path)(error.into()))?;
    bytes.push(b'\n');
    write_whole(&path, &bytes).map_err(io_error(&path))
}

/// Names the runs of a plan as in the record, and new ones with the next numbers.
///
/// # Errors
/// Returns [`Error::OtherSweep`] if a recorded run is not in the plan.
pub(crate) fn name_runs(plan: &Plan, record: &SweepRecord, folder: &Path) -> Result<Vec<SweepRun>, Error> {
    let recorded = &record.runs;
    let mut n_cells = recorded.iter().map(|run| run.cell).max().unwrap_or(0);
    let known: BTreeMap<Flags, &SweepRun> =
        recorded.iter().map(|run| (canonical_flags(&run.flags), run)).collect();
    let mut cells: BTreeMap<Flags, usize> =
        recorded.iter().map(|run| (canonical_flags(&cell_of(&run.flags)), run.cell)).collect();
    let mut runs = Vec::new();
    for flags in plan.runs() {
        if let Some(run) = known.get(&canonical_flags(flags)) {
            runs.push((*run).clone());
            continue;
        }
        let cell = *cells.entry(canonical_flags(&cell_of(flags))).or_insert_with(|| {
            n_cells += 1;
            n_cells
        });
        runs.push(SweepRun { name: name_of(cell, flags), cell, flags: flags.clone() });
    }
    let names: BTreeSet<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    if let Some(run) = recorded.iter().find(|run| !names.contains(run.name.as_str())) {
        let differences = differences(plan, record, run);
        let folder = PathBuf::from(folder);
        let addable = if record.random.is_some() { "more trials and seeds" } else { "values and seeds" };
        return Err(Error::OtherSweep { folder, file: plan.file().to_owned(), differences, addable });
    }
    Ok(runs)
}

fn name_of(cell: usize, flags: &Flags) -> String {
    let seed = flags.get("seed").and_then(|seed| seed.parse::<u64>().ok()).unwrap_or(0);
    format!("cell-{cell:03}-seed-{seed}")
}

/// Names what differs in the search, and the flags with a recorded value that no run of the plan has; if there are none, the first run
/// that is missing.
fn differences(plan: &Plan, record: &SweepRecord, missing: &SweepRun) -> String {
    let recorded = &record.runs;
    let mut found = compare_searches(record.random.as_ref(), plan.search());
    let planned = || plan.runs().iter();
    let names: BTreeSet<&String> = recorded
        .iter()
        .flat_map(|run| run.flags.keys())
        .chain(planned().flat_map(|flags| flags.keys()))
        .collect();
    for name in names {
        let mut searches = [record.random.as_ref(), plan.search()].into_iter().flatten();
        // Drawn values follow from the search.
        if searches.any(|search| search.settings.contains_key(name)) {
            continue;
        }
        let then = values_of(recorded.iter().map(|run| &run.flags), name);
        let now = values_of(planned(), name);
        let now_canonical: Vec<String> = now.iter().map(|value| canonical_setting(value)).collect();
        if !then.iter().all(|value| now_canonical.contains(&canonical_setting(value))) {
            let change = describe_change(&format!("--{name}"), &list_values(&then), &list_values(&now));
            found.push(change + &advise_folder(name, &then, &now));
        }
    }
    if found.is_empty() {
        let settings = plan.settings(&missing.flags);
        return format!("{} with {settings} is missing", missing.name);
    }
    found.join(", ")
}

/// Returns the folder in which a relative path is the recorded one, to follow on the difference; empty if there is none.
fn advise_folder(name: &str, then: &[&str], now: &[&str]) -> String {
    let ([then], [now], true) = (then, now, PATHS.contains(&name)) else { return String::new() };
    let n_names = Path::new(now).components().count();
    let start = Path::new(then).ancestors().nth(n_names);
    match start.filter(|start| start.join(now) == Path::new(then) && Path::new(now).is_relative()) {
        Some(start) => format!(" (found from the folder {})", start.display()),
        None => String::new(),
    }
}

/// Returns the values of a flag, each once, in their order.
fn values_of<'a>(runs: impl Iterator<Item = &'a Flags>, name: &str) -> Vec<&'a str> {
    let mut values: Vec<&str> = Vec::new();
    for flags in runs {
        let value = flags.get(name).map_or("not set", String::as_str);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

/// Returns true if the folder is absent, or has at most a file that was not written completely.
fn is_empty(folder: &Path) -> Result<bool, Error> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        entries => entries.map_err(io_error(folder))?,
    };
    for entry in entries {
        let entry = entry.map_err(io_error(folder))?;
        if !entry.file_name().to_string_lossy().ends_with(UNFINISHED) {
            return Ok(false);
        }
    }
    Ok(true)
}
