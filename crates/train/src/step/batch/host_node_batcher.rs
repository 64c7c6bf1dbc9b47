use std::fmt;
use std::time::Instant;

use burn::tensor::Device;
use kiln_feature::{DenseFeatures, FeatureStore};
use kiln_graph::{Block, NodeId};
use kiln_kernels::{
    BlockSize, FeatureAggregation, aggregate_features, gather_features, is_cpu, run_on_load_stream,
};
use kiln_loader::{BatchError, Batcher, NodeBatcher, SampledBatch, SeedBatch, StageTimes};
use kiln_nn::InputAggregation;
use kiln_sample::{FrontierSampler, Scratch};

use crate::step::batch::DeviceBatch;
use crate::step::batch::input_rows::{GatheredRows, InputRows};
use crate::step::task::node::{NodeInput, nominal_size, sampled_to_device};

/// A batcher for node tasks that samples on the host and gathers the feature rows of the host for a device. On CUDA, the
/// loader's worker gathers them directly into pinned memory, from which the device copies. The batches are equal to
/// those of a [`DeviceBatcher`](crate::DeviceBatcher) of the same [`NodeBatcher`], whose rows are copied once more.
///
/// It is not part of `kiln-loader`, because its batches are tensors and device blocks, which that crate does not know.
pub struct HostNodeBatcher<S: ?Sized> {
    batcher: NodeBatcher<S>,
    device: Device,
    aggregation: Option<InputAggregation>,
    /// The rule that decides whether a block's rows are aggregated while they are read, given their size in bytes.
    is_faster: fn(BlockSize, usize) -> bool,
}

/// The minimum size in bytes of the gathered rows of a batch that is aggregated while its rows are read. Smaller rows stay
/// in a cache until the aggregation reads them again.
const MIN_GATHERED_BYTES: usize = 1 << 25;

/// The maximum number of rows that are read from the store's array if the rows of a batch are aggregated while they are
/// read, as a multiple of the number of rows that are otherwise gathered.
const MAX_READS: usize = 2;

/// Returns true if reading the rows of a block's edges directly from the store's array is faster than gathering the rows
/// of its sources and aggregating them. The first reads `n_edges + n_dst` rows at random places of a large array. The
/// second reads and writes `n_src` rows, and then reads `n_edges` rows at random places of a smaller array.
fn is_faster(size: BlockSize, row_bytes: usize) -> bool {
    let BlockSize { n_src, n_dst, n_edges } = size;
    MIN_GATHERED_BYTES <= n_src * row_bytes && n_edges + n_dst < MAX_READS * n_src
}

impl<S: FrontierSampler + ?Sized> HostNodeBatcher<S> {
    /// Wraps a batcher; its batches are copied to `device`.
    pub fn new(batcher: NodeBatcher<S>, device: &Device) -> Self {
        Self { batcher, device: device.clone().inner(), aggregation: None, is_faster }
    }

    /// Sets the aggregation by which the model's first layer reads its input rows ([`BlockModel::input_aggregation`]); the
    /// default is `None`. The batcher then computes it while it reads the rows of a large batch, instead of gathering them:
    /// on the CPU, if the store has its rows as one array ([`FeatureStore::as_dense`]), and if this is faster. The batch holds
    /// [`InputRows::Aggregated`], and the model's outputs are bit-identical. The batches suit only models with this aggregation.
    ///
    /// [`BlockModel::input_aggregation`]: kiln_nn::BlockModel::input_aggregation
    #[must_use]
    pub fn input_aggregation(self, aggregation: Option<InputAggregation>) -> Self {
        Self { aggregation, ..self }
    }

    /// Gathers the rows of a batch, or aggregates them while they are read.
    fn input_rows(&self, sampled: &SampledBatch) -> Result<InputRows, BatchError> {
        if let Some(Aggregated { features, block, input }) = self.aggregated(sampled) {
            let rows = aggregate_features(features, block, input.aggregation, &self.device)?;
            return Ok(InputRows::Aggregated { rows, input });
        }
        let nodes = sampled.input_nodes();
        let rows =
            self.batcher.features().gather_with(&nodes, |store: &dyn FeatureStore, nodes: &[NodeId]| {
                gather_features(store, nodes, &self.device)
            })?;
        let rows = GatheredRows::new(rows, nodes.len(), &self.device);
        Ok(InputRows::Gathered(rows.with_ages(sampled.node_ages.clone(), &self.device)))
    }

    /// Returns the arguments of [`aggregate_features`], if the rows of a batch are aggregated while they are read.
    fn aggregated<'a>(&'a self, sampled: &'a SampledBatch) -> Option<Aggregated<'a>> {
        let input = self.aggregation?;
        let features = self.batcher.features().only_store()?.as_dense()?;
        let block = sampled.blocks.first()?;
        let aggregation = input.aggregation;
        let size = BlockSize::from(block);
        let row_bytes = features.dim() * features.dtype().bytes();
        let is_possible = is_cpu(&self.device)
            && features.n_rows() <= FeatureAggregation::MAX_ROWS
            && features.dim() == input.d_in
            && (aggregation != FeatureAggregation::WeightedSum || block.weights().is_some());
        let is_first = input.is_first(nominal_size(sampled.phase).unwrap_or(size));
        let is_chosen = is_possible && is_first && (self.is_faster)(size, row_bytes);
        is_chosen.then_some(Aggregated { features, block, input })
    }
}

/// The arguments of [`aggregate_features`].
struct Aggregated<'a> {
    features: &'a DenseFeatures,
    block: &'a Block,
    input: InputAggregation,
}

impl<S: ?Sized> fmt::Debug for HostNodeBatcher<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostNodeBatcher").field("batcher", &self.batcher).finish_non_exhaustive()
    }
}

impl<S: FrontierSampler + ?Sized + 'static> Batcher for HostNodeBatcher<S> {
    type Item = NodeId;
    type Batch = DeviceBatch<NodeInput>;
    type Scratch = Scratch;

    fn batch(
        &self,
        seeds: SeedBatch,
        scratch: &mut Scratch,
        times: &mut StageTimes,
    ) -> Result<DeviceBatch<NodeInput>, BatchError> {
        let sampled = self.batcher.sample(seeds, scratch, times)?;
        let start = Instant::now();
        let mut batch = run_on_load_stream(&self.device, || {
            let x = self.input_rows(&sampled)?;
            Ok::<_, BatchError>(sampled_to_device(sampled, x, *times, &self.device))
        })
        .map_err(BatchError::other)??;
        // The gather stage includes the wait until the device has copied the rows and the blocks.
        times.gather += start.elapsed();
        batch.times = *times;
        Ok(batch)
    }

    fn n_bytes(batch: &DeviceBatch<NodeInput>) -> usize {
        batch.n_bytes
    }
}

#[cfg(test)]
mod tests;
