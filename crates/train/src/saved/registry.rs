//! The constructors of saved models by kind.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Device;
use kiln_nn::{
    BlockModel, GinConfig, GraphModel, HeteroModelConfig, InputEncoder, LinkModelConfig, ModelConfig,
    TimedParts,
};
use kiln_sample::RngKey;

use crate::error::Result;
use crate::saved::info::{AgeInfo, ModelInfo, StoredEdgeWeights};
use crate::saved::models::{Row, RowVisitor, visit_rows};
use crate::saved::network::{Network, NodeEncoder, OfGraphs};
use crate::step::embedding::NodeEmbedding;
use crate::step::generator::init_seeded;
use crate::step::weights::load_weights;
use crate::step::weights::task_weights;

/// The models that [`SavedModel`](crate::SavedModel) can open, by their kind. The default registry has `sage`, `gcn`,
/// `gat`, `rgcn`, `gine` and `gin`, the models of heterogeneous graphs `typed-sage`, `typed-rsage`, `typed-rgcn` and
/// `typed-hgt`, and the link models with the encoders of nodes, such as `link-sage` and `link-typed-sage`; a model of your
/// own is added with its config.
///
/// ```
/// use kiln_nn::SageConfig;
/// use kiln_train::ModelRegistry;
/// // The built-in configs are registered already; a config of your own is registered like this.
/// let registry = ModelRegistry::default().with_node_model::<SageConfig>();
/// let kinds: Vec<_> = registry.kinds().collect();
/// assert_eq!(kinds[..5], ["gat", "gcn", "gin", "gine", "link-gat"]);
/// assert_eq!(kinds[5..8], ["link-gcn", "link-gine", "link-rgcn"]);
/// ```
#[derive(Clone)]
pub struct ModelRegistry {
    constructors: BTreeMap<&'static str, Constructor>,
}

/// Creates a model from its description and its weights, or returns the reason why it cannot. Also returns the number of
/// relations of a model that reads edge types.
type Constructor = Arc<dyn Fn(&ModelInfo, Vec<u8>, &Device) -> Constructed + Send + Sync>;

type Constructed = std::result::Result<(Network, Option<usize>), BadModel>;

/// The part of a saved model that is invalid, with the reason.
pub(crate) enum BadModel {
    Config(String),
    Weights(String),
}

impl Default for ModelRegistry {
    /// Returns the registry of kiln's models.
    fn default() -> Self {
        let empty = Self { constructors: BTreeMap::new() };
        visit_rows(empty).with_graph_model::<GinConfig>()
    }
}

impl RowVisitor for ModelRegistry {
    /// Adds the model, and the one behind an encoder that reads ages.
    fn one_type<C: ModelConfig<Model: BlockModel> + 'static>(self, _: Row) -> Self {
        self.with_node_model::<C>().with_link_model::<C>().saved::<C>()
    }

    fn several_types<C: ModelConfig<Model: BlockModel> + 'static>(self, _: Row) -> Self {
        self.saved::<C>()
    }

    fn saved<C: ModelConfig<Model: BlockModel> + 'static>(self) -> Self {
        self.with_node_model::<HeteroModelConfig<C>>().with_link_model::<HeteroModelConfig<C>>()
    }
}

impl ModelRegistry {
    /// Adds a model of nodes. It replaces a model of the same [`KIND`](ModelConfig::KIND). That of heterogeneous graphs has a
    /// [`HeteroModelConfig`](kiln_nn::HeteroModelConfig).
    #[must_use]
    pub fn with_node_model<C>(self) -> Self
    where
        C: ModelConfig<Model: BlockModel + Sync> + 'static,
    {
        self.with::<C>(|model, info, weights| {
            let width = trained_width(&model);
            let (model, tables) = loaded(model, width, info, weights)?;
            Ok(Network::Nodes { encoder: NodeEncoder::new(model, tables), decoder: None })
        })
    }

    /// Adds a model of whole graphs. It replaces a model of the same [`KIND`](ModelConfig::KIND).
    #[must_use]
    pub fn with_graph_model<C>(self) -> Self
    where
        C: ModelConfig<Model: GraphModel + Sync> + 'static,
    {
        self.with::<C>(|model, info, weights| {
            let (model, _) = loaded(model, 0, info, weights)?;
            Ok(Network::Graphs(Arc::new(OfGraphs(model))))
        })
    }

