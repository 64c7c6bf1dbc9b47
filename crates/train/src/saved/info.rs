//! The description of a saved model: the content of `model.json`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use burn::tensor::Device;
use kiln_feature::{FeatureColumn, Preparation, TargetKind, TargetScaler};
use kiln_graph::EdgeColumns;
use kiln_kernels::ops::{MatmulPrecision, matmul_precision_on};
use kiln_nn::{ModelConfig, TimedParts};
use kiln_sample::{CustomSampler, EdgeWeights, Fanout, Rule, SamplerConfig, TimeLimits};
use serde::{Deserialize, Serialize};

use crate::run::contract::DETERMINISM_CONTRACT;
use crate::saved::error::{ModelError, ModelFileError, PredictModeError};
use crate::saved::model_file::{MODEL_FORMAT, ModelTask};
use crate::saved::schema_info::SchemaInfo;
use crate::saved::stored_fanout::{fanout_of, limit_of};

/// The description of a saved model, `model.json` in the run folder: everything that predictions need besides the
/// weights in `best.safetensors`, which include the running statistics of normalisation layers.
///
/// Format 2 added the hash of the weights and the kind of node features of graph models, format 3 heterogeneous graphs, format
/// 4 the version of the determinism contract, format 5 the use of edge weights, the meaning of feature columns and the scale of
/// regression targets. Files of earlier formats are read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelInfo {
    /// The version of this format, at most [`MODEL_FORMAT`].
    pub format: u64,
    /// The version of kiln that wrote the file.
    pub kiln: String,
    /// The version of the determinism contract, [`DETERMINISM_CONTRACT`], of the program that evaluated the run; 1 in files of
    /// earlier formats.
    #[serde(default = "first_contract")]
    pub contract: u32,
    /// The kind of the model, [`ModelConfig::KIND`](kiln_nn::ModelConfig::KIND).
    pub kind: String,
    /// The model's config, such as a [`SageConfig`](kiln_nn::SageConfig), as JSON.
    pub config: serde_json::Value,
    /// The hash of the training data.
    pub data_hash: String,
    /// SHA-256 of `best.safetensors`, in hexadecimal. `None` while the run trains, after it was killed, and in files of
    /// format 1: the weights are then not compared with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights_hash: Option<String>,
    /// The precision of matrix products in training, `tf32` or `bf16`; `None` for f32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<String>,
    /// The inputs and outputs of the model.
    pub inputs: ModelInputs,
    /// The settings with which the run's test split was evaluated.
    pub evaluation: EvaluationInfo,
}

/// The data for which a model was trained: task, widths, preparation and sampling. A loader provides it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelInputs {
    /// The items of the model.
    pub task: ModelTask,
    /// The name of the training data.
    pub data_name: String,
    /// The number of feature columns; of a heterogeneous graph, that of all types of nodes together, which may be 0.
    pub n_features: usize,
    /// What the feature columns of each type of nodes mean, `[n_types]`; no entry for a type whose columns have no names. It
    /// is compared with the columns of the data of predictions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub feature_columns: BTreeMap<String, Vec<FeatureColumn>>,
    /// The kind of targets.
    pub targets: TargetKind,
    /// The number of classes, labels or numbers per item; 1 for links, which have a score.
    pub n_outputs: usize,
    /// The names of the classes, labels or numbers; empty if they have no names.
    pub class_names: Vec<String>,
    /// The scale of the regression targets, by which the model's outputs become predictions; absent if they are predictions,
    /// and in files of earlier formats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_scaler: Option<TargetScaler>,
    /// The preparation of the training data, which is repeated for the data of predictions. `None` if it is unknown,
    /// because the model was trained on partitions of an older version of kiln, which do not record it.
    pub preparation: Option<Preparation>,
    /// The kind of node features of a graph model, as `--node-features` names it. `None` if it is unknown, and for models
    /// of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_features: Option<String>,
    /// The sampling of neighbours; `None` for models of whole graphs.
    pub sampling: Option<SamplingInfo>,
    /// The types of nodes and the relations of a heterogeneous graph; absent for other graphs. Its fanouts replace those of
    /// [`SamplingInfo`], which are then those of the first relation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<SchemaInfo>,
}

impl ModelInputs {
    /// Returns true if each item was sampled at a time of its own.
    pub fn has_item_times(&self) -> bool {
        self.sampling.as_ref().is_some_and(|sampling| sampling.item_times.is_some())
    }

