//! What runs and saved models record of a neighbour loader.

use std::collections::BTreeMap;
use std::sync::Arc;

use kiln_data::LinkTargets;
use kiln_feature::{FeatureColumn, RelationRows};
use kiln_graph::{EdgeColumns, RelationSchema};
use kiln_kernels::GraphMode;
use kiln_loader::Phase;
use kiln_sample::{EdgeWeights, Fanout, SamplerConfig};
use kiln_train::{
    BatchConfig, DataHash, EvaluationInfo, Evaluator, InputType, ModelInputs, ModelTask, NodeKeys,
    SamplingInfo, SchemaInfo,
};

use crate::data_hash::hash_with_links;
use crate::device_copy::DeviceCopies;
use crate::evaluation::EvaluatedGraph;
use crate::links::TrainingLinks;
use crate::neighbor_loader::custom_samplers::CustomSamplers;
use crate::neighbor_loader::messages::PhaseGraphs;
use crate::source::{GraphStep, Source, dims};
use crate::{NeighborLoader, RankHandle, Result};

impl NeighborLoader {
    /// Replaces the graph by the one that passes the messages of links, normalised or with self loops if this loader's graph
    /// is.
    ///
    /// # Errors
    /// Returns the errors of [`TrainingLinks::message_source`].
    pub(crate) fn on_message_graph(mut self, links: &TrainingLinks) -> Result<Self> {
        self.source = links.message_source(&self.source)?;
        self.copies = DeviceCopies::default();
        self.phases = PhaseGraphs::default();
        Ok(self)
    }

    /// Returns a loader for an evaluation that reads only the seeds: its blocks have no edges, its feature rows are
    /// zeros, and it copies neither graph nor features to a device.
    pub(crate) fn for_pairs_only(&self) -> Self {
        let mut loader = self.clone();
        for of_layer in &mut loader.fanouts {
            of_layer.fill(Fanout::UpTo(0));
        }
        let sampling = SamplerConfig::new(vec![Fanout::UpTo(0); self.fanouts.len()]);
        loader.sampling = SamplerConfig { edge_types: self.source.is_heterogeneous(), ..sampling };
        loader.graph_mode = GraphMode::Host;
        loader.feature_cache = None;
        loader.edge_columns = Vec::new();
        loader.reads_seeds_only = true;
        loader.ages = false;
        loader.samplers = CustomSamplers::default();
        loader.unshared()
    }

    pub(crate) fn has_objective(&self) -> bool {
        self.objective.is_some() || self.target_scale.is_some()
    }

    pub(crate) fn has_task_table(&self) -> bool {
        self.table.is_some()
    }

    pub(crate) fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Returns the hash of the data, followed by that of links if there are any.
    pub(crate) fn hash_data(&self, links: Option<LinkTargets>) -> DataHash {
        match (&self.known_hash, links) {
            (Some(hash), None) => hash.clone().into(),
            (Some(hash), links) => {
                let hash = hash.clone();
                hash_with_links(move |_| Ok(hash.clone()), links)
            }
            (None, links) => self.data.data_hash(links),
        }
    }

    /// Returns the number of edges of the data.
    pub(crate) fn n_data_edges(&self) -> u64 {
        self.data.schema().n_edges()
    }

    /// Returns the hash of the sizes of the data and of a sample of its values.
    pub(crate) fn sample_data(&self) -> Result<String> {
        self.data.data_sample()
    }

    pub(crate) fn batch_config(&self) -> BatchConfig {
        self.batches
    }

    /// Returns the types of nodes for a task.
    pub(crate) fn input_types(&self) -> Vec<InputType> {
        let schema = self.source.schema();
        let types = schema.types();
        let widths = dims(&*self.source).into_iter().enumerate();
        widths.map(|(position, width)| InputType { n_nodes: types.range(position).len(), width }).collect()
    }

    /// Returns the keys of the nodes of each type without features.
    pub(crate) fn node_keys(&self) -> Arc<[Option<NodeKeys>]> {
        self.keys.get_or_init(|| self.source.node_keys()).clone()
    }

    /// Returns the settings of the graph, of sampling and of the evaluation that a run's result depends on, by name.
    pub(crate) fn sampling_settings(&self) -> Vec<(&'static str, String)> {
        let rule = ("rule", self.rules_of_relations());
        let weights = ("edge weights", format!("{:?}", self.sampling.weights));
        let mut settings = Vec::new();
        if self.source.is_heterogeneous() {
            settings.extend(self.schema_settings());
            settings.extend([("fanouts", self.fanouts_of_relations()), rule, weights]);
            settings.extend(self.edge_column_settings());
        } else {
            settings.extend([("fanouts", format!("{:?}", self.sampling.fanouts)), rule, weights]);
            // Checkpoints of runs without these settings do not have them.
            settings.extend(self.sampling.edge_types.then(|| ("edge types", "true".to_owned())));
            settings.extend(self.edge_column_settings());
            let adds_self_loops = self.source.graph_step() == GraphStep::SelfLoops;
            settings.extend(adds_self_loops.then(|| ("self loops", "added".to_owned())));
        }
        settings.extend(self.samplers.settings());
        settings.extend(self.table.as_ref().map(|table| ("task table", table.name.clone())));
        settings.extend(self.messages_setting());
        settings.extend(self.age_info().map(|ages| ("ages", format!("in units of {}", ages.unit))));
        settings.push(("evaluation", self.evaluation.setting()));
        settings
    }