    /// Adds a model of links with this encoder. It replaces a model of the same [`KIND`](ModelConfig::KIND), that of the
    /// [`LinkModelConfig`].
    #[must_use]
    pub fn with_link_model<C>(self) -> Self
    where
        C: ModelConfig<Model: BlockModel + Sync> + 'static,
    {
        self.with::<LinkModelConfig<C>>(|model, info, weights| {
            let width = trained_width(&model.encoder);
            let (model, tables) = loaded(model, width, info, weights)?;
            let encoder = NodeEncoder::new(model.encoder, tables);
            Ok(Network::Nodes { encoder, decoder: Some(model.decoder) })
        })
    }

    /// Returns the registered kinds, in alphabetical order.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.constructors.keys().copied()
    }

    pub(crate) fn constructor(&self, kind: &str) -> Option<&Constructor> {
        self.constructors.get(kind)
    }

    /// Adds a constructor. `build` loads the weights into a model with other ones.
    fn with<C: ModelConfig + 'static>(
        mut self,
        build: fn(C::Model, &ModelInfo, Vec<u8>) -> Result<Network>,
    ) -> Self {
        let constructor: Constructor = Arc::new(move |info, weights, device| {
            let config: C = serde_json::from_value(info.config.clone())
                .map_err(|error| BadModel::Config(error.to_string()))?;
            // A damaged config may be for a model that does not fit in memory, so it is checked first.
            if let Some(reason) = contradiction(&config, info) {
                return Err(BadModel::Config(reason));
            }
            if let Some(reason) = too_few_bytes(&config, &weights) {
                return Err(BadModel::Weights(reason));
            }
            // All initial weights are replaced by the stored ones.
            let key = RngKey::new(0);
            let inner = device.clone().inner();
            let init = init_seeded(&inner, key, || config.init(key, &inner));
            let model = init.map_err(|error| BadModel::Config(error.to_string()))?;
            let network =
                build(model, info, weights).map_err(|error| BadModel::Weights(error.to_string()))?;
            Ok((network, config.requirements().n_relations))
        });
        self.constructors.insert(C::KIND, constructor);
        self
    }
}

/// Returns the width of the rows of the types of nodes without features; 0 if there are none.
fn trained_width<M: BlockModel>(model: &M) -> usize {
    model.input_encoder().map_or(0, InputEncoder::d_out)
}

/// Returns a model with the weights of a file, for predictions, and the trained rows of the types of nodes without
/// features, `[n_nodes, width]`.
fn loaded<M: Module>(
    mut model: M,
    width: usize,
    info: &ModelInfo,
    weights: Vec<u8>,
) -> Result<(M, Vec<Arc<NodeEmbedding>>)> {
    let Some(graph) = &info.inputs.graph else {
        load_weights(&mut model, weights)?;
        return Ok((model.valid(), Vec::new()));
    };
    let without_features = graph.node_types.iter().filter(|of_type| of_type.n_features.is_none());
    let shapes: Vec<_> = without_features.map(|of_type| [of_type.n_nodes, width]).collect();
    let tables = task_weights::read(&mut model, &shapes, weights)?;
    Ok((model.valid(), tables.into_iter().map(Arc::new).collect()))
}

