//! The settings of loaders, as Python passes them.

use std::sync::Arc;

use kiln::data::Dataset;
use kiln::graph::ItemId;
use kiln::loader::{ItemSampler, ItemSamplerConfig, LoaderConfig, Phase, Shard, UnevenShards};
use kiln::sample::{
    Fanout, FrontierSampler, HeteroNeighborSampler, NeighborSampler, Rule, SamplerConfig, SubgraphSampler,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error;

/// The settings that all loaders have: the entries of a dictionary of Python.
#[derive(Debug, Clone, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct LoaderSettings {
    /// The fanouts of each relation in each layer, input layer first; -1 is all neighbours.
    fanouts: Vec<Vec<i64>>,
    replace: bool,
    /// True if a batch is one subgraph, false if it is a block per layer.
    pub(crate) subgraph: bool,
    batch_size: usize,
    shuffle: bool,
    drop_last: bool,
    uneven: String,
    phase: String,
    seed: u64,
    rank: usize,
    world_size: usize,
    num_workers: usize,
    queue_bytes: usize,
}

impl LoaderSettings {
    /// Returns the sampler of a dataset's graph. The edges of a step's links are left out of `excluded_from`.
    pub(crate) fn sampler(
        &self,
        data: &Dataset,
        excluded_from: Option<&[usize]>,
    ) -> PyResult<Arc<dyn FrontierSampler>> {
        let fanouts = self.fanouts()?;
        let rule = if self.replace { Rule::UniformWithReplacement } else { Rule::Uniform };
        if !data.is_heterogeneous() {
            let of_layers: Vec<Fanout> = fanouts.iter().map(|of_layer| of_layer[0]).collect();
            let graph = Arc::clone(&data.graph.relation(0).graph);
            let sampler = NeighborSampler::with_rule(graph, of_layers, rule);
            return Ok(self.subgraphs_of(sampler));
        }
        let config = SamplerConfig::default().with_rule(rule).with_edge_types();
        let sampler = HeteroNeighborSampler::new(&data.graph, fanouts, config).map_err(error::loader)?;
        Ok(self.subgraphs_of(match excluded_from {
            Some(relations) => sampler.excluding_from(relations),
            None => sampler,
        }))
    }

    fn subgraphs_of(&self, sampler: impl FrontierSampler + 'static) -> Arc<dyn FrontierSampler> {
        match self.subgraph {
            true => Arc::new(SubgraphSampler::new(sampler)),
            false => Arc::new(sampler),
        }
    }

    fn fanouts(&self) -> PyResult<Vec<Vec<Fanout>>> {
        let mut fanouts = Vec::with_capacity(self.fanouts.len());
        for of_layer in &self.fanouts {
            fanouts.push(of_layer.iter().map(|fanout| read_fanout(*fanout)).collect::<PyResult<_>>()?);
        }
        Ok(fanouts)
    }

    /// Returns the order of these items.
    pub(crate) fn items<I: ItemId>(&self, items: Vec<I>) -> PyResult<ItemSampler<I>> {
        let uneven = match &*self.uneven {
            "pad" => UnevenShards::Pad,
            "drop" => UnevenShards::Drop,
            "join" => UnevenShards::Join,
            other => {
                let message = format!("uneven is {other:?}, expected \"pad\", \"drop\" or \"join\"");
                return Err(PyValueError::new_err(message));
            }
        };
        let config = ItemSamplerConfig {
            batch_size: self.batch_size,
            shuffle: self.shuffle,
            drop_last: self.drop_last,
            uneven,
            seed: self.seed,
            shard: Shard { rank: self.rank, world_size: self.world_size },
            ..ItemSamplerConfig::default()
        };
        ItemSampler::new(items, config).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Returns the threads and the queue of the loader.
    pub(crate) fn threads(&self) -> LoaderConfig {
        LoaderConfig { workers: self.num_workers, queue_bytes: self.queue_bytes }
    }

    /// Returns the phase whose batches an epoch has.
    pub(crate) fn phase(&self, epoch: u64) -> PyResult<Phase> {
        match &*self.phase {
            "train" => Ok(Phase::Train { epoch: epoch as _ }),
            "validation" => Ok(Phase::Validation),
            "test" => Ok(Phase::Test),
            other => Err(PyValueError::new_err(format!(
                "phase is {other:?}, expected \"train\", \"validation\" or \"test\""
            ))),
        }
    }
}

fn read_fanout(fanout: i64) -> PyResult<Fanout> {
    match (fanout, u32::try_from(fanout)) {
        (-1, _) => Ok(Fanout::All),
        (_, Ok(limit)) => Ok(Fanout::UpTo(limit)),
        _ => Err(PyValueError::new_err(format!(
            "num_neighbors contains {fanout}, expected a number of neighbors, or -1 for all"
        ))),
    }
}
