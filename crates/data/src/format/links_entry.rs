//! The entry of links in the manifest of a heterogeneous set.

use std::path::Path;

use kiln_store::array_folder::{Entries, bad_entry, bad_key};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::graph_folder::{LINK_FILES, NEGATIVES, check_negative_entries};

/// The entry of links.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinksEntry {
    /// The name of the relation.
    pub(super) relation: String,
    /// The name of the relation that has the reverse of each link; `None` if there is none.
    pub(super) reverse: Option<String>,
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