/// Returns the first difference between a config and the graph of its description.
fn contradiction_of_graph<C: ModelConfig>(config: &C, info: &ModelInfo) -> Option<String> {
    let requirements = config.requirements();
    let (graph, widths) = match (&info.inputs.graph, &requirements.widths) {
        (None, None) => return None,
        // The encoder of a model that reads ages is also for one type of nodes without a name.
        (None, Some(widths)) if widths.len() == 1 && requirements.ages.is_some() => return None,
        (Some(_), None) => {
            return Some(format!("a {} is no model of the heterogeneous graph of `graph`", info.kind));
        }
        (None, Some(_)) => return Some("`graph` is missing".to_owned()),
        (Some(graph), Some(widths)) => (graph, widths),
    };
    if !graph.widths().eq(widths.iter().copied()) {
        let reason =
            "the types of nodes in the config have other numbers of feature columns than those of `graph`";
        return Some(reason.to_owned());
    }
    if requirements.metagraph.is_some() && requirements.metagraph != graph.metagraph() {
        return Some("the config is for other relations than those of `graph`".to_owned());
    }
    let n_relations = graph.relations.len();
    if requirements.n_relations.is_some_and(|of_model| of_model < n_relations) {
        return Some(format!("the config is for fewer than the {n_relations} relations of `graph`"));
    }
    // The outputs of an encoder of links are the rows that its decoder reads.
    let n_outputs = info.inputs.n_outputs;
    let has_too_few = config.d_out().is_some_and(|d_out| d_out < n_outputs);
    has_too_few.then(|| format!("the config has fewer than {n_outputs} outputs"))
}

/// Returns the reason why a file is too small for the weights of this config: 4 bytes for each parameter.
fn too_few_bytes<C: ModelConfig>(config: &C, weights: &[u8]) -> Option<String> {
    let expected = config.min_parameters().saturating_mul(4);
    let got = weights.len() as u64;
    (got < expected)
        .then(|| format!("the file has {got} bytes, but the weights of the config take at least {expected}"))
}

/// Returns true if a model reads ages that a description has: those of all its types of nodes, and of all its relations or none.
fn is_of_ages(info: Option<&AgeInfo>, read: Option<&TimedParts>) -> bool {
    let (Some(info), Some(read)) = (info, read) else { return info.is_none() && read.is_none() };
    let is_of_relations = read.relations == info.relations || !read.relations.contains(&true);
    read.node_types == info.node_types && is_of_relations && read.relations.len() == info.relations.len()
}

/// Returns the first difference between a config and the description that contains it.
fn contradiction<C: ModelConfig>(config: &C, info: &ModelInfo) -> Option<String> {
    if let Some(reason) = contradiction_of_graph(config, info) {
        return Some(reason);
    }
    let inputs = &info.inputs;
    if let Some(d_in) = config.d_in().filter(|&d_in| d_in != inputs.n_features) {
        return Some(format!("the config is for {d_in} features, but the inputs have {}", inputs.n_features));
    }
    let sampling = inputs.sampling.as_ref()?;
    let n_layers = config.n_layers();
    let n_fanouts = sampling.fanouts.len();
    if n_layers != n_fanouts {
        return Some(format!("the config has {n_layers} layers, but there are {n_fanouts} fanouts"));
    }
    let requirements = config.requirements();
    if !is_of_ages(sampling.ages.as_ref(), requirements.ages.as_ref()) {
        return Some("the config is for ages of other types and relations than `ages`".to_owned());
    }
    let n_parts = match &inputs.graph {
        Some(graph) => [graph.node_types.len(), graph.relations.len()],
        None => [1, 1],
    };
    if sampling.ages.as_ref().is_some_and(|ages| !ages.is_valid(n_parts)) {
        return Some("`ages` is not for the types and relations of the graph, or its unit is 0".to_owned());
    }
    if requirements.edge_weights && sampling.edge_weights == StoredEdgeWeights::None {
        return Some(format!("a {} reads edge weights, but `edge_weights` is none", info.kind));
    }
    if requirements.n_relations.is_some() && !sampling.edge_types {
        return Some(format!("a {} reads edge types, but `edge_types` is false", info.kind));
    }
    let of_relations = requirements.edge_widths.filter(|_| inputs.graph.is_some());
    match &of_relations {
        Some(widths) if *widths != sampling.edge_widths => {
            return Some("the config is for edge features of other widths than `edge_widths`".to_owned());
        }
        Some(_) => return None,
        None => {}
    }
    match requirements.d_edge {
        Some(width) if sampling.edge_features != Some(width) => {
            Some(format!("the config is for {width} edge features, but `edge_features` is another number"))
        }
        _ => None,
    }
}

impl fmt::Debug for ModelRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ModelRegistry").field(&self.kinds().collect::<Vec<_>>()).finish()
    }
}
