//! The files of a data set: `.npy.gz` arrays, the node names, and a manifest.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use kiln_store::npy;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::arcs::{Arcs, MAX_PROVIDERS};
use crate::features::Features;
use crate::labels::{Labels, PARTS};
use crate::packages::{Counts, Packages, RELATIONS};
use crate::rules::Rules;

/// The version of the file format. Readers reject other versions.
const FORMAT: u32 = 1;

/// The data set `debian-packages`, with all its arrays.
#[derive(Debug)]
pub(crate) struct DataSet {
    pub(crate) origin: String,
    pub(crate) distribution: &'static str,
    pub(crate) rules: Rules,
    pub(crate) packages: Packages,
    pub(crate) arcs: Arcs,
    pub(crate) labels: Labels,
    pub(crate) features: Features,
}

#[derive(Debug, Serialize)]
struct Manifest<'a> {
    format: u32,
    name: &'static str,
    source: Source<'a>,
    counts: BTreeMap<&'static str, usize>,
    split_counts: BTreeMap<&'static str, usize>,
    class_names: &'a [String],
    type_names: [&'static str; RELATIONS.len()],
    notes: BTreeMap<&'static str, String>,
    /// The SHA-256 of each file's decompressed bytes, which do not depend on the compressor, by file name.
    sha256: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct Source<'a> {
    taken_from: &'a str,
    distribution: &'static str,
    component: &'static str,
    architecture: &'static str,
    #[serde(flatten)]
    stanzas: &'a Counts,
}

