//! The settings of a neighbour loader that determine the content of its blocks: neighbours, and what edges carry.

use kiln_feature::RelationRows;
use kiln_graph::EdgeColumns;
use kiln_sample::{EdgeWeights, Fanout, Rule};

use crate::neighbor_loader::messages::PhaseGraphs;
use crate::source::GraphStep;
use crate::{Error, NeighborLoader, Result};

impl NeighborLoader {
    /// Sets the fanouts of one relation, input layer first; 0 does not sample the relation. The relation of a graph of one type
    /// is named `edge`.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// let data = Dataset::open("debian-archive")?;
    /// // More dependencies than other neighbours, and no recommendations.
    /// let loader = NeighborLoader::new(&data, [5, 5])
    ///     .relation_fanouts("depends", [20, 10])?
    ///     .relation_fanouts("recommends", [0, 0])?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`kiln_graph::SchemaError::NoSuchRelation`] for a name that the data does not have, and
    /// [`Error::FanoutsOfRelation`] unless there is one fanout per layer.
    pub fn relation_fanouts(
        mut self,
        relation: &str,
        fanouts: impl IntoIterator<Item = impl Into<Fanout>>,
    ) -> Result<Self> {
        let fanouts: Vec<Fanout> = fanouts.into_iter().map(Into::into).collect();
        let position = self.source.schema().require(relation)?;
        let (expected, got) = (self.fanouts.len(), fanouts.len());
        if expected != got {
            return Err(Error::FanoutsOfRelation { name: relation.to_owned(), expected, got });
        }
        for (of_layer, fanout) in self.fanouts.iter_mut().zip(fanouts) {
            of_layer[position] = fanout;
        }
        self.sampling.fanouts = self.fanouts.iter().map(|of_layer| of_layer[0]).collect();
        Ok(self.unshared())
    }

