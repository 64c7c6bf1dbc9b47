use std::path::Path;
use std::sync::Arc;

use kiln_data::Split;
use kiln_data::graph_folder::{
    FEATURES, class_names_of, numbered, read_labels, read_relation, read_rows, read_split,
};
use kiln_feature::{FeatureStore, Labels};
use kiln_graph::{Csc, GraphSchema, NodeId, SharedArray};
use kiln_store::array_folder::ArrayFolder;

use super::manifest::{KEYS, Manifest};
use super::verify::verify;
use crate::manifest::{CACHE, path_in};
use crate::verify::check_rows_of_book;
use crate::{Cache, Method, PartVerifyReport, PartitionBook, Result, TypedPartitionBook};

/// One partition of a heterogeneous set, with everything that a machine needs to serve it or to train on it: for each node
/// type, the nodes that it owns and their features, and for each relation, the edges into the nodes that it owns. Ids are
/// those of the whole graph.
///
/// Cloning shares the arrays.
#[derive(Debug, Clone)]
pub struct TypedPart {
    /// The index of this partition, from 0.
    pub index: usize,
    /// The name of the whole set.
    pub name: String,
    /// The hash of the whole set. Partitions that are used in one training run must have the same hash.
    pub hash: String,
    /// The hash of the partitioning, the same in all its partitions: 64 bits of the set's hash, the number of partitions,
    /// and 64 bits of the hash of the partition books.
    pub partition_hash: String,
    /// The node types and relations of the whole graph.
    pub schema: GraphSchema,
    /// The partition books of the whole graph.
    pub book: TypedPartitionBook,
    /// The nodes of each type that this partition owns, `[n_types]`.
    pub types: Vec<PartOfType>,
    /// The edges of each relation into the nodes that this partition owns, `[n_relations]`.
    pub relations: Vec<PartOfRelation>,
    /// The type of the nodes that have labels.
    pub target_type: usize,
    /// The class of each node of [`TypedPart::target_type`] in the whole graph, by its position in the type; unlabelled
    /// nodes have no class.
    pub labels: Arc<Labels>,
    /// The split of the whole set, as node ids of the graph.
    pub split: Split,
    /// The name of each class; the numbers from 0 if classes have no names.
    pub class_names: Vec<String>,
    /// The number of edges of the whole graph whose ends are in different partitions.
    pub n_cut_edges: u64,
    /// The algorithm that assigned nodes to partitions.
    pub method: Method,
}

/// The nodes of one type that a partition owns. Its rows are these nodes, in ascending order.
#[derive(Debug, Clone)]
pub struct PartOfType {
    /// The node of each row, as a node id of the graph, ascending, `[n_owned]`.
    pub old_ids: SharedArray<NodeId>,
    /// The features of each row, `[n_owned, dim]`; `None` for a type without features.
    pub features: Option<Arc<dyn FeatureStore>>,
    /// The key of the name of each row ([`kiln_store::name_key`]), `[n_owned, 16]`, by which a trained model finds the row of a node
    /// without features. `None` for a type with features, if the nodes have no names, or if an older version of kiln wrote the
    /// partition.
    pub keys: Option<SharedArray<u8>>,
    /// The cached feature rows of remote nodes, which count from 0 within the type; `None` if there are none.
    pub cache: Option<Cache>,
}

/// The edges of one relation into the nodes that a partition owns.
#[derive(Debug, Clone)]
pub struct PartOfRelation {
    /// The edges: destinations are the rows of the relation's destination type, and `indices` contains nodes of the whole
    /// graph, in the order of the whole relation.
    pub graph: Arc<Csc>,
    /// The id, within the whole relation, of the first edge into each row, `[n_owned]`. The row's other edges have the
    /// following ids.
    pub first_edges: SharedArray<u64>,
}

