//! The SHA-256 of a set's content, with which a resumed run checks that its data has not changed.

use std::fmt;

use bytemuck::Pod;
use kiln_feature::{EdgeFeatures, FeatureArray, FeatureBuffer, FeatureStore, Labels, Targets};
use kiln_graph::{Csc, GraphId, ItemId};
use kiln_store::Hasher;

use crate::check::for_each_rows;
use crate::{Dataset, Error, GraphDataset, LinkTargets, Result, Split};

/// The first hashed bytes. Any change of the hashed content must change the version number in them.
const START: &str = "kiln data 1\n";

impl Dataset {
    /// Returns the SHA-256, in lower-case hexadecimal, of all training data: topology, features of nodes and edges with
    /// their stored element type, labels and split. Every change of a value changes the hash. The name, the notes and the names of
    /// nodes, classes and edge types are not hashed, and mapped and in-memory arrays have the same hash.
    ///
    /// The hashed bytes are the line `kiln data 1`, and then for each of these arrays a line of its name, element
    /// type and lengths, and its values, little-endian: `indptr u64 N+1`, `indices u32 M`, if present `weights f32 M`,
    /// `edge_types u8 M` and `edge_features f32 MxE` (or `f16`, `bf16`), then `features f32 NxD` (or `f16`, `bf16`), or for sparse ones `features_indptr u64
    /// N+1`, `features_indices u32 K` and `features_data f32 KxD` (D is the number of columns), then `labels i32 NxC`
    /// (C is the number of classes), or `targets u8 NxK` for K labels per node, or `targets f32 NxK` for regression,
    /// then `train u32 P`, `val u32 Q`, `test u32 R`. If the set has links, `link_srcs u32 L`, `link_dsts u32 L` and the
    /// ids of each part, `train_links u32 P`, `val_links u32 Q`, `test_links u32 R`, follow, and for each part with fixed
    /// negatives, `negative_links u32 P`, if present `negative_srcs u32 PxK`, and `negative_dsts u32 PxK`.
    ///
    /// This reads the whole set once, with constant memory, and is several times faster on a CPU with SHA instructions.
    /// For a set in the kiln format, [`format::hash`](crate::format::hash) returns a different hash without reading the
    /// arrays.
    ///
    /// # Errors
    /// Returns [`Error::Feature`] if rows cannot be read and [`Error::BadParameter`] if their element type is not
    /// `f32`, `f16` or `bf16`. Values are not checked.
    pub fn hash(&self) -> Result<String> {
        let mut hasher = ArrayHasher::new();
        hasher.graph(&self.graph);
        if let Some(features) = &self.edge_features {
            hasher.edge_features(features)?;
        }
        hasher.features(&*self.features)?;
        hasher.targets(&self.targets());
        for (name, nodes) in self.split.parts() {
            hasher.array(name, "u32", nodes.len(), nodes);
        }
        if let Some(links) = &self.links {
            hasher.links(links);
        }
        Ok(hasher.finish())
    }
}

impl LinkTargets {
    /// Returns the SHA-256 of the links, their split and their negatives, in the form of [`Dataset::hash`].
    pub fn hash(&self) -> String {
        let mut hasher = ArrayHasher::new();
        hasher.links(self);
        hasher.finish()
    }
}

impl GraphDataset {
    /// Returns the SHA-256 of the set in the form of [`Dataset::hash`]. The hashed bytes are the line `kiln data 1`,
    /// the graph, `node_offsets u32 G+1` (G is the number of graphs), the features if present, `labels i32 GxC` or
    /// `targets`, and `node_labels i32 NxC` if present. Features that are computed from these arrays, such as
    /// [`one_hot_degrees`](GraphDataset::one_hot_degrees), are not included unless they were added to the set; a split
    /// is never included.
    ///
    /// # Errors
    /// Returns the errors of [`Dataset::hash`].
    pub fn hash(&self) -> Result<String> {
        Ok(self.hasher()?.finish())
    }

    /// Returns the SHA-256 of all data of a training run: the set, the given features of its nodes and a split.
    /// Features and split are hashed as by [`Dataset::hash`].
    ///
    /// # Errors
    /// Returns the errors of [`Dataset::hash`].
    pub fn hash_with(&self, features: &dyn FeatureStore, split: &Split<GraphId>) -> Result<String> {
        let mut hasher = self.hasher()?;
        hasher.features(features)?;
        for (name, graphs) in split.parts() {
            hasher.array(name, "u32", graphs.len(), graphs);
        }
        Ok(hasher.finish())
    }

