//! The batches of a [`TypedNeighborLoader`], which loaders of nodes and of links have in common.

use std::sync::Arc;

use burn::tensor::Device;
use kiln_data::TypedLinkSplit;
use kiln_feature::Preparation;
use kiln_graph::{ItemId, RelationSchema};
use kiln_kernels::GraphMode;
use kiln_loader::{FeatureStores, ItemSampler, LoaderConfig, NodeBatcher};
use kiln_nn::BlockModel;
use kiln_sample::{EdgeWeights, Fanout, SamplerConfig, TypedSampler};
use kiln_train::{
    BatchConfig, EmbeddingError, EvaluationInfo, Evaluator, HostNodeBatcher, InputType, ModelInputs,
    ModelTask, NodeKeys, SamplingInfo, TypedGraphInfo,
};

use crate::batches::{aggregation_of_workers, n_workers};
use crate::device_copy::GraphCopies;
use crate::typed_source::TypedSource;
use crate::{BatchRequirements, Error, EvalMode, Result, TypedNeighborLoader};

impl TypedNeighborLoader {
    /// Replaces the relations by those of a split that pass messages.
    ///
    /// # Errors
    /// Returns [`Error::OtherRelations`] if the split has other types of nodes or relations, and [`Error::NeedsWholeGraph`] on a
    /// partitioned graph.
    pub(crate) fn on_message_graph(mut self, split: &TypedLinkSplit) -> Result<Self> {
        let message = split.message();
        let of = |relation: &RelationSchema| (relation.name.clone(), relation.src_type, relation.dst_type);
        let (own, other) = (self.source.schema(), message.schema());
        let is_same = own.types() == other.types()
            && own.relations().iter().map(of).eq(other.relations().iter().map(of));
        if !is_same {
            return Err(Error::OtherRelations { name: self.source.name().to_owned() });
        }
        let mut data = self.source.whole("the links of a relation")?.clone();
        Arc::make_mut(&mut data).graph = Arc::clone(message);
        self.source = TypedSource::Whole(data);
        // Clones share the copies on devices, which are those of the whole relations.
        self.copies = GraphCopies::default();
        Ok(self)
    }

    pub(crate) fn has_objective(&self) -> bool {
        self.objective.is_some()
    }

    pub(crate) fn source(&self) -> &TypedSource {
        &self.source
    }

    pub(crate) fn batch_config(&self) -> BatchConfig {
        self.batches
    }

    /// Returns the types of nodes for a task.
    pub(crate) fn input_types(&self) -> Vec<InputType> {
        let types = self.source.schema().types();
        let of_type = |(position, width)| InputType { n_nodes: types.range(position).len(), width };
        self.source.dims().into_iter().enumerate().map(of_type).collect()
    }

    /// Returns the keys of the nodes of each type without features.
    pub(crate) fn row_keys(&self) -> Arc<[Option<NodeKeys>]> {
        self.keys.get_or_init(|| self.source.row_keys()).clone()
    }

    /// Returns the configuration of the samplers of all relations, without fanouts.
    pub(crate) fn sampling_config(&self) -> SamplerConfig {
        let (rule, weights) = (self.rule.clone(), self.weights);
        SamplerConfig { rule, weights, ..SamplerConfig::default().with_edge_types() }
    }

    /// Returns the sampler of all relations, on the host or on a device.
    pub(crate) fn sampler(&self, device: &Device) -> Result<TypedSampler> {
        let (fanouts, config) = (self.fanouts.clone(), self.sampling_config());
        match self.graph_mode {
            GraphMode::Host => self.source.sampler(fanouts, config),
            mode => self.source.device_sampler(fanouts, config, &self.copies, mode, device),
        }
    }

    pub(crate) fn features(&self) -> FeatureStores {
        FeatureStores::new(self.source.schema().types().clone(), self.source.features())
    }

    /// Returns the batcher of these items for a device: it groups edges and nodes by relation and type if the model reads
    /// groups, and aggregates input rows while they are read if the model allows it and the workers may compute it.
    pub(crate) fn host_batcher<I: ItemId>(
        &self,
        batcher: NodeBatcher<TypedSampler>,
        items: &ItemSampler<I>,
        model: &impl BlockModel,
        device: &Device,
    ) -> HostNodeBatcher<TypedSampler> {
        let format = model.input_format();
        let schema = self.source.schema();
        let batcher = batcher.groups_of_model(format.relation_groups, format.node_groups, schema);
        let aggregation = aggregation_of_workers(model, n_workers(self.workers, items));
        HostNodeBatcher::new(batcher, device).input_aggregation(aggregation)
    }

    /// Returns the workers and the limit of the queue of a loader of these items.
    pub(crate) fn loader_config<I: ItemId>(&self, items: &ItemSampler<I>) -> LoaderConfig {
        let workers = n_workers(self.workers, items);
        LoaderConfig { workers, queue_bytes: self.queue_bytes.unwrap_or(LoaderConfig::default().queue_bytes) }
    }

