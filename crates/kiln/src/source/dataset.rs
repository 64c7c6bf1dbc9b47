//! Datasets in this process.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use burn::tensor::Device;
use kiln_data::{
    Dataset, DatasetTargets, HashedPart, LinkTargets, NodeNames, Note, TaskTable, TimeKind, TimeSplit,
};
use kiln_feature::{
    EdgeColumnError, EdgeFeatureStore, EdgeFeatures, Error as FeatureError, FeatureColumn, FeatureStore,
    Preparation, PreparationStep, RelationRows, edge_rows_of,
};
use kiln_graph::{
    EdgeColumn, EdgeColumns, GraphSchema, NodeId, Relation, RelationSchema, Relations, SharedArray,
    features_with_self_loops,
};
use kiln_kernels::{DeviceSampler, GraphMode};
use kiln_sample::{FrontierSampler, HeteroNeighborSampler, NeighborSampler, TimeLimits};
use kiln_train::{DataHash, NodeKeys, PredictionData, SavedModel, SeedTimes};

use crate::data_hash::hash_with_links;
use crate::device_copy::GraphCopies;
use crate::links::MessageGraph;
use crate::source::{GraphStep, Sampling, Source, WholeGraph, no_step, no_times, seed_times};
use crate::{Error, ItemTimesError, Result};

/// A dataset with the graph that the loader samples: the result of `step` on the graph of the dataset.
#[derive(Clone)]
pub(super) struct PreparedDataset {
    data: Dataset,
    graph: Arc<Relations>,
    step: GraphStep,
    /// The set before its edges were cut, and the time; `None` for all edges.
    cut: Option<(Arc<Dataset>, i64)>,
    /// The features of the edges with those of added self loops, once they were asked for; `None` if edges have none.
    loop_features: Arc<OnceLock<Option<EdgeColumn>>>,
}

impl PreparedDataset {
    pub(super) fn new(data: Dataset) -> Self {
        let graph = Arc::clone(&data.graph);
        Self { data, graph, step: GraphStep::None, cut: None, loop_features: Arc::default() }
    }

    /// Returns the features of the edges of a graph to which the loader has added self loops; `None` for another column or
    /// step, or if edges have no features.
    fn features_with_loops(&self, name: &str) -> kiln_data::Result<Option<EdgeFeatures>> {
        if self.step != GraphStep::SelfLoops || name != EdgeColumns::FEATURES {
            return Ok(None);
        }
        let column = self.loop_features.get_or_init(|| {
            let [before, after] = [&self.data.graph, &self.graph].map(|graph| &graph.relation(0).graph);
            features_with_self_loops(before, after)
        });
        Ok(column.as_ref().map(EdgeFeatures::try_from).transpose()?)
    }

    /// Returns the set with all edges, by which it is identified, and whose edge types are those of the models.
    fn uncut(&self) -> &Dataset {
        self.cut.as_ref().map_or(&self.data, |(uncut, _)| uncut)
    }

    /// Returns whether each node was known at the time of the cut; `None` if all were.
    fn known_nodes(&self) -> Option<Arc<[bool]>> {
        self.cut.as_ref().and_then(|(_, time)| self.nodes_before(*time))
    }

    /// Returns the number of edge types of a graph of one type of nodes with all edges, of which the graph may lack some.
    fn n_uncut_edge_types(&self) -> Option<usize> {
        self.uncut().graph.relation(0).graph.n_edge_types()
    }

    /// Returns the source with the graph that passes messages, before the step.
    fn with_graph(&self, graph: &Arc<Relations>) -> Self {
        Self::new(Dataset { graph: Arc::clone(graph), ..self.data.clone() })
    }

    /// Returns the graph with all edges, ordered by time.
    ///
    /// # Errors
    /// Returns [`ItemTimesError::NotPossible`] for a graph of what was known at one time, and an error if edges are damaged.
    fn graph_by_time(&self) -> Result<Arc<Relations>> {
        if self.cut.is_some() {
            return Err(ItemTimesError::CUT.into());
        }
        Ok(self.data.times.graph_by_time(&self.data.graph)?)
    }

