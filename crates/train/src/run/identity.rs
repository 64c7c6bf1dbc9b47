use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The settings and the data that a run's results depend on. A run can resume only from a checkpoint with an equal
/// identity.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunIdentity {
    /// All settings that the result depends on, by name. They include the batch size of all ranks together, but not the
    /// number of ranks if uneven steps are shared by [`UnevenShards::Join`](kiln_loader::UnevenShards::Join).
    pub settings: BTreeMap<String, String>,
    /// The hash of the dataset.
    pub data_hash: String,
}

/// Checks that a checkpoint belongs to this run.
///
/// # Errors
/// Returns [`Error::OtherRun`] with the first difference.
pub(crate) fn check_identity(checkpoint: &RunIdentity, run: &RunIdentity) -> Result<()> {
    let differs = |name: &str, then: &str, now: &str| {
        let [name, then, now] = [name, then, now].map(str::to_owned);
        Err(Error::OtherRun { name, then, now })
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
