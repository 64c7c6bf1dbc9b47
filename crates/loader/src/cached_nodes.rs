use std::sync::Arc;

use kiln_graph::Csc;
use kiln_sample::{NeighborSampler, Rule, SamplerConfig, count_node_accesses};

use crate::{ItemSampler, Phase};

/// The nodes whose features are cached on a device that does not hold all features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CachedNodes {
    /// The nodes with the most out-edges.
    #[default]
    ByDegree,
    /// The nodes that the batches of the first epoch read most often. The reads are counted by sampling that epoch
    /// once on the host (presampling; Yang et al. 2022, "GNNLab").
    ByPresampling,
}

impl CachedNodes {
    /// Returns the hotness of each node: its out-degree, or the number of times that the batches of the presampled
    /// first epoch read it. `items` returns the training items of all ranks, and `times` the time of each node if items are
    /// sampled at their own times. Items without times are sampled uniformly if the rule picks by time.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use kiln_graph::{Csc, NodeId};
    /// use kiln_loader::CachedNodes;
    /// use kiln_sample::SamplerConfig;
    /// // The edges 0 -> 1 and 0 -> 2.
    /// let graph = Csc::new(vec![0, 0, 1, 2].into(), vec![NodeId(0), NodeId(0)].into())?;
    /// let graph = Arc::new(graph);
    /// let no_items = || -> Result<_, kiln_sample::Error> { unreachable!("degrees need no items") };
    /// let hotness = CachedNodes::ByDegree.hotness(&graph, &SamplerConfig::default(), None, no_items)?;
    /// assert_eq!(hotness, [2, 0, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns the error of `items`, and the errors of [`NeighborSampler::with_config`] and of sampling.
    pub fn hotness<E: From<kiln_sample::Error>>(
        self,
        graph: &Arc<Csc>,
        sampling: &SamplerConfig,
        times: Option<&[i64]>,
        items: impl FnOnce() -> Result<ItemSampler, E>,
    ) -> Result<Vec<u32>, E> {
        match self {
            Self::ByDegree => Ok(graph.out_degrees()),
            Self::ByPresampling => {
                let order = items()?.epoch(Phase::Train { epoch: 0 });
                let steps = (0..order.n_steps()).map(|step| order.step(step));
                let mut batches = Vec::with_capacity(order.n_steps());
                for batch in steps {
                    let key = batch.key;
                    batches.push((batch.into_seeds(times)?, key));
                }
                let mut sampling = sampling.clone();
                if sampling.rule.needs_times() && batches.iter().any(|(seeds, _)| seeds.times().is_none()) {
                    sampling.rule = Rule::Uniform;
                }
                let sampler = NeighborSampler::with_config(graph.clone(), sampling)?;
                Ok(count_node_accesses(&sampler, graph.n_nodes(), batches)?)
            }
        }
    }
}