    /// Returns the set with all edges, ordered by time, for a model whose items are sampled at their own times; `None` for other
    /// models.
    fn data_at_item_times(&self, model: &SavedModel) -> Result<Option<Self>> {
        // A graph that was joined from the relations of one type of nodes is ordered already.
        if !model.info().inputs.has_item_times()
            || self.graph.iter().any(|relation| relation.graph.edge_times().is_some())
        {
            return Ok(None);
        }
        let mut uncut = self.uncut().clone();
        let symmetrizes = |preparation: &Preparation| preparation.symmetrizes();
        if model.info().inputs.preparation.as_ref().is_some_and(symmetrizes)
            && !symmetrizes(&uncut.preparation)
        {
            // The reverse of an edge has its time, which a preparation of the graph alone would lose.
            uncut = uncut.symmetrize()?;
        }
        let graph = uncut.times.graph_by_time(&uncut.graph)?;
        let preparation = uncut.preparation.clone();
        let data = Dataset { graph: Arc::clone(&graph), preparation, ..self.data.clone() };
        Ok(Some(Self { data, graph, ..self.clone() }))
    }

    /// Returns the times of the items of a model whose items are sampled at their own times.
    fn seed_times(&self, model: &SavedModel) -> Option<SeedTimes> {
        seed_times(&self.data.times, self.schema(), self.cut.as_ref().map(|(_, time)| *time), model)
    }

    /// Returns the data for predictions of a model on this graph.
    fn prediction_data_of_graph(
        &self,
        model: &SavedModel,
        known_hash: Option<&str>,
    ) -> Result<PredictionData> {
        let Dataset { graph, features, preparation, .. } = &self.data;
        if self.is_heterogeneous() {
            // A model of a graph of one type reads the relations of one node type as one graph.
            if model.info().inputs.graph.is_none() {
                let mut joined = Self::new(self.data.clone().to_homogeneous()?);
                if let Some((uncut, time)) = &self.cut {
                    joined.cut = Some((Arc::new(Dataset::clone(uncut).to_homogeneous()?), *time));
                }
                return joined.prediction_data(model, known_hash);
            }
            let data = PredictionData::heterogeneous(graph.clone(), features.clone());
            let data = data.feature_columns(self.feature_columns());
            let data =
                data.keys(keys_of_rows(self.uncut(), model, known_hash)?).known_nodes(self.known_nodes());
            let data = data.seed_times(self.seed_times(model)).node_times(self.data.times.nodes.clone());
            return Ok(with_edge_columns(data, graph, model)?);
        }
        let mut data = PredictionData::new(self.data.csc()?.clone(), self.data.node_features()?.clone())
            .feature_columns(self.feature_columns())
            .edge_type_names(self.edge_type_names())
            .n_edge_types(self.n_uncut_edge_types())
            .known_nodes(self.known_nodes())
            .seed_times(self.seed_times(model))
            .node_times(self.data.times.nodes.clone());
        // Data without a step may be as it was loaded, or need none.
        if !preparation.steps.is_empty() {
            data = data.prepared(preparation.clone());
        }
        Ok(with_edge_columns(data, graph, model)?)
    }
}

impl Source for PreparedDataset {
    fn name(&self) -> &str {
        &self.data.name
    }

    fn schema(&self) -> &GraphSchema {
        self.graph.schema()
    }

    fn is_heterogeneous(&self) -> bool {
        self.data.is_heterogeneous()
    }

    fn targets(&self) -> Result<DatasetTargets> {
        self.data.targets.clone().ok_or_else(|| Error::NoTargets { name: self.data.name.clone() })
    }

    fn task_table(&self, name: &str) -> Result<TaskTable> {
        Ok(self.data.task_table(name)?.clone())
    }

    fn notes(&self) -> &[Note] {
        &self.data.notes
    }

    fn features(&self) -> Vec<Option<Arc<dyn FeatureStore>>> {
        self.data.features.clone()
    }

    fn feature_columns(&self) -> Vec<Vec<FeatureColumn>> {
        self.data.feature_columns.clone()
    }

    fn edge_type_names(&self) -> Vec<String> {
        self.data.edge_type_names.clone()
    }

    fn edge_columns(&self) -> Vec<Vec<String>> {
        self.data.graph.edge_columns()
    }

