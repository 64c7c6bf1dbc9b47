//! The end of a builder: it builds the graph and checks that all parts are consistent.

use std::sync::Arc;

use kiln_feature::{
    DenseFeatures, EdgeFeatures, FeatureStore, Labels, PreparationStep, TargetValues, Targets,
};
use kiln_graph::{
    ColumnError, Csc, CscBuilder, Duplicates, EdgeColumns, NodeTypes, Relations, SharedArray, symmetrize,
};

use super::{DatasetBuilder, Edges, Features, GivenTargets, NODE, Nodes, OfType};
use crate::dataset::Dataset;
use crate::dataset_targets::DatasetTargets;
use crate::error::{BuildError, Error, Result, missing};
use crate::split::Split;
use crate::{TimeKind, TimeSplit};

impl<'a> DatasetBuilder<'a> {
    /// Builds the graph, checks that all parts are consistent, and returns the dataset. Labels and split may both be
    /// omitted, for link prediction: no node then has a label. Features may be omitted for any type of a heterogeneous set.
    /// Labels and split are read, features are not: [`Dataset::validate`] also finds features that are not finite.
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// // Four values in rows of two columns are the features of two nodes.
    /// let builder = Dataset::builder(3).edges(&[0, 1], &[1, 2]).features(vec![0.0; 4], 2);
    /// let error = builder.clone().build().unwrap_err();
    /// assert!(error.to_string().contains("feature rows"), "{error}");
    /// let data = builder.features(vec![0.0; 6], 2).build()?;
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Build`] if a part is missing or inconsistent with the others, or if a call does not apply to the set;
    /// [`Error::Graph`] if the edge arrays differ in length or contain a node out of range, for an invalid relation, and for the
    /// name of a type that does not exist; and [`Error::Feature`] if the features are not a whole number of rows or a label is
    /// out of range. For a heterogeneous set, the last and those of a type's lengths are within [`Error::InPart`] with the name
    /// of the type.
    pub fn build(mut self) -> Result<Dataset> {
        if let Some(error) = self.misplaced.take() {
            return Err(error.into());
        }
        match self.nodes.clone() {
            Nodes::OneType(n_nodes) => self.build_homogeneous(n_nodes),
            Nodes::Types(types) => self.build_heterogeneous(types),
        }
    }

    fn build_homogeneous(mut self, n_nodes: usize) -> Result<Dataset> {
        if self.selected.as_deref() != Some(NODE) || self.of_type.keys().any(|name| name != NODE) {
            let instead = "a homogeneous set has only the type `node`, which is selected: remove the call, or start the \
                           set with its node types (Dataset::builder_with_types)";
            return Err(BuildError::NotApplicable { call: ".nodes(type_name)", instead }.into());
        }
        let graph = self.build_graph(n_nodes)?;
        let OfType { features, times, names } = self.of_type.remove(NODE).unwrap_or_default();
        let features = features.ok_or(missing("features", ".features(x, dim)"))?.build(n_nodes)?;
        let split = self.given_split()?;
        let (values, split) = match (self.targets.take(), split) {
            (None, None) => (Labels::new(vec![-1; n_nodes], 0).into(), Split::default()),
            (targets, split) => {
                let (_, targets) = targets.ok_or(missing("labels", ".labels(y, n_classes)"))?;
                let split = split.ok_or(missing("split", ".split(train, val, test)"))?;
                let targets = targets.build(n_nodes)?;
                check_split(&split, &targets)?;
                (targets, split)
            }
        };
        if !names.is_empty() {
            check_length("node names", "node", n_nodes, names.len())?;
        }
        if !self.class_names.is_empty() {
            check_length("class names", "class", values.n_outputs(), self.class_names.len())?;
        }
        let targets = DatasetTargets { node_type: 0, values, split, class_names: self.class_names };
        let mut data = Dataset::homogeneous(self.name, graph, features, targets);
        data.preparation.steps.extend(self.symmetrize.then_some(PreparationStep::Symmetrize));
        data.edge_type_names = self.edge_type_names;
        data.names = vec![Arc::new(names)];
        with_times(data, vec![times], self.time_kind, self.time_split)
    }

    fn build_heterogeneous(mut self, types: Arc<NodeTypes>) -> Result<Dataset> {
        for name in self.of_type.keys().chain(self.targets.as_ref().map(|(name, _)| name)) {
            types.require(name)?;
        }
        let built = Relations::from_edges(types.clone(), &self.relations)?;
        self.built.extend(built.iter().cloned());
        let graph = Arc::new(Relations::new(types.clone(), std::mem::take(&mut self.built))?);
        let mut features = Vec::new();
        let mut names = Vec::new();
        let mut times = Vec::new();
        for (node_type, name) in types.names().iter().enumerate() {
            let of_type = self.of_type.remove(name).unwrap_or_default();
            let n_nodes = types.range(node_type).len();
            let store = of_type.features.map(|features| features.build(n_nodes)).transpose();
            features.push(store.map_err(|error| error.in_type(name))?);
            names.push(Arc::new(of_type.names));
            times.push(of_type.times);
        }
        let targets = self.targets_of_type(&types)?;
        let data = Dataset { targets, names, ..Dataset::heterogeneous(self.name, graph, features) };
        data.check_parts()?;
        with_times(data, times, self.time_kind, self.time_split)
    }

    /// Returns the split of nodes that was given, which is empty until the nodes are split by their times.
    fn given_split(&mut self) -> Result<Option<Split>> {
        match (self.split.take(), self.time_split) {
            (Some(_), Some(_)) => {
                let call = ".time_split(split)";
                let instead = "the nodes are split by .split(train, val, test): remove one of the calls";
                Err(BuildError::NotApplicable { call, instead }.into())
            }
            (None, Some(_)) => Ok(Some(Split::default())),
            (split, None) => Ok(split),
        }
    }

    fn targets_of_type(&mut self, types: &NodeTypes) -> Result<Option<DatasetTargets>> {
        let class_names = std::mem::take(&mut self.class_names);
        let split = self.given_split()?;
        let (name, targets, split) = match (self.targets.take(), split) {
            (None, None) => {
                check_length("class names", "class", 0, class_names.len())?;
                return Ok(None);
            }
            (Some((name, targets)), Some(split)) => (name, targets, split),
            (None, Some(_)) => return Err(missing("labels", ".labels(y, n_classes)").into()),
            (Some(_), None) => return Err(missing("split", ".split(train, val, test)").into()),
        };
        let node_type = types.require(&name)?;
        let nodes = types.range(node_type);
        let in_type = |error: Error| error.in_type(&name);
        let values = targets.build(nodes.len()).map_err(in_type)?;
        // The rows are checked first, so that the sum cannot overflow.
        check_split(&split, &values).map_err(in_type)?;
        let split = split.shifted(nodes.start);
        Ok(Some(DatasetTargets { node_type, values, split, class_names }))
    }

    /// Returns the graph of a homogeneous set.
    fn build_graph(&mut self, n_nodes: usize) -> Result<Arc<Csc>> {
        let n_types = self.edge_type_names.len();
        let graph = match self.edges.take().ok_or(missing("edges", ".edges(&srcs, &dsts)"))? {
            Edges::List { srcs, dsts } => {
                let columns = self.columns(srcs.len())?;
                Arc::new(self.csc_builder(n_nodes).columns(columns).build(srcs, dsts)?)
            }
            Edges::Graph(graph) => {
                let edge_data = [
                    ("edge weights", self.edge_weights.is_some()),
                    ("edge types", self.edge_types.is_some()),
                ];
                if let Some((what, _)) = edge_data.into_iter().find(|(_, is_given)| *is_given) {
                    return Err(BuildError::EdgeDataOfGraph { what }.into());
                }
                check_length("nodes of the graph", "node of the dataset", n_nodes, graph.n_nodes())?;
                let mut with_columns = graph;
                for (name, column) in self.columns(with_columns.n_edges() as usize)?.iter() {
                    with_columns = Arc::new(Csc::clone(&with_columns).with_column(name, column.clone())?);
                }
                match self.symmetrize {
                    true => Arc::new(symmetrize(&with_columns)?),
                    false => with_columns,
                }
            }
        };
        let largest_type = graph.edge_types().and_then(|types| types.iter().max());
        match largest_type {
            Some(&largest) if n_types > 0 && n_types <= usize::from(largest) => {
                let (what, per) = ("edge type names", "type");
                Err(BuildError::Length { what, per, expected: usize::from(largest) + 1, got: n_types }.into())
            }
            _ => Ok(graph),
        }
    }

    /// Returns the features and the other columns of the edges, in the order in which they were given.
    fn columns(&mut self, n_edges: usize) -> Result<EdgeColumns> {
        let mut columns = EdgeColumns::default();
        if let Some((rows, dim)) = self.edge_features.take() {
            let rows = EdgeFeatures::new(rows, dim)?;
            check_length("edge feature rows", "edge", n_edges, rows.n_edges() as usize)?;
            columns = columns.with(EdgeColumns::FEATURES, rows.to_column())?;
        }
        for (name, column) in std::mem::take(&mut self.edge_columns) {
            if columns.get(&name).is_some() {
                return Err(kiln_graph::Error::from(ColumnError::Repeated { name }).into());
            }
            columns = columns.with(name, column)?;
        }
        Ok(columns)
    }

    fn csc_builder(&self, n_nodes: usize) -> CscBuilder<'a> {
        let mut builder = CscBuilder::new(n_nodes);
        if self.symmetrize {
            builder = builder.symmetrize().duplicates(Duplicates::Remove);
        }
        if let Some(weights) = self.edge_weights {
            builder = builder.weights(weights);
        }
        if let Some(types) = self.edge_types {
            builder = builder.edge_types(types);
        }
        builder
    }
}

/// Returns a set with the times of the nodes of each type, and the split by time.
fn with_times(
    mut data: Dataset,
    times: Vec<Option<SharedArray<i64>>>,
    kind: TimeKind,
    split: Option<TimeSplit>,
) -> Result<Dataset> {
    data.times.kind = kind;
    for (node_type, times) in times.into_iter().enumerate() {
        let Some(times) = times else { continue };
        let n_nodes = data.graph.types().range(node_type).len();
        check_length("node times", "node", n_nodes, times.len())?;
        data = data.with_node_times(node_type, times)?;
    }
    match split {
        Some(split) => data.with_time_split(split),
        None => Ok(data),
    }
}

impl Features {
    /// Returns the features of `n_nodes` nodes.
    fn build(self, n_nodes: usize) -> Result<Arc<dyn FeatureStore>> {
        let features = match self {
            Self::Rows { rows, dim } => Arc::new(DenseFeatures::new(rows, dim)?),
            Self::Source(source) => source,
        };
        check_length("feature rows", "node", n_nodes, features.n_rows())?;
        Ok(features)
    }
}

impl GivenTargets {
    /// Returns the targets of `n_nodes` nodes.
    fn build(self, n_nodes: usize) -> Result<Targets> {
        let targets: Targets = match self {
            Self::Classes(labels) => labels.into(),
            Self::MultiLabel(labels, n) => TargetValues::multi_label(labels, n)?.into(),
            Self::Regression(values, n) => TargetValues::regression(values, n)?.into(),
        };
        check_length("labels", "node", n_nodes, targets.len())?;
        if targets.n_outputs() == 0 {
            return Err(BuildError::NoClasses.into());
        }
        targets.validate()?;
        Ok(targets)
    }
}

fn check_length(what: &'static str, per: &'static str, expected: usize, got: usize) -> Result<()> {
    match got == expected {
        true => Ok(()),
        false => Err(BuildError::Length { what, per, expected, got }.into()),
    }
}

/// Checks that each node of the split exists, has a target and is in only one part. A node may occur several times in
/// the same part.
fn check_split(split: &Split, targets: &Targets) -> Result<()> {
    const NONE: u8 = u8::MAX;
    let parts = split.parts();
    let mut part_of = vec![NONE; targets.len()];
    for (index, (part, nodes)) in parts.iter().enumerate() {
        for (position, &node) in nodes.iter().enumerate() {
            let Some(first) = part_of.get_mut(node.index()) else {
                let (node, n_nodes) = (node.0, targets.len());
                return Err(BuildError::SplitOutOfRange { part, position, node, n_nodes }.into());
            };
            if !targets.has_any(node) {
                return Err(BuildError::Unlabelled { part, position, node: node.0 }.into());
            }
            if *first != NONE && usize::from(*first) != index {
                let first = parts[usize::from(*first)].0;
                return Err(BuildError::SplitsOverlap { node: node.0, first, second: part }.into());
            }
            *first = index as u8;
        }
    }
    Ok(())
}
