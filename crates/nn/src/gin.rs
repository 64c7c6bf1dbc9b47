use burn::module::Module;
use burn::nn::BatchNorm;
use burn::tensor::{Device, Tensor};
use kiln_kernels::{DeviceBlock, DeviceGraphs, ops};
use kiln_sample::{KeyDomain, RngKey};

use crate::error::{check_dropout, check_size};
use crate::normalization::normalize;
use crate::{
    Aggregate, Epsilon, ForwardContext, GinConv, GraphModel, Linear, Mlp, MlpConfig, Mode, Normalization,
    Readout, Result,
};

/// The layers from which a graph's scores come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JumpingKnowledge {
    /// From the last, directly: its rows have one column a class, and nothing but the readout follows.
    Direct,
    /// From the last, by a linear layer on its pooled rows.
    Last,
    /// From all, the input among them: each has a linear layer of its own on its pooled rows, and their
    /// scores add up. That is the paper's way, and one linear layer on the pooled rows of all layers side
    /// by side (the concatenation of Xu, Li, Tian, Sonobe, Kawarabayashi and Jegelka 2018) with other
    /// initial weights.
    Sum,
}

/// The shape of a [`Gin`] model.
#[derive(Debug, Clone)]
pub struct GinConfig {
    /// Width of the input features.
    pub d_in: usize,
    /// Width between layers, and inside their MLPs.
    pub hidden: usize,
    /// Width of the output.
    pub n_classes: usize,
    /// Number of [`GinConv`] layers, at least 1. The paper counts the input as a layer: its 5 are 4 here.
    pub n_layers: usize,
    /// Number of dense layers in each layer's MLP, at least 1.
    pub mlp_layers: usize,
    /// Normalisation inside the MLPs and after each of them.
    pub norm: Normalization,
    /// By how much a node's own row weighs more than a neighbour's, in each layer.
    pub epsilon: Epsilon,
    /// How neighbours are put together.
    pub aggregate: Aggregate,
    /// How a graph's nodes are put together.
    pub readout: Readout,
    /// From which layers the scores come.
    pub jumping: JumpingKnowledge,
    /// Probability that dropout zeroes a score of a linear layer after the readout (the paper's "final
    /// dropout"), in `[0, 1)`. [`JumpingKnowledge::Direct`] has none.
    pub dropout: f64,
}

impl GinConfig {
    /// The GIN of DGL's tutorial on graph classification by several GPUs: a [`GinConv`] of one dense layer
    /// `d_in -> hidden`, ReLU, another `hidden -> n_classes`, and the sum of its rows for each graph.
    /// Neighbours are summed, epsilon is 0 and fixed, and nothing is normalised. The tutorial's `hidden`
    /// is its number of classes, 2.
    pub fn simplified(d_in: usize, hidden: usize, n_classes: usize) -> Self {
        Self {
            n_layers: 2,
            mlp_layers: 1,
            norm: Normalization::None,
            jumping: JumpingKnowledge::Direct,
            dropout: 0.0,
            ..Self::paper(d_in, hidden, n_classes)
        }
    }

    /// The GIN-0 of the paper's section 7: 5 layers with the input, MLPs of 2 dense layers, batch
    /// normalisation, sums of neighbours, of nodes and of the layers' scores, and a dropout of 0.5, of the
    /// two that its search took. The paper's GIN-eps has [`Epsilon::Learnable`]`(0.0)`; its readout for
    /// social networks is the mean.
    pub fn paper(d_in: usize, hidden: usize, n_classes: usize) -> Self {
        Self {
            d_in,
            hidden,
            n_classes,
            n_layers: 4,
            mlp_layers: 2,
            norm: Normalization::Batch,
            epsilon: Epsilon::Fixed(0.0),
            aggregate: Aggregate::Sum,
            readout: Readout::Sum,
            jumping: JumpingKnowledge::Sum,
            dropout: 0.5,
        }
    }

