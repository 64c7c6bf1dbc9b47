use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_data::graph_folder::{
    FEATURES, NODE_TIMES, class_names_of, read_csc, read_rows, read_split, read_targets,
};
use kiln_data::{DatasetTargets, DatasetTimes, Layout};
use kiln_feature::{FeatureColumn, FeatureStore, Preparation};
use kiln_graph::{Csc, EdgeId, GraphSchema, NodeId, SharedArray};
use kiln_store::array_folder::ArrayFolder;

use crate::manifest::{CACHE, KEYS, Manifest, TypeEntry, path_in};
use crate::{Error, Method, PartitionBook, PartitionBooks, PartitionRow, Result};

/// One partition of a data set, with everything that a machine needs to serve it or to train on it: for each node type,
/// the nodes that it owns and their features, and for each relation, the edges into the nodes that it owns. Ids are those
/// of the whole graph.
///
/// A graph with one type of nodes has the type `node` and the relation `edge`, both at position 0. Cloning shares the
/// arrays.
#[derive(Debug, Clone)]
pub struct Part {
    /// The index of this partition, from 0.
    pub index: usize,
    /// The name of the whole data set.
    pub name: String,
    /// The hash of the whole data set. Partitions that are used in one training run must have the same hash.
    pub hash: String,
    /// The hash of the partitioning, the same in all its partitions: 64 bits of the data set's hash, the number of
    /// partitions, and 64 bits of the hash of the partition books.
    pub partition_hash: String,
    /// The node types and relations of the whole graph.
    pub schema: GraphSchema,
    /// The partition books of the whole graph.
    pub books: PartitionBooks,
    /// The nodes of each type that this partition owns, `[n_types]`.
    pub types: Vec<PartOfType>,
    /// The edges of each relation into the nodes that this partition owns, `[n_relations]`.
    pub relations: Vec<PartOfRelation>,
    /// The targets of each node of one type in the whole graph, and the split of the whole data set; `None` for a
    /// heterogeneous set that was partitioned for its links, without targets.
    pub targets: Option<DatasetTargets>,
    /// The times of all nodes of the whole graph, the meaning of all times, and the split by time. The times of edges are a column of
    /// their relation.
    pub times: DatasetTimes,
    /// The steps that prepared the data set before it was partitioned. `None` if they are unknown, because an older
    /// version of kiln wrote the partition.
    pub preparation: Option<Preparation>,
    /// The number of edges of the whole graph whose ends are in different partitions.
    pub n_cut_edges: u64,
    /// The algorithm that assigned nodes to partitions.
    pub method: Method,
    pub(crate) layout: Layout,
}

/// The nodes of one type that a partition owns. Its rows are these nodes, in ascending order.
#[derive(Debug, Clone)]
pub struct PartOfType {
    /// The node of each row, as a node id of the graph, ascending, `[n_owned]`.
    pub old_ids: SharedArray<NodeId>,
    /// The features of each row, `[n_owned, dim]`; `None` for a type without features.
    pub features: Option<Arc<dyn FeatureStore>>,
    /// What the feature columns mean; empty if they have no names.
    pub feature_columns: Vec<FeatureColumn>,
    /// The key of the name of each row ([`kiln_store::name_key`]), `[n_owned, 16]`, by which a trained model finds the row of a node
    /// without features. `None` for a type with features, if the nodes have no names, or if an older version of kiln wrote the
    /// partition.
    pub keys: Option<SharedArray<u8>>,
    /// The cached feature rows of remote nodes; `None` if there are none.
    pub cache: Option<Cache>,
}

/// The edges of one relation into the nodes that a partition owns.
#[derive(Debug, Clone)]
pub struct PartOfRelation {
    /// The edges: destinations are the rows of the relation's destination type, and `indices` contains **nodes of the
    /// whole graph**, in the order of the whole relation. It has the columns of the edges. [`Csc::validate`] does not apply, because it expects
    /// destinations and `indices` to use the same ids; use [`Part::verify`] instead.
    pub graph: Arc<Csc>,
    /// The id, within the whole relation, of the first edge into each row, `[n_owned]`. The row's other edges have the
    /// following ids.
    pub first_edges: SharedArray<u64>,
    /// The name of each edge type; empty if the types have no names.
    pub edge_type_names: Vec<String>,
    /// The number of edge types of the whole relation: one more than the largest, or the number of names if it is
    /// larger. `None` if there are no types, or an older version of kiln wrote the partition and the types have no
    /// names.
    pub n_edge_types: Option<usize>,
}

