use std::fmt;
use std::path::Path;
use std::sync::Arc;

use kiln_feature::{
    DenseFeatures, EdgeFeatures, FeatureStore, Labels, Preparation, PreparationStep, Scaling, TargetKind,
    TargetValues, Targets, normalize_row,
};
use kiln_graph::{Csc, ItemId, NodeId, SharedArray, add_self_loops_of_type, symmetrize};
use kiln_store::Error as StoreError;

use crate::check::{Place, check_links, check_split, check_values, for_each_rows};
use crate::draws::Draws;
use crate::error::require;
use crate::{Error, LinkTargets, NodeNames, Note, Result};

/// A data set for node tasks: a graph with features, targets and a split. Cloning shares the arrays.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// The name of the set in messages and reports.
    pub name: String,
    /// The graph in CSC order.
    pub graph: Arc<Csc>,
    /// One feature row per node, `[n_nodes, dim]`.
    pub features: Arc<dyn FeatureStore>,
    /// One feature row per edge, `[n_edges, dim]`, in CSC order; `None` if edges have no features.
    pub edge_features: Option<EdgeFeatures>,
    /// The class of each node; a node may have no class. Empty, without classes, if `target_values` is set.
    pub labels: Arc<Labels>,
    /// The target values of each node, for several labels per node and for regression; `None` for class labels.
    pub target_values: Option<Arc<TargetValues>>,
    /// The nodes for training, validation and test, all of which have a target.
    pub split: Split,
    /// The links of link prediction with their split, whose graph is [`Dataset::graph`]; `None` if the set has none.
    /// [`LinkSplit::of_dataset`](crate::LinkSplit::of_dataset) then splits the edges.
    pub links: Option<Arc<LinkTargets>>,
    /// The nodes' names; empty for sets whose nodes have no names.
    pub names: Arc<NodeNames>,
    /// The classes' names, by class.
    pub class_names: Vec<String>,
    /// The edge types' names, by type; empty for graphs without edge types.
    pub edge_type_names: Vec<String>,
    /// The steps that [`Dataset::standardize`], [`Dataset::row_normalize`], [`Dataset::symmetrize`] and
    /// [`Dataset::add_self_loops`] have applied. A trained model stores them and applies them to the data of predictions.
    pub preparation: Preparation,
    /// Notes about how the set was read: converted arrays and suspicious data.
    pub notes: Vec<Note>,
}

/// The labelled items for training, validation and test. The items are nodes ([`NodeId`]) or the graphs of a
/// [`GraphDataset`](crate::GraphDataset) ([`GraphId`](kiln_graph::GraphId)). In built-in and synthetic data sets, no
/// item is in two parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split<I: ItemId = NodeId> {
    /// The items that the model is trained on.
    pub train: SharedArray<I>,
    /// The items whose metrics select the best epoch and the hyperparameters.
    pub val: SharedArray<I>,
    /// The items that the final model is evaluated on.
    pub test: SharedArray<I>,
}

