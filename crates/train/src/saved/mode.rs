use kiln_sample::{Fanout, RelationFanouts};

use crate::evaluate::layer_wise::LayerWiseConfig;

/// The neighbours that predictions read.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum PredictMode {
    /// The neighbours that the run's evaluation read. For the run's test items the predictions of kiln's models are those of
    /// the run: bit for bit on the same kind of CPU, and up to rounding on other devices and processors and after training on
    /// partitions. Models with matrix products of Burn (`Linear`) are repeated up to rounding: such a product depends on the
    /// number of rows.
    /// Runs of a kiln with version 1 of the [`DETERMINISM_CONTRACT`](crate::DETERMINISM_CONTRACT) drew the neighbours of
    /// an item for each batch: with sampled neighbours, their predictions were others.
    #[default]
    AsEvaluated,
    /// All neighbours, layer by layer over the whole graph. The time depends on the size of the graph, not on the
    /// number of nodes.
    Exact(LayerWiseConfig),
    /// Sampled neighbours. The neighbours of a node depend on the seed and the node, and not on the other nodes of the
    /// request; with the run's seed and fanouts they are those of [`PredictMode::AsEvaluated`].
    Sampled {
        /// The fanout of each layer, input layer first; of a heterogeneous graph, that of all relations. None stands for the
        /// fanouts of training.
        fanouts: Vec<Fanout>,
        /// The seed of the draws.
        seed: u64,
    },
    /// Sampled neighbours of a heterogeneous graph, whose relations have fanouts of their own, as in
    /// `NeighborLoader::relation_fanouts`. Otherwise as [`PredictMode::Sampled`].
    SampledByRelation {
        /// The fanouts, one per layer. An unknown relation is an error, and so is a relation without fanouts.
        fanouts: RelationFanouts,
        /// The seed of the draws.
        seed: u64,
    },
}
