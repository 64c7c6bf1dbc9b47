//! The built-in data set `debian-packages`.

use std::path::Path;
use std::sync::Arc;

use kiln_feature::{DenseFeatures, Labels};
use kiln_graph::{Csc, CscBuilder, NodeId, SharedArray};
use kiln_store::Error as StoreError;
use kiln_store::check_count;
use serde::Deserialize;

use super::read_manifest;
use crate::readers::files::Files;
use crate::{Dataset, DatasetTargets, NodeNames, Result, Split};

/// The version of the files' format.
pub(super) const FORMAT: u32 = 1;

pub(super) static EMBEDDED: [(&str, &[u8]); 12] = embedded![
    "debian-packages":
    "manifest.json",
    "names.txt.gz",
    "src.npy.gz",
    "dst.npy.gz",
    "edge_types.npy.gz",
    "labels.npy.gz",
    "split.npy.gz",
    "word_indptr.npy.gz",
    "words.npy.gz",
    "idf.npy.gz",
    "word_vectors.npy.gz",
    "scales.npy.gz",
];

#[derive(Debug, Deserialize)]
struct Manifest {
    name: String,
    class_names: Vec<String>,
    type_names: Vec<String>,
}

/// Returns the built-in set `debian-packages`: the 63,437 binary packages of Debian 12 (bookworm) main/amd64.
///
/// - *Graph*: an edge from each package to each package that is named in its fields Depends, Pre-Depends, Recommends,
///   Suggests and Enhances. The field determines the edge type, 0 to 4 in this order. The reverse of each edge has the
///   type of the edge plus 5: dependencies in both directions are informative about a package's section. Packages
///   related by two fields have two edges in each direction. All alternatives of a dependency have an edge; a virtual
///   package is replaced by its providers if there are at most 3.
/// - *Labels*: the package's section, if it is one of the 49 that have at least 100 packages from at least 40 source
///   packages.
/// - *Features*: 128 columns of latent semantic analysis of the first line of the description, and of no other field. A
///   line without known words gives zeros.
/// - *Split*: 60/20/20 % of the labelled packages; all packages of one source package are in the same part.
/// - *Names*: the packages' names, ascending; a node's id is the position of its name.
///
/// The set is embedded in the program (2.5 MB, compressed) and decompressed by each call. The manifest,
/// `crates/data/datasets/debian-packages/manifest.json`, describes its sources and how it was generated.
///
/// # Errors
/// Returns an error only if the embedded files are damaged; see [`read_debian_packages`].
pub fn debian_packages() -> Result<Dataset> {
    load(Files::Embedded(&EMBEDDED))
}

/// Reads a set like [`debian_packages`] from a folder that the generator in `xtask/debian-packages` wrote.
///
/// Counts and ranges are checked; the manifest's hashes are not.
///
/// # Errors
/// Returns [`kiln_store::Error::Io`], [`kiln_store::Error::Npy`] or [`kiln_store::Error::Manifest`] if a file is
/// missing or invalid, [`kiln_store::Error::Format`] if it has another version, and
/// [`kiln_store::Error::Inconsistent`], [`Error::Graph`](crate::Error::Graph) or
/// [`Error::Feature`](crate::Error::Feature) if the arrays are inconsistent.
pub fn read_debian_packages(folder: impl AsRef<Path>) -> Result<Dataset> {
    load(Files::Folder(folder.as_ref()))
}

fn load(files: Files<'_>) -> Result<Dataset> {
    let manifest: Manifest = read_manifest(&files, FORMAT)?;
    let names = load_names(&files, "names.txt.gz")?;
    let n_nodes = names.len();
    let labels: Vec<i8> = files.read_npy("labels.npy.gz")?;
    check_count("labels.npy.gz", "the number of nodes", n_nodes, labels.len())?;
    let labels: Vec<i32> = labels.into_iter().map(i32::from).collect();
    let [train, val, test] =
        load_split(&files, &labels)?.map(|nodes| nodes.into_iter().map(NodeId).collect::<SharedArray<_>>());
    let labels = Labels::new(labels, manifest.class_names.len());
    labels.validate()?;
    let targets = DatasetTargets {
        node_type: 0,
        values: labels.into(),
        split: Split { train, val, test },
        class_names: manifest.class_names,
    };
    let reversed = manifest.type_names.iter().map(|name| format!("{name} (reversed)"));
    let graph = load_graph(&files, n_nodes, manifest.type_names.len())?;
    let features = Arc::new(load_features(&files, n_nodes)?);
    Ok(Dataset {
        edge_type_names: manifest.type_names.iter().cloned().chain(reversed).collect(),
        names: vec![Arc::new(names)],
        ..Dataset::homogeneous(manifest.name, graph, features, targets)
    })
}

/// Returns the names in a file, one per line.
pub(super) fn load_names(files: &Files<'_>, file: &'static str) -> Result<NodeNames> {
    let text = String::from_utf8(files.read_gz(file)?).map_err(|source| StoreError::Io {
        path: files.path(file),
        source: std::io::Error::new(std::io::ErrorKind::InvalidData, source),
    })?;
    Ok(NodeNames::new(text.lines()))
}

/// The edges of the packages, from the package with a field to the package that the field names.
pub(super) struct Arcs {
    pub(super) srcs: Vec<u32>,
    pub(super) dsts: Vec<u32>,
    /// The field of each edge, as a position in the manifest's `type_names`.
    pub(super) types: Vec<u8>,
}

