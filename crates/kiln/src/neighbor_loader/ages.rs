//! The ages of nodes and edges at the times of items, as inputs of models.

use kiln_graph::EdgeTimes;
use kiln_kernels::GraphMode;
use kiln_loader::Ages;
use kiln_nn::{
    BlockModel, GraphMetadata, GraphRequirements, HeteroModelConfig, ModelConfig, TimeEncoderConfig,
    TimedParts,
};
use kiln_train::AgeInfo;

use crate::source::{WholeGraph, dims};
use crate::{Error, EvalMode, ItemTimesError, NeighborLoader, Result};

impl NeighborLoader {
    /// Makes batches carry the age of each node and edge with a time: the length of time between it and the item in whose tree it
    /// is. It is for items that are sampled at their own times ([`Messages::AtItemTime`](crate::Messages::AtItemTime)), and for
    /// models that [`NeighborLoader::encode_times`] returns.
    ///
    /// The unit of ages is the length of time between the first and the last time of the data. A saved model records it, so that
    /// predictions on other data have the same unit. The time of an edge is its own or, if it is later, that of its source, from
    /// which the edge is known. A node or an edge without a time, or with one that is later than the item, has no age: its encoding
    /// is all zeros.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// use kiln::Messages;
    /// use kiln::sample::TimeLimits;
    /// let times: Vec<i64> = (0..100).collect();
    /// let data = kiln::data::synthetic::ring(100)?.with_node_times(0, times)?;
    /// let loader = NeighborLoader::new(&data, [10, 10])
    ///     .messages(Messages::AtItemTime(TimeLimits::default()))
    ///     .ages();
    /// // Features have a linear layer to 64 columns, to which those of the encoded age are added.
    /// let config = HeteroModelConfig::new(data.dims(), SageConfig::new(64, 2).layers(2));
    /// let config = loader.encode_times(TimeEncoderConfig::learned(16), config)?;
    /// # let out = tempfile::tempdir()?;
    /// # let fit = FitConfig::epochs(1).out(out.path().join("run"));
    /// Trainer::new(config, AdamConfig::new(1e-2)).fit(&loader, fit)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ages(self) -> Self {
        Self { ages: true, ..self }
    }

    /// Returns the configuration of a model that reads the ages of the nodes and edges of this loader's graph, encoded by `times`
    /// ([`HeteroModelConfig::time_encoding`]). The loader must carry ages ([`NeighborLoader::ages`]).
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?.with_node_times(0, (0..100).collect::<Vec<i64>>())?;
    /// let loader = NeighborLoader::new(&data, [10]).ages();
    /// let config = HeteroModelConfig::new(data.dims(), TransformerConfig::new(64, 2).layers(1));
    /// let config = loader.encode_times(TimeEncoderConfig::fixed(8), config)?;
    /// // Nodes have times, edges do not.
    /// let ages = config.requirements().ages.expect("the model reads ages");
    /// assert_eq!((ages.node_types, ages.relations), (vec![true], vec![false]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`ItemTimesError::NothingToEncode`] if neither nodes nor edges that the model reads have times.
    pub fn encode_times<C: ModelConfig<Model: BlockModel>>(
        &self,
        times: TimeEncoderConfig,
        config: HeteroModelConfig<C>,
    ) -> Result<HeteroModelConfig<C>> {
        let metagraph = self.source.is_heterogeneous().then(|| self.source.schema().metagraph());
        let timed = Some(self.source.timed_parts());
        let graph = GraphMetadata { metagraph, timed, ..GraphMetadata::default() };
        config.time_encoding(times, &graph).ok_or_else(|| ItemTimesError::NothingToEncode.into())
    }

    /// Checks that batches carry the ages that a model reads, and no others.
    pub(crate) fn check_ages(&self, model: &GraphRequirements) -> Result<()> {
        let expected = match (self.ages, &model.ages) {
            (false, None) => return Ok(()),
            (false, Some(_)) => return Err(ItemTimesError::NoAges.into()),
            (true, None) => return Err(ItemTimesError::AgesNotRead.into()),
            (true, Some(parts)) => parts,
        };
        if self.item_time_limits().is_none() {
            return Err(ItemTimesError::AgesWithoutItemTimes.into());
        }
        if self.source.whole().is_none() {
            return Err(Error::NeedsWholeGraph { what: "the age of nodes and edges" });
        }
        let (what, reason, fix) = match (self.evaluation, self.graph_mode) {
            (EvalMode::Exact { .. }, _) => {
                ("exact evaluation of a model that reads ages", "it computes none", "use sampled evaluation")
            }
            (_, GraphMode::Device | GraphMode::ZeroCopy) => (
                "the age of nodes and edges",
                "batches of a graph on a device carry none",
                "keep the graph on the host",
            ),
            (_, GraphMode::Host) => return self.check_aged_parts(expected, model),
        };
        Err(ItemTimesError::NotPossible { what, reason, fix }.into())
    }

    /// Checks that the data has times where the model reads ages.
    fn check_aged_parts(&self, expected: &TimedParts, model: &GraphRequirements) -> Result<()> {
        let got = self.source.timed_parts();
        let no_edges = vec![false; got.relations.len()];
        let is_of_edges = expected.relations == got.relations || expected.relations == no_edges;
        let is_of_widths = self.source.is_heterogeneous()
            || model.widths.as_ref().is_none_or(|widths| *widths == dims(&*self.source));
        match expected.node_types == got.node_types && is_of_edges && is_of_widths {
            true => Ok(()),
            false => Err(ItemTimesError::OtherAges { expected: expected.clone(), got }.into()),
        }
    }

    /// Returns true if models have an encoder of the input rows: for several types of nodes, and for ages.
    pub(crate) fn has_input_encoder(&self) -> bool {
        self.source.is_heterogeneous() || self.ages
    }

    /// Returns the description of the ages that batches carry; `None` if they carry none.
    pub(crate) fn age_info(&self) -> Option<AgeInfo> {
        self.ages.then(|| AgeInfo::new(self.age_unit(), self.source.timed_parts()))
    }

    /// Returns the unit of ages: the length of time between the first and the last time of the data.
    fn age_unit(&self) -> u64 {
        *self.age_unit.get_or_init(|| self.data.time_span().unwrap_or(1).max(1))
    }

    /// Returns the ages that batches carry, of the graph of a phase; `None` if they carry none. `reads_edges` is false for a model
    /// that reads the ages of nodes only.
    pub(super) fn batch_ages(&self, reads_edges: bool) -> Option<Ages> {
        let info = self.age_info()?;
        let mut nodes = Vec::with_capacity(info.node_types.len());
        for (node_type, is_timed) in info.node_types.iter().enumerate() {
            nodes.push(self.source.node_times(node_type).filter(|_| *is_timed));
        }
        let of_relations: Vec<Option<EdgeTimes>> = match self.source.whole()? {
            WholeGraph::One(graph) => vec![graph.edge_times().cloned()],
            WholeGraph::Relations(graph) => {
                graph.iter().map(|relation| relation.graph.edge_times().cloned()).collect()
            }
        };
        let mut edges = Vec::with_capacity(of_relations.len());
        for (times, is_timed) in of_relations.into_iter().zip(&info.relations) {
            edges.push(times.filter(|_| *is_timed && reads_edges));
        }
        Some(Ages::new(self.source.schema().clone(), nodes, edges, info.unit))
    }
}
