use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_data::Split;
use kiln_data::graph_folder::{
    FEATURES, class_names_of, read_edge_features, read_graph, read_labels, read_rows, read_split,
};
use kiln_feature::{EdgeFeatures, FeatureStore, Labels, Preparation};
use kiln_graph::{Csc, EdgeId, NodeId, SharedArray};
use kiln_store::array_folder::ArrayFolder;

use crate::manifest::{self, CACHE, Manifest};
use crate::verify::{PartVerifyReport, check_rows_of_book, verify};
use crate::{Error, Method, PartitionBook, PartitionRow, Result};

/// One partition of a data set, with everything that a machine needs to serve it or to train on it. Its rows are the
/// nodes that it owns, in ascending order; ids are those of the whole graph.
///
/// Cloning shares the arrays.
#[derive(Debug, Clone)]
pub struct Part {
    /// The index of this partition, from 0.
    pub index: usize,
    /// The name of the whole data set.
    pub name: String,
    /// The hash of the whole data set. Partitions that are used in one training run must have the same hash.
    pub hash: String,
    /// The hash of the partitioning, the same in all its partitions: 64 bits of the data set's hash, the number of
    /// partitions, and 64 bits of the hash of the partition book.
    pub partition_hash: String,
    /// The partition book of the whole graph.
    pub book: Arc<PartitionBook>,
    /// The node of each row, ascending, `[n_owned]`.
    pub old_ids: SharedArray<NodeId>,
    /// The edges into the nodes of this partition: destinations are rows, and `indices` contains **nodes of the whole
    /// graph**, in the order of the whole graph. [`Csc::validate`] does not apply, because it expects destinations and
    /// `indices` to use the same ids; use [`Part::verify`] instead.
    pub graph: Arc<Csc>,
    /// The id, in the whole graph, of the first edge into each row, `[n_owned]`. The row's other edges have the
    /// following ids.
    pub first_edges: SharedArray<u64>,
    /// The features of each row, `[n_owned, dim]`.
    pub features: Arc<dyn FeatureStore>,
    /// The features of each edge of [`Part::graph`], in its order, `[n_edges, edge_dim]`; `None` if edges have no
    /// features.
    pub edge_features: Option<EdgeFeatures>,
    /// The cached feature rows of remote nodes; `None` if the partition has no cache.
    pub cache: Option<Cache>,
    /// The class of each node of the whole graph; unlabelled nodes have no class.
    pub labels: Arc<Labels>,
    /// The split of the whole data set.
    pub split: Split,
    /// The name of each class; the numbers from 0 if classes have no names.
    pub class_names: Vec<String>,
    /// The name of each edge type; empty if the types have no names.
    pub edge_type_names: Vec<String>,
    /// The number of edge types of the whole graph: one more than the largest, or the number of names if it is larger.
    /// `None` if there are no types, or an older version of kiln wrote the partition and the types have no names.
    pub n_edge_types: Option<usize>,
    /// The steps that prepared the data set before it was partitioned. `None` if they are unknown, because an older
    /// version of kiln wrote the partition.
    pub preparation: Option<Preparation>,
    /// The number of edges of the whole graph.
    pub n_edges: u64,
    /// The number of edges of the whole graph whose ends are in different partitions.
    pub n_cut_edges: u64,
    /// The algorithm that assigned nodes to partitions.
    pub method: Method,
}

/// The static cache of a partition: feature rows of remote nodes that its training reads often.
#[derive(Debug, Clone)]
pub struct Cache {
    /// The node of each row, ascending, `[n_rows]`.
    pub ids: SharedArray<NodeId>,
    /// The number of batches of the presampled epoch in which each node was an input, `[n_rows]`.
    pub counts: SharedArray<u32>,
    /// The features of each row, `[n_rows, dim]`.
    pub features: Arc<dyn FeatureStore>,
}

