use std::collections::BTreeMap;
use std::path::Path;

use kiln_store::whole_file::read_whole;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, RunError};
use crate::run::data_hash::DataHash;
use crate::saved::info::{ModelInfo, ModelInputs};
use crate::saved::model_file::{MODEL_FILE, MOST_MODEL_BYTES};
use crate::saved::named_targets::has_names;

/// The settings and the data that a run's results depend on. A run can resume only from a checkpoint with an equal
/// identity.
#[derive(Debug, Clone, Default)]
pub struct RunIdentity {
    /// All settings that the result depends on, by name. They include the batch size of all ranks together, but not the
    /// number of ranks if uneven steps are shared by [`UnevenShards::Join`](kiln_loader::UnevenShards::Join).
    pub settings: BTreeMap<String, String>,
    /// The hash of the dataset. Ranks whose data is read by another rank of their process may have an empty one.
    pub data_hash: DataHash,
}

/// The identity that a checkpoint records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedIdentity {
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) data_hash: String,
}

/// The setting by which earlier versions of a program with flags named it. They recorded flags instead of settings.
const PROGRAM: &str = "the program";

/// Checks that a checkpoint belongs to this run.
///
/// # Errors
/// Returns [`RunError::RunOfEarlierVersion`] for a checkpoint that records flags, and [`RunError::OtherRun`] with the first
/// difference.
pub(crate) fn check_identity(checkpoint: &RecordedIdentity, run: &RecordedIdentity) -> Result<()> {
    if let Some(program) = checkpoint.settings.get(PROGRAM).filter(|_| !run.settings.contains_key(PROGRAM)) {
        return Err(Error::Run(RunError::RunOfEarlierVersion { program: program.clone() }));
    }
    let differs = |name: &str, then: &str, now: &str| {
        let [name, then, now] = [name, then, now].map(str::to_owned);
        Err(Error::Run(RunError::OtherRun { name, then, now }))
    };
    if let Some((name, then, now)) = differences(&checkpoint.settings, &run.settings) {
        return differs(name, then, now);
    }
    match checkpoint.data_hash == run.data_hash {
        true => Ok(()),
        false => differs("the hash of the data", &checkpoint.data_hash, &run.data_hash),
    }
}

/// Returns the first setting that differs: its name, and its value in the checkpoint and in the run.
fn differences<'a>(
    checkpoint: &'a BTreeMap<String, String>,
    run: &'a BTreeMap<String, String>,
) -> Option<(&'a str, &'a str, &'a str)> {
    let names = checkpoint.keys().chain(run.keys());
    let mut pairs = names.map(|name| (name, checkpoint.get(name), run.get(name)));
    let (name, then, now) = pairs.find(|(_, then, now)| then != now)?;
    let text = |value: Option<&'a String>| value.map_or("not set", String::as_str);
    Some((name, text(then), text(now)))
}

/// Compares the names of classes, feature columns and edge types of a run that resumes in this folder with those of its earlier
/// part, which `model.json` records: the hash of the data does not include them. Names that only the earlier part had are kept in
/// `model`. Returns false if the file is missing or damaged, so that nothing can be compared.
///
/// # Errors
/// Returns [`RunError::OtherRun`] with the first difference.
pub(crate) fn compare_names(folder: &Path, model: &mut ModelInfo) -> Result<bool> {
    let path = folder.join(MODEL_FILE);
    let earlier =
        read_whole(&path, MOST_MODEL_BYTES).ok().and_then(|bytes| ModelInfo::parse(&bytes, &path).ok());
    let Some(earlier) = earlier else { return Ok(false) };
    let ModelInputs { class_names, feature_columns, sampling, .. } = earlier.inputs;
    let now = &mut model.inputs;
    // The numbers from 0 on are no names.
    if has_names(&class_names) {
        if !has_names(&now.class_names) {
            now.class_names.clear();
        }
        keep_names("the names of the classes or targets", class_names, &mut now.class_names, String::clone)?;
    }
    for (node_type, columns) in feature_columns {
        let what = format!("the feature columns of {node_type}");
        let now = now.feature_columns.entry(node_type).or_default();
        keep_names(&what, columns, now, |column| format!("{} ({})", column.name, column.meaning))?;
    }
    if let (Some(earlier), Some(now)) = (sampling, &mut now.sampling) {
        let edge_types = &mut now.edge_type_names;
        keep_names("the names of the edge types", earlier.edge_type_names, edge_types, String::clone)?;
    }
    Ok(true)
}

/// Checks that two lists are equal, and keeps the earlier list if there is no other.
fn keep_names<T: PartialEq>(
    what: &str,
    then: Vec<T>,
    now: &mut Vec<T>,
    text: impl Fn(&T) -> String,
) -> Result<()> {
    if now.is_empty() {
        *now = then;
        return Ok(());
    }
    if then.is_empty() || then == *now {
        return Ok(());
    }
    let [then, now] = [&then, now].map(|list| list.iter().map(&text).collect::<Vec<_>>().join(", "));
    Err(Error::Run(RunError::OtherRun { name: what.to_owned(), then, now }))
}