    /// Sets the sampling rule: a built-in one, or a custom one, such as a closure with the signature of
    /// [`SamplingRule::pick`](kiln_sample::SamplingRule::pick). A resumed run identifies a custom rule by its name
    /// ([`Rule::named`]); all rules without a name are considered equal.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// use kiln::sample::{Neighbors, NodeKey, Selection};
    /// let loader = NeighborLoader::new(&data, [10, 10]).rule(Rule::UniformWithReplacement);
    /// // The first neighbours, without a draw.
    /// let first = |neighbors: Neighbors<'_>, _: NodeKey, fanout: u32, picks: &mut Selection| {
    ///     (0..fanout.min(neighbors.ids.len() as u32)).for_each(|position| picks.push(position));
    /// };
    /// let loader = NeighborLoader::new(&data, [10, 10]).rule(Rule::named("first", first));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn rule(mut self, rule: impl Into<Rule>) -> Self {
        self.sampling.rule = rule.into();
        self.has_rule = true;
        self.unshared()
    }

    /// Sets the sampling rule of one relation; the others have that of [`NeighborLoader::rule`]. For example, the most recent
    /// purchases, and any friends. [`Rule::MostRecent`] needs items that are sampled at their times, and a relation whose edges, or
    /// their sources, have times.
    ///
    /// ```
    /// use kiln::graph::{EdgeColumn, EdgeColumns, NodeTypes, RelationEdges};
    /// use kiln::prelude::*;
    /// use kiln::{Messages, sample::TimeLimits};
    /// let types = NodeTypes::new([("user", 2), ("item", 2)])?;
    /// let data = Dataset::builder_with_types(types)
    ///     .relation(RelationEdges::new("bought by", "item", "user", &[0, 1], &[1, 0]))
    ///     .relation(RelationEdges::new("knows", "user", "user", &[0, 1], &[1, 0]))
    ///     .build()?;
    /// let data = data.with_edge_column(0, EdgeColumns::TIMES, EdgeColumn::new(vec![3_i64, 7], 1)?)?;
    /// let loader = NeighborLoader::new(&data, [10, 10])
    ///     .messages(Messages::AtItemTime(TimeLimits::default()))
    ///     .relation_rule("bought by", Rule::MostRecent)?
    ///     .relation_window("bought by", Some(30))?;
    /// # let _ = loader;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`kiln_graph::SchemaError::NoSuchRelation`] for a name that the data does not have.
    pub fn relation_rule(mut self, relation: &str, rule: impl Into<Rule>) -> Result<Self> {
        self.source.schema().require(relation)?;
        if !self.source.is_heterogeneous() {
            return Ok(self.rule(rule));
        }
        self.sampling.relation_rules.insert(relation.to_owned(), rule.into());
        Ok(self.unshared())
    }

    /// Sets the window of one relation, the length of the time before an item from which its edges are taken, instead of that of
    /// [`Messages::AtItemTime`](crate::Messages::AtItemTime); `None` takes all that is known. See
    /// [`NeighborLoader::relation_rule`].
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// use kiln::{Messages, sample::TimeLimits};
    /// let data = kiln::data::synthetic::ring(100)?.with_node_times(0, (0..100).collect::<Vec<i64>>())?;
    /// // The relation of a graph of one type is named `edge`.
    /// let loader = NeighborLoader::new(&data, [10, 10])
    ///     .messages(Messages::AtItemTime(TimeLimits::default()))
    ///     .relation_window("edge", Some(7))?;
    /// # let _ = loader;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`kiln_graph::SchemaError::NoSuchRelation`] for a name that the data does not have.
    pub fn relation_window(mut self, relation: &str, window: Option<u64>) -> Result<Self> {
        self.source.schema().require(relation)?;
        self.sampling.relation_windows.insert(relation.to_owned(), window);
        // The graphs of phases that were made have other windows.
        Ok(Self { phases: PhaseGraphs::default(), ..self.unshared() })
    }

    /// Sets the kind of edge weights that blocks carry. By default, blocks carry no edge weights.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// let data = Dataset::builder(3)
    ///     .edges(&[0, 1], &[2, 2])
    ///     .edge_weights(&[0.25, 0.75])
    ///     .features(vec![0.0; 3], 1)
    ///     .build()?;
    /// // The layers of a model of your own read the weights of the data.
    /// let loader = NeighborLoader::new(&data, [10]).edge_weights(EdgeWeights::Stored);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn edge_weights(mut self, weights: EdgeWeights) -> Self {
        self.sampling.weights = weights;
        self.unshared()
    }

    /// Makes blocks carry the type of each edge ([`DeviceBlock::edge_types`](kiln_kernels::DeviceBlock::edge_types)). The
    /// graph must have edge types. Blocks of a heterogeneous graph always carry types: the positions of the relations.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// let data = Dataset::builder(3)
    ///     .edges(&[0, 1], &[2, 2])
    ///     .edge_types(&[0, 1])
    ///     .features(vec![0.0; 3], 1)
    ///     .build()?;
    /// let loader = NeighborLoader::new(&data, [10]).edge_types();
    /// let config = RgcnConfig::for_data(&data).layers(1);
    /// # assert_eq!(config.n_relations, 2);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn edge_types(mut self) -> Self {
        self.sampling.edge_types = true;
        self.unshared()
    }

    /// Makes blocks carry the features of each edge, which are the column
    /// [`EdgeColumns::FEATURES`] of the data; see [`NeighborLoader::edge_column`].
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// let data = Dataset::builder(3)
    ///     .edges(&[0, 1], &[2, 2])
    ///     .edge_features(vec![7.5, 0.5], 1)
    ///     .features(vec![0.0; 3], 1)
    ///     .build()?;
    /// let loader = NeighborLoader::new(&data, [10]).edge_features();
    /// let config = GineConfig::for_data(&data).layers(1);
    /// # assert_eq!(config.edges, EdgeInput::Features(1));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn edge_features(self) -> Self {
        self.edge_column(EdgeColumns::FEATURES)
    }

    /// Makes blocks carry the features of each edge of a heterogeneous graph, whose relations may have features of different
    /// widths, or none: the rows of an edge have the largest width and end in zeros. It is for models that know the width of each
    /// relation, such as [`RgcnConfig::edge_features()`](kiln_nn::RgcnConfig::edge_features()). For a graph with one type of nodes it
    /// is [`NeighborLoader::edge_features`].
    ///
    /// ```
    /// use kiln::DataDims;
    /// use kiln::graph::{EdgeColumn, NodeTypes, RelationEdges};
    /// use kiln::prelude::*;
    /// let types = NodeTypes::new([("user", 2), ("item", 2)])?;
    /// let data = Dataset::builder_with_types(types)
    ///     .relation(RelationEdges::new("buys", "user", "item", &[0, 1], &[1, 0]))
    ///     .relation(RelationEdges::new("views", "user", "item", &[0], &[0]))
    ///     .build()?;
    /// // Purchases have an amount, views have no features.
    /// let data = data.with_edge_column(0, "features", EdgeColumn::new(vec![7.5_f32, 0.5], 1)?)?;
    /// let loader = NeighborLoader::new(&data, [10]).edge_features_by_relation();
    /// let widths = data.edge_widths().expect("the graph is heterogeneous");
    /// let config = RsageConfig::new(64, 10).metagraph(&data.graph.metagraph()).edge_features(widths);
    /// # assert_eq!(config.edge_features, [Some(1), None]);
    /// # let _ = loader;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn edge_features_by_relation(mut self) -> Self {
        if self.source.is_heterogeneous() {
            self.edge_feature_rows = RelationRows::Padded;
        }
        self.edge_features()
    }

    /// Makes blocks carry the rows of each edge in a column of the data
    /// ([`DeviceBlock::edge_column`](kiln_kernels::DeviceBlock::edge_column)), `[n_edges, width]`. The loader must not add self
    /// loops, which have no rows. Edges of relations without the column have NaN. A program may select several columns, one
    /// per call.
    ///
    /// With [`GraphMode::Device`](crate::GraphMode::Device) all rows of a whole graph of one type are in device memory, like
    /// the graph; otherwise they stay on the host.
    ///
    /// ```
    /// use kiln::prelude::*;
    /// use kiln::graph::EdgeColumn;
    /// let data = Dataset::builder(3)
    ///     .edges(&[0, 1], &[2, 2])
    ///     .edge_column("amount", EdgeColumn::new(vec![7.5_f32, 0.5], 1)?)
    ///     .features(vec![0.0; 3], 1)
    ///     .build()?;
    /// let loader = NeighborLoader::new(&data, [10]).edge_column("amount");
    /// # let _ = loader;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn edge_column(mut self, name: &str) -> Self {
        if !self.edge_columns.iter().any(|other| &**other == name) {
            self.edge_columns.push(name.into());
        }
        self.unshared()
    }

    /// Configures sampling for a GCN. It reads a copy of the graph with self-loops and symmetric normalisation, samples
    /// by [`Rule::UniformKeepSelfLoops`] unless [`NeighborLoader::rule`] sets another rule, before or after, and
    /// weights edges by [`EdgeWeights::Unbiased`], so that weighted sums are unbiased estimates of the sums over all
    /// neighbours. Clone the loader to share the copy among ranks.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// let loader = NeighborLoader::new(&data, [10, 10]).gcn_norm()?;
    /// let config = GcnConfig::for_data(&data).layers(2);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Graph`] if edge weights are not finite, [`Error::NeedsWholeGraph`] on a partitioned graph, and
    /// [`Error::NeedsOneType`] on a heterogeneous graph.
    pub fn gcn_norm(mut self) -> Result<Self> {
        self.source = self.source.with_step(GraphStep::GcnNorm)?;
        self.phases = PhaseGraphs::default();
        Ok(self.keep_self_loops().edge_weights(EdgeWeights::Unbiased))
    }

    /// Configures sampling for a model with attention, such as a GAT. It reads a copy of the graph with a self loop on
    /// each node ([`kiln_graph::add_self_loops`]), and samples by [`Rule::UniformKeepSelfLoops`] unless
    /// [`NeighborLoader::rule`] sets another rule, before or after. Another rule may drop loops; a node then does not
    /// attend to itself. Clone the loader to share the copy among ranks. The loops of a partitioned graph must be part of
    /// its data ([`Dataset::add_self_loops`](kiln_data::Dataset::add_self_loops)). After [`NeighborLoader::gcn_norm`], the
    /// graph has self loops already.
    ///
    /// The features of an added loop are the mean of those of all edges into its node in the graph of the phase, which contains those
    /// of edges that a training step on links leaves out of its messages.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// let loader = NeighborLoader::new(&data, [10, 10]).add_self_loops()?;
    /// let config = GatConfig::for_data(&data).layers(2);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Graph`] if loops are missing and an edge has type 255, [`PartitionsError::NoSelfLoops`](crate::PartitionsError::NoSelfLoops), and
    /// [`Error::NeedsOneType`] on a heterogeneous graph.
    pub fn add_self_loops(mut self) -> Result<Self> {
        self.source = self.source.with_step(GraphStep::SelfLoops)?;
        self.phases = PhaseGraphs::default();
        Ok(self.keep_self_loops().unshared())
    }

    fn keep_self_loops(mut self) -> Self {
        if !self.has_rule {
            self.sampling.rule = Rule::UniformKeepSelfLoops;
        }
        self
    }
}