/// The static cache of the nodes of one type: feature rows of remote nodes that the partition's training reads often.
#[derive(Debug, Clone)]
pub struct Cache {
    /// The node of each row, counted from 0 within its type, ascending, `[n_rows]`.
    pub ids: SharedArray<NodeId>,
    /// The number of batches of the presampled epoch in which each node was an input, `[n_rows]`.
    pub counts: SharedArray<u32>,
    /// The features of each row, `[n_rows, dim]`.
    pub features: Arc<dyn FeatureStore>,
}

impl Part {
    /// Opens a partition without reading values: reads the manifest and the headers of the arrays, and maps the arrays.
    ///
    /// Element types, shapes and file lengths are checked, values are not. Samplers and feature stores check the values
    /// that they read; [`Part::verify`] checks all values and the hashes.
    ///
    /// # Errors
    /// Returns [`Error::Store`](crate::Error::Store) or [`Error::Data`](crate::Error::Data) if the manifest or an array
    /// cannot be read or is invalid, and [`Error::BadBook`](crate::Error::BadBook) if the offsets of a book are invalid.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        Ok(Self::open_with_arrays(folder.as_ref())?.0)
    }

    /// Opens a partition, and returns it with its arrays.
    pub(crate) fn open_with_arrays(folder: &Path) -> Result<(Self, ArrayFolder)> {
        let path = path_in(folder);
        let manifest = Manifest::read(folder)?;
        let arrays = ArrayFolder::open(&path, &manifest.files)?;
        let schema = manifest.schema(&path)?;
        let mut books = Vec::with_capacity(manifest.node_types.len());
        let mut types = Vec::with_capacity(manifest.node_types.len());
        for (position, node_type) in manifest.node_types.iter().enumerate() {
            let new_ids = arrays.values(&manifest.layout.file("new_ids.npy", position))?;
            books.push(Arc::new(PartitionBook::new(node_type.offsets.clone(), new_ids)?));
            types.push(read_type(&manifest, &arrays, position, node_type)?);
        }
        let mut node_times = Vec::with_capacity(manifest.node_types.len());
        for position in 0..manifest.node_types.len() {
            node_times.push(arrays.optional(&manifest.layout.file(NODE_TIMES, position))?);
        }
        let mut relations = Vec::with_capacity(manifest.relations.len());
        for position in 0..manifest.relations.len() {
            relations.push(read_relation(&manifest, &arrays, position)?);
        }
        let part = Self {
            index: manifest.part,
            partition_hash: manifest.partition_hash(),
            books: PartitionBooks::new(Arc::clone(schema.types()), books)?,
            schema,
            types,
            relations,
            targets: targets_of(&manifest, &arrays)?,
            times: manifest.times.with_nodes(node_times),
            name: manifest.name,
            hash: manifest.hash,
            preparation: manifest.preparation,
            n_cut_edges: manifest.n_cut_edges,
            method: manifest.method,
            layout: manifest.layout,
        };
        Ok((part, arrays))
    }

    /// Returns true for a partition of a heterogeneous set, whose node types and relations have names.
    pub fn is_heterogeneous(&self) -> bool {
        self.layout == Layout::Numbered
    }

    /// Returns the number of partitions.
    pub fn n_parts(&self) -> usize {
        self.books.n_parts()
    }

    /// Returns the number of feature columns of each node type, `[n_types]`; `None` for a type without features.
    pub fn dims(&self) -> Vec<Option<usize>> {
        self.types.iter().map(|of_type| of_type.features.as_ref().map(|features| features.dim())).collect()
    }

    /// Returns the type of the nodes that have targets; 0 for a partition without targets.
    pub fn target_type(&self) -> usize {
        self.targets.as_ref().map_or(0, |targets| targets.node_type)
    }

    /// Returns the number of nodes of all types that this partition owns.
    pub fn n_owned(&self) -> usize {
        self.types.iter().map(|of_type| of_type.old_ids.len()).sum()
    }

    /// Returns the number of edges of all relations into the nodes that this partition owns.
    pub fn n_edges(&self) -> u64 {
        self.relations.iter().map(|relation| relation.graph.n_edges()).sum()
    }

    /// Returns the edges of a relation into the nodes of this partition, indexed by **nodes of the whole graph**; all other
    /// nodes have no edges. Edge ids are those of the relation's [`PartOfRelation::graph`], whose arrays are shared.
    /// Memory: 8 bytes per node of the whole graph.
    ///
    /// # Errors
    /// Returns [`Error::BadBook`] if the nodes of the destinations' type are damaged, and [`Error::Graph`] if the edges
    /// are.
    ///
    /// # Panics
    /// Panics if there is no such relation.
    pub fn graph_by_node(&self, relation: usize) -> Result<Csc> {
        let node_type = self.schema.relations()[relation].dst_type;
        let nodes = &self.types[node_type].old_ids;
        self.books.check_rows(node_type, self.index, nodes)?;
        Ok(self.relations[relation].graph.scatter_rows(nodes, self.schema.n_nodes())?)
    }

    /// Returns the position, in [`PartOfRelation::graph`], of an edge of a relation into the node of `row`. `edge` is its id in the whole relation. The arrays are checked, because they may be damaged
    /// files.
    ///
    /// # Errors
    /// Returns [`Error::UnknownEdge`] if the row does not have this edge.
    ///
    /// # Panics
    /// Panics if there is no such relation.
    #[inline]
    pub fn edge_position(&self, relation: usize, row: PartitionRow, edge: EdgeId) -> Result<EdgeId> {
        let PartOfRelation { graph, first_edges, .. } = &self.relations[relation];
        let position = || {
            let offset = edge.0.checked_sub(*first_edges.get(row.index())?)?;
            let &[start, end] = graph.indptr().get(row.index()..)?.first_chunk()?;
            start.checked_add(offset).filter(|position| *position < end.min(graph.n_edges()))
        };
        position().map(EdgeId).ok_or_else(|| {
            let file = first_edges.path().map(Path::to_owned);
            Error::UnknownEdge { file, edge, row, part: self.index }
        })
    }
}

