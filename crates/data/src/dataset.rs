use std::fmt;
use std::sync::Arc;

use kiln_feature::{DenseFeatures, FeatureStore, Labels};
use kiln_graph::{Csc, CscBuilder, Duplicates, ItemId, NodeId, SharedArray};
use kiln_store::Error as StoreError;

use crate::check::{Place, check_split, check_values, for_each_rows};
use crate::draws::Draws;
use crate::error::require;
use crate::{NodeNames, Note, Result};

/// A graph with all that node classification needs. Cloning shares the arrays.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// What the set is called on a command line.
    pub name: String,
    /// The topology.
    pub graph: Arc<Csc>,
    /// One row a node, `[n_nodes, dim]`.
    pub features: Arc<dyn FeatureStore>,
    /// One class a node, or none.
    pub labels: Arc<Labels>,
    /// Which labelled nodes to train and to judge on.
    pub split: Split,
    /// The nodes' names; empty for sets whose nodes have none.
    pub names: Arc<NodeNames>,
    /// The classes' names, by class.
    pub class_names: Vec<String>,
    /// The edge types' names, by type; empty for graphs without edge types.
    pub edge_type_names: Vec<String>,
    /// What the user should know of how the set was read: what was converted, what looks wrong.
    pub notes: Vec<Note>,
}

/// Three sets of labelled items, disjoint in sets that are built in or made: nodes ([`NodeId`]), or the graphs of a
/// [`GraphDataset`](crate::GraphDataset) ([`GraphId`](kiln_graph::GraphId)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split<I: ItemId = NodeId> {
    /// The items whose labels the loss reads.
    pub train: SharedArray<I>,
    /// The items that choose the epoch and the settings.
    pub val: SharedArray<I>,
    /// The items that are read once, at the end.
    pub test: SharedArray<I>,
}

impl<I: ItemId> Split<I> {
    /// A random split of the items `0..n_items`: nodes, or the graphs of a set. The first part gets the share
    /// `shares[0]` of them, the second `shares[1]`, both rounded, and the third the rest. Each part ascends.
    /// `docs/rng.md` has the stream and an example.
    ///
    /// ```
    /// use kiln_data::Split;
    /// use kiln_graph::GraphId;
    ///
    /// let split = Split::<GraphId>::random(188, [0.8, 0.1], 7)?;
    /// assert_eq!(split.parts().map(|(_, items)| items.len()), [150, 19, 19]);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BadParameter`](crate::Error::BadParameter) for shares that are not 0 to 1, alone and together, and for 2^32 items or more.
    pub fn random(n_items: usize, shares: [f64; 2], seed: u64) -> Result<Self> {
        // What sums of decimal fractions are off by.
        const TOLERANCE: f64 = 1e-9;
        require(n_items <= u32::MAX as usize, "n_items", "at most 2^32 - 1", n_items)?;
        for share in shares {
            require((0.0..=1.0).contains(&share), "a share of the split", "0 to 1", share)?;
        }
        let sum = shares[0] + shares[1];
        require(sum <= 1.0 + TOLERANCE, "the sum of the shares", "at most 1", sum)?;
        let [n_train, n_val] = shares.map(|share| (n_items as f64 * share).round() as usize);
        Ok(Draws::new(seed).split(n_items, n_train, (n_train + n_val).min(n_items)))
    }

    /// The split of cross-validation that leaves out some folds: the first of them is the test split, the second one, if
    /// any, the validation split, and all other folds together are the training split.
    ///
    /// # Panics
    /// When `left_out` is empty or names a fold that is not there.
    pub fn leave_out(folds: &[Vec<I>], left_out: &[usize]) -> Self {
        let rest = folds.iter().enumerate().filter(|(fold, _)| !left_out.contains(fold));
        let train: Vec<I> = rest.flat_map(|(_, items)| items.iter().copied()).collect();
        let val = left_out.get(1).map_or_else(Vec::new, |&fold| folds[fold].clone());
        Self { train: train.into(), val: val.into(), test: folds[left_out[0]].clone().into() }
    }

    /// The labelled items in `n_folds` parts, each class dealt out as evenly as can be, for cross-validation: of
    /// each class, and of all classes together, two folds differ by one item at most. Every labelled item is in
    /// exactly one fold, and items without a class are in none. Each fold ascends.
    ///
    /// The items of each class, in ascending order, are shuffled as [`Split::random`] shuffles, one class after
    /// the other from one stream, and dealt to the folds in turn, from where the class before ended.
    /// `docs/rng.md` has the stream and an example.
    ///
    /// # Errors
    /// [`Error::BadParameter`](crate::Error::BadParameter) for fewer than 2 folds and for more than there are labelled items, and
    /// [`Error::Feature`](crate::Error::Feature) for a label that is no class.
    pub fn folds(labels: &Labels<I>, n_folds: usize, seed: u64) -> Result<Vec<Vec<I>>> {
        labels.validate()?;
        require(n_folds >= 2, "n_folds", "at least 2", n_folds)?;
        let mut by_class = vec![Vec::new(); labels.n_classes()];
        for item in (0..labels.len() as u32).map(I::new) {
            if let Some(class) = labels.get(item) {
                by_class[class as usize].push(item);
            }
        }
        let n_labelled: usize = by_class.iter().map(Vec::len).sum();
        require(n_folds <= n_labelled, "n_folds", "at most one a labelled item", n_folds)?;
        let mut draws = Draws::new(seed);
        by_class.iter_mut().for_each(|items| draws.shuffle(items));
        let mut folds = vec![Vec::with_capacity(n_labelled.div_ceil(n_folds)); n_folds];
        for (position, item) in by_class.into_iter().flatten().enumerate() {
            folds[position % n_folds].push(item);
        }
        folds.iter_mut().for_each(|fold| fold.sort_unstable());
        Ok(folds)
    }

