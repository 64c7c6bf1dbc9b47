//! Heterogeneous datasets.

use std::sync::Arc;

use burn::tensor::Device;
use kiln_data::{HashedPart, LinkTargets, TypedDataset, TypedTargets};
use kiln_feature::{EdgeFeatureStore, FeatureStore, Preparation};
use kiln_graph::{GraphSchema, NodeId, RelationSchema};
use kiln_kernels::{DeviceSampler, GraphMode};
use kiln_sample::{FrontierSampler, SamplerConfig, TypedSampler};
use kiln_train::{DataHash, NodeKeys, PredictionData, SavedModel};

use crate::data_hash::hash_with_links;
use crate::device_copy::GraphCopies;
use crate::links::MessageGraph;
use crate::source::{GraphStep, Sampling, Source, WholeGraph, edge_features_of_relations, no_step};
use crate::{Error, Result};

impl Source for TypedDataset {
    fn name(&self) -> &str {
        &self.name
    }

    fn schema(&self) -> &GraphSchema {
        self.graph.schema()
    }

    fn is_heterogeneous(&self) -> bool {
        true
    }

    fn targets(&self) -> Result<TypedTargets> {
        self.targets.clone().ok_or_else(|| Error::NoTargets { name: self.name.clone() })
    }

    fn features(&self) -> Vec<Option<Arc<dyn FeatureStore>>> {
        self.features.clone()
    }

    fn edge_features(&self) -> Result<Arc<dyn EdgeFeatureStore>> {
        Err(edge_features_of_relations())
    }

    fn node_keys(&self) -> Arc<[Option<NodeKeys>]> {
        keys_of_names(self).into()
    }

    fn preparation(&self) -> Option<Preparation> {
        Some(Preparation::default())
    }

    fn data_hash(&self, links: Option<LinkTargets>) -> DataHash {
        let data = self.clone();
        hash_with_links(move |check| data.hash_of(HashedPart::All(check)), links)
    }

    fn data_sample(&self) -> Result<String> {
        Ok(self.hash_of(HashedPart::Sample)?)
    }

    fn prediction_data(&self, model: &SavedModel, known_hash: Option<&str>) -> Result<PredictionData> {
        let mut keys = keys_of_names(self);
        let hash = match known_hash {
            Some(hash) => Some(hash.to_owned()),
            // Reading all values takes time.
            None => model.finds_rows_by_id().then(|| self.hash()).transpose()?,
        };
        // Without names, the rows of a model are those of the nodes of its training data.
        if hash.is_some_and(|hash| model.is_of_data(&hash)) {
            keys = model.keys_of_training_data(&keys);
        }
        Ok(PredictionData::heterogeneous(self.graph.clone(), self.features.clone()).keys(keys))
    }

    fn whole(&self) -> Option<WholeGraph<'_>> {
        Some(WholeGraph::Relations(&self.graph))
    }

    fn with_step(&self, step: GraphStep) -> Result<Arc<dyn Source>> {
        Err(no_step(step))
    }

    fn with_messages(&self, messages: &MessageGraph) -> Result<Arc<dyn Source>> {
        let other = || Error::OtherRelations { name: self.name.clone() };
        let MessageGraph::Relations(graph) = messages else { return Err(other()) };
        let ends = |relation: &RelationSchema| (relation.name.clone(), relation.src_type, relation.dst_type);
        let schema = self.graph.schema();
        let is_same = schema.types() == graph.schema().types()
            && schema.relations().iter().map(ends).eq(graph.schema().relations().iter().map(ends));
        if !is_same {
            return Err(other());
        }
        Ok(Arc::new(Self { graph: Arc::clone(graph), ..self.clone() }))
    }

    fn sampler(&self, sampling: &Sampling) -> Result<Arc<dyn FrontierSampler>> {
        let Sampling { fanouts, config, .. } = sampling;
        let sampler = TypedSampler::new(&self.graph, fanouts.clone(), config.clone())?;
        Ok(Arc::new(sampling.excluding(sampler)))
    }

    fn device_sampler(
        &self,
        sampling: &Sampling,
        copies: &GraphCopies,
        mode: GraphMode,
        device: &Device,
    ) -> Result<Option<Arc<dyn FrontierSampler>>> {
        let Sampling { fanouts, config, .. } = sampling;
        // The relations have no edge types: their positions are the types of the joined edges.
        let of_relation = SamplerConfig { edge_types: false, ..config.clone() };
        let mut samplers = Vec::with_capacity(self.graph.n_relations());
        for position in 0..self.graph.n_relations() {
            let copy =
                copies.get_or_make(device, mode, position, || Ok(self.graph.whole_graph(position)?))?;
            samplers.push(DeviceSampler::with_config(copy, of_relation.clone())?);
        }
        let schema = self.graph.schema().clone();
        let sampler = TypedSampler::of_samplers(schema, Arc::new(samplers), fanouts.clone(), config)?;
        Ok(Some(Arc::new(sampling.excluding(sampler))))
    }
}

/// Returns the keys of the names of the nodes of each type without features, `[n_types]`; `None` for a type with features, or
/// whose nodes have no names.
fn keys_of_names(data: &TypedDataset) -> Vec<Option<NodeKeys>> {
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