/// Returns the nodes of the type at a position.
fn read_type(
    manifest: &Manifest,
    arrays: &ArrayFolder,
    position: usize,
    node_type: &TypeEntry,
) -> Result<PartOfType> {
    let layout = manifest.layout;
    let mut features = None;
    let mut cache = None;
    if let Some(dim) = node_type.dim {
        features = Some(read_rows(arrays, &layout.rows(&FEATURES, position), dim)?);
        if manifest.has_cache(position) {
            cache = Some(Cache {
                ids: arrays.values(&layout.file("cache_ids.npy", position))?,
                counts: arrays.values(&layout.file("cache_counts.npy", position))?,
                features: read_rows(arrays, &layout.rows(&CACHE, position), dim)?,
            });
        }
    }
    Ok(PartOfType {
        old_ids: arrays.values(&layout.file("old_ids.npy", position))?,
        features,
        feature_columns: manifest.node_types[position].feature_columns.clone(),
        keys: arrays.optional(&layout.file(KEYS, position))?,
        cache,
    })
}

/// Returns the edges of the relation at a position.
fn read_relation(manifest: &Manifest, arrays: &ArrayFolder, position: usize) -> Result<PartOfRelation> {
    let layout = manifest.layout;
    let edges = &manifest.relations[position].edges;
    let graph = read_csc(arrays, layout, position)?;
    let n_names = edges.type_names.len();
    let has_names = graph.edge_types().is_some() && 0 < n_names;
    Ok(PartOfRelation {
        graph: Arc::new(graph),
        first_edges: arrays.values(&layout.file("first_edges.npy", position))?,
        edge_type_names: edges.type_names.clone(),
        n_edge_types: edges.n_types.or(has_names.then_some(n_names)),
    })
}

/// Returns the targets and the split; `None` for a heterogeneous set that was partitioned without targets.
fn targets_of(manifest: &Manifest, arrays: &ArrayFolder) -> Result<Option<DatasetTargets>> {
    if manifest.layout == Layout::Numbered && manifest.n_classes == 0 {
        return Ok(None);
    }
    Ok(Some(DatasetTargets {
        node_type: manifest.target_type,
        values: read_targets(arrays, manifest.n_classes)?,
        split: read_split(arrays)?,
        class_names: class_names_of(manifest.class_names.clone(), manifest.n_classes),
    }))
}

/// Returns the folder of a partition, `part0` and so on, in the folder that [`write_parts`](crate::write_parts) wrote.
pub fn part_dir(parts: impl AsRef<Path>, part: usize) -> PathBuf {
    parts.as_ref().join(format!("part{part}"))
}