    pub(crate) fn evaluator_of(&self) -> Result<Evaluator> {
        match (&self.source, self.evaluation) {
            (_, EvalMode::Exact { .. }) => Err(kiln_train::Error::ExactOnTypes.into()),
            #[cfg(feature = "grpc")]
            (TypedSource::Partitioned(_), evaluation) => evaluation.sampled(),
            (TypedSource::Whole(_), EvalMode::Sampled) => Ok(Evaluator::Sampled),
            (TypedSource::Whole(_), EvalMode::FirstRank { n_batches }) => {
                Ok(Evaluator::FirstRank { n_batches })
            }
        }
    }

    /// Describes the inputs of a model of nodes, and the evaluation.
    pub(crate) fn describe(&self, seed: u64, n_ranks: usize) -> (ModelInputs, EvaluationInfo) {
        let (dims, targets) = (self.source.dims(), &self.targets);
        let of_first = |of_layer: &Vec<Fanout>| of_layer.first().copied().unwrap_or(Fanout::All);
        let sampling =
            SamplerConfig { fanouts: self.fanouts.iter().map(of_first).collect(), ..self.sampling_config() };
        let inputs = ModelInputs {
            task: ModelTask::Nodes,
            data_name: self.source.name().to_owned(),
            n_features: dims.iter().flatten().sum(),
            targets: targets.values.kind(),
            n_outputs: targets.values.n_outputs(),
            class_names: targets.class_names.clone(),
            preparation: Some(Preparation::default()),
            node_features: None,
            sampling: Some(SamplingInfo::new(&sampling, false)),
            graph: Some(TypedGraphInfo::new(self.source.schema(), &dims, targets.node_type, &self.fanouts)),
        };
        (inputs, self.evaluation.info(seed, self.batches.batch_size, n_ranks))
    }

    /// Checks that the blocks suit a model; see [`DataLoader::check`](crate::DataLoader::check).
    pub(crate) fn check_sampling(&self, model: &BatchRequirements) -> Result<()> {
        let (n_fanouts, n_layers) = (self.fanouts.len(), model.n_layers);
        if n_fanouts != n_layers {
            return Err(Error::FanoutsMismatch { n_fanouts, n_layers });
        }
        if model.graph.edge_weights && self.weights == EdgeWeights::None {
            return Err(Error::NoEdgeWeights);
        }
        if model.graph.self_loops {
            return Err(Error::NoSelfLoops);
        }
        if model.graph.d_edge.is_some() {
            return Err(Error::NoEdgeFeatures);
        }
        let got = self.source.dims();
        if let Some(expected) = model.graph.widths.clone().filter(|widths| *widths != got) {
            return Err(kiln_train::Error::from(EmbeddingError::OtherTypes { expected, got }).into());
        }
        let metagraph = self.source.schema().metagraph();
        if model.graph.metagraph.as_ref().is_some_and(|of_model| *of_model != metagraph) {
            return Err(Error::OtherMetagraph);
        }
        let n_edge_types = self.source.schema().relations().len();
        if let Some(n_relations) = model.graph.n_relations.filter(|n_relations| *n_relations < n_edge_types) {
            return Err(Error::TooManyEdgeTypes { n_edge_types, n_relations });
        }
        Ok(())
    }

    /// Returns the settings of the data's schema, of sampling and of the evaluation, by name.
    pub(crate) fn sampling_settings(&self) -> impl Iterator<Item = (&'static str, String)> + use<> {
        let sampling = [
            ("fanouts", self.fanouts_setting()),
            ("rule", format!("{:?}", self.rule)),
            ("edge weights", format!("{:?}", self.weights)),
            ("evaluation", self.evaluation.setting()),
        ];
        self.schema_settings().into_iter().chain(sampling)
    }

    /// Returns the fanouts of each relation by its name, input layer first, as one text.
    fn fanouts_setting(&self) -> String {
        let of_relation = |position: usize| -> Vec<Fanout> {
            self.fanouts.iter().map(|of_layer| of_layer[position]).collect()
        };
        let relations = self.source.schema().relations().iter().enumerate();
        let texts =
            relations.map(|(position, relation)| format!("{}: {:?}", relation.name, of_relation(position)));
        texts.collect::<Vec<_>>().join("; ")
    }

    /// Returns the types of nodes and the relations, in their order.
    fn schema_settings(&self) -> [(&'static str, String); 2] {
        let names = self.source.schema().types().names();
        let of_relation = |relation: &RelationSchema| {
            format!("{} {} {}", names[relation.src_type], relation.name, names[relation.dst_type])
        };
        let relations: Vec<_> = self.source.schema().relations().iter().map(of_relation).collect();
        [("node types", names.join(", ")), ("relations", relations.join(", "))]
    }
}