    fn hasher(&self) -> Result<ArrayHasher> {
        let mut hasher = ArrayHasher::new();
        hasher.graph(self.graph());
        hasher.array("node_offsets", "u32", self.node_offsets().len(), self.node_offsets());
        if let Some(features) = self.features() {
            hasher.features(&**features)?;
        }
        hasher.targets(&self.targets());
        if let Some(labels) = self.node_labels() {
            hasher.labels("node_labels", labels);
        }
        Ok(hasher)
    }
}

/// A hasher of named arrays. A line with its name, type and lengths precedes each array, so that different lists of
/// arrays never produce the same bytes.
struct ArrayHasher(Hasher);

impl ArrayHasher {
    fn new() -> Self {
        let mut hasher = Hasher::default();
        hasher.update(START);
        Self(hasher)
    }

    fn line(&mut self, name: &str, element_type: &str, lengths: impl fmt::Display) {
        self.0.update(format!("{name} {element_type} {lengths}\n"));
    }

    fn values<T: Pod>(&mut self, values: &[T]) {
        self.0.update(bytemuck::cast_slice::<T, u8>(values));
    }

    fn array<T: Pod>(&mut self, name: &str, element_type: &str, lengths: impl fmt::Display, values: &[T]) {
        self.line(name, element_type, lengths);
        self.values(values);
    }

    fn graph(&mut self, graph: &Csc) {
        self.array("indptr", "u64", graph.indptr().len(), graph.indptr());
        self.array("indices", "u32", graph.n_edges(), graph.indices());
        if let Some(weights) = graph.weights() {
            self.array("weights", "f32", weights.len(), weights);
        }
        if let Some(types) = graph.edge_types() {
            self.array("edge_types", "u8", types.len(), types);
        }
    }

    fn edge_features(&mut self, features: &EdgeFeatures) -> Result<()> {
        let lengths = format!("{}x{}", features.n_edges(), features.dim());
        self.line("edge_features", features.dtype().name(), lengths);
        match features.rows() {
            FeatureArray::F32(values) => self.values(values),
            FeatureArray::F16(values) => self.values(values),
            FeatureArray::BF16(values) => self.values(values),
            other => return Err(Error::unknown_row_type(other.dtype())),
        }
        Ok(())
    }

    fn features(&mut self, features: &dyn FeatureStore) -> Result<()> {
        let dim = features.dim();
        if let Some(sparse) = features.as_sparse() {
            self.array("features_indptr", "u64", sparse.indptr().len(), sparse.indptr());
            self.array("features_indices", "u32", sparse.columns().len(), sparse.columns());
            let n_values = sparse.n_values();
            self.array("features_data", "f32", format_args!("{n_values}x{dim}"), sparse.values());
            return Ok(());
        }
        let row_type = features.dtype();
        self.line("features", row_type.name(), format_args!("{}x{dim}", features.n_rows()));
        for_each_rows(features, |_, rows| {
            match rows {
                other if other.dtype() != row_type => {
                    return Err(Error::unknown_row_type(other.dtype()));
                }
                FeatureBuffer::F32(values) => self.values(values),
                FeatureBuffer::F16(values) => self.values(values),
                FeatureBuffer::BF16(values) => self.values(values),
                other => return Err(Error::unknown_row_type(other.dtype())),
            }
            Ok(())
        })
    }

    fn targets<I: ItemId>(&mut self, targets: &Targets<I>) {
        let lengths = format!("{}x{}", targets.len(), targets.n_outputs());
        match targets {
            Targets::Classes(labels) => self.labels("labels", labels),
            Targets::Values(values) => match (values.as_labels(), values.as_numbers()) {
                (Some(labels), _) => self.array("targets", "u8", lengths, labels),
                (None, numbers) => self.array("targets", "f32", lengths, numbers.unwrap_or_default()),
            },
        }
    }

    fn labels<I: ItemId>(&mut self, name: &str, labels: &Labels<I>) {
        let lengths = format!("{}x{}", labels.len(), labels.n_classes());
        self.array(name, "i32", lengths, labels.as_slice());
    }

    fn links(&mut self, targets: &LinkTargets) {
        let links = targets.links();
        self.array("link_srcs", "u32", links.len(), links.srcs());
        self.array("link_dsts", "u32", links.len(), links.dsts());
        for ((_, links), name) in
            targets.split().parts().into_iter().zip(["train_links", "val_links", "test_links"])
        {
            self.array(name, "u32", links.len(), links);
        }
        for negatives in [targets.val_negatives(), targets.test_negatives()].into_iter().flatten() {
            let n_links = negatives.links().len();
            let lengths = format!("{n_links}x{}", negatives.n_per_link());
            self.array("negative_links", "u32", n_links, negatives.links());
            if let Some(srcs) = negatives.srcs() {
                self.array("negative_srcs", "u32", &lengths, srcs);
            }
            self.array("negative_dsts", "u32", &lengths, negatives.dsts());
        }
    }

    fn finish(self) -> String {
        self.0.finish()
    }
}