    /// The three parts with their names.
    pub fn parts(&self) -> [(&'static str, &SharedArray<I>); 3] {
        [("train", &self.train), ("val", &self.val), ("test", &self.test)]
    }
}

impl<I: ItemId> Default for Split<I> {
    /// Three empty parts.
    fn default() -> Self {
        Self { train: SharedArray::default(), val: SharedArray::default(), test: SharedArray::default() }
    }
}

impl fmt::Display for Dataset {
    /// One line: the name and the sizes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (graph, split) = (&self.graph, &self.split);
        write!(
            f,
            "{}: {} nodes, {} edges, {} features, {} classes; {} / {} / {} nodes to train, validate, test",
            self.name,
            graph.n_nodes(),
            graph.n_edges(),
            self.features.dim(),
            self.labels.n_classes(),
            split.train.len(),
            split.val.len(),
            split.test.len(),
        )
    }
}

impl Dataset {
    /// The same set with graph and features in the process's own memory, where they are mapped; it opens no
    /// longer in constant time, and takes their bytes. With an allocator that gives large buffers in huge
    /// pages, of which the processor has fewer to look up, random places are read faster: a batch of 1024 nodes and
    /// 605,000 input nodes, out of 1.5 GB, took one thread 26 + 58 ms to sample and to gather mapped, and takes
    /// 23 + 46 ms. The copy took 1.3 to 2.7 s.
    pub fn in_memory(self) -> Self {
        let graph = Arc::new(self.graph.in_memory());
        let features = self.features.in_memory().unwrap_or(self.features);
        Self { graph, features, ..self }
    }

    /// The same set with each feature column shifted and scaled to mean 0 and standard deviation 1, in
    /// 32-bit floats in memory. A column of one value becomes 0.
    ///
    /// Mean and deviation are taken over all nodes, those of the validation and test parts too: features
    /// of all nodes are known when training starts (the transductive setting). No label is read.
    ///
    /// # Errors
    /// [`Error::Feature`](crate::Error::Feature) for rows of a damaged file, and
    /// [`kiln_store::Error::OutOfMemory`].
    pub fn standardize(self) -> Result<Self> {
        self.map_features(|values, dim| {
            let scaling = Scaling::of_columns(values, dim);
            for row in values.chunks_exact_mut(dim) {
                for ((value, mean), factor) in row.iter_mut().zip(&scaling.means).zip(&scaling.factors) {
                    *value = ((f64::from(*value) - mean) * factor) as f32;
                }
            }
            Ok(())
        })
    }

    /// The same set with each feature row divided by its sum, in memory: bags of words become frequencies, as
    /// with PyG's `NormalizeFeatures`, which before that subtracts the least value of the whole matrix from
    /// all of it, and divides by 1 where a sum is below 1. A row whose sum is 0 stays as it is. Sparse rows
    /// stay sparse, others become 32-bit floats.
    ///
    /// # Errors
    /// [`kiln_store::Error::BadValue`] for a row with a negative value, whose sum says nothing;
    /// [`Error::Feature`](crate::Error::Feature) for rows of a damaged file, and
    /// [`kiln_store::Error::OutOfMemory`].
    pub fn row_normalize(self) -> Result<Self> {
        let normalize = |node: NodeId, row: &mut [f32]| {
            if let Some(negative) = row.iter().find(|&&value| value < 0.0) {
                return Err(StoreError::BadValue {
                    path: self.name.clone().into(),
                    what: "a feature of node",
                    position: node.0.into(),
                    expected: "no negative value, so that a row has a sum to divide by".into(),
                    found: negative.to_string(),
                }
                .into());
            }
            let sum: f64 = row.iter().map(|&value| f64::from(value)).sum();
            if sum != 0.0 {
                row.iter_mut().for_each(|value| *value = (f64::from(*value) / sum) as f32);
            }
            Ok(())
        };
        if let Some(sparse) = self.features.as_sparse() {
            let features = Arc::new(sparse.map_rows(normalize)?);
            return Ok(Self { features, ..self });
        }
        self.clone().map_features(|values, dim| {
            let mut rows = (0..).map(NodeId).zip(values.chunks_exact_mut(dim));
            rows.try_for_each(|(node, row)| normalize(node, row))
        })
    }

