//! The parts that attention layers share: the softmax of the scores, dropout, the weighted sum, and the bias.

use burn::module::Param;
use burn::tensor::{Device, Tensor};
use kiln_kernels::DeviceBlock;
use kiln_kernels::ops::{self, Aggregation, MessageWeights, Reduction};

use crate::error::{check_dropout, check_size, check_weight};
use crate::init::zeros;
use crate::{Error, ForwardContext, Mode, Result};

/// The combination of the heads of an attention layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadOutput {
    /// The rows of the heads are concatenated, `[n_dst, n_heads * d_head]`.
    Concat,
    /// The rows of the heads are averaged, `[n_dst, d_head]`.
    Mean,
}

/// The rows that an attention layer sums for each edge.
pub(crate) struct Messages {
    /// The rows of the sources, `[n_src, n_heads * d_head]`.
    pub(crate) of_sources: Tensor<2>,
    /// The rows of the edges, `[n_edges, n_heads * d_head]`, which are added to those of their sources; `None` without them.
    pub(crate) of_edges: Option<Tensor<2>>,
}

impl From<Tensor<2>> for Messages {
    fn from(of_sources: Tensor<2>) -> Self {
        Self { of_sources, of_edges: None }
    }
}

/// The options of an attention layer that have no parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heads {
    pub(crate) n_heads: usize,
    pub(crate) d_head: usize,
    pub(crate) output: HeadOutput,
    pub(crate) negative_slope: f64,
    pub(crate) dropout: f64,
}

impl Heads {
    pub(crate) fn check(&self, d_in: usize) -> Result<()> {
        check_size("n_heads", self.n_heads)?;
        check_size("d_head", self.d_head)?;
        check_weight(d_in, self.n_heads.saturating_mul(self.d_head))?;
        check_dropout("attention_dropout", self.dropout)?;
        if self.negative_slope.is_finite() {
            return Ok(());
        }
        Err(Error::NotFinite { name: "negative_slope", got: self.negative_slope as f32 })
    }

    /// Returns the width of the rows of all heads together.
    pub(crate) fn width(&self) -> usize {
        self.n_heads * self.d_head
    }

    /// Returns the width of the output rows.
    pub(crate) fn d_out(&self) -> usize {
        match self.output {
            HeadOutput::Concat => self.width(),
            HeadOutput::Mean => self.d_head,
        }
    }

    pub(crate) fn bias(&self, device: &Device) -> Param<Tensor<1>> {
        zeros(self.d_out(), device)
    }

    pub(crate) fn slope(&self) -> f32 {
        self.negative_slope as f32
    }

    /// Sums the messages with the attention weights that follow from the scores, `[n_edges, n_heads]`. `layer` keys the
    /// dropout of the weights.
    pub(crate) fn attend(
        &self,
        layer: usize,
        block: &DeviceBlock,
        scores: Tensor<2>,
        messages: impl Into<Messages>,
        bias: Tensor<1>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let Messages { of_sources, of_edges } = messages.into();
        let mut weights = ops::edge_softmax(block, scores);
        if ctx.mode == Mode::Train {
            weights = ops::edge_dropout(block, weights, ctx.key, layer, self.dropout);
        }
        let aggregation =
            Aggregation { weights: Some(MessageWeights::PerHead(weights)), ..Reduction::Sum.into() };
        let mut heads = ops::aggregate(block, of_sources, aggregation.clone());
        if let Some(of_edges) = of_edges {
            heads = heads + ops::aggregate_edges(block, of_edges, aggregation);
        }
        let rows = match self.output {
            HeadOutput::Concat => heads,
            HeadOutput::Mean => ops::mean_of_ranges(heads, self.n_heads),
        };
        ops::add_row(rows, bias.unsqueeze())
    }
}