    /// A model with initial weights from the key, uniform as in PyTorch's `Linear`: layer `i` takes
    /// `key.fold_in(KeyDomain::Layer, i)`, the linear layers after the readout take `i = n_layers`.
    ///
    /// # Errors
    /// When a width or a number of layers is 0 or absurdly large, epsilon is not finite, or the dropout is
    /// not in `[0, 1)`.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<Gin> {
        check_size("n_classes", self.n_classes)?;
        check_size("n_layers", self.n_layers)?;
        check_size("mlp_layers", self.mlp_layers)?;
        check_dropout("dropout", self.dropout)?;
        let layer_key = |i: usize| key.fold_in(KeyDomain::Layer, i as u64);
        let layer = |i| self.layer(i, layer_key(i), device);
        let layers = (0..self.n_layers).map(layer).collect::<Result<_>>()?;
        let pooled_widths = match self.jumping {
            JumpingKnowledge::Direct => Vec::new(),
            JumpingKnowledge::Last => vec![self.hidden],
            JumpingKnowledge::Sum => [vec![self.d_in], vec![self.hidden; self.n_layers]].concat(),
        };
        let head = |(k, width)| Linear::init(layer_key(self.n_layers), k, [width, self.n_classes], device);
        let heads = pooled_widths.into_iter().enumerate().map(head).collect::<Result<_>>()?;
        Ok(Gin { layers, heads, readout: self.readout, dropout: self.dropout })
    }

    fn layer(&self, i: usize, key: RngKey, device: &Device) -> Result<GinLayer> {
        let &Self { hidden, norm, mlp_layers: n_layers, .. } = self;
        let d_in = if i == 0 { self.d_in } else { hidden };
        let gives_scores = self.jumping == JumpingKnowledge::Direct && i + 1 == self.n_layers;
        let d_out = if gives_scores { self.n_classes } else { hidden };
        let mlp = MlpConfig { d_in, hidden, d_out, n_layers, norm }.init(key, device)?;
        let conv = GinConv::new(mlp, self.epsilon, self.aggregate, device)?;
        let (norm, follow) =
            if gives_scores { (None, Follow::Nothing) } else { (norm.init(d_out, device), Follow::Relu) };
        Ok(GinLayer { conv, norm, follow })
    }
}

/// A graph isomorphism network (Xu, Hu, Leskovec and Jegelka 2019), as in the authors' code: [`GinConv`]
/// layers, each followed by batch normalisation and ReLU, and scores from the pooled rows of all layers.
///
/// The dropout mask of a score belongs to its graph's number in the set, the linear layer that gave it and
/// the key of the step, so that it does not depend on how the step's graphs are dealt out to ranks. The
/// statistics of a batch normalisation are those of the graphs that one rank sees.
#[derive(Module, Debug)]
pub struct Gin {
    /// The layers, input layer first.
    pub layers: Vec<GinLayer>,
    /// The linear layers after the readout: of the input's and each layer's pooled rows
    /// ([`JumpingKnowledge::Sum`]), of the last layer's ([`JumpingKnowledge::Last`]), or none
    /// ([`JumpingKnowledge::Direct`]).
    pub heads: Vec<Linear>,
    #[module(skip)]
    readout: Readout,
    #[module(skip)]
    dropout: f64,
}

impl Gin {
    /// The scores by linear layer `k` of what it reads.
    fn head(&self, k: usize, graphs: &DeviceGraphs, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let scores = self.heads[k].forward(self.readout.pool(graphs.segments(), x));
        match ctx.mode {
            Mode::Train => ops::dropout(scores, graphs.items(), ctx.key, k, self.dropout),
            Mode::Eval => scores,
        }
    }
}

impl GraphModel for Gin {
    fn forward(&self, graphs: &DeviceGraphs, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let reads_all = self.heads.len() == self.layers.len() + 1;
        let mut scores = reads_all.then(|| self.head(0, graphs, x.clone(), ctx));
        let mut x = x;
        for (i, layer) in self.layers.iter().enumerate() {
            x = layer.forward(graphs.block(), x, ctx);
            scores = scores.map(|scores| scores + self.head(i + 1, graphs, x.clone(), ctx));
        }
        match scores {
            Some(scores) => scores,
            None if self.heads.is_empty() => self.readout.pool(graphs.segments(), x),
            None => self.head(0, graphs, x, ctx),
        }
    }
}

/// A [`GinConv`] with what follows it before the next.
#[derive(Module, Debug)]
pub struct GinLayer {
    /// The convolution.
    pub conv: GinConv<Mlp>,
    /// What normalises its output, if anything does.
    pub norm: Option<BatchNorm>,
    #[module(skip)]
    follow: Follow,
}

/// What ends a layer.
#[derive(Debug, Clone, Copy)]
enum Follow {
    Relu,
    /// The layer gives scores.
    Nothing,
}

impl GinLayer {
    fn forward(&self, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let mut x = self.conv.forward(block, x, ctx);
        if let Some(norm) = &self.norm {
            x = normalize(norm, x, ctx);
        }
        match self.follow {
            Follow::Relu => ops::relu(x),
            Follow::Nothing => x,
        }
    }
}