    /// Returns the name of the task table on whose rows the model was trained; `None` for a model that was trained on nodes.
    pub fn task_table(&self) -> Option<&str> {
        self.sampling.as_ref()?.task_table.as_deref()
    }

    /// Returns the description of a model of links from that of its encoder, a model of nodes. A link has one score.
    #[must_use]
    pub fn of_links(self) -> Self {
        let task = ModelTask::Links;
        let targets = TargetKind::Links;
        let n_outputs = 1;
        let class_names = Vec::new();
        Self { task, targets, n_outputs, class_names, ..self }
    }

    /// Returns the description of a model of edges with targets of this kind from that of its encoder, a model of nodes. The
    /// names are those of the classes, labels or numbers, as many as there are outputs.
    #[must_use]
    pub fn describe_edges(self, targets: TargetKind, class_names: Vec<String>) -> Self {
        let n_outputs = class_names.len();
        Self { task: ModelTask::Edges, targets, n_outputs, class_names, ..self }
    }
}

/// The sampling of a node model's neighbours in training, as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplingInfo {
    /// The fanout of each layer, input layer first; `null` takes all neighbours.
    pub fanouts: Vec<Option<u32>>,
    /// The sampling rule.
    pub rule: StoredRule,
    /// The kind of edge weights: `none`, `stored` or `unbiased`.
    pub edge_weights: StoredEdgeWeights,
    /// True if blocks have edge types; absent if they do not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub edge_types: bool,
    /// The names of the edge types that the model reads, by type; absent if they have no names, and for a heterogeneous graph.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edge_type_names: Vec<String>,
    /// Whether the edges of the data have weights, for a model that reads them; absent for other models and for a heterogeneous
    /// graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_weighted: Option<bool>,
    /// The number of columns of the edge features that blocks have; absent if they have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge_features: Option<usize>,
    /// The numbers of columns of the edge features of each relation, `null` for a relation without features, for a model that
    /// reads those of each relation of a heterogeneous graph; absent for other models.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edge_widths: Vec<Option<usize>>,
    /// The widths of the other columns of edges that blocks have, by name; absent if they have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub edge_columns: BTreeMap<String, usize>,
    /// The edges that an item knows at its time, if each item was sampled at a time of its own; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_times: Option<StoredTimeLimits>,
    /// The ages of nodes and edges that the model reads; absent if it reads none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ages: Option<AgeInfo>,
    /// The rules of relations that have another one than `rule`, by name; absent if none has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub relation_rules: BTreeMap<String, StoredRule>,
    /// The windows of relations that have another one than `item_times`, by name, `null` for all that is known; absent if none
    /// has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub relation_windows: BTreeMap<String, Option<u64>>,
    /// The name of the task table on whose rows the model was trained; absent for a model that was trained on nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_table: Option<String>,
    /// The sampler of a program's own by which evaluations sample; absent if they sample neighbours by `rule`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampler: Option<StoredSampler>,
    /// True if the graph has self loops and edge weights of [`gcn_norm`](kiln_graph::gcn_norm).
    pub gcn_norm: bool,
}

/// The ages of nodes and edges that a model reads, as they are stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgeInfo {
    /// The unit of ages, at least 1: the length of time between the first and the last time of the training data, in the unit of
    /// its times.
    pub unit: u64,
    /// Whether the nodes of each type have ages, `[n_types]`.
    pub node_types: Vec<bool>,
    /// Whether the edges of each relation have ages, `[n_relations]`. The model reads them or, if its layers read no features of
    /// edges, those of nodes only.
    pub relations: Vec<bool>,
}

impl AgeInfo {
    /// Describes the ages of these parts of a graph.
    pub fn new(unit: u64, parts: TimedParts) -> Self {
        let TimedParts { node_types, relations } = parts;
        Self { unit, node_types, relations }
    }

    /// Returns true if there is an entry for each of `n_parts` types of nodes and relations, and the unit is not 0.
    pub(crate) fn is_valid(&self, n_parts: [usize; 2]) -> bool {
        self.unit != 0 && [self.node_types.len(), self.relations.len()] == n_parts
    }
}

/// [`TimeLimits`], as they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredTimeLimits {
    /// True if edges at the time itself are known.
    pub includes_equal: bool,
    /// The length of the time before an item from which edges are taken; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
}

impl From<TimeLimits> for StoredTimeLimits {
    fn from(TimeLimits { includes_equal, window }: TimeLimits) -> Self {
        Self { includes_equal, window }
    }
}

