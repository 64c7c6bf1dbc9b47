use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use kiln_store::whole_file::{UNFINISHED, read_whole, write_whole};
use serde::{Deserialize, Serialize};

use crate::error::{Error, io_error};
use crate::plan::{Flags, Plan, cell_of};
use crate::sweep_file::canonical_value;

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
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SweepRecord {
    version: u32,
    runs: Vec<SweepRun>,
}

/// Reads the runs of the sweep in a folder; none if the folder is absent or empty.
pub(crate) fn read_record(folder: &Path) -> Result<Vec<SweepRun>, Error> {
    let path = folder.join(RECORD_FILE);
    let bytes = match read_whole(&path, MOST_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return if is_empty(folder)? {
                Ok(Vec::new())
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
        None => Ok(record.runs),
    }
}

pub(crate) fn write_record(folder: &Path, runs: &[SweepRun]) -> Result<(), Error> {
    let path = folder.join(RECORD_FILE);
    let record = SweepRecord { version: VERSION, runs: runs.to_vec() };
    let mut bytes = serde_json::to_vec_pretty(&record).map_err(|error| io_error(&path)(error.into()))?;
    bytes.push(b'\n');
    write_whole(&path, &bytes).map_err(io_error(&path))
}

/// Names the runs of a plan as they were recorded, and new ones with the next numbers.
///
/// # Errors
/// Returns [`Error::OtherSweep`] if a recorded run is not in the plan.
pub(crate) fn name_runs(plan: &Plan, recorded: &[SweepRun], folder: &Path) -> Result<Vec<SweepRun>, Error> {
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
        let differences = differences(plan, recorded, run);
        let folder = PathBuf::from(folder);
        return Err(Error::OtherSweep { folder, file: plan.file().to_owned(), differences });
    }
    Ok(runs)
}

fn name_of(cell: usize, flags: &Flags) -> String {
    let seed = flags.get("seed").and_then(|seed| seed.parse::<u64>().ok()).unwrap_or(0);
    format!("cell-{cell:03}-seed-{seed}")
}

/// Returns flags in a form in which equal ones are identical.
fn canonical_flags(flags: &Flags) -> Flags {
    flags.iter().map(|(flag, value)| (flag.clone(), canonical_value(value))).collect()
}

/// Names the flags with a recorded value that no run of the plan has; if there are none, the first run that is missing.
fn differences(plan: &Plan, recorded: &[SweepRun], missing: &SweepRun) -> String {
    let planned = || plan.runs().iter();
    let names: BTreeSet<&String> = recorded
        .iter()
        .flat_map(|run| run.flags.keys())
        .chain(planned().flat_map(|flags| flags.keys()))
        .collect();
    let mut found = Vec::new();
    for name in names {
        let then = values_of(recorded.iter().map(|run| &run.flags), name);
        let now = values_of(planned(), name);
        let now_canonical: Vec<String> = now.iter().map(|value| canonical_value(value)).collect();
        if !then.iter().all(|value| now_canonical.contains(&canonical_value(value))) {
            found.push(format!("--{name} was {} and is {} now", then.join(" or "), now.join(" or ")));
        }
    }
    if found.is_empty() {
        let settings = plan.settings(&missing.flags);
        return format!("{} with {settings} is not drawn any more", missing.name);
    }
    found.join(", ")
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