    fn edge_column(&self, name: &str, rows: RelationRows) -> Result<Arc<dyn EdgeFeatureStore>> {
        if let Some(of_loops) = self.features_with_loops(name)? {
            return Ok(of_loops.into());
        }
        edge_rows_of(&self.data.graph, name, rows).map_err(|error| match (name, error) {
            (EdgeColumns::FEATURES, FeatureError::EdgeColumn(EdgeColumnError::Missing { .. }))
                if !self.is_heterogeneous() =>
            {
                Error::DataWithoutEdgeFeatures
            }
            (_, error) => kiln_data::Error::from(error).into(),
        })
    }

    fn n_edge_types(&self) -> Result<Option<usize>> {
        match self.is_heterogeneous() {
            true => Ok(None),
            false => Ok(self.graph.relation(0).graph.n_edge_types()),
        }
    }

    fn names_of_nodes(&self) -> &[Arc<NodeNames>] {
        &self.data.names
    }

    fn node_keys(&self) -> Arc<[Option<NodeKeys>]> {
        keys_of_names(&self.data).into()
    }

    fn preparation(&self) -> Option<Preparation> {
        let mut preparation = self.data.preparation.clone();
        // Predictions and partitions then treat the loops like those of `Dataset::add_self_loops`.
        if self.step == GraphStep::SelfLoops && !preparation.adds_self_loops() {
            preparation.steps.push(PreparationStep::SelfLoops);
        }
        Some(preparation)
    }

    fn graph_step(&self) -> GraphStep {
        self.step
    }

    fn data_hash(&self, links: Option<LinkTargets>) -> DataHash {
        let data = self.data.clone();
        hash_with_links(move |check| data.hash_of(HashedPart::All(check)), links)
    }

    fn data_sample(&self) -> Result<String> {
        Ok(self.data.hash_of(HashedPart::Sample)?)
    }

    fn prediction_data(&self, model: &SavedModel, known_hash: Option<&str>) -> Result<PredictionData> {
        if let Some(ordered) = self.data_at_item_times(model)? {
            return ordered.prediction_data_of_graph(model, known_hash);
        }
        self.prediction_data_of_graph(model, known_hash)
    }