impl<I: ItemId> Split<I> {
    /// Returns a random split of the items `0..n_items`: nodes, or the graphs of a set. The first part gets the share
    /// `shares[0]` of the items and the second `shares[1]`, both rounded; the third gets the rest. Each part is in
    /// ascending order. `docs/rng.md` specifies the random numbers and has an example.
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
    /// Returns [`Error::BadParameter`](crate::Error::BadParameter) if a share or the sum of both is not in `0..=1`, or
    /// if there are 2^32 items or more.
    pub fn random(n_items: usize, shares: [f64; 2], seed: u64) -> Result<Self> {
        // Decimal fractions are not exact in binary: the sum of two that add up to 1 may round to slightly more.
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

    /// Returns the cross-validation split that leaves out the folds with the indices `left_out`. The fold of the first
    /// index is the test split, and the fold of the second index, if any, is the validation split. All folds that are
    /// not left out form the training split.
    ///
    /// # Panics
    /// Panics if `left_out` is empty or contains an index that is not below `folds.len()`.
    pub fn leave_out(folds: &[Vec<I>], left_out: &[usize]) -> Self {
        let rest = folds.iter().enumerate().filter(|(fold, _)| !left_out.contains(fold));
        let train: Vec<I> = rest.flat_map(|(_, items)| items.iter().copied()).collect();
        let val = left_out.get(1).map_or_else(Vec::new, |&fold| folds[fold].clone());
        Self { train: train.into(), val: val.into(), test: folds[left_out[0]].clone().into() }
    }

    /// Splits the labelled items into `n_folds` stratified folds for cross-validation. Any two folds differ by at most
    /// one in their number of items of each class, and in their total number of items. Every labelled item is in
    /// exactly one fold, and items without a class are in no fold. Each fold is in ascending order.
    ///
    /// The items of each class, in ascending order, are shuffled as by [`Split::random`], one class after another
    /// from one stream of random numbers, and dealt to the folds in turn; each class continues at the fold after the
    /// last item of the previous class. `docs/rng.md` specifies the random numbers and has an example.
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`](crate::Error::BadParameter) if there are fewer than 2 folds or more folds than
    /// labelled items, and [`Error::Feature`](crate::Error::Feature) if a label is out of range.
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
        require(n_folds <= n_labelled, "n_folds", "at most one per labelled item", n_folds)?;
        let mut draws = Draws::new(seed);
        by_class.iter_mut().for_each(|items| draws.shuffle(items));
        let mut folds = vec![Vec::with_capacity(n_labelled.div_ceil(n_folds)); n_folds];
        for (position, item) in by_class.into_iter().flatten().enumerate() {
            folds[position % n_folds].push(item);
        }
        folds.iter_mut().for_each(|fold| fold.sort_unstable());
        Ok(folds)
    }

    /// Returns the three parts with their names: `train`, `val` and `test`.
    pub fn parts(&self) -> [(&'static str, &SharedArray<I>); 3] {
        [("train", &self.train), ("val", &self.val), ("test", &self.test)]
    }
}

impl<I: ItemId> Default for Split<I> {
    /// Returns a split with three empty parts.
    fn default() -> Self {
        Self { train: SharedArray::default(), val: SharedArray::default(), test: SharedArray::default() }
    }
}

impl fmt::Display for Dataset {
    /// Writes one line with the name and the sizes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (graph, split, targets) = (&self.graph, &self.split, self.targets());
        write!(
            f,
            "{}: {} nodes, {} edges, {} features, {} {}; {} / {} / {} nodes to train, validate, test",
            self.name,
            graph.n_nodes(),
            graph.n_edges(),
            self.features.dim(),
            targets.n_outputs(),
            noun(targets.kind()),
            split.train.len(),
            split.val.len(),
            split.test.len(),
        )?;
        let Some(links) = &self.links else { return Ok(()) };
        let [train, val, test] = links.split().parts().map(|(_, links)| links.len());
        write!(f, "; {train} / {val} / {test} links")
    }
}

/// Returns the noun for the outputs of a model for targets of this kind.
pub(crate) fn noun(kind: TargetKind) -> &'static str {
    match kind {
        TargetKind::Classes => "classes",
        TargetKind::MultiLabel => "labels",
        TargetKind::Regression => "target columns",
        TargetKind::Links => "links",
    }
}

impl Dataset {
    /// Returns the targets: the class of each node, or its target values.
    pub fn targets(&self) -> Targets {
        match &self.target_values {
            Some(values) => Targets::Values(values.clone()),
            None => Targets::Classes(self.labels.clone()),
        }
    }

    /// Returns the number of edge types: one more than the largest, or the number of names if it is larger. `None` if edges
    /// have no types. It reads all types.
    pub fn n_edge_types(&self) -> Option<usize> {
        Some(self.graph.n_edge_types()?.max(self.edge_type_names.len()))
    }

    /// Returns the nodes whose neighbourhoods training samples: for a set with links, the sources and the destinations of
    /// the training links, each once and ascending (negatives are drawn later); otherwise the training nodes.
    ///
    /// # Errors
    /// Returns [`LinkSplitError::LinkOutOfRange`](crate::LinkSplitError::LinkOutOfRange) or
    /// [`kiln_store::Error::BadValue`] if a training link is not in the list of links, or a node of one not in the graph.
    pub fn training_nodes(&self) -> Result<SharedArray<NodeId>> {
        match &self.links {
            Some(targets) => training_nodes_of(targets, self.graph.n_nodes(), &self.name),
            None => Ok(self.split.train.clone()),
        }
    }

    /// Copies the graph and the features of nodes and edges into the process's memory if they are mapped. This takes time and memory in
    /// proportion to the size of the set. With an allocator that uses huge pages, random reads are faster than in the
    /// mapped set, since they cause fewer TLB misses.
    pub fn in_memory(self) -> Self {
        let graph = Arc::new(self.graph.in_memory());
        let features = self.features.in_memory().unwrap_or(self.features);
        let edge_features = self.edge_features.as_ref().map(EdgeFeatures::in_memory);
        Self { graph, features, edge_features, ..self }
    }

    /// Returns the set with each feature column shifted and scaled to mean 0 and standard deviation 1, as 32-bit
    /// floats in memory. A constant column becomes 0.
    ///
    /// Mean and deviation are computed over all nodes, including those of the validation and test split: the features
    /// of all nodes are known when training starts (the transductive setting). No label is read.
    ///
    /// # Errors
    /// Returns [`Error::Feature`](crate::Error::Feature) if a row of a damaged file cannot be read, and
    /// [`kiln_store::Error::OutOfMemory`] if the rows do not fit in memory.
    pub fn standardize(self) -> Result<Self> {
        let mut scaling = None;
        let scaled = self.map_features(|values, dim| {
            let scaling = scaling.insert(Scaling::of_columns(values, dim));
            values.chunks_exact_mut(dim).for_each(|row| scaling.scale_row(row));
            Ok(())
        })?;
        Ok(scaled.prepared(scaling.map(PreparationStep::Scale)))
    }

    /// Returns the set with each feature row divided by its sum, in memory: bags of words become frequencies. A row
    /// whose sum is 0 is not changed. Sparse rows stay sparse; others become 32-bit floats. PyG's `NormalizeFeatures`
    /// differs: it first subtracts the minimum of the whole matrix, and it divides by 1 if a sum is below 1.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::BadValue`] if a row has a negative value, [`Error::Feature`](crate::Error::Feature)
    /// if a row of a damaged file cannot be read, and [`kiln_store::Error::OutOfMemory`] if the rows do not fit in
    /// memory.
    pub fn row_normalize(self) -> Result<Self> {
        let normalize = |node: NodeId, row: &mut [f32]| {
            normalize_row(row).map_err(|negative| {
                let error = StoreError::BadValue {
                    path: self.name.clone().into(),
                    what: "a feature of node",
                    position: node.0.into(),
                    expected: "no negative values: a row is divided by its sum".into(),
                    found: negative.to_string(),
                };
                Error::from(error)
            })
        };
        let step = Some(PreparationStep::RowNormalize);
        if let Some(sparse) = self.features.as_sparse() {
            let features = Arc::new(sparse.map_rows(normalize)?);
            return Ok(Self { features, ..self }.prepared(step));
        }
        let normalized = self.clone().map_features(|values, dim| {
            let mut rows = (0..).map(NodeId).zip(values.chunks_exact_mut(dim));
            rows.try_for_each(|(node, row)| normalize(node, row))
        })?;
        Ok(normalized.prepared(step))
    }

