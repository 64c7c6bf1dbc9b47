use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_data::Split;
use kiln_data::graph_folder::{FEATURES, class_names_of, read_graph, read_labels, read_rows, read_split};
use kiln_feature::{FeatureStore, Labels};
use kiln_graph::{Csc, NodeId, SharedArray};
use kiln_store::array_folder::ArrayFolder;

use crate::manifest::{self, CACHE, Manifest};
use crate::verify::{PartVerifyReport, verify};
use crate::{Error, Method, PartitionBook, Result};

/// One part of a graph, with all that a machine needs to serve it or to train with it. Rows are the nodes that the
/// part owns, in ascending order; ids are those of the whole graph.
///
/// Cloning shares the arrays.
#[derive(Debug, Clone)]
pub struct Part {
    /// Which part this is, from 0.
    pub index: usize,
    /// What the whole set is called.
    pub name: String,
    /// The hash of the whole set: parts that train together have the same.
    pub hash: String,
    /// Parts of one set that was parted in one way have the same: 64 bits of the set's hash, the number of parts, and 64
    /// bits of the book's.
    pub partition_hash: String,
    /// Which part owns each node of the whole graph.
    pub book: Arc<PartitionBook>,
    /// The node of each row, ascending, `[n_owned]`.
    pub old_ids: SharedArray<NodeId>,
    /// The edges into the nodes of this part: destinations are rows, `indices` the **nodes of the whole graph** that
    /// edges come from, in the whole graph's order. So [`Csc::validate`], which takes both for the same ids, does not
    /// apply: [`Part::verify`] does.
    pub graph: Arc<Csc>,
    /// The whole graph's id of the first edge into each row, `[n_owned]`; the others follow it without a gap.
    pub first_edges: SharedArray<u64>,
    /// The features of each row, `[n_owned, dim]`.
    pub features: Arc<dyn FeatureStore>,
    /// Feature rows of nodes that other parts own; `None` when none were to be kept, or none would be asked for.
    pub cache: Option<Cache>,
    /// The class of each node of the whole graph, or none.
    pub labels: Arc<Labels>,
    /// The split of the whole set.
    pub split: Split,
    /// The classes' names, by class.
    pub class_names: Vec<String>,
    /// The edge types' names, by type; empty where they have none.
    pub edge_type_names: Vec<String>,
    /// Number of edges of the whole graph.
    pub n_edges: u64,
    /// Number of edges of the whole graph whose ends are in different parts.
    pub n_cut_edges: u64,
    /// What decided which part owns which node.
    pub method: Method,
}

/// Feature rows of nodes that other parts own, kept since the part's training asks for them often.
#[derive(Debug, Clone)]
pub struct Cache {
    /// The node of each row, ascending, `[n_rows]`.
    pub ids: SharedArray<NodeId>,
    /// In how many batches of the epoch that was sampled ahead each was an input, `[n_rows]`.
    pub counts: SharedArray<u32>,
    /// The features of each row, `[n_rows, dim]`.
    pub features: Arc<dyn FeatureStore>,
}

impl Part {
    /// Opens a part in a time that does not depend on its size: the manifest and the headers of the arrays are read,
    /// the arrays are mapped.
    ///
    /// Element types, shapes and the files' lengths are checked; values are not. Samplers and sources check those that
    /// they meet, and [`Part::verify`] reads all, and the hashes.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) and [`Error::Data`](crate::Error::Data) as [`kiln_data::format::open`], and
    /// [`Error::BadBook`](crate::Error::BadBook).
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let path = manifest::path_in(folder.as_ref());
        let manifest = Manifest::read(&path)?;
        let arrays = ArrayFolder::open(&path, &manifest.files)?;
        let cache = match manifest.has_cache() {
            true => Some(Cache {
                ids: arrays.values("cache_ids.npy")?,
                counts: arrays.values("cache_counts.npy")?,
                features: read_rows(&arrays, &CACHE, manifest.dim)?,
            }),
            false => None,
        };
        let partition_hash = manifest.partition_hash();
        Ok(Self {
            index: manifest.part,
            name: manifest.name,
            partition_hash,
            hash: manifest.hash,
            book: Arc::new(PartitionBook::new(manifest.offsets, arrays.values("new_ids.npy")?)?),
            old_ids: arrays.values("old_ids.npy")?,
            graph: Arc::new(read_graph(&arrays)?),
            first_edges: arrays.values("first_edges.npy")?,
            features: read_rows(&arrays, &FEATURES, manifest.dim)?,
            cache,
            labels: Arc::new(read_labels(&arrays, manifest.n_classes)?),
            split: read_split(&arrays)?,
            class_names: class_names_of(manifest.class_names, manifest.n_classes),
            edge_type_names: manifest.edge_type_names,
            n_edges: manifest.n_edges,
            n_cut_edges: manifest.n_cut_edges,
            method: manifest.method,
        })
    }

    /// The edges into the nodes of this part, by **nodes of the whole graph**, of which those of other parts have none.
    /// Edges have the ids that they have in [`Part::graph`], whose arrays are shared; 8 bytes a node of the whole.
    ///
    /// # Errors
    /// [`Error::BadBook`] where `old_ids` is damaged, [`Error::Graph`] where `indptr` is.
    pub fn graph_by_node(&self) -> Result<Csc> {
        if let Some((row, new_id, node)) = self.bad_row() {
            let file = self.old_ids.path().map(Path::to_owned);
            let (what, expected) =
                (format!("the node of row {row}"), format!("the node whose new id is {new_id}"));
            return Err(Error::BadBook { file, what, expected, got: node.0 });
        }
        Ok(self.graph.scatter_rows(&self.old_ids, self.book.n_nodes())?)
    }

    /// The first row that is not of the node that the book says, the new id that it is of, and its node.
    pub(crate) fn bad_row(&self) -> Option<(usize, u32, NodeId)> {
        let rows = self.old_ids.iter().zip(self.book.owned(self.index)).enumerate();
        let mut rows = rows.map(|(row, (&node, new_id))| (row, new_id, node));
        rows.find(|(_, new_id, node)| self.book.new_id(*node) != Some(*new_id))
    }

    /// Reads each file of a part twice, once for its hash and once for its values, and checks what opening does not:
    /// that each file is the one that was written, that the book is a permutation and says of this part's nodes what
    /// their rows say, that edges come from nodes and have ids of the whole graph, that numbers are finite, and that
    /// cached rows are of other parts' nodes.
    ///
    /// # Errors
    /// Those of [`Part::open`]; [`kiln_store::Error::HashMismatch`] for a file that is not the one that was written;
    /// [`kiln_store::Error::BadValue`] with the file and the position of the first value that cannot be.
    pub fn verify(folder: impl AsRef<Path>) -> Result<PartVerifyReport> {
        verify(folder.as_ref())
    }
}

/// The folder of a part, in the folder that [`write_parts`](crate::write_parts) made: `part0` and so on.
pub fn part_dir(parts: impl AsRef<Path>, part: usize) -> PathBuf {
    parts.as_ref().join(format!("part{part}"))
}
