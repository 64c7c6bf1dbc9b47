//! The entries of links in the manifest of a set.

use std::path::Path;

use kiln_store::array_folder::{Entries, bad_entry, bad_key, missing_entry};
use serde::{Deserialize, Serialize};

use crate::graph_folder::{
    LINK_FILES, LINK_VALUES, NEGATIVES, check_class_names, check_negative_entries, class_names_of,
    class_names_to_write,
};
use crate::{LinkTargets, Result};

/// The entry of links.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinksEntry {
    /// The name of the relation.
    pub(super) relation: String,
    /// The name of the relation that has the reverse of each link; `None` if there is none.
    pub(super) reverse: Option<String>,
}

/// The entry of the target values of links.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkTargetsEntry {
    /// The number of classes, or of columns of labels or numbers.
    pub(super) n_classes: usize,
    /// The names of the classes or columns, by number; empty if they have no names.
    pub(super) class_names: Vec<String>,
}

impl LinkTargetsEntry {
    /// Returns the entry of links; `None` if they have no target values.
    pub(super) fn describe(links: &LinkTargets) -> Option<Self> {
        let n_classes = links.values()?.n_outputs();
        Some(Self { n_classes, class_names: class_names_to_write(links.class_names(), n_classes) })
    }

    /// Returns the number and the names of the outputs.
    pub(super) fn outputs(&self) -> (usize, Vec<String>) {
        (self.n_classes, class_names_of(self.class_names.clone(), self.n_classes))
    }
}

/// Checks the entry of the target values of links: that its counts are consistent, that there are files of values if and only if
/// there is an entry, and that values and features belong to links.
pub(super) fn check_link_targets(
    path: &Path,
    entry: Option<&LinkTargetsEntry>,
    files: &Entries,
) -> Result<()> {
    let [labels, values, features, times] = LINK_VALUES;
    let has = |name: &str| files.contains_key(name);
    let Some(LinkTargetsEntry { n_classes, class_names }) = entry else {
        if let Some(name) = [labels, values].into_iter().find(|name| has(name)) {
            let expected = "no entry, because link_targets is absent";
            return Err(bad_entry(path, name, "", expected, "an entry").into());
        }
        check_has_links(path, features, files)?;
        return check_has_links(path, times, files);
    };
    check_class_names(path, None, *n_classes, class_names)?;
    if has(labels) && has(values) {
        return Err(bad_key(path, "files", format!("{labels} or {values}"), "both").into());
    }
    if has(values) && *n_classes == 0 {
        let expected = format!("at least 1, the number of columns of {values}");
        return Err(bad_key(path, "link_targets.n_classes", expected, 0).into());
    }
    for name in LINK_VALUES {
        check_has_links(path, name, files)?;
    }
    Ok(())
}

/// Checks that a file of values of links does not stand without links.
fn check_has_links(path: &Path, name: &str, files: &Entries) -> Result<()> {
    match files.contains_key(name) && !files.contains_key(LINK_FILES[0]) {
        true => Err(missing_entry(path, LINK_FILES[0]).into()),
        false => Ok(()),
    }
}

/// Returns the number of links that the entries state.
pub(super) fn n_links(files: &Entries) -> usize {
    files.get(LINK_FILES[0]).and_then(|entry| entry.shape.first().copied()).unwrap_or(0)
}

/// Checks the entry of links, given the name and the types of each relation, and that there are files of links if the set has links.
pub(super) fn check_links(
    path: &Path,
    links: Option<&LinksEntry>,
    relations: &[(&str, [&str; 2])],
    files: &Entries,
) -> Result<()> {
    let Some(LinksEntry { relation, reverse }) = links else {
        let mut names = LINK_FILES.iter().chain(NEGATIVES.as_flattened());
        return match names.find(|name| files.contains_key(**name)) {
            Some(name) => {
                Err(bad_entry(path, name, "", "no entry, because links is absent", "an entry").into())
            }
            None => Ok(()),
        };
    };
    let find = |key: &str, name: &str| {
        let found = relations.iter().find(|(other, _)| *other == name).map(|(_, types)| *types);
        found.ok_or_else(|| bad_key(path, key, "the name of a relation", format!("{name:.60?}")))
    };
    let [src_type, dst_type] = find("links.relation", relation)?;
    if let Some(name) = reverse
        && find("links.reverse", name)? != [dst_type, src_type]
    {
        let expected = format!("a relation from {dst_type} to {src_type}");
        return Err(bad_key(path, "links.reverse", expected, format!("{name:.60?}")).into());
    }
    check_negative_entries(path, files)
}