impl DataSet {
    /// Returns the uncompressed bytes of each file except the manifest, by file name without `.gz`.
    pub(crate) fn contents(&self) -> BTreeMap<&'static str, Vec<u8>> {
        let (n_nodes, n_words) = (self.packages.list.len(), self.features.idf.len());
        let names = self.packages.list.iter().fold(String::new(), |all, package| all + &package.name + "\n");
        let by_word = [n_words, self.features.n_columns];
        BTreeMap::from([
            ("names.txt", names.into_bytes()),
            ("src.npy", npy::write(&self.arcs.srcs, &[self.arcs.srcs.len()])),
            ("dst.npy", npy::write(&self.arcs.dsts, &[self.arcs.dsts.len()])),
            ("edge_types.npy", npy::write(&self.arcs.types, &[self.arcs.types.len()])),
            ("labels.npy", npy::write(&self.labels.classes, &[n_nodes])),
            ("split.npy", npy::write(&self.labels.parts, &[n_nodes])),
            ("word_indptr.npy", npy::write(&self.features.word_indptr, &[n_nodes + 1])),
            ("words.npy", npy::write(&self.features.words, &[self.features.words.len()])),
            ("idf.npy", npy::write(&self.features.idf, &[n_words])),
            ("word_vectors.npy", npy::write(&self.features.word_vectors, &by_word)),
            ("scales.npy", npy::write(&self.features.scales, &[n_words])),
        ])
    }

    /// Writes all files to a folder, and creates it if necessary.
    pub(crate) fn write(&self, out: &Path) -> Result<()> {
        write_files(out, self.contents(), |sha256| self.manifest(sha256))
    }

    fn manifest(&self, sha256: BTreeMap<String, String>) -> Manifest<'_> {
        Manifest {
            format: FORMAT,
            name: "debian-packages",
            source: Source {
                taken_from: &self.origin,
                distribution: self.distribution,
                component: "main",
                architecture: "amd64",
                stanzas: &self.packages.counts,
            },
            counts: BTreeMap::from([
                ("arcs", self.arcs.srcs.len()),
                ("classes", self.labels.class_names.len()),
                ("feature_columns", self.features.n_columns),
                ("labelled_nodes", self.labels.part_counts().iter().sum()),
                ("max_degree", self.arcs.max_degree(self.packages.list.len())),
                ("nodes", self.packages.list.len()),
                ("words", self.features.idf.len()),
            ]),
            split_counts: PARTS.into_iter().zip(self.labels.part_counts()).collect(),
            class_names: &self.labels.class_names,
            type_names: RELATIONS,
            notes: self.notes(),
            sha256,
        }
    }

    fn notes(&self) -> BTreeMap<&'static str, String> {
        let Rules { min_packages, min_sources, min_documents, n_columns, .. } = self.rules;
        let arcs = format!(
            "src is the package with the field, dst the package named; all alternatives; a name that is no \
             package stands for its providers if there are at most {MAX_PROVIDERS}; no self loops; each \
             (src, dst, type) once, ascending"
        );
        let features = format!(
            "row v = sum over words w of v of idf[w] * scales[w] * word_vectors[w], over the Euclidean norm \
             of those idf[w]: the leading {n_columns} columns of the truncated SVD of the TF-IDF matrix of \
             the first line of the description; words are runs of at least two of [a-z0-9+#] in lower \
             case, in at least {min_documents} lines, once a line"
        );
        let labels = format!(
            "the section, if it has at least {min_packages} packages from at least {min_sources} source \
             packages; -1 otherwise"
        );
        let split = "0 train, 1 val, 2 test, 255 without label; 60/20/20 of the labelled nodes by source \
                     package, in the order of the SHA-256 of the source packages' names";
        BTreeMap::from([
            ("arcs", arcs),
            ("features", features),
            ("labels", labels),
            ("split", split.to_owned()),
        ])
    }

    /// Returns a table with the counts of the data set.
    pub(crate) fn summary(&self) -> String {
        let counts = &self.packages.counts;
        let n_nodes = self.packages.list.len();
        let [train, val, test] = self.labels.part_counts();
        let mut text = String::new();
        let mut line = |label: &str, value: String| {
            writeln!(text, "{label:<26}{value}").expect("writing to a string should not fail")
        };
        line("stanzas", counts.stanzas.to_string());
        line("left out, architecture", counts.other_architecture.to_string());
        line("left out, component", counts.other_component.to_string());
        line("left out, lower version", counts.lower_version.to_string());
        line("nodes", n_nodes.to_string());
        line("arcs", self.arcs.srcs.len().to_string());
        line("largest degree", self.arcs.max_degree(n_nodes).to_string());
        line("classes", self.labels.class_names.len().to_string());
        line("labelled nodes", (train + val + test).to_string());
        line("train / val / test", format!("{train} / {val} / {test}"));
        line("words", self.features.idf.len().to_string());
        line("majority-class accuracy", format!("{:.4}", self.labels.majority_accuracy()));
        text
    }
}

/// Reads the names of the nodes of a data set, one per line.
pub(crate) fn read_names(folder: &Path) -> Result<String> {
    let path = folder.join("names.txt.gz");
    let file = fs::File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut names = String::new();
    let read = GzDecoder::new(file).read_to_string(&mut names);
    read.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(names)
}

/// Writes files to a folder, compressed, and their manifest; creates the folder if necessary. `manifest` gets the
/// SHA-256 of each file's decompressed bytes.
pub(crate) fn write_files<M: Serialize>(
    out: &Path,
    contents: BTreeMap<&'static str, Vec<u8>>,
    manifest: impl FnOnce(BTreeMap<String, String>) -> M,
) -> Result<()> {
    fs::create_dir_all(out)?;
    let mut sha256 = BTreeMap::new();
    for (name, bytes) in contents {
        let file = format!("{name}.gz");
        fs::write(out.join(&file), gzip(&bytes)?).with_context(|| format!("cannot write {file}"))?;
        sha256.insert(file, hex(&Sha256::digest(&bytes)));
    }
    let manifest = serde_json::to_string_pretty(&manifest(sha256))?;
    fs::write(out.join("manifest.json"), manifest + "\n").context("cannot write manifest.json")
}

/// Compresses with gzip, without a time stamp, file name or operating system, so that the output is reproducible.
fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// Returns bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