/// Returns the edges, whose types are less than `n_types`.
pub(super) fn load_arcs(files: &Files<'_>, n_types: usize) -> Result<Arcs> {
    let srcs: Vec<u32> = files.read_npy("src.npy.gz")?;
    let dsts: Vec<u32> = files.read_npy("dst.npy.gz")?;
    let types: Vec<u8> = files.read_npy("edge_types.npy.gz")?;
    check_count("dst.npy.gz", "the number of edges", srcs.len(), dsts.len())?;
    check_count("edge_types.npy.gz", "the number of edges", srcs.len(), types.len())?;
    let largest = types.iter().map(|&ty| usize::from(ty) + 1).max().unwrap_or(0);
    if largest > n_types || n_types > 128 {
        check_count("edge_types.npy.gz", "the number of types", n_types, largest)?;
    }
    Ok(Arcs { srcs, dsts, types })
}

/// Returns the graph with both directions of each edge. The type of a reverse edge is the type of its edge plus
/// `n_types`.
fn load_graph(files: &Files<'_>, n_nodes: usize, n_types: usize) -> Result<Csc> {
    let Arcs { srcs, dsts, types } = load_arcs(files, n_types)?;
    let builder = CscBuilder::new(n_nodes).symmetrize().edge_types(&types).reverse_type_offset(n_types as u8);
    Ok(builder.build(&srcs, &dsts)?)
}

/// Returns the nodes of the training, validation and test split. Each of them has a label.
pub(super) fn load_split(files: &Files<'_>, labels: &[i32]) -> Result<[Vec<u32>; 3]> {
    const NO_PART: u8 = 255;
    let parts: Vec<u8> = files.read_npy("split.npy.gz")?;
    check_count("split.npy.gz", "the number of nodes", labels.len(), parts.len())?;
    let mut split = [const { Vec::new() }; 3];
    for (node, (&part, &label)) in parts.iter().zip(labels).enumerate() {
        let members = match part {
            0..3 => &mut split[usize::from(part)],
            NO_PART => continue,
            other => {
                return Err(StoreError::Inconsistent {
                    file: "split.npy.gz".into(),
                    what: "a node's part",
                    expected: u64::from(NO_PART),
                    got: u64::from(other),
                }
                .into());
            }
        };
        if label < 0 {
            check_count(
                "split.npy.gz",
                "the part of an unlabelled node",
                usize::from(NO_PART),
                usize::from(part),
            )?;
        }
        members.push(node as u32);
    }
    Ok(split)
}

/// The words in each node's description, and the vectors of all words.
struct WordVectors {
    indptr: Vec<u32>,
    words: Vec<u16>,
    idf: Vec<f32>,
    /// The vectors `[n_words, dim]`, each multiplied by its word's inverse document frequency.
    weighted: Vec<f32>,
    dim: usize,
}

/// Returns the features of the packages, `[n_nodes, dim]`.
pub(super) fn load_features(files: &Files<'_>, n_nodes: usize) -> Result<DenseFeatures> {
    let vectors = load_word_vectors(files, n_nodes)?;
    let mut rows = vec![0.0; n_nodes * vectors.dim];
    for (row, range) in rows.chunks_exact_mut(vectors.dim).zip(vectors.indptr.windows(2)) {
        let words = &vectors.words[range[0] as usize..range[1] as usize];
        let squares: f32 =
            words.iter().map(|&word| vectors.idf[usize::from(word)]).map(|idf| idf * idf).sum();
        for &word in words {
            let vector = &vectors.weighted[usize::from(word) * vectors.dim..][..vectors.dim];
            for (value, addend) in row.iter_mut().zip(vector) {
                *value += addend;
            }
        }
        if squares > 0.0 {
            let norm = squares.sqrt();
            for value in row {
                *value /= norm;
            }
        }
    }
    Ok(DenseFeatures::from_f32(rows, vectors.dim)?)
}

fn load_word_vectors(files: &Files<'_>, n_nodes: usize) -> Result<WordVectors> {
    let indptr: Vec<u32> = files.read_npy("word_indptr.npy.gz")?;
    let words: Vec<u16> = files.read_npy("words.npy.gz")?;
    let idf: Vec<f32> = files.read_npy("idf.npy.gz")?;
    let scales: Vec<f32> = files.read_npy("scales.npy.gz")?;
    let vectors: Vec<i8> = files.read_npy("word_vectors.npy.gz")?;
    let n_words = idf.len();
    let dim = vectors.len() / n_words.max(1);
    if dim == 0 {
        check_count("word_vectors.npy.gz", "the number of values", n_words.max(1), vectors.len())?;
    }
    check_count("word_vectors.npy.gz", "the number of values", n_words * dim, vectors.len())?;
    check_count("word_indptr.npy.gz", "the length", n_nodes + 1, indptr.len())?;
    check_count("word_indptr.npy.gz", "the last entry", words.len(), indptr[n_nodes] as usize)?;
    if let Some(fall) = indptr.windows(2).find(|pair| pair[1] < pair[0]) {
        check_count("word_indptr.npy.gz", "a decreasing entry", fall[0] as usize, fall[1] as usize)?;
    }
    if let Some(&word) = words.iter().find(|&&word| usize::from(word) >= n_words) {
        check_count("words.npy.gz", "an out-of-range word id", n_words - 1, usize::from(word))?;
    }
    check_count("scales.npy.gz", "the number of words", n_words, scales.len())?;
    let mut weighted: Vec<f32> = vectors.into_iter().map(f32::from).collect();
    for ((vector, scale), idf) in weighted.chunks_exact_mut(dim).zip(&scales).zip(&idf) {
        for value in vector {
            *value *= scale * idf;
        }
    }
    Ok(WordVectors { indptr, words, idf, weighted, dim })
}