impl From<StoredTimeLimits> for TimeLimits {
    fn from(StoredTimeLimits { includes_equal, window }: StoredTimeLimits) -> Self {
        Self { includes_equal, window }
    }
}

/// A [`Rule`], as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredRule {
    /// A built-in rule, by its name ([`Rule::name`]).
    BuiltIn(String),
    /// A custom rule, by its name; `None` for a rule without a name.
    Custom(Option<String>),
}

/// A [`CustomSampler`], as it is stored: what identifies it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredSampler {
    /// The name.
    pub name: String,
    /// The settings, by name; absent if there are none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

impl From<&CustomSampler> for StoredSampler {
    fn from(sampler: &CustomSampler) -> Self {
        Self { name: sampler.name().to_owned(), settings: sampler.settings().clone() }
    }
}

impl fmt::Display for StoredSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.settings.is_empty() {
            return Ok(());
        }
        let settings: Vec<String> =
            self.settings.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        write!(f, " ({})", settings.join(", "))
    }
}

/// [`EdgeWeights`], as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredEdgeWeights {
    /// [`EdgeWeights::None`].
    None,
    /// [`EdgeWeights::Stored`].
    Stored,
    /// [`EdgeWeights::Unbiased`].
    Unbiased,
}

impl SamplingInfo {
    /// Describes a sampler's configuration. `gcn_norm` is true if the sampled graph was normalised.
    pub fn new(config: &SamplerConfig, gcn_norm: bool) -> Self {
        let edge_weights = match config.weights {
            EdgeWeights::None => StoredEdgeWeights::None,
            EdgeWeights::Stored => StoredEdgeWeights::Stored,
            EdgeWeights::Unbiased => StoredEdgeWeights::Unbiased,
        };
        let rules = config.relation_rules.iter();
        let fanouts = config.fanouts.iter().map(limit_of).collect();
        Self {
            fanouts,
            rule: (&config.rule).into(),
            edge_weights,
            edge_types: config.edge_types,
            edge_type_names: Vec::new(),
            is_weighted: None,
            edge_features: None,
            edge_widths: Vec::new(),
            edge_columns: BTreeMap::new(),
            item_times: None,
            ages: None,
            relation_rules: rules.map(|(name, rule)| (name.clone(), rule.into())).collect(),
            relation_windows: config.relation_windows.clone(),
            task_table: None,
            sampler: None,
            gcn_norm,
        }
    }

    /// Adds a column of edges that blocks have, with its number of values per edge.
    #[must_use]
    pub fn with_edge_column(mut self, name: &str, width: usize) -> Self {
        match name {
            EdgeColumns::FEATURES => self.edge_features = Some(width),
            _ => {
                self.edge_columns.insert(name.to_owned(), width);
            }
        }
        self
    }

    /// Returns the columns of edges that blocks have, with their numbers of values per edge.
    pub fn edge_columns(&self) -> impl Iterator<Item = (&str, usize)> {
        let features = self.edge_features.map(|width| (EdgeColumns::FEATURES, width));
        let others = self.edge_columns.iter().map(|(name, width)| (name.as_str(), *width));
        features.into_iter().chain(others)
    }

    /// Returns the fanouts, input layer first.
    pub fn fanouts(&self) -> Vec<Fanout> {
        self.fanouts.iter().map(fanout_of).collect()
    }

    /// Returns the kind of edge weights.
    pub fn edge_weights(&self) -> EdgeWeights {
        match self.edge_weights {
            StoredEdgeWeights::None => EdgeWeights::None,
            StoredEdgeWeights::Stored => EdgeWeights::Stored,
            StoredEdgeWeights::Unbiased => EdgeWeights::Unbiased,
        }
    }

    /// Returns the configuration of a sampler without fanouts. `custom` is the rule for a model that was trained with a custom
    /// one.
    ///
    /// # Errors
    /// Returns [`PredictModeError::CustomRule`] if it is missing.
    pub(crate) fn config(&self, custom: Option<&Rule>) -> crate::Result<SamplerConfig> {
        let mut relation_rules = BTreeMap::new();
        for (name, stored) in &self.relation_rules {
            let rule = stored.rule().or_else(|| custom.cloned()).ok_or_else(|| stored.missing())?;
            relation_rules.insert(name.clone(), rule);
        }
        Ok(SamplerConfig {
            fanouts: Vec::new(),
            rule: custom.cloned().or_else(|| self.rule()).ok_or_else(|| self.rule.missing())?,
            weights: self.edge_weights(),
            edge_types: self.edge_types,
            time_limits: self.item_times.map(TimeLimits::from).unwrap_or_default(),
            relation_rules,
            relation_windows: self.relation_windows.clone(),
        })
    }

