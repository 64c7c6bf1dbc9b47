use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What makes two runs the same run, so that one may go on where the other stopped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunIdentity {
    /// All settings that the result depends on, by name. The batch of all ranks together is one of them,
    /// the number of ranks is not, where items are shared out by
    /// [`UnevenShards::Join`](kiln_loader::UnevenShards::Join).
    pub settings: BTreeMap<String, String>,
    /// Hash of the data.
    pub data_hash: String,
}

/// Checks that a checkpoint is of this run.
///
/// # Errors
/// [`Error::OtherRun`] with what differs first.
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

/// What two runs must have in common for one to go on from the other's checkpoint, by name.
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
