//! The nodes of the graph: one per binary package name.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use crate::control::{self, Stanza};
use crate::version;

/// The relation fields that become arcs. The type of an arc is the position of its field in this list.
pub(crate) const RELATIONS: [&str; 5] = ["Depends", "Pre-Depends", "Recommends", "Suggests", "Enhances"];

/// The folders that contain the packages of the component main: the first one for a release, the second one for the
/// release's security updates. The output of `apt-cache dumpavail` lists an update instead of the package in the
/// release.
const POOLS: [&str; 2] = ["pool/main/", "pool/updates/main/"];

/// The packages of an index. The position of a package is its node id.
#[derive(Debug)]
pub(crate) struct Packages {
    /// The packages, sorted by the bytes of their names.
    pub(crate) list: Vec<Package>,
    /// The numbers of stanzas in the index and of those that were left out.
    pub(crate) counts: Counts,
}

/// The number of stanzas, and the numbers of those that do not become nodes, by reason.
#[derive(Debug, Default, Clone, PartialEq, serde::Serialize)]
pub(crate) struct Counts {
    /// The number of stanzas in the index.
    pub(crate) stanzas: usize,
    /// The number of stanzas of architectures other than `amd64` and `all`.
    pub(crate) other_architecture: usize,
    /// The number of stanzas whose file is not in one of the [`POOLS`] and thus belongs to another component or
    /// repository.
    pub(crate) other_component: usize,
    /// The number of stanzas left out because another stanza of the package has a higher version, or has the same
    /// version and comes earlier.
    pub(crate) lower_version: usize,
}

/// The contents of a package's stanza.
#[derive(Debug)]
pub(crate) struct Package {
    /// The package's name.
    pub(crate) name: String,
    version: String,
    /// The name of the package's source package.
    pub(crate) source: String,
    /// The address of the package's maintainer in lower case, without the name; empty if the stanza states none.
    pub(crate) maintainer: String,
    /// The package's section, or `None` if the stanza states none.
    pub(crate) section: Option<String>,
    /// The first line of the description; empty if the package has no description.
    pub(crate) description: String,
    /// The package names in each relation field, in the order of [`RELATIONS`].
    pub(crate) relations: [Vec<String>; RELATIONS.len()],
    /// The virtual package names that the package provides.
    pub(crate) provides: Vec<String>,
    /// The package's Debtags, as `facet::tag`, in the order of the field; empty if the package is not tagged.
    pub(crate) tags: Vec<String>,
}

impl Packages {
    /// Parses an index. `Package`, `Version` and `Architecture` are required. A package without `Section` has no label,
    /// one without `Description` has no words, and one without `Source` is its own source.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let stanzas = control::parse(text)?;
        let mut counts = Counts { stanzas: stanzas.len(), ..Counts::default() };
        let mut by_name = BTreeMap::<String, Package>::new();
        for stanza in &stanzas {
            if !matches!(stanza.require("Architecture")?, "amd64" | "all") {
                counts.other_architecture += 1;
                continue;
            }
            if stanza.get("Filename").is_some_and(|file| !POOLS.iter().any(|pool| file.starts_with(pool))) {
                counts.other_component += 1;
                continue;
            }
            let package = Package::new(stanza)?;
            let known = by_name.get(&package.name);
            counts.lower_version += usize::from(known.is_some());
            if known
                .is_none_or(|known| version::compare(&package.version, &known.version) == Ordering::Greater)
            {
                by_name.insert(package.name.clone(), package);
            }
        }
        ensure!(
            !by_name.is_empty(),
            "none of the {} stanzas has the architecture amd64 or all and the component main",
            counts.stanzas
        );
        u32::try_from(by_name.len()).context("the number of packages exceeds the node ids of u32")?;
        Ok(Self { list: by_name.into_values().collect(), counts })
    }
}

impl Package {
    fn new(stanza: &Stanza) -> Result<Self> {
        let name = stanza.require("Package")?.to_owned();
        let source = stanza.get("Source").and_then(|value| control::relation_names(value).next());
        let description = stanza.get("Description").or_else(|| stanza.get("Description-en"));
        let names = |field: &str| match stanza.get(field) {
            Some(value) => control::relation_names(value).map(str::to_owned).collect(),
            None => Vec::new(),
        };
        Ok(Self {
            version: stanza.require("Version")?.to_owned(),
            source: source.unwrap_or(&name).to_owned(),
            maintainer: stanza.get("Maintainer").map_or_else(String::new, control::address),
            section: stanza.get("Section").map(str::to_owned),
            description: description.and_then(|value| value.lines().next()).unwrap_or_default().to_owned(),
            relations: RELATIONS.map(names),
            provides: names("Provides"),
            tags: stanza
                .get("Tag")
                .map_or_else(Vec::new, |value| control::tags(value).map(str::to_owned).collect()),
            name,
        })
    }
}
