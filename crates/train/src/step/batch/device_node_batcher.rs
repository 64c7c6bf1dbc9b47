use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use kiln_feature::Targets;
use kiln_graph::{NodeId, SharedArray};
use kiln_kernels::{DeviceEdgeColumn, DeviceFeatures, DeviceSampler, run_on_load_stream, wait};
use kiln_loader::{BatchError, Batcher, SeedBatch, StageTimes};
use kiln_sample::Scratch;

use crate::step::batch::DeviceBatch;
use crate::step::batch::input_rows::InputRows;
use crate::step::task::node::{NodeInput, nominal_size};

/// A batcher for node tasks that samples the blocks and gathers the input features on a device, and the columns of edges
/// that it has. The seeds and their targets come from the host. For equal seeds and keys, the batches are equal to those
/// of [`NodeBatcher`](kiln_loader::NodeBatcher).
pub struct DeviceNodeBatcher {
    sampler: Arc<DeviceSampler>,
    features: Arc<DeviceFeatures>,
    edge_columns: Vec<Arc<DeviceEdgeColumn>>,
    /// The targets of the seeds; `None` for tasks without targets of nodes.
    targets: Option<Targets>,
    /// The time of each node; `None` if seeds have no times, or if those of a batch come with it.
    seed_times: Option<SharedArray<i64>>,
}

impl DeviceNodeBatcher {
    /// Creates a batcher. The sampler and the features must be on the same device.
    pub fn new(
        sampler: Arc<DeviceSampler>,
        features: Arc<DeviceFeatures>,
        targets: impl Into<Targets>,
    ) -> Self {
        Self { sampler, features, edge_columns: Vec::new(), targets: Some(targets.into()), seed_times: None }
    }

    /// Creates a batcher whose batches have no targets, for link prediction.
    pub fn without_targets(sampler: Arc<DeviceSampler>, features: Arc<DeviceFeatures>) -> Self {
        Self { sampler, features, edge_columns: Vec::new(), targets: None, seed_times: None }
    }

    /// Makes blocks carry a column of their edges ([`DeviceBlock::edge_column`]), which must be that of the sampler's graph.
    ///
    /// [`DeviceBlock::edge_column`]: kiln_kernels::DeviceBlock::edge_column
    pub fn edge_column(mut self, column: Arc<DeviceEdgeColumn>) -> Self {
        self.edge_columns.push(column);
        self
    }

    /// Samples each seed at a time of its own, as [`NodeBatcher::seed_times`](kiln_loader::NodeBatcher::seed_times) does. `times`
    /// has a time for each node.
    #[must_use]
    pub fn seed_times(self, times: impl Into<SharedArray<i64>>) -> Self {
        Self { seed_times: Some(times.into()), ..self }
    }
}

impl fmt::Debug for DeviceNodeBatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceNodeBatcher")
            .field("has_targets", &self.targets.is_some())
            .field("edge_columns", &self.edge_columns.iter().map(|column| column.name()).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Batcher for DeviceNodeBatcher {
    type Item = NodeId;
    type Batch = DeviceBatch<NodeInput>;
    type Scratch = Scratch;

    fn batch(
        &self,
        seeds: SeedBatch,
        scratch: &mut Scratch,
        times: &mut StageTimes,
    ) -> Result<DeviceBatch<NodeInput>, BatchError> {
        let SeedBatch { phase, key, .. } = seeds;
        let seeds = seeds.into_seeds(self.seed_times.as_deref())?;
        let load = || {
            let start = Instant::now();
            let sample = self.sampler.sample(&seeds, key, scratch)?;
            let took = start.elapsed();
            let sampled = sample.into_blocks(&self.edge_columns)?;
            // The rows of nodes are gathered last, so the device has completed the batch when it has gathered them.
            let x = self.features.gather(&sampled.input_nodes)?;
            wait(&x).map_err(BatchError::other)?;
            Ok::<_, BatchError>((sampled, x, took))
        };
        let start = Instant::now();
        let loaded = run_on_load_stream(self.sampler.graph().device(), load).map_err(BatchError::other)?;
        let (sampled, x, took) = loaded?;
        times.sample += took;
        // The gather stage includes the copies to the device, and the wait until it has completed the sampling and the
        // gathering.
        times.gather += start.elapsed() - took;
        let mut labels = Vec::new();
        let mut target_values = Vec::new();
        if let Some(targets) = &self.targets {
            targets.gather(seeds.as_nodes(), &mut labels, &mut target_values)?;
        }
        let mut blocks = sampled.blocks;
        if let Some(size) = nominal_size(phase) {
            blocks = blocks.into_iter().map(|block| block.standing_for(size)).collect();
        }
        let input = NodeInput {
            blocks,
            x: InputRows::Gathered(x.into()),
            seeds: seeds.as_nodes().to_vec(),
            seed_index: sampled.seed_index.iter().map(|row| row.index()).collect(),
            labels,
            target_values,
        };
        let device = self.sampler.graph().device().clone();
        Ok(input.into_batch(key, *times, &device))
    }

    fn n_bytes(batch: &DeviceBatch<NodeInput>) -> usize {
        batch.n_bytes
    }
}