    /// Returns the set with the reverse of each edge added and duplicate edges removed. The new graph is in memory. The
    /// reverse of an edge has its weight and edge type.
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if the graph is damaged, and
    /// [`Error::NoEdgeFeatures`](crate::Error::NoEdgeFeatures) if edges have features:
    /// [`DatasetBuilder::symmetrize`](crate::DatasetBuilder::symmetrize) adds reverse edges with the features of their
    /// edges.
    pub fn symmetrize(self) -> Result<Self> {
        self.refuse_edges_without_features(
            "reverse edges",
            "symmetrize the edge list when the set is built (DatasetBuilder::symmetrize) or converted \
             (kiln data convert --symmetrize), or remove the edge features (edge_features: None)",
        )?;
        let graph = Arc::new(symmetrize(&self.graph)?);
        Ok(Self { graph, ..self }.prepared(Some(PreparationStep::Symmetrize)))
    }

    /// Returns the set with a self loop on each node that has none, as [`kiln_graph::add_self_loops`] adds them, before it
    /// is partitioned for a model with attention. (A loader of a whole graph adds the loops itself.) The new graph is in
    /// memory. Added loops have the first type without edges and without a name. If edge types have names, it is named
    /// `self loop`.
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if the graph is damaged, or if it has an edge of type 255, and
    /// [`Error::NoEdgeFeatures`](crate::Error::NoEdgeFeatures) if edges have features and a loop must be added.
    pub fn add_self_loops(mut self) -> Result<Self> {
        // A type without edges may have a name, which the loops must not take over.
        let loop_type = self.n_edge_types().unwrap_or(0);
        let graph = add_self_loops_of_type(&self.graph, loop_type)?;
        if self.graph.n_edges() < graph.n_edges() {
            self.refuse_edges_without_features(
                "self loops",
                "add the loops and their rows to the edge list before the set is built, or remove the edge features \
                 (edge_features: None)",
            )?;
        }
        // Loops of a new type were added if the number of types grew.
        if !self.edge_type_names.is_empty() && self.graph.n_edge_types() < graph.n_edge_types() {
            self.edge_type_names.resize(loop_type, String::new());
            self.edge_type_names.push("self loop".to_owned());
        }
        self.graph = Arc::new(graph);
        let step = (!self.preparation.adds_self_loops()).then_some(PreparationStep::SelfLoops);
        Ok(self.prepared(step))
    }

