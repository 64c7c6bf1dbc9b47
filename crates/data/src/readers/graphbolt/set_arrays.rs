//! The arrays of the sets of a task, and of other entries of `metadata.yaml`.

use std::path::{Path, PathBuf};

use kiln_store::yaml::YamlEntry;

use crate::{Error, Result};

/// The possible names of the array with the nodes of a set. The name depends on the version of GraphBolt.
pub(super) const SEEDS: [&str; 2] = ["seeds", "seed_nodes"];

/// The possible names of the array with the links or the edges of a set. The name depends on the version of GraphBolt.
pub(super) const PAIRS: [&str; 2] = ["seeds", "node_pairs"];

/// The name of the array with the labels of a set.
pub(super) const LABELS: &str = "labels";

/// Returns the path of the NumPy array that an entry with `format` and `path` refers to.
pub(super) fn numpy(folder: &Path, entry: &YamlEntry<'_>) -> Result<PathBuf> {
    let format = entry.require("format", "numpy")?;
    let path = folder.join(entry.require("path", "the name of a file")?.text()?);
    match format.text()? {
        "numpy" => Ok(path),
        "torch" => Err(Error::Unsupported {
            path,
            what: "a torch file, which only Python can read,".into(),
            instead: "save it with numpy.save and set `format: numpy` and its path in metadata.yaml".into(),
        }),
        _ => Err(format.bad("numpy").into()),
    }
}

/// Returns the path of the first array in a set's `data` that has one of these names.
pub(super) fn data(folder: &Path, set: &YamlEntry<'_>, names: &[&str]) -> Result<PathBuf> {
    match find_data(folder, set, names)? {
        Some(path) => Ok(path),
        None => {
            let all = set.require("data", "a list of files")?;
            Err(all.bad(format!("an entry called {}", names.join(" or "))).into())
        }
    }
}

/// Returns the path of the first array in a set's `data` that has one of these names, if there is one.
pub(super) fn find_data(folder: &Path, set: &YamlEntry<'_>, names: &[&str]) -> Result<Option<PathBuf>> {
    for data in set.require("data", "a list of files")?.list()? {
        if let Some(name) = data.get("name")?
            && names.contains(&name.text()?)
        {
            return numpy(folder, &data).map(Some);
        }
    }
    Ok(None)
}
