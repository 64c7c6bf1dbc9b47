use burn::tensor::Device;
use kiln_graph::Metagraph;
use kiln_sample::RngKey;
use serde::{Deserialize, Serialize};

use crate::frame::frame_options;
use crate::model::dims_and_init;
use crate::stack::Activation;
use crate::{
    GraphMetadata, GraphRequirements, HgtConv, HgtConvConfig, JumpingKnowledge, ModelConfig, Net,
    Normalization, Result,
};

/// The configuration of a [`Hgt`] model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HgtConfig {
    /// Width of the input rows of all node types.
    pub d_in: usize,
    /// Width of the rows between layers, and of the attention of all heads together.
    pub hidden: usize,
    /// Width of the output rows, one column per class.
    pub n_classes: usize,
    /// Number of layers, at least 1.
    pub n_layers: usize,
    /// Number of attention heads, which divides the hidden width.
    pub n_heads: usize,
    /// Number of node types, at least 1.
    pub n_types: usize,
    /// The types of the sources and destinations of each relation, at least one.
    pub relations: Vec<[usize; 2]>,
    /// Probability that dropout zeroes a value of the input rows, in `[0, 1)`.
    pub input_dropout: f64,
    /// Probability that dropout zeroes a value between layers, in `[0, 1)`.
    pub dropout: f64,
    /// Normalisation of hidden rows: [`Normalization::None`] or [`Normalization::Layer`].
    #[serde(default)]
    pub norm: Normalization,
    /// True to add a node's own row after dropout, in addition to the skip connection of the layer.
    #[serde(default)]
    pub residual: bool,
    /// The layers from which the outputs are computed: any but [`JumpingKnowledge::Sum`]. With
    /// [`JumpingKnowledge::Last`], a linear layer follows the last layer, as in PyG's example.
    pub jumping: JumpingKnowledge,
    /// True for skip connections through a dense layer of the node's type in layers whose input and output widths differ
    /// ([`HgtConvConfig::project_skip`]). False for models of versions before this field: such a layer does not add a
    /// node's own row to its output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub project_skip: bool,
}

impl HgtConfig {
    /// Creates a configuration of two layers with 8 heads, a hidden width of 256, a dropout of 0.2, a linear layer for the
    /// outputs, and a skip connection in each layer, for one type of nodes and one relation.
    ///
    /// ```
    /// # use kiln_nn::HgtConfig;
    /// // 8 heads of 8 columns.
    /// let config = HgtConfig::new(64, 10).hidden(64);
    /// assert_eq!((config.n_layers, config.n_heads), (2, 8));
    /// ```
    pub fn new(d_in: usize, n_classes: usize) -> Self {
        Self {
            d_in,
            hidden: 256,
            n_classes,
            n_layers: 2,
            n_heads: 8,
            n_types: 1,
            relations: vec![[0, 0]],
            input_dropout: 0.0,
            dropout: 0.2,
            norm: Normalization::None,
            residual: false,
            jumping: JumpingKnowledge::Last,
            project_skip: true,
        }
    }

    /// Sets the node types and relations of the graph.
    ///
    /// ```
    /// # use kiln_nn::HgtConfig;
    /// use kiln_graph::Metagraph;
    /// // Users (type 0) buy items (type 1), and items are bought by users.
    /// let metagraph = Metagraph::new(2, vec![[0, 1], [1, 0]])?;
    /// let config = HgtConfig::new(64, 10).metagraph(&metagraph);
    /// assert_eq!((config.n_types, config.relations.len()), (2, 2));
    /// # Ok::<(), kiln_graph::Error>(())
    /// ```
    #[must_use]
    pub fn metagraph(self, metagraph: &Metagraph) -> Self {
        Self { n_types: metagraph.n_types(), relations: metagraph.relations().to_vec(), ..self }
    }

    /// Sets the number of attention heads.
    ///
    /// ```
    /// # use kiln_nn::HgtConfig;
    /// // 4 heads of 32 columns: the number of heads divides the hidden width.
    /// let config = HgtConfig::new(64, 10).hidden(128).heads(4);
    /// ```
    #[must_use]
    pub fn heads(self, n_heads: usize) -> Self {
        Self { n_heads, ..self }
    }

    /// Creates a model with initial weights drawn from the key; layer `i` uses `key.fold_in(KeyDomain::Layer, i)`.
    ///
    /// ```
    /// # use kiln_nn::{BlockModel, HgtConfig};
    /// # use burn::tensor::Device;
    /// # use kiln_sample::RngKey;
    /// let config = HgtConfig::new(8, 3).hidden(16).heads(2);
    /// let model = config.init(RngKey::new(0), &Device::flex())?;
    /// assert_eq!(model.n_layers(), 2);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the metagraph is invalid, if a number is out of range, if the heads do not divide the hidden
    /// width, or if an option has a value for another kind of model.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<Hgt> {
        let metagraph = Metagraph::new(self.n_types, self.relations.clone())?;
        Net::init(&self.frame(), key, device, |_, [d_in, d_out], key| {
            let config = HgtConvConfig {
                d_in,
                d_attention: self.hidden,
                d_out,
                n_heads: self.n_heads,
                metagraph: metagraph.clone(),
                project_skip: self.project_skip,
            };
            config.init(key, device)
        })
    }
}

frame_options!(HgtConfig, Activation::Identity);

impl ModelConfig for HgtConfig {
    const KIND: &'static str = "hgt";
    type Model = Hgt;
    dims_and_init!();

    /// Returns [`HgtConfig::new`], which is for one type of nodes and one relation.
    fn for_dims(d_in: usize, n_classes: usize) -> Self {
        Self::new(d_in, n_classes)
    }

    fn min_parameters(&self) -> u64 {
        // The keys of each type have a weight for each weight of a layer, or more.
        self.frame().n_weights(self.n_types as u64)
    }

    fn requirements(&self) -> GraphRequirements {
        let metagraph = Metagraph::new(self.n_types, self.relations.clone()).ok();
        let n_relations = Some(self.relations.len());
        GraphRequirements { n_relations, metagraph, ..GraphRequirements::default() }
    }

    fn for_graph(self, graph: &GraphMetadata) -> Self {
        match &graph.metagraph {
            Some(metagraph) => self.metagraph(metagraph),
            None => self,
        }
    }
}

/// A heterogeneous graph transformer (Hu, Dong, Wang and Sun 2020): [`HgtConv`] layers with dropout between them.
///
/// The nodes of all types have input rows of one width, which an [`InputEncoder`](crate::InputEncoder) provides. Blocks need
/// relation groups with those of nodes.
pub type Hgt = Net<HgtConv>;