    fn whole(&self) -> Option<WholeGraph<'_>> {
        Some(match self.is_heterogeneous() {
            true => WholeGraph::Relations(&self.graph),
            false => WholeGraph::One(&self.graph.relation(0).graph),
        })
    }

    fn with_step(&self, step: GraphStep) -> Result<Arc<dyn Source>> {
        if self.is_heterogeneous() {
            return Err(no_step(step));
        }
        // The graph of a GCN has self loops already.
        if (self.step, step) == (GraphStep::GcnNorm, GraphStep::SelfLoops) {
            return Ok(Arc::new(self.clone()));
        }
        let csc = self.data.csc()?;
        let graph = Arc::new(Relations::of_graph(step.apply(csc, self.n_uncut_edge_types())?));
        Ok(Arc::new(Self { graph, step, cut: self.cut.clone(), ..Self::new(self.data.clone()) }))
    }

    fn with_messages(&self, messages: &MessageGraph) -> Result<Arc<dyn Source>> {
        let MessageGraph::Own { graph, time_split } = messages else {
            return Err(Error::OtherRelations { name: self.data.name.clone() });
        };
        check_messages(&self.data, graph.schema())?;
        let mut source = self.with_graph(graph);
        // A random split of links has no times.
        source.data.times.split = *time_split;
        match self.is_heterogeneous() {
            true => Ok(Arc::new(source)),
            false => source.with_step(self.step),
        }
    }

    fn time_split(&self) -> Option<TimeSplit> {
        self.data.times.split
    }

    fn time_kind(&self) -> TimeKind {
        self.data.times.kind
    }

    fn before(&self, time: i64) -> Result<Arc<dyn Source>> {
        let uncut = self.uncut();
        if !uncut.has_times() {
            return Err(no_times(&uncut.name));
        }
        // What was not known at an earlier cut stays unknown.
        let time = self.cut.as_ref().map_or(time, |(_, earlier)| time.min(*earlier));
        let cut = Some((Arc::new(uncut.clone()), time));
        let source = Self { cut, ..self.with_graph(&uncut.graph_before(time)?) };
        match self.step {
            GraphStep::None => Ok(Arc::new(source)),
            step => source.with_step(step),
        }
    }

    fn order_by_time(&self) -> Result<Arc<dyn Source>> {
        let ordered = self.graph_by_time()?;
        let graph = match self.step {
            GraphStep::None => ordered,
            // Added loops keep the times of the other edges.
            step => {
                let csc = step.apply(&ordered.relation(0).graph, self.n_uncut_edge_types())?;
                Arc::new(Relations::of_graph(csc))
            }
        };
        Ok(Arc::new(Self { graph, ..self.clone() }))
    }

    fn known_at(
        &self,
        limits: TimeLimits,
        windows: &BTreeMap<String, Option<u64>>,
        time: i64,
    ) -> Result<Arc<dyn Source>> {
        let ordered = self.graph_by_time()?;
        let mut relations = Vec::with_capacity(ordered.n_relations());
        for relation in ordered.iter() {
            let window = windows.get(&relation.name).copied().unwrap_or(limits.window);
            let known = Arc::new(TimeLimits { window, ..limits }.known_graph(&relation.graph, time)?);
            relations.push(Relation { graph: known, ..relation.clone() });
        }
        let known =
            Arc::new(Relations::new(Arc::clone(ordered.types()), relations).map_err(kiln_data::Error::from)?);
        let (_, end) = limits.range(time);
        let source = Self { cut: Some((Arc::new(self.data.clone()), end)), ..self.with_graph(&known) };
        match self.step {
            GraphStep::None => Ok(Arc::new(source)),
            step => source.with_step(step),
        }
    }

    fn node_times(&self, node_type: usize) -> Option<SharedArray<i64>> {
        self.data.times.node_times(node_type).cloned()
    }

    fn time_span(&self) -> Option<u64> {
        let data = &self.data;
        let of_nodes = (0..data.graph.types().n_types()).map(|node_type| data.node_time_range(node_type));
        let of_edges = (0..data.graph.n_relations()).map(|relation| data.edge_time_range(relation));
        let ranges = of_nodes.chain(of_edges).flatten();
        let [first, last] = ranges.reduce(|[first, last], [other_first, other_last]| {
            [first.min(other_first), last.max(other_last)]
        })?;
        Some(last.abs_diff(first))
    }

    fn nodes_before(&self, time: i64) -> Option<Arc<[bool]>> {
        self.data.times.nodes_before(self.data.graph.types(), time)
    }

    fn sampler(&self, sampling: &Sampling) -> Result<Arc<dyn FrontierSampler>> {
        let Sampling { fanouts, config, .. } = sampling;
        if self.is_heterogeneous() {
            let sampler = HeteroNeighborSampler::new(&self.graph, fanouts.clone(), config.clone())?;
            return Ok(Arc::new(sampling.excluding(sampler)));
        }
        let graph = Arc::clone(&self.graph.relation(0).graph);
        Ok(Arc::new(NeighborSampler::with_config(graph, config.clone())?))
    }

    fn device_sampler(
        &self,
        sampling: &Sampling,
        copies: &GraphCopies,
        mode: GraphMode,
        device: &Device,
    ) -> Result<Option<Arc<dyn FrontierSampler>>> {
        if !self.is_heterogeneous() {
            return Ok(None);
        }
        let Sampling { fanouts, config, .. } = sampling;
        let schema = self.graph.schema().clone();
        let are_weighted = self.weighted_relations();
        let mut samplers = Vec::with_capacity(self.graph.n_relations());
        for (position, of_relation) in
            config.relation_configs(&schema, &are_weighted)?.into_iter().enumerate()
        {
            let copy = copies
                .get_or_make(device, mode, (position, None), || Ok(self.graph.whole_graph(position)?))?;
            samplers.push(DeviceSampler::with_config(copy, of_relation)?);
        }
        let sampler =
            HeteroNeighborSampler::of_samplers(schema, Arc::new(samplers), fanouts.clone(), config)?;
        Ok(Some(Arc::new(sampling.excluding(sampler.with_weighted(are_weighted)))))
    }
}