    /// Returns the built-in sampling rule, or `None` if the model was trained with a custom one.
    pub fn rule(&self) -> Option<Rule> {
        self.rule.rule()
    }

    /// Returns the rule of all relations without their own, and the rules of the others.
    fn rules(&self) -> impl Iterator<Item = &StoredRule> {
        [&self.rule].into_iter().chain(self.relation_rules.values())
    }
}

impl StoredRule {
    /// Returns the built-in rule, or `None` for a custom one.
    fn rule(&self) -> Option<Rule> {
        match self {
            Self::BuiltIn(name) => Rule::built_in(name),
            Self::Custom(_) => None,
        }
    }

    /// Returns the error of a custom rule that a program has not set.
    fn missing(&self) -> ModelError {
        let (Self::Custom(Some(rule)) | Self::BuiltIn(rule)) = self else {
            return ModelError::Mode(PredictModeError::CustomRule { rule: String::new() });
        };
        ModelError::Mode(PredictModeError::CustomRule { rule: rule.clone() })
    }
}

impl From<&Rule> for StoredRule {
    fn from(rule: &Rule) -> Self {
        let name = rule.name().map(str::to_owned);
        match rule {
            Rule::Custom { .. } => Self::Custom(name),
            _ => Self::BuiltIn(name.unwrap_or_default()),
        }
    }
}

/// The settings with which a run evaluated its test split. [`PredictMode::AsEvaluated`](crate::PredictMode::AsEvaluated)
/// repeats them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluationInfo {
    /// The seed of the run.
    pub seed: u64,
    /// The number of items in a batch of one rank, at least 1.
    pub batch_size: usize,
    /// The number of ranks that evaluated their shares, at least 1.
    pub n_ranks: usize,
    /// The neighbours that were read.
    pub neighbors: EvaluatedNeighbors,
}

/// The neighbours that an evaluation read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum EvaluatedNeighbors {
    /// Sampled neighbours, as in training. Also the value for models of whole graphs.
    Sampled,
    /// All neighbours, layer by layer over the whole graph.
    Exact {
        /// The limit in bytes for the outputs of layers in memory; `None` for no limit.
        memory_bytes: Option<u64>,
    },
}

/// Returns the version of the contract of files that record none.
fn first_contract() -> u32 {
    1
}

impl EvaluatedNeighbors {
    /// Returns the limit in bytes for the outputs of layers in memory, if there is one.
    pub fn memory_bytes(&self) -> Option<u64> {
        match self {
            Self::Exact { memory_bytes } => *memory_bytes,
            Self::Sampled => None,
        }
    }
}

impl ModelInfo {
    /// Describes a model with this config that was trained on a device, in its current precision, by this version of kiln.
    ///
    /// # Errors
    /// Returns [`crate::RunError::Weights`] if the config cannot be represented as JSON.
    pub fn new<C: ModelConfig>(
        config: &C,
        device: &Device,
        data_hash: &str,
        inputs: ModelInputs,
        evaluation: EvaluationInfo,
    ) -> crate::Result<Self> {
        let config = serde_json::to_value(config).map_err(|error| {
            crate::Error::Run(crate::RunError::Weights {
                reason: format!("the config of a {}: {error}", C::KIND),
            })
        })?;
        Ok(Self {
            format: MODEL_FORMAT,
            kiln: env!("CARGO_PKG_VERSION").to_owned(),
            contract: DETERMINISM_CONTRACT,
            kind: C::KIND.to_owned(),
            config,
            data_hash: data_hash.to_owned(),
            weights_hash: None,
            precision: match matmul_precision_on(device) {
                MatmulPrecision::F32 => None,
                precision => Some(precision.name().to_owned()),
            },
            inputs,
            evaluation,
        })
    }

    /// Returns a note if this version draws other neighbours for predictions than the run's evaluation did.
    pub fn note_on_draws(&self) -> Option<String> {
        let Self { kiln, contract, evaluation, .. } = self;
        let samples = evaluation.neighbors == EvaluatedNeighbors::Sampled && self.inputs.sampling.is_some();
        (samples && *contract != DETERMINISM_CONTRACT).then(|| {
            format!(
                "kiln {kiln} evaluated this run with version {contract} of the determinism contract, this is version \
                 {DETERMINISM_CONTRACT}: the recorded metrics and predictions used other draws of neighbours"
            )
        })
    }