impl TypedPart {
    /// Opens a partition without reading values: the manifest and the headers of the arrays are read and checked, and the
    /// arrays are mapped. Samplers and feature stores check the values that they read; [`TypedPart::verify`] checks all
    /// values and the hashes.
    ///
    /// # Errors
    /// Returns [`Error::WrongKind`](crate::Error::WrongKind) for a partition of a homogeneous set;
    /// [`Error::Store`](crate::Error::Store) or [`Error::Data`](crate::Error::Data) if the manifest or an array cannot be
    /// read or is invalid; and [`Error::BadBook`](crate::Error::BadBook) if the offsets of a book are invalid.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        Ok(Self::open_with_arrays(folder.as_ref())?.0)
    }

    /// Opens a partition, and returns it with its arrays.
    pub(super) fn open_with_arrays(folder: &Path) -> Result<(Self, ArrayFolder)> {
        let path = path_in(folder);
        let manifest = Manifest::read(folder)?;
        let arrays = ArrayFolder::open(&path, &manifest.files)?;
        let (schema, partition_hash) = (manifest.schema(&path)?, manifest.partition_hash());
        let (mut books, mut types, mut relations) = (Vec::new(), Vec::new(), Vec::new());
        for (position, node_type) in manifest.node_types.iter().enumerate() {
            let name = |file| numbered(file, position);
            let new_ids = arrays.values(&name("new_ids.npy"))?;
            books.push(Arc::new(PartitionBook::new(node_type.offsets.clone(), new_ids)?));
            let rows = |dim| read_rows(&arrays, &FEATURES.of_type(position), dim);
            let cache = |dim| -> Result<Cache> {
                Ok(Cache {
                    ids: arrays.values(&name("cache_ids.npy"))?,
                    counts: arrays.values(&name("cache_counts.npy"))?,
                    features: read_rows(&arrays, &CACHE.of_type(position), dim)?,
                })
            };
            types.push(PartOfType {
                old_ids: arrays.values(&name("old_ids.npy"))?,
                features: node_type.dim.map(rows).transpose()?,
                keys: arrays.optional(&name(KEYS))?,
                cache: node_type.dim.filter(|_| manifest.has_cache(position)).map(cache).transpose()?,
            });
        }
        for position in 0..schema.relations().len() {
            relations.push(PartOfRelation {
                graph: Arc::new(read_relation(&arrays, position)?),
                first_edges: arrays.values(&numbered("first_edges.npy", position))?,
            });
        }
        let part = Self {
            index: manifest.part,
            name: manifest.name,
            hash: manifest.hash,
            partition_hash,
            book: TypedPartitionBook::new(Arc::clone(schema.types()), books)?,
            schema,
            types,
            relations,
            target_type: manifest.target_type,
            labels: Arc::new(read_labels(&arrays, manifest.n_classes)?),
            split: read_split(&arrays)?,
            class_names: class_names_of(manifest.class_names, manifest.n_classes),
            n_cut_edges: manifest.n_cut_edges,
            method: manifest.method,
        };
        Ok((part, arrays))
    }

    /// Returns the number of feature columns of each node type, `[n_types]`; `None` for a type without features.
    pub fn dims(&self) -> Vec<Option<usize>> {
        self.types.iter().map(|of_type| of_type.features.as_ref().map(|features| features.dim())).collect()
    }

    /// Returns the number of nodes of all types that this partition owns.
    pub fn n_owned(&self) -> usize {
        self.types.iter().map(|of_type| of_type.old_ids.len()).sum()
    }

    /// Returns the edges of a relation into the nodes of this partition, indexed by **nodes of the whole graph**, as
    /// [`Part::graph_by_node`](crate::Part::graph_by_node) does: all other nodes have no edges. Edge ids are those of the
    /// relation's [`PartOfRelation::graph`], whose arrays are shared. Memory: 8 bytes per node of the whole graph.
    ///
    /// # Errors
    /// Returns [`Error::BadBook`](crate::Error::BadBook) if the nodes of the destinations' type are damaged, and
    /// [`Error::Graph`](crate::Error::Graph) if the edges are.
    ///
    /// # Panics
    /// Panics if there is no such relation.
    pub fn graph_by_node(&self, relation: usize) -> Result<Csc> {
        let node_type = self.schema.relations()[relation].dst_type;
        let (nodes, book) = (&self.types[node_type].old_ids, self.book.of_type(node_type));
        let first = self.schema.types().range(node_type).start;
        check_rows_of_book(nodes, book.owned(self.index), |node| {
            book.new_id(NodeId(node.0.checked_sub(first)?))
        })?;
        Ok(self.relations[relation].graph.scatter_rows(nodes, self.schema.n_nodes())?)
    }

    /// Returns the number of edges of all relations into the nodes that this partition owns.
    pub fn n_edges(&self) -> u64 {
        self.relations.iter().map(|relation| relation.graph.n_edges()).sum()
    }

    /// Verifies a partition: opens it and checks the hashes of all files, that each book is a permutation and agrees with
    /// the rows, that edges have valid ids and come from nodes of their relation's type, that weights and features are
    /// finite, and that labels and split are valid. Reads each file twice, once for its hash and once for its values.
    ///
    /// # Errors
    /// Returns the errors of [`TypedPart::open`]; [`kiln_store::Error::HashMismatch`] if a file's hash differs from the
    /// manifest's; [`kiln_store::Error::BadValue`] with the file and the position of the first invalid value; and
    /// [`Error::BadBook`](crate::Error::BadBook) if a book is invalid.
    pub fn verify(folder: impl AsRef<Path>) -> Result<PartVerifyReport> {
        verify(folder.as_ref())
    }
}
