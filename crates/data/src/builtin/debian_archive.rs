//! The built-in heterogeneous set `debian-archive`: packages, source packages, maintainers and Debtags.

use std::path::Path;
use std::sync::Arc;

use kiln_graph::{NodeId, NodeTypes, RelationEdges};
use kiln_store::check_count;
use serde::Deserialize;

use super::debian::{self, Arcs, load_arcs, load_features, load_names, load_split};
use super::debian_tags::{self, load_lists};
use super::read_manifest;
use crate::readers::files::Files;
use crate::{Dataset, NodeNames, Result};

/// The version of the files' format.
const FORMAT: u32 = 1;

/// The source of a package that has none.
const NO_SOURCE: u32 = u32::MAX;

static EMBEDDED: [(&str, &[u8]); 6] = embedded![
    "debian-archive":
    "manifest.json",
    "sources.npy.gz",
    "source_names.txt.gz",
    "maintainers.npy.gz",
    "labels.npy.gz",
    "split.npy.gz",
];

#[derive(Debug, Deserialize)]
struct Manifest {
    name: String,
    class_names: Vec<String>,
    counts: Counts,
}

#[derive(Debug, Deserialize)]
struct Counts {
    maintainers: usize,
}

#[derive(Debug, Deserialize)]
struct PackagesManifest {
    type_names: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct TagsManifest {
    tag_names: Vec<String>,
}

/// Returns the built-in heterogeneous set `debian-archive`: Debian 12 (bookworm) main/amd64 with 99,841 nodes of four
/// types and ten relations, five and their reverses.
///
/// | type | nodes | features | names |
/// |---|---|---|---|
/// | `package` | the 63,437 binary packages of [`debian_packages`](crate::debian_packages), in its order | its 128 columns | the packages' names |
/// | `source` | the 34,169 source packages from which they are built | none | the source packages' names |
/// | `maintainer` | the 2,105 maintainers of the source packages | none | none |
/// | `tag` | the 130 Debtags of [`debian_tags`](crate::debian_tags) | none | the tags |
///
/// | relation | edges | from each | to each |
/// |---|---|---|---|
/// | `depends` | 269,142 | package | package in its fields Depends and Pre-Depends |
/// | `recommends` | 52,431 | package | package in its fields Recommends and Suggests |
/// | `built-from` | 63,420 | package | source package from which it is built |
/// | `maintained-by` | 34,169 | source | maintainer |
/// | `tagged` | 97,684 | package | Debtag that it has |
///
/// - *Reverse relations*: `rev-depends`, `rev-recommends`, `rev-built-from`, `rev-maintained-by` and `rev-tagged` have the
///   same edges from destination to source, after these five. Messages flow from source to destination, so a source
///   package receives messages from its packages through `built-from` and from its maintainer through
///   `rev-maintained-by`.
/// - *Dependencies*: those of [`debian_packages`](crate::debian_packages), each pair of packages once per relation.
/// - *Targets*: the section of a source package, one of the 38 that at least 100 source packages have. It is the section
///   that most of its packages have. Packages in the sections debug, doc, introspection, libdevel, localization and
///   oldlibs do not count, because these sections describe the kind of a package and not its subject, unless the source
///   has no others. Among several sections, it is that of the package with the source's name, or else the first by name.
///   No feature is computed from a section, and no relation states one.
/// - *Split*: 60/20/20 % of the labelled source packages.
///
/// The files of this set add 0.3 MB to those of the two other sets, which are all embedded in the program. 17 packages
/// have no source, because the index from which the sources were read is newer than that of the packages; the manifest,
/// `crates/data/datasets/debian-archive/manifest.json`, describes it. A maintainer is an address, which is not stored.
///
/// # Errors
/// Returns an error only if the embedded files are damaged; see [`read_debian_archive`].
pub fn debian_archive() -> Result<Dataset> {
    load([&debian::EMBEDDED[..], &debian_tags::EMBEDDED, &EMBEDDED].map(Files::Embedded))
}

/// Reads a set like [`debian_archive`] from three folders that the generator in `xtask/debian-packages` wrote: one with
/// the packages, one with their tags, and one with their sources and maintainers.
///
/// Counts and ranges are checked; the manifests' hashes are not.
///
/// # Errors
/// Returns the errors of [`read_debian_packages`](crate::read_debian_packages), for each folder, and those of
/// [`DatasetBuilder::build`](crate::DatasetBuilder::build).
pub fn read_debian_archive(
    packages: impl AsRef<Path>,
    tags: impl AsRef<Path>,
    archive: impl AsRef<Path>,
) -> Result<Dataset> {
    load([packages.as_ref(), tags.as_ref(), archive.as_ref()].map(Files::Folder))
}

/// Edges between the nodes of two types, numbered within the types.
#[derive(Default)]
struct Pairs {
    srcs: Vec<u32>,
    dsts: Vec<u32>,
}

impl Pairs {
    fn push(&mut self, src: u32, dst: u32) {
        self.srcs.push(src);
        self.dsts.push(dst);
    }
}

/// The source packages: their names, their packages and their maintainers.
struct Sources {
    names: NodeNames,
    /// The edges from packages to sources.
    built_from: Pairs,
    /// The edges from sources to maintainers.
    maintained_by: Pairs,
}

fn load([packages, tags, archive]: [Files<'_>; 3]) -> Result<Dataset> {
    let manifest: Manifest = read_manifest(&archive, FORMAT)?;
    let fields = read_manifest::<PackagesManifest>(&packages, debian::FORMAT)?.type_names;
    let tag_names = read_manifest::<TagsManifest>(&tags, debian_tags::FORMAT)?.tag_names;
    let package_names = load_names(&packages, "names.txt.gz")?;
    let n_packages = package_names.len();
    let n_maintainers = manifest.counts.maintainers;
    let sources = load_sources(&archive, n_packages, n_maintainers)?;
    let n_sources = sources.names.len();

    let labels: Vec<i8> = archive.read_npy("labels.npy.gz")?;
    check_count("labels.npy.gz", "the number of sources", n_sources, labels.len())?;
    let labels: Vec<i32> = labels.into_iter().map(i32::from).collect();
    let [train, val, test] = load_split(&archive, &labels)?;

    let arcs = load_arcs(&packages, fields.len())?;
    let mut tagged = Pairs::default();
    for (package, tags) in load_lists(&tags, n_packages, tag_names.len())?.iter() {
        tags.iter().for_each(|&tag| tagged.push(package, u32::from(tag)));
    }
    let relations = [
        ("depends", "package", "package", pairs_of(&arcs, &fields, ["Depends", "Pre-Depends"])),
        ("recommends", "package", "package", pairs_of(&arcs, &fields, ["Recommends", "Suggests"])),
        ("built-from", "package", "source", sources.built_from),
        ("maintained-by", "source", "maintainer", sources.maintained_by),
        ("tagged", "package", "tag", tagged),
    ];
    let reverse_names = relations.each_ref().map(|(name, ..)| format!("rev-{name}"));
    let types = NodeTypes::new([
        ("package", n_packages),
        ("source", n_sources),
        ("maintainer", n_maintainers),
        ("tag", tag_names.len()),
    ])?;
    let mut builder = Dataset::builder_with_types(types).name(manifest.name);
    for (name, src_type, dst_type, Pairs { srcs, dsts }) in &relations {
        builder = builder.relation(RelationEdges::new(name, src_type, dst_type, srcs, dsts));
    }
    for ((_, src_type, dst_type, Pairs { srcs, dsts }), name) in relations.iter().zip(&reverse_names) {
        let (src_type, dst_type, srcs, dsts) = (dst_type, src_type, dsts, srcs);
        builder = builder.relation(RelationEdges::new(name, src_type, dst_type, srcs, dsts));
    }
    builder
        .nodes("package")
        .feature_store(Arc::new(load_features(&packages, n_packages)?))
        .node_names(all(&package_names))
        .nodes("tag")
        .node_names(tag_names.iter().map(String::as_str))
        .nodes("source")
        .node_names(all(&sources.names))
        .labels(labels, manifest.class_names.len())
        .split(train, val, test)
        .class_names(manifest.class_names)
        .build()
}

fn load_sources(files: &Files<'_>, n_packages: usize, n_maintainers: usize) -> Result<Sources> {
    let names = load_names(files, "source_names.txt.gz")?;
    let sources: Vec<u32> = files.read_npy("sources.npy.gz")?;
    check_count("sources.npy.gz", "the number of packages", n_packages, sources.len())?;
    let maintainers: Vec<u32> = files.read_npy("maintainers.npy.gz")?;
    check_count("maintainers.npy.gz", "the number of sources", names.len(), maintainers.len())?;
    let (mut built_from, mut maintained_by) = (Pairs::default(), Pairs::default());
    for (package, &source) in (0..).zip(&sources).filter(|&(_, &source)| source != NO_SOURCE) {
        if names.len() <= source as usize {
            let last = names.len().saturating_sub(1);
            check_count("sources.npy.gz", "an out-of-range source id", last, source as usize)?;
        }
        built_from.push(package, source);
    }
    // Each maintainer has a source, so the ids determine their number.
    let n_found = maintainers.iter().max().map_or(0, |&last| last as usize + 1);
    check_count("maintainers.npy.gz", "the number of maintainers", n_maintainers, n_found)?;
    for (source, &maintainer) in (0..).zip(&maintainers) {
        maintained_by.push(source, maintainer);
    }
    Ok(Sources { names, built_from, maintained_by })
}

/// Returns the edges of these fields. Two packages that both fields relate have one edge.
fn pairs_of(arcs: &Arcs, fields: &[String], kept: [&str; 2]) -> Pairs {
    let is_kept: Vec<bool> = fields.iter().map(|field| kept.contains(&field.as_str())).collect();
    let edges = arcs.srcs.iter().zip(&arcs.dsts).zip(&arcs.types);
    let mut edges: Vec<(u32, u32)> =
        edges.filter(|(_, ty)| is_kept[usize::from(**ty)]).map(|((&src, &dst), _)| (src, dst)).collect();
    edges.sort_unstable();
    edges.dedup();
    let (srcs, dsts) = edges.into_iter().unzip();
    Pairs { srcs, dsts }
}

fn all(names: &NodeNames) -> impl Iterator<Item = &str> {
    (0..names.len() as u32).filter_map(|node| names.get(NodeId(node)))
}