    /// Parses `model.json`. `path` is for error messages.
    ///
    /// # Errors
    /// Returns [`ModelFileError::BadInfo`] if the text is no JSON, or a field is missing, unknown or invalid, and
    /// [`ModelFileError::UnknownFormat`] if a newer version of kiln wrote it.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self, ModelError> {
        let bad =
            |reason: String| ModelError::File(ModelFileError::BadInfo { path: path.to_owned(), reason });
        let json: serde_json::Value =
            serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
        // The format comes first: other fields of a newer format may be unknown here.
        let format = json.get("format").and_then(serde_json::Value::as_u64);
        let found =
            format.ok_or_else(|| bad("the field `format` is missing or no positive number".to_owned()))?;
        if found == 0 {
            return Err(bad("the `format` is 0, expected at least 1".to_owned()));
        }
        if MODEL_FORMAT < found {
            let version =
                json.get("kiln").and_then(|version| version.as_str()).unwrap_or("unknown").to_owned();
            return Err(ModelError::File(ModelFileError::UnknownFormat {
                path: path.to_owned(),
                found,
                version,
            }));
        }
        // The text is parsed again, because errors of a parsed value have no line.
        let info: Self = serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
        match info.fault() {
            Some(reason) => Err(bad(reason)),
            None => Ok(info),
        }
    }

    /// Returns the first value that is valid JSON but not possible.
    fn fault(&self) -> Option<String> {
        let ModelInputs { task, n_features, n_outputs, class_names, preparation, sampling, graph, .. } =
            &self.inputs;
        let EvaluationInfo { batch_size, n_ranks, .. } = self.evaluation;
        let positive = [
            ("n_features", n_features.saturating_add(usize::from(graph.is_some()))),
            ("n_outputs", *n_outputs),
            ("batch_size", batch_size),
            ("n_ranks", n_ranks),
        ];
        if let Some((name, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return Some(format!("`{name}` is 0, expected at least 1"));
        }
        if n_ranks > MAX_RANKS || batch_size.checked_mul(n_ranks).is_none() {
            return Some(format!(
                "`n_ranks` is {n_ranks} and `batch_size` is {batch_size}, which no run can have"
            ));
        }
        if !class_names.is_empty() && class_names.len() != *n_outputs {
            return Some(format!(
                "there are {} class names, expected {n_outputs} or none",
                class_names.len()
            ));
        }
        for (node_type, columns) in &self.inputs.feature_columns {
            let of_type = |graph: &SchemaInfo| {
                let found = graph.node_types.iter().find(|known| known.name == *node_type);
                found.and_then(|of_type| of_type.n_features).unwrap_or(0)
            };
            let expected = graph.as_ref().map_or(*n_features, of_type);
            if let Err(width) = FeatureColumn::check_width(columns, expected) {
                return Some(format!(
                    "the `feature_columns` of {node_type:?} have a width of {width}, expected {expected} in columns of at least 1"
                ));
            }
        }
        if let Some(Err(error)) = preparation.as_ref().map(|preparation| preparation.check(*n_features)) {
            return Some(error.to_string());
        }
        if let Some(scaler) = &self.inputs.target_scaler {
            if self.inputs.targets != TargetKind::Regression {
                return Some(format!("`target_scaler` does not apply to {}", self.inputs.targets));
            }
            if let Err(error) = scaler.check(*n_outputs) {
                return Some(error.to_string());
            }
        }
        let mut rules = sampling.iter().flat_map(SamplingInfo::rules);
        if let Some(StoredRule::BuiltIn(name)) =
            rules.find(|rule| matches!(rule, StoredRule::BuiltIn(name) if Rule::built_in(name).is_none()))
        {
            return Some(format!("there is no built-in sampling rule {name:?}"));
        }
        match (task, sampling, graph) {
            (ModelTask::Nodes | ModelTask::Links | ModelTask::Edges, None, _) => {
                Some(format!("`sampling` is missing for a model of {task}"))
            }
            (ModelTask::Graphs, _, Some(_)) => Some(format!("`graph` does not apply to a model of {task}")),
            (_, sampling, Some(graph)) => {
                graph.fault(*task, sampling.as_ref().map(|sampling| sampling.fanouts.len()))
            }
            _ => None,
        }
    }
}

/// The largest number of ranks that a description may state: more than any machine has, so that a damaged number does
/// not cause an endless loop.
const MAX_RANKS: usize = 1 << 20;