    /// The same set with the reverse of each edge added, in memory; edges that then stand twice become
    /// one. Weights and edge types are kept, the reverse having those of its edge.
    ///
    /// # Errors
    /// [`Error::Graph`](crate::Error::Graph) for a damaged graph.
    pub fn symmetrize(self) -> Result<Self> {
        let graph = Arc::new(symmetrized(&self.graph)?);
        Ok(Self { graph, ..self })
    }

    /// Reads everything once and checks what opening a mapped set does not: that edges and labels are in
    /// range, that weights and features are finite numbers, and that the split's nodes exist and have
    /// labels. Gives what it noticed. For a set on disk, [`format::verify`](crate::format::verify) does the
    /// same and names the files.
    ///
    /// # Errors
    /// [`Error::Graph`](crate::Error::Graph) and [`Error::Feature`](crate::Error::Feature) for edges, labels
    /// and rows that cannot be, [`kiln_store::Error::BadValue`] for values that are no finite
    /// numbers, and for types, names and splits.
    pub fn validate(&self) -> Result<Vec<Note>> {
        check_values(self, Place::Set(self.name.as_ref()))?;
        self.check_split()
    }

    /// Reads the split and its nodes' labels: that the nodes exist and have labels. Gives what it noticed: parts
    /// that overlap. It is part of [`Dataset::validate`], and cheap enough to do before every run.
    ///
    /// # Errors
    /// [`kiln_store::Error::BadValue`] for the first node that cannot be in a split.
    pub fn check_split(&self) -> Result<Vec<Note>> {
        let mut notes = Vec::new();
        check_split(Place::Set(self.name.as_ref()), &self.split, &self.labels, &mut notes)?;
        Ok(notes)
    }

    /// All rows through `change`, which gets them row by row and their number of columns.
    fn map_features(self, change: impl FnOnce(&mut [f32], usize) -> Result<()>) -> Result<Self> {
        let (dim, n_rows) = (self.features.dim(), self.features.n_rows());
        let mut values = Vec::new();
        let has_room = n_rows.checked_mul(dim).map(|n_values| values.try_reserve_exact(n_values));
        if !matches!(has_room, Some(Ok(()))) {
            let what = format!("{n_rows} rows of {dim} features as 32-bit floats");
            return Err(StoreError::OutOfMemory { what }.into());
        }
        for_each_rows(&*self.features, |_, rows| {
            values.extend(std::mem::take(rows).into_f32());
            Ok(())
        })?;
        change(&mut values, dim)?;
        Ok(Self { features: Arc::new(DenseFeatures::from_f32(values, dim)?), ..self })
    }
}

/// A graph with the reverse of each edge added and duplicates removed.
pub(crate) fn symmetrized(graph: &Csc) -> Result<Csc> {
    graph.validate()?;
    let srcs: &[u32] = bytemuck::cast_slice(graph.indices());
    let mut dsts = Vec::with_capacity(srcs.len());
    for (dst, range) in graph.indptr().windows(2).enumerate() {
        dsts.resize(range[1] as usize, dst as u32);
    }
    let mut builder = CscBuilder::new(graph.n_nodes()).symmetrize().duplicates(Duplicates::Remove);
    if let Some(weights) = graph.weights() {
        builder = builder.weights(weights);
    }
    if let Some(types) = graph.edge_types() {
        builder = builder.edge_types(types);
    }
    Ok(builder.build(srcs, &dsts)?)
}

/// What takes each column to mean 0 and standard deviation 1.
struct Scaling {
    means: Vec<f64>,
    /// One over the standard deviation; 0 for a column of one value.
    factors: Vec<f64>,
}

impl Scaling {
    fn of_columns(values: &[f32], dim: usize) -> Self {
        let n_rows = (values.len() / dim).max(1) as f64;
        let mut means = vec![0.0; dim];
        for row in values.chunks_exact(dim) {
            for (mean, &value) in means.iter_mut().zip(row) {
                *mean += f64::from(value) / n_rows;
            }
        }
        let mut variances = vec![0.0; dim];
        for row in values.chunks_exact(dim) {
            for ((variance, &value), mean) in variances.iter_mut().zip(row).zip(&means) {
                *variance += (f64::from(value) - mean).powi(2) / n_rows;
            }
        }
        // Whether a column varies is read from the values: a rounded mean gives it a variance of its own.
        let first: Vec<f32> = values.iter().take(dim).copied().collect();
        let mut varies = vec![false; dim];
        for row in values.chunks_exact(dim) {
            for ((varies, value), first) in varies.iter_mut().zip(row).zip(&first) {
                *varies |= value != first;
            }
        }
        let factor = |(&variance, &varies): (&f64, &bool)| if varies { 1.0 / variance.sqrt() } else { 0.0 };
        let factors = variances.iter().zip(&varies).map(factor).collect();
        Self { means, factors }
    }
}