impl Part {
    /// Opens a partition in constant time: reads the manifest and the headers of the arrays, and maps the arrays.
    ///
    /// Element types, shapes and file lengths are checked, values are not. Samplers and feature stores check the values
    /// that they read; [`Part::verify`] checks all values and the hashes.
    ///
    /// # Errors
    /// Returns [`Error::Store`](crate::Error::Store) or [`Error::Data`](crate::Error::Data) if the manifest or an array
    /// cannot be read or is invalid, and [`Error::BadBook`](crate::Error::BadBook) if the book's offsets are invalid.
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
        let graph = Arc::new(read_graph(&arrays)?);
        let n_names = manifest.edge_type_names.len();
        let has_names = graph.edge_types().is_some() && 0 < n_names;
        Ok(Self {
            index: manifest.part,
            name: manifest.name,
            partition_hash,
            hash: manifest.hash,
            book: Arc::new(PartitionBook::new(manifest.offsets, arrays.values("new_ids.npy")?)?),
            old_ids: arrays.values("old_ids.npy")?,
            graph,
            first_edges: arrays.values("first_edges.npy")?,
            features: read_rows(&arrays, &FEATURES, manifest.dim)?,
            edge_features: read_edge_features(&arrays)?,
            cache,
            labels: Arc::new(read_labels(&arrays, manifest.n_classes)?),
            split: read_split(&arrays)?,
            class_names: class_names_of(manifest.class_names, manifest.n_classes),
            n_edge_types: manifest.n_edge_types.or(has_names.then_some(n_names)),
            edge_type_names: manifest.edge_type_names,
            preparation: manifest.preparation,
            n_edges: manifest.n_edges,
            n_cut_edges: manifest.n_cut_edges,
            method: manifest.method,
        })
    }

    /// Returns the edges into the nodes of this partition, indexed by **nodes of the whole graph**; remote nodes have
    /// no edges. Edge ids are those of [`Part::graph`], whose arrays are shared. Memory: 8 bytes per node of the whole
    /// graph.
    ///
    /// # Errors
    /// Returns [`Error::BadBook`] if `old_ids` is damaged and [`Error::Graph`] if `indptr` is damaged.
    pub fn graph_by_node(&self) -> Result<Csc> {
        check_rows_of_book(&self.old_ids, self.book.owned(self.index), |node| self.book.new_id(node))?;
        Ok(self.graph.scatter_rows(&self.old_ids, self.book.n_nodes())?)
    }

    /// Returns the position, in [`Part::graph`] and [`Part::edge_features`], of an edge into the node of `row`. `edge` is
    /// its id in the whole graph. The arrays are checked, because they may be damaged files.
    ///
    /// # Errors
    /// Returns [`Error::UnknownEdge`] if the row does not have this edge.
    #[inline]
    pub fn edge_position(&self, row: PartitionRow, edge: EdgeId) -> Result<EdgeId> {
        let position = || {
            let offset = edge.0.checked_sub(*self.first_edges.get(row.index())?)?;
            let &[start, end] = self.graph.indptr().get(row.index()..)?.first_chunk()?;
            start.checked_add(offset).filter(|position| *position < end.min(self.graph.n_edges()))
        };
        position().map(EdgeId).ok_or_else(|| {
            let file = self.first_edges.path().map(Path::to_owned);
            Error::UnknownEdge { file, edge, row, part: self.index }
        })
    }

    /// Verifies a partition: opens it and checks the hashes of all files, that the book is a permutation and agrees
    /// with the rows, that edges have valid sources, ids and types, that weights and the features of nodes and edges are
    /// finite, that labels and split are valid, and that cached rows belong to remote nodes. Reads each file twice,
    /// once for its hash and once for its values.
    ///
    /// # Errors
    /// Returns the errors of [`Part::open`]; [`kiln_store::Error::HashMismatch`] if a file's hash differs from the
    /// manifest's; [`kiln_store::Error::BadValue`] with the file and the position of the first invalid value;
    /// [`Error::BadBook`] if the book is invalid.
    pub fn verify(folder: impl AsRef<Path>) -> Result<PartVerifyReport> {
        verify(folder.as_ref())
    }
}

/// Returns the folder of a partition, `part0` and so on, in the folder that [`write_parts`](crate::write_parts) wrote.
pub fn part_dir(parts: impl AsRef<Path>, part: usize) -> PathBuf {
    parts.as_ref().join(format!("part{part}"))
}
