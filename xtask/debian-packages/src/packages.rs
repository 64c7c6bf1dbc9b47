//! The nodes: one for each binary package name.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use crate::control::{self, Stanza};
use crate::version;

/// The relation fields that are arcs; an arc's type is the position here.
pub(crate) const RELATIONS: [&str; 5] = ["Depends", "Pre-Depends", "Recommends", "Suggests", "Enhances"];

/// Where the files of the component main are: those of a release, and those of its security updates,
/// which take the place of the release's in what `apt-cache dumpavail` prints.
const POOLS: [&str; 2] = ["pool/main/", "pool/updates/main/"];

/// The packages in order of their names (by bytes); a package's position is its node id.
#[derive(Debug)]
pub(crate) struct Packages {
    /// The packages.
    pub(crate) list: Vec<Package>,
    /// What was read and what was left out.
    pub(crate) counts: Counts,
}

/// How many stanzas there were, and how many of them are no node, by reason.
#[derive(Debug, Default, Clone, PartialEq, serde::Serialize)]
pub(crate) struct Counts {
    /// Stanzas of the index.
    pub(crate) stanzas: usize,
    /// Left out: neither `amd64` nor `all`.
    pub(crate) other_architecture: usize,
    /// Left out: the file is under none of the [`POOLS`], so it is of another component or repository.
    pub(crate) other_component: usize,
    /// Left out: the same package stands there in a higher version, or the same one further up.
    pub(crate) lower_version: usize,
}

/// What one package's stanza says.
#[derive(Debug)]
pub(crate) struct Package {
    /// The package's name.
    pub(crate) name: String,
    version: String,
    /// The source package that it is built from.
    pub(crate) source: String,
    /// Its section, if it has one.
    pub(crate) section: Option<String>,
    /// The first line of its description; empty if it has none.
    pub(crate) description: String,
    /// The names in each of the [`RELATIONS`].
    pub(crate) relations: [Vec<String>; RELATIONS.len()],
    /// The names that it provides.
    pub(crate) provides: Vec<String>,
}

impl Packages {
    /// Reads an index. `Package`, `Version` and `Architecture` must be there; a package without `Section`
    /// has no label, one without `Description` no words, one without `Source` is its own source.
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
        ensure!(!by_name.is_empty(), "no package in {} stanzas", counts.stanzas);
        u32::try_from(by_name.len()).context("more packages than node ids")?;
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
            section: stanza.get("Section").map(str::to_owned),
            description: description.and_then(|value| value.lines().next()).unwrap_or_default().to_owned(),
            relations: RELATIONS.map(names),
            provides: names("Provides"),
            name,
        })
    }
}
