//! The weights of edges in the aggregation of neighbours.

use burn::tensor::Tensor;
use kiln_kernels::ops::{self, Aggregation, Reduction};
use kiln_kernels::{DeviceBlock, DeviceRelationGroups};
use serde::{Deserialize, Serialize};

use crate::{Aggregate, Error, Result};

/// The use of the weights `w` of edges in the aggregation of the neighbours' rows `x`. By relation, it applies to the edges of
/// each relation on their own.
///
/// | weighting | sum | mean | maximum |
/// |---|---|---|---|
/// | [`None`](Self::None) | `sum x` | `sum x / n` | `max x` |
/// | [`Scale`](Self::Scale) | `sum w x` | `sum w x / n` | `max w x` |
/// | [`Normalize`](Self::Normalize) | – | <code>sum w x / sum &#124;w&#124;</code> | – |
///
/// `n` is the number of the destination's edges. With sampled neighbours, the sums are over the sampled edges. A weighted mean
/// with weights of 0 only is 0, as that of no edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeWeighting {
    /// The weights are not read: each edge counts with 1.
    #[default]
    None,
    /// The row of each edge's source is multiplied by the edge's weight: `edge_weight` of DGL's `SAGEConv`, and of PyG's
    /// `GraphConv`.
    Scale,
    /// The mean is the weighted mean: `norm="right"` of DGL's `EdgeWeightNorm`.
    Normalize,
}

impl EdgeWeighting {
    /// Returns true if the weights are read.
    pub fn reads_weights(self) -> bool {
        self != Self::None
    }

    /// Returns an error if the weighting does not apply to the aggregation.
    pub(crate) fn check(self, aggregate: Aggregate) -> Result<()> {
        match self == Self::Normalize && aggregate != Aggregate::Mean {
            true => Err(Error::NormalizedWithoutMean { aggregate }),
            false => Ok(()),
        }
    }

    /// Returns the aggregation of the edges of a block.
    pub(crate) fn aggregation(self, block: &DeviceBlock, aggregate: Aggregate) -> Aggregation {
        let weights = || weights_of(block.weights());
        self.of(aggregate, weights, |weights| ops::edge_shares(block, weights))
    }

    /// Returns the aggregation of the entries of the groups of a block.
    pub(crate) fn group_aggregation(
        self,
        groups: &DeviceRelationGroups,
        aggregate: Aggregate,
    ) -> Aggregation {
        let weights = || weights_of(groups.weights());
        self.of(aggregate, weights, |weights| ops::group_shares(groups, weights))
    }

    fn of(
        self,
        aggregate: Aggregate,
        weights: impl FnOnce() -> Tensor<1>,
        shares: impl FnOnce(Tensor<1>) -> Tensor<1>,
    ) -> Aggregation {
        match self {
            Self::None => Reduction::from(aggregate).into(),
            Self::Scale => {
                Aggregation { weights: Some(weights().into()), ..Reduction::from(aggregate).into() }
            }
            Self::Normalize => {
                Aggregation { weights: Some(shares(weights()).into()), ..Reduction::Sum.into() }
            }
        }
    }

    /// Returns the factor of each edge in the mean or sum over the edges of its relation; `None` if all are 1.
    pub(crate) fn edge_factors(
        self,
        block: &DeviceBlock,
        aggregate: Aggregate,
        n_relations: usize,
    ) -> Option<Tensor<1>> {
        match (aggregate, self) {
            (Aggregate::Mean, _) => Some(self.relation_shares(block, n_relations)),
            (_, Self::None) => None,
            (_, _) => Some(weights_of(block.weights())),
        }
    }

    /// Returns the share of each edge in the mean over the edges of its relation.
    pub(crate) fn relation_shares(self, block: &DeviceBlock, n_relations: usize) -> Tensor<1> {
        match self {
            Self::None => ops::relation_shares(block, n_relations, None),
            Self::Scale => ops::relation_shares(block, n_relations, None) * weights_of(block.weights()),
            Self::Normalize => ops::relation_shares(block, n_relations, Some(weights_of(block.weights()))),
        }
    }
}

fn weights_of(weights: Option<&Tensor<1>>) -> Tensor<1> {
    match weights {
        Some(weights) => weights.clone(),
        None => panic!("the block has no edge weights: sample with EdgeWeights::Stored"),
    }
}
