//! Datasets of one type of nodes.

use std::sync::Arc;

use kiln_data::{Dataset, HashedPart, LinkTargets, TypedTargets};
use kiln_feature::{EdgeFeatureStore, FeatureStore, Preparation, PreparationStep};
use kiln_graph::{Csc, GraphSchema};
use kiln_sample::{FrontierSampler, NeighborSampler};
use kiln_train::{DataHash, PredictionData, SavedModel};

use crate::data_hash::hash_with_links;
use crate::links::MessageGraph;
use crate::source::{GraphStep, Sampling, Source, WholeGraph};
use crate::{Error, Result};

/// A dataset with the graph that the loader samples: the result of `step` on the graph of the dataset.
#[derive(Clone)]
pub(super) struct PreparedDataset {
    data: Dataset,
    schema: GraphSchema,
    graph: Arc<Csc>,
    step: GraphStep,
}

impl PreparedDataset {
    pub(super) fn new(data: Dataset) -> Self {
        let graph = Arc::clone(&data.graph);
        Self { data, schema: schema_of(&graph), graph, step: GraphStep::None }
    }
}

fn schema_of(graph: &Csc) -> GraphSchema {
    let schema = GraphSchema::homogeneous(graph.n_nodes(), graph.n_edges());
    schema.expect("a graph should have fewer than 2^32 nodes")
}

impl Source for PreparedDataset {
    fn name(&self) -> &str {
        &self.data.name
    }

    fn schema(&self) -> &GraphSchema {
        &self.schema
    }

    fn is_heterogeneous(&self) -> bool {
        false
    }

    fn targets(&self) -> Result<TypedTargets> {
        Ok(TypedTargets {
            node_type: 0,
            values: self.data.targets(),
            split: self.data.split.clone(),
            class_names: self.data.class_names.clone(),
        })
    }

    fn features(&self) -> Vec<Option<Arc<dyn FeatureStore>>> {
        vec![Some(self.data.features.clone())]
    }

    fn edge_features(&self) -> Result<Arc<dyn EdgeFeatureStore>> {
        let features = self.data.edge_features.clone().ok_or(Error::DataWithoutEdgeFeatures)?;
        Ok(features.into())
    }

    fn n_edge_types(&self) -> Result<Option<usize>> {
        Ok(self.graph.n_edge_types())
    }

    fn preparation(&self) -> Option<Preparation> {
        let mut preparation = self.data.preparation.clone();
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

    fn prediction_data(&self, _: &SavedModel, _: Option<&str>) -> Result<PredictionData> {
        let Dataset { graph, features, edge_features, preparation, .. } = &self.data;
        let mut data = PredictionData::new(graph.clone(), features.clone());
        // Data without a step may be as it was loaded, or need none.
        if !preparation.steps.is_empty() {
            data = data.prepared(preparation.clone());
        }
        Ok(match edge_features {
            Some(features) => data.edge_features(features.clone()),
            None => data,
        })
    }

    fn whole(&self) -> Option<WholeGraph<'_>> {
        Some(WholeGraph::One(&self.graph))
    }

    fn with_step(&self, step: GraphStep) -> Result<Arc<dyn Source>> {
        // The graph of a GCN has self loops already.
        if (self.step, step) == (GraphStep::GcnNorm, GraphStep::SelfLoops) {
            return Ok(Arc::new(self.clone()));
        }
        let graph = step.apply(&self.data.graph)?;
        Ok(Arc::new(Self { schema: schema_of(&graph), graph, step, ..self.clone() }))
    }

    fn with_messages(&self, messages: &MessageGraph) -> Result<Arc<dyn Source>> {
        let MessageGraph::One { graph, edge_features } = messages else {
            return Err(Error::OtherRelations { name: self.data.name.clone() });
        };
        let (n_nodes, expected) = (graph.n_nodes(), self.data.graph.n_nodes());
        if n_nodes != expected {
            return Err(Error::OtherGraph { n_nodes, expected });
        }
        let mut data = self.data.clone();
        if !Arc::ptr_eq(graph, &data.graph) {
            // The ids of the edges have changed.
            data.edge_features = edge_features.clone();
        }
        data.graph = Arc::clone(graph);
        Self::new(data).with_step(self.step)
    }

    fn sampler(&self, sampling: &Sampling) -> Result<Arc<dyn FrontierSampler>> {
        Ok(Arc::new(NeighborSampler::with_config(self.graph.clone(), sampling.config.clone())?))
    }
}
