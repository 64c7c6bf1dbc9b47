//! The steps that prepare a data set: scaled features, normalised rows, reverse edges and self loops.

use std::sync::Arc;

use kiln_feature::{DenseFeatures, FeatureStore, PreparationStep, Scaling, normalize_row};
use kiln_graph::{
    Csc, EdgeColumns, NodeId, Relations, add_self_loops_of_type, features_with_self_loops, symmetrize,
};
use kiln_store::Error as StoreError;
use kiln_store::progress::{Progress, ProgressUnit};

use crate::check::for_each_rows;
use crate::layout::Layout;
use crate::times::{range_of, with_times_of_loops};
use crate::{BuildError, Dataset, DatasetTimes, Error, NotHomogeneousError, Result, TimeError};

impl Dataset {
    /// Returns the set with each feature column shifted and scaled to mean 0 and standard deviation 1, as 32-bit
    /// floats in memory. A constant column becomes 0.
    ///
    /// Mean and deviation are computed over all nodes, including those of the validation and test split: the features
    /// of all nodes are known when training starts (the transductive setting). Of a set with a split by time whose nodes have times,
    /// they are those of the nodes before `val`, as of transforms of imported tables. No label is read.
    ///
    /// # Errors
    /// Returns [`Error::Feature`] if a row of a damaged file cannot be read, and
    /// [`kiln_store::Error::OutOfMemory`] if the rows do not fit in memory, and [`TimeError::EmptyPart`] if no node is before `val`.
    pub fn standardize(self) -> Result<Self> {
        self.require_plain("standardize")?;
        let mut scaling = None;
        let times = self.times.clone();
        let scaled = self.map_features(|values, dim| {
            let scaling = scaling.insert(match known_rows(&times, values, dim)? {
                Some(known) => Scaling::of_columns(&known, dim),
                None => Scaling::of_columns(values, dim),
            });
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
    /// Returns [`kiln_store::Error::BadValue`] if a row has a negative value, [`Error::Feature`]
    /// if a row of a damaged file cannot be read, and [`kiln_store::Error::OutOfMemory`] if the rows do not fit in
    /// memory.
    pub fn row_normalize(self) -> Result<Self> {
        self.require_plain("row_normalize")?;
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
        if let Some(sparse) = self.node_features()?.as_sparse() {
            let features = Arc::new(sparse.map_rows(normalize)?);
            return Ok(self.with_features(features).prepared(step));
        }
        let normalized = self.clone().map_features(|values, dim| {
            let mut rows = (0..).map(NodeId).zip(values.chunks_exact_mut(dim));
            rows.try_for_each(|(node, row)| normalize(node, row))
        })?;
        Ok(normalized.prepared(step))
    }

    /// Returns the set with the reverse of each edge added and duplicate edges removed. The new graph is in memory. The
    /// reverse of an edge has its row in each column.
    ///
    /// # Errors
    /// Returns [`Error::Graph`] if the graph is damaged.
    pub fn symmetrize(self) -> Result<Self> {
        self.require_plain("symmetrize")?;
        let n_edges = self.graph.n_edges();
        let progress = Progress::start("adding reverse edges", ProgressUnit::Edges, n_edges);
        let graph = symmetrize(self.csc()?)?;
        progress.advance(n_edges);
        Ok(self.with_csc(graph).prepared(Some(PreparationStep::Symmetrize)))
    }

    /// Returns the set with a self loop on each node that has none, as [`kiln_graph::add_self_loops`] adds them, before it
    /// is partitioned for a model with attention. (A loader of a whole graph adds the loops itself.) The new graph is in
    /// memory. Added loops have the first type without edges and without a name. If edge types have names, it is named
    /// `self loop`. The features of an added loop are the mean of those of the edges into its node
    /// ([`features_with_self_loops`]).
    ///
    /// # Errors
    /// Returns [`Error::Graph`] if the graph is damaged, or if it has an edge of type 255, and
    /// [`BuildError::NoEdgeFeatures`] if edges have other columns than weights, types, and features or times, and a loop must be added.
    pub fn add_self_loops(mut self) -> Result<Self> {
        self.require_plain("add_self_loops")?;
        // A type without edges may have a name, which the loops must not take over.
        let loop_type = self.n_edge_types().unwrap_or(0);
        let before = Arc::clone(self.csc()?);
        let progress = Progress::start("adding self loops", ProgressUnit::Edges, before.n_edges());
        let mut graph = add_self_loops_of_type(&before, loop_type)?;
        progress.advance(before.n_edges());
        if self.graph.n_edges() < graph.n_edges() {
            self.refuse_loops_without_rows(&before)?;
            if let Some(features) = features_with_self_loops(&before, &graph) {
                graph = graph.with_column(EdgeColumns::FEATURES, features)?;
            }
            graph = with_times_of_loops(graph, &before)?;
        }
        // Loops of a new type were added if the number of types grew.
        if !self.edge_type_names.is_empty() && before.n_edge_types() < graph.n_edge_types() {
            self.edge_type_names.resize(loop_type, String::new());
            self.edge_type_names.push("self loop".to_owned());
        }
        let step = (!self.preparation.adds_self_loops()).then_some(PreparationStep::SelfLoops);
        Ok(self.with_csc(graph).prepared(step))
    }

    /// Returns the set with self loops, as [`Dataset::add_self_loops`] does, but without the columns of edges in which an added loop
    /// has no row, and the names of these columns.
    ///
    /// # Errors
    /// Returns [`Error::Graph`] if the graph is damaged, or if it has an edge of type 255.
    pub fn add_self_loops_dropping_columns(self) -> Result<(Self, Vec<String>)> {
        let mut data = self;
        let mut lost = Vec::new();
        loop {
            match data.clone().add_self_loops() {
                Err(Error::Build(BuildError::NoEdgeFeatures { column, .. })) => {
                    data = data.without_edge_column(&column)?;
                    lost.push(column);
                }
                looped => return Ok((looped?, lost)),
            }
        }
    }

    /// Checks that the set is homogeneous: the format of heterogeneous sets records no preparation.
    fn require_plain(&self, step: &'static str) -> Result<()> {
        self.require_one_type(step)?;
        match self.layout {
            Layout::Plain => Ok(()),
            Layout::Numbered => {
                Err(Error::NotHomogeneous(NotHomogeneousError::NamedTypes { name: self.name.clone(), step }))
            }
        }
    }

    fn with_csc(self, graph: Csc) -> Self {
        Self { graph: Arc::new(Relations::of_graph(graph)), ..self }
    }

    fn with_features(self, features: Arc<dyn FeatureStore>) -> Self {
        Self { features: vec![Some(features)], ..self }
    }

    /// Returns an error if edges have columns in which an added loop has no row.
    fn refuse_loops_without_rows(&self, graph: &Csc) -> Result<()> {
        // An added loop was always known, so its features must not be those of later edges.
        let others = match self.has_times() {
            true => graph.columns().rows().without(EdgeColumns::TIMES),
            false => graph.columns().rows().without(EdgeColumns::FEATURES),
        };
        match others.names().next() {
            Some(column) => {
                let name = self.name.clone();
                Err(BuildError::NoEdgeFeatures { name, column: column.to_owned() }.into())
            }
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
        let features = Arc::clone(self.node_features()?);
        let dim = features.dim();
        let n_rows = features.n_rows();
        let mut values = Vec::new();
        let has_room = n_rows.checked_mul(dim).map(|n_values| values.try_reserve_exact(n_values));
        if !matches!(has_room, Some(Ok(()))) {
            let what = format!("{n_rows} rows of {dim} features as 32-bit floats");
            return Err(StoreError::OutOfMemory { what }.into());
        }
        for_each_rows("reading features", &*features, |_, rows| {
            values.extend(std::mem::take(rows).into_f32());
            Ok(())
        })?;
        let progress = Progress::start("preparing features", ProgressUnit::Rows, n_rows as u64);
        change(&mut values, dim)?;
        progress.advance(n_rows as u64);
        Ok(self.with_features(Arc::new(DenseFeatures::from_f32(values, dim)?)))
    }
}

/// Returns the rows of the nodes that were known before the validation of a split by time; `None` without one, or for nodes that
/// always existed. `values` are all rows, `[n_nodes, dim]`.
fn known_rows(times: &DatasetTimes, values: &[f32], dim: usize) -> Result<Option<Vec<f32>>> {
    let (Some(split), Some(of_nodes)) = (times.split, times.node_times(0)) else { return Ok(None) };
    let mut known = Vec::new();
    for (row, time) in values.chunks_exact(dim).zip(of_nodes.iter()) {
        if *time < split.val {
            known.extend_from_slice(row);
        }
    }
    if known.is_empty() {
        let range = format!("before {}", times.kind.text(split.val));
        let times = range_of(of_nodes).map_or_else(
            || "none".to_owned(),
            |[first, last]| format!("{} to {}", times.kind.text(first), times.kind.text(last)),
        );
        return Err(TimeError::EmptyPart { part: "train", range, times }.into());
    }
    Ok(Some(known))
}
