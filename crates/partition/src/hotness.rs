use std::cmp::Reverse;

use kiln_data::Dataset;
use kiln_graph::NodeId;
use kiln_sample::{Fanout, KeyDomain, NeighborSampler, RngKey, Seeds, count_node_accesses};

use crate::draws::shuffle;
use crate::{Error, PartitionBook, Result};

/// The value folded in [`KeyDomain::Host`] for the order of training nodes: that of `kiln_loader::ItemSampler`.
const HOST_ITEM_ORDER: u64 = 0;

/// Which feature rows of other parts' nodes a part keeps: those that most batches ask for, in an epoch of the part's own
/// training nodes that is sampled ahead on the whole graph (Yang et al. 2022, "GNNLab", calls it presampling).
#[derive(Debug, Clone, PartialEq)]
pub struct CacheConfig {
    /// The most rows that a part keeps, as a share of all nodes, 0 to 1.
    pub ratio: f64,
    /// How many neighbours to sample, input layer first as everywhere; no layer for none.
    pub fanouts: Vec<Fanout>,
    /// Seeds of a batch, at least 1.
    pub batch_size: usize,
    /// The seed of a run: what is sampled is the first epoch of one that trains with these settings on the part's nodes
    /// alone.
    pub seed: u64,
}

impl CacheConfig {
    pub(crate) fn check(&self) -> Result<()> {
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

/// Nodes of other parts whose rows a part keeps.
#[derive(Debug, Default)]
pub(crate) struct CacheList {
    /// Ascending.
    pub(crate) ids: Vec<NodeId>,
    /// In how many batches each was an input.
    pub(crate) counts: Vec<u32>,
    /// The sum of the counts of all nodes of other parts, kept or not.
    pub(crate) n_remote: u64,
}

/// Samples ahead for one part after the other, so that there is one array of counts at a time.
#[derive(Debug)]
pub(crate) struct Presampler<'a> {
    config: &'a CacheConfig,
    train: &'a [NodeId],
    sampler: NeighborSampler,
}

impl<'a> Presampler<'a> {
    pub(crate) fn new(data: &'a Dataset, config: &'a CacheConfig) -> Self {
        let sampler = NeighborSampler::new(data.graph.clone(), config.fanouts.clone());
        Self { config, train: &data.split.train, sampler }
    }

    /// The nodes of other parts that this part's training asks for most; of equals the lower ids.
    pub(crate) fn cache_list(&self, book: &PartitionBook, part: usize) -> Result<CacheList> {
        let owned = book.owned(part);
        let is_own = |node: NodeId| book.new_id(node).is_some_and(|new_id| owned.contains(&new_id));
        let seeds: Vec<NodeId> = self.train.iter().copied().filter(|&node| is_own(node)).collect();
        let counts = self.count(seeds, book.n_nodes())?;
        let count_of = |node: &NodeId| counts[node.index()];
        let nodes = (0..book.n_nodes() as u32).map(NodeId);
        let remote = nodes.filter(|node| count_of(node) > 0 && !is_own(*node));
        // Counted first, since a list that grows takes twice its bytes.
        let mut ids = Vec::with_capacity(remote.clone().count());
        ids.extend(remote);
        let n_remote = ids.iter().map(|node| u64::from(count_of(node))).sum();
        let n_kept = (self.config.ratio * book.n_nodes() as f64) as usize;
        if n_kept < ids.len() {
            ids.select_nth_unstable_by_key(n_kept, |node| (Reverse(count_of(node)), *node));
            ids.truncate(n_kept);
            ids.sort_unstable();
            ids.shrink_to_fit();
        }
        let counts = ids.iter().map(count_of).collect();
        Ok(CacheList { ids, counts, n_remote })
    }

    /// In how many batches of an epoch each node is an input.
    fn count(&self, mut seeds: Vec<NodeId>, n_nodes: usize) -> Result<Vec<u32>> {
        let epoch = RngKey::new(self.config.seed).fold_in(KeyDomain::Epoch, 0);
        shuffle(&mut seeds, epoch.fold_in(KeyDomain::Host, HOST_ITEM_ORDER).to_u64());
        let batches = seeds.chunks(self.config.batch_size).enumerate();
        let keyed = batches
            .map(|(step, nodes)| (Seeds::nodes(nodes.to_vec()), epoch.fold_in(KeyDomain::Step, step as u64)));
        Ok(count_node_accesses(&self.sampler, n_nodes, keyed)?)
    }
}