    /// Reads all data once and checks what opening a mapped set does not: that edges and targets are in range, that
    /// weights and features are finite, that there is a row per edge, and that the split's nodes exist and have targets. Returns notes, for example
    /// about splits that overlap. For a set on disk, [`format::verify`](crate::format::verify) performs these checks
    /// and names the files in its errors.
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) or [`Error::Feature`](crate::Error::Feature) if edges, labels or
    /// rows are invalid, and [`kiln_store::Error::BadValue`] if a value is not finite or a type, name or split is
    /// invalid.
    pub fn validate(&self) -> Result<Vec<Note>> {
        check_values(self, Place::Set(self.name.as_ref()))?;
        self.check_split()
    }

    /// Checks that the split's nodes exist and have a target, and returns notes about parts that overlap. It is part of
    /// [`Dataset::validate`], and cheap enough to call before every run.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::BadValue`] for the first node that does not exist or has no target.
    pub fn check_split(&self) -> Result<Vec<Note>> {
        let mut notes = Vec::new();
        check_split(Place::Set(self.name.as_ref()), &self.split, &self.targets(), &mut notes)?;
        Ok(notes)
    }

    /// Returns an error if edges have features.
    fn refuse_edges_without_features(&self, added: &'static str, instead: &'static str) -> Result<()> {
        match self.edge_features {
            Some(_) => Err(Error::NoEdgeFeatures { name: self.name.clone(), added, instead }),
            None => Ok(()),
        }
    }

    /// Appends a step to the record of the preparation.
    fn prepared(mut self, step: Option<PreparationStep>) -> Self {
        self.preparation.steps.extend(step);
        self
    }

    /// Copies all rows to memory as 32-bit floats, calls `change` with the values (row-major) and the number of
    /// columns, and returns the set with the changed features.
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

/// Returns the nodes of the training links of a set with this name, each once and ascending.
pub(crate) fn training_nodes_of(
    targets: &LinkTargets,
    n_nodes: usize,
    name: &str,
) -> Result<SharedArray<NodeId>> {
    let (links, train) = (targets.links(), &targets.split().train);
    let has_nodes = |(src, dst): (NodeId, NodeId)| src.max(dst).index() < n_nodes;
    // The links of a mapped set may not have been validated.
    if !train.iter().all(|link| link.index() < links.len() && has_nodes(links.pair(*link))) {
        let folder = train.path().and_then(Path::parent);
        let place = folder.map_or(Place::Set(Path::new(name)), Place::Folder);
        check_links(targets, n_nodes, place)?;
    }
    let mut nodes: Vec<NodeId> =
        train.iter().flat_map(|link| <[NodeId; 2]>::from(links.pair(*link))).collect();
    nodes.sort_unstable();
    nodes.dedup();
    Ok(nodes.into())
}