    /// Returns the settings of the columns of edges that blocks carry. Checkpoints of runs without columns have none.
    fn edge_column_settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = Vec::new();
        let mut others: Vec<&str> = self.edge_columns.iter().map(|name| &**name).collect();
        if others.contains(&EdgeColumns::FEATURES) {
            let form = match self.edge_feature_rows {
                RelationRows::Equal => "true",
                RelationRows::Padded => "by relation",
            };
            settings.push(("edge features", form.to_owned()));
            others.retain(|name| *name != EdgeColumns::FEATURES);
        }
        if !others.is_empty() {
            settings.push(("edge columns", others.join(", ")));
        }
        settings
    }

    /// Returns the fanouts of each relation by its name, input layer first, as one text.
    fn fanouts_of_relations(&self) -> String {
        let mut texts = Vec::new();
        for (position, relation) in self.source.schema().relations().iter().enumerate() {
            let fanouts: Vec<Fanout> = self.fanouts.iter().map(|of_layer| of_layer[position]).collect();
            texts.push(format!("{}: {fanouts:?}", relation.name));
        }
        texts.join("; ")
    }

    /// Returns the sampling rule, and those of the relations that have another one, as one text.
    fn rules_of_relations(&self) -> String {
        let of_all = format!("{:?}", self.sampling.rule);
        let mut text = of_all.clone();
        for (name, rule) in &self.sampling.relation_rules {
            let rule = format!("{rule:?}");
            if rule != of_all {
                text = format!("{text}; {name}: {rule}");
            }
        }
        text
    }

    /// Returns the types of nodes and the relations, in their order.
    fn schema_settings(&self) -> [(&'static str, String); 2] {
        let schema = self.source.schema();
        let names = schema.types().names();
        let text = |relation: &RelationSchema| {
            format!("{} {} {}", names[relation.src_type], relation.name, names[relation.dst_type])
        };
        let relations: Vec<_> = schema.relations().iter().map(text).collect();
        [("node types", names.join(", ")), ("relations", relations.join(", "))]
    }

    /// Returns the descriptions of the data and of evaluations for a saved model of nodes.
    pub(crate) fn describe(&self, seed: u64, n_ranks: usize) -> (ModelInputs, EvaluationInfo) {
        let widths = dims(&*self.source);
        let targets = &self.targets;
        let config = self.sampling_from(None).config;
        let sampling = SamplingInfo::new(&config, self.source.graph_step() == GraphStep::GcnNorm);
        let columns = self.edge_column_stores().unwrap_or_default();
        let is_plain = !self.source.is_heterogeneous();
        let sampling = SamplingInfo {
            edge_type_names: match is_plain && self.sampling.edge_types {
                true => self.source.edge_type_names(),
                false => Vec::new(),
            },
            is_weighted: match is_plain && self.sampling.weights != EdgeWeights::None {
                true => self.weighted_relations().first().copied(),
                false => None,
            },
            item_times: self.item_time_limits().map(Into::into),
            ages: self.age_info(),
            task_table: self.table.as_ref().map(|table| table.name.clone()),
            sampler: self.samplers.evaluation_sampler().as_ref().map(Into::into),
            ..sampling
        };
        let mut sampling = columns
            .iter()
            .fold(sampling, |sampling, (name, rows)| sampling.with_edge_column(name, rows.dim()));
        let features = columns.get(EdgeColumns::FEATURES);
        if let Some(features) = features.filter(|_| self.edge_feature_rows == RelationRows::Padded) {
            sampling.edge_widths = features.relation_widths();
        }
        let graph = self
            .source
            .is_heterogeneous()
            .then(|| SchemaInfo::new(self.source.schema(), &widths, targets.node_type, &self.fanouts))
            .map(|graph| graph.with_weighted(&self.weighted_relations()));
        let inputs = ModelInputs {
            task: ModelTask::Nodes,
            data_name: self.source.name().to_owned(),
            n_features: widths.iter().flatten().sum(),
            feature_columns: self.feature_columns(),
            targets: targets.values.kind(),
            n_outputs: targets.values.n_outputs(),
            class_names: targets.class_names.clone(),
            target_scaler: None,
            preparation: self.source.preparation(),
            node_features: None,
            sampling: Some(sampling),
            graph,
        };
        (inputs, self.evaluation.info(seed, self.batches.batch_size, n_ranks))
    }

    /// Returns what the feature columns mean, by the name of the node type, without types whose columns have no names.
    fn feature_columns(&self) -> BTreeMap<String, Vec<FeatureColumn>> {
        let names = self.source.schema().types().names().iter().cloned();
        names.zip(self.source.feature_columns()).filter(|(_, columns)| !columns.is_empty()).collect()
    }

    /// Returns which relations have weights that the batches carry.
    fn weighted_relations(&self) -> Vec<bool> {
        let carries = self.sampling.weights != EdgeWeights::None;
        self.source.weighted_relations().into_iter().map(|is_weighted| carries && is_weighted).collect()
    }

    /// Returns the evaluator of this loader. `item_times` are the times of the items of the validation and of the test, if they are
    /// evaluated exactly at one.
    pub(crate) fn evaluator_of(&self, rank: &RankHandle, item_times: [Option<i64>; 2]) -> Result<Evaluator> {
        let [val_time, test_time] = item_times;
        let of_val = self.evaluated_loader(Phase::Validation, val_time)?;
        let of_test = self.evaluated_loader(Phase::Test, test_time)?;
        let graph = |loader: &Self| EvaluatedGraph {
            source: Arc::clone(&loader.source),
            edge_columns: loader.edge_column_stores(),
        };
        let has_cuts = self.time_split().is_some() || val_time != test_time;
        let sampling = self.sampling_from(None);
        let test = has_cuts.then(|| graph(&of_test));
        self.evaluation.evaluator(graph(&of_val), test, self.node_targets(), &sampling, rank)
    }
}