/// Adds the columns of the edges that a model reads and the graph has to the data of its predictions.
fn with_edge_columns(
    mut data: PredictionData,
    graph: &Relations,
    model: &SavedModel,
) -> kiln_data::Result<PredictionData> {
    for name in model.edge_columns() {
        let rows = match edge_rows_of(graph, name, model.relation_rows(name)) {
            // The predictor says what is missing.
            Err(FeatureError::EdgeColumn(EdgeColumnError::Missing { .. })) => continue,
            rows => rows?,
        };
        data = data.edge_column(name, rows);
    }
    Ok(data)
}

/// Checks that a message graph has the node types and the relations of a dataset.
fn check_messages(data: &Dataset, messages: &GraphSchema) -> Result<()> {
    let ends = |relation: &RelationSchema| (relation.name.clone(), relation.src_type, relation.dst_type);
    let schema = data.graph.schema();
    let has_relations = schema.relations().iter().map(ends).eq(messages.relations().iter().map(ends));
    let has_types = schema.types().names() == messages.types().names();
    if !data.is_heterogeneous() && has_relations && has_types {
        let n_nodes = messages.n_nodes();
        let expected = schema.n_nodes();
        return match n_nodes == expected {
            true => Ok(()),
            false => Err(Error::OtherGraph { n_nodes, expected }),
        };
    }
    match has_relations && schema.types() == messages.types() {
        true => Ok(()),
        false => Err(Error::OtherRelations { name: data.name.clone() }),
    }
}

/// Returns the keys of the names of the nodes of each type without features, `[n_types]`; `None` for a type with features, or
/// whose nodes have no names.
fn keys_of_names(data: &Dataset) -> Vec<Option<NodeKeys>> {
    let types = data.graph.types();
    let mut keys = Vec::with_capacity(types.n_types());
    for (node_type, features) in data.features.iter().enumerate() {
        let names = data.names.get(node_type).filter(|names| features.is_none() && !names.is_empty());
        keys.push(names.map(|names| {
            let n_nodes = types.range(node_type).len();
            NodeKeys::of_names(n_nodes, |node| names.get(NodeId(node as u32)).unwrap_or_default())
        }));
    }
    keys
}

/// Returns the keys of the nodes of each type without features, by which a model finds their trained rows.
fn keys_of_rows(
    data: &Dataset,
    model: &SavedModel,
    known_hash: Option<&str>,
) -> Result<Vec<Option<NodeKeys>>> {
    let keys = keys_of_names(data);
    let hash = match known_hash {
        Some(hash) => Some(hash.to_owned()),
        // Reading all values takes time.
        None => model.finds_rows_by_id().then(|| data.hash()).transpose()?,
    };
    // Without names, the rows of a model are those of the nodes of its training data.
    Ok(match hash.is_some_and(|hash| model.is_of_data(&hash)) {
        true => model.keys_of_training_data(&keys),
        false => keys,
    })
}

#[cfg(test)]
mod tests {
    use kiln_data::synthetic;

    use super::*;

    /// The last edge type is late: without its edges, added loops must not take over its number.
    #[test]
    fn loops_of_a_cut_graph_have_the_type_of_those_of_the_whole_graph() {
        let ring = synthetic::ring(6).unwrap();
        let times: Vec<i64> = (0..12).collect();
        let types: Vec<u8> = times.iter().map(|time| u8::from(6 <= *time)).collect();
        let ring = ring.with_edge_column(0, EdgeColumns::TYPES, EdgeColumn::new(types, 1).unwrap()).unwrap();
        let ring = ring.with_edge_column(0, EdgeColumns::TIMES, EdgeColumn::new(times, 1).unwrap()).unwrap();
        let whole = PreparedDataset::new(ring);
        let looped = whole.with_step(GraphStep::SelfLoops).unwrap();
        let [cut_first, cut_last] =
            [whole.before(6).unwrap().with_step(GraphStep::SelfLoops).unwrap(), looped.before(6).unwrap()];
        for source in [looped, cut_first, cut_last] {
            let Some(WholeGraph::One(graph)) = source.whole() else { panic!("the graph should be whole") };
            let types = graph.edge_types().unwrap();
            let is_loop = |edge: usize| graph.indices()[edge] == graph.dsts()[edge];
            let loops: Vec<u8> =
                (0..types.len()).filter(|edge| is_loop(*edge)).map(|edge| types[edge]).collect();
            assert_eq!(loops, [2; 6]);
        }
    }
}
