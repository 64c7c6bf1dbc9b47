use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use kiln_data::Dataset;
use kiln_graph::{NodeId, SharedArray};
use kiln_sample::{
    Fanout, FrontierSampler, HeteroNeighborSampler, KeyDomain, NeighborSampler, RngKey, SamplerConfig, Seeds,
    count_node_accesses,
};

use kiln_store::progress::{Progress, ProgressUnit};

use crate::draws::shuffle;
use crate::{Error, Result};

/// The value that is folded into the epoch's key with [`KeyDomain::Host`] for the order of training nodes.
/// `kiln_loader::ItemSampler` uses the same value.
const HOST_ITEM_ORDER: u64 = 0;

/// The configuration of the static cache: each partition stores the remote feature rows that are inputs of the largest
/// number of batches. To count these batches, an epoch of the partition's training nodes
/// ([`Dataset::training_nodes`]) is presampled on the whole graph
/// (Yang et al. 2022, "GNNLab").
#[derive(Debug, Clone, PartialEq)]
pub struct CacheConfig {
    /// The largest number of cached rows of a partition, as a share of all nodes, 0 to 1.
    pub ratio: f64,
    /// The fanout of each layer, input layer first; that of each relation in a heterogeneous set. If the list is empty, no
    /// rows are cached.
    pub fanouts: Vec<Fanout>,
    /// The number of seeds in a batch, at least 1.
    pub batch_size: usize,
    /// The seed of the run. The presampled epoch is the first epoch of a run with these settings that trains on the
    /// partition's nodes only.
    pub seed: u64,
}

impl CacheConfig {
    /// Checks the values, which [`write_parts`](crate::write_parts) does, too.
    ///
    /// ```
    /// use kiln_partition::CacheConfig;
    /// use kiln_sample::Fanout;
    /// let config = CacheConfig { ratio: 0.2, fanouts: vec![Fanout::UpTo(10)], batch_size: 1024, seed: 0 };
    /// config.check()?;
    /// assert!(CacheConfig { ratio: 1.5, ..config }.check().is_err());
    /// # Ok::<(), kiln_partition::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`] if the share is not in 0 to 1 or the batch size is 0.
    pub fn check(&self) -> Result<()> {
        let bad = |what, expected: &str, got: String| {
            Err(Error::BadParameter { what, expected: expected.to_owned(), got })
        };
        if !(0.0..=1.0).contains(&self.ratio) {
            return bad("the cache's share of the nodes", "0 to 1", self.ratio.to_string());
        }
        if self.batch_size == 0 {
            return bad("the batch size", "at least 1", "0".into());
        }
        Ok(())
    }
}

/// The remote nodes whose rows a partition caches.
#[derive(Debug, Default)]
pub(crate) struct CacheList {
    /// The cached nodes, ascending.
    pub(crate) ids: Vec<NodeId>,
    /// The number of batches in which each cached node was an input.
    pub(crate) counts: Vec<u32>,
    /// The sum of the counts of all remote nodes, cached or not.
    pub(crate) n_remote: u64,
}

impl CacheList {
    /// Returns the cached nodes of a type, whose ids are `nodes`, counted from 0 within the type.
    pub(crate) fn within(&self, nodes: Range<u32>) -> Self {
        let start = self.ids.partition_point(|node| node.0 < nodes.start);
        let end = self.ids.partition_point(|node| node.0 < nodes.end);
        let ids = self.ids[start..end].iter().map(|node| NodeId(node.0 - nodes.start)).collect();
        Self { ids, counts: self.counts[start..end].to_vec(), n_remote: 0 }
    }
}

/// Presamples an epoch for one partition after another, so that memory holds one array of counts at a time.
pub(crate) struct Presampler<'a> {
    config: &'a CacheConfig,
    train: SharedArray<NodeId>,
    sampler: Box<dyn FrontierSampler>,
}

impl<'a> Presampler<'a> {
    pub(crate) fn new(data: &Dataset, config: &'a CacheConfig) -> Result<Self> {
        let graph = &data.graph;
        let sampler: Box<dyn FrontierSampler> = if graph.schema().metagraph().is_homogeneous() {
            // A sampler of relations gives the same blocks, but has an index of all nodes.
            let graph = Arc::clone(&graph.relation(0).graph);
            Box::new(NeighborSampler::new(graph, config.fanouts.clone()))
        } else {
            let fanouts = config.fanouts.iter().map(|&fanout| vec![fanout; graph.n_relations()]).collect();
            Box::new(HeteroNeighborSampler::new(graph, fanouts, SamplerConfig::default())?)
        };
        Ok(Self { config, train: data.training_nodes()?, sampler })
    }

    /// Returns the remote nodes that are inputs of the most batches of a partition, at most [`CacheConfig::ratio`] of
    /// all nodes. Of nodes with equal counts, those with lower ids are preferred. `is_own` returns true for the nodes of
    /// the partition, and `has_features` for nodes with feature rows.
    pub(crate) fn cache_list(
        &self,
        is_own: impl Fn(NodeId) -> bool,
        has_features: impl Fn(NodeId) -> bool,
    ) -> Result<CacheList> {
        let n_nodes = self.sampler.n_nodes();
        let seeds: Vec<NodeId> = self.train.iter().copied().filter(|&node| is_own(node)).collect();
        let counts = self.count(seeds, n_nodes)?;
        let count_of = |node: &NodeId| counts[node.index()];
        let nodes = (0..n_nodes as u32).map(NodeId);
        let remote = nodes.filter(|node| count_of(node) > 0 && !is_own(*node) && has_features(*node));
        // The nodes are counted first, because a growing vector needs up to twice the memory.
        let mut ids = Vec::with_capacity(remote.clone().count());
        ids.extend(remote);
        let n_remote = ids.iter().map(|node| u64::from(count_of(node))).sum();
        let n_kept = (self.config.ratio * n_nodes as f64) as usize;
        if n_kept < ids.len() {
            ids.select_nth_unstable_by_key(n_kept, |node| (Reverse(count_of(node)), *node));
            ids.truncate(n_kept);
            ids.sort_unstable();
            ids.shrink_to_fit();
        }
        let counts = ids.iter().map(count_of).collect();
        Ok(CacheList { ids, counts, n_remote })
    }

    /// Returns the number of batches of an epoch in which each node is an input.
    fn count(&self, mut seeds: Vec<NodeId>, n_nodes: usize) -> Result<Vec<u32>> {
        let epoch = RngKey::new(self.config.seed).fold_in(KeyDomain::Epoch, 0);
        shuffle(&mut seeds, epoch.fold_in(KeyDomain::Host, HOST_ITEM_ORDER).to_u64());
        let n_batches = seeds.len().div_ceil(self.config.batch_size) as u64;
        let progress = Progress::start("presampling", ProgressUnit::Batches, n_batches);
        let batches = seeds.chunks(self.config.batch_size).enumerate();
        let keyed = batches
            .inspect(|_| progress.advance(1))
            .map(|(step, nodes)| (Seeds::nodes(nodes.to_vec()), epoch.fold_in(KeyDomain::Step, step as u64)));
        Ok(count_node_accesses(&*self.sampler, n_nodes, keyed)?)
    }
}
