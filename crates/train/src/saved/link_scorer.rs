//! Scores of pairs of nodes by a model of link prediction, from rows that its encoder computed before.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use burn::tensor::Tensor;
use kiln_feature::{DenseFeatures, EdgeFeatures, FeatureBuffer};
use kiln_graph::{EdgeId, NodeId};
use kiln_kernels::ops::widen;
use kiln_kernels::{gather_features, to_vec_f32, upload_features};
use kiln_nn::LinkDecoder;
use kiln_store::progress::{Progress, ProgressUnit};
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::evaluate::pair_scores::pair_outputs;
use crate::evaluate::spill::Activations;
use crate::saved::batches::{PredictedRows, PredictionBatches};
use crate::saved::error::{ModelEdgesError, ModelError, ModelNodesError, PredictModeError};
use crate::saved::model::SavedModel;
use crate::saved::model_file::ModelTask;
use crate::saved::outputs::OutputRows;
use crate::saved::timed_links::TimedLinks;
use crate::saved::timed_nodes::TimedNodes;
use crate::saved::top_k::{Best, ScoredLink, TopKConfig};

/// The number of edges whose features are on the device at once.
const EDGES_AT_ONCE: usize = 1 << 16;

/// The number of destinations that [`LinkScorer::top_k`] scores at once for each source.
const DSTS_AT_ONCE: usize = 4096;

/// The rows that the encoder of a link model computed for some nodes, from which pairs of these nodes are scored. It
/// does not read the graph. Threads can use one scorer at the same time, and clones share its rows.
#[derive(Clone)]
pub struct LinkScorer {
    model: SavedModel,
    /// The nodes of the rows.
    nodes: TimedNodes,
    /// The rows, `[nodes.len(), width]`.
    rows: Arc<DenseFeatures>,
    /// The nodes whose rows are not finite, ascending.
    non_finite: Arc<[NodeId]>,
    /// Whether each node of the graph is a destination of a search; `None` if all are.
    known_nodes: Option<Arc<[bool]>>,
}

/// The rows of a [`LinkScorer`] while they are computed.
#[derive(Debug)]
pub struct LinkScorerBuilder {
    model: SavedModel,
    nodes: TimedNodes,
    memory_bytes: Option<u64>,
    /// Whether each node is a destination of a search; `None` if all are.
    known_nodes: Option<Arc<[bool]>>,
    /// The rows so far; `None` before the first batch, which has their width.
    rows: Option<Rows>,
    n_rows: usize,
    /// The nodes so far whose rows are not finite, ascending.
    non_finite: Vec<NodeId>,
}

#[derive(Debug)]
struct Rows {
    values: Activations,
    width: usize,
}

impl LinkScorerBuilder {
    /// Starts a scorer for pairs of `nodes`, in any order and with repetitions. If its rows, 4 bytes per value, exceed
    /// `memory_bytes`, they are written to an unnamed file in the folder for temporary files.
    ///
    /// # Errors
    /// Returns [`Error::Saved`] if the model was not trained for links.
    pub fn new(model: &SavedModel, nodes: Vec<NodeId>, memory_bytes: Option<u64>) -> Result<Self> {
        Self::with_times(model, nodes.into(), memory_bytes)
    }

    /// Starts a scorer as [`LinkScorerBuilder::new`] does, for nodes that have a row at each of their times. The batches are those of
    /// [`NodePredictor::with_item_times`](crate::NodePredictor::with_item_times) with [`TimedNodes::times`].
    ///
    /// # Errors
    /// Returns [`Error::Saved`] if the model was not trained for links.
    pub fn with_times(model: &SavedModel, nodes: TimedNodes, memory_bytes: Option<u64>) -> Result<Self> {
        model.decoder()?;
        Ok(Self {
            model: model.clone(),
            nodes,
            memory_bytes,
            known_nodes: None,
            rows: None,
            n_rows: 0,
            non_finite: Vec::new(),
        })
    }

    /// Sets which nodes are destinations of [`LinkScorer::top_k`], by their ids in the graph: those of
    /// [`LinkPredictor::known_nodes`](crate::LinkPredictor::known_nodes). The default is all.
    #[must_use]
    pub fn known_nodes(self, are_known: Option<Arc<[bool]>>) -> Self {
        Self { known_nodes: are_known, ..self }
    }

    /// Returns the nodes whose rows are needed, ascending, and distinct unless they have times.
    pub fn nodes(&self) -> &[NodeId] {
        self.nodes.nodes()
    }

    /// Returns the time of each row; `None` for nodes without times.
    pub(crate) fn times(&self) -> Option<&Arc<[i64]>> {
        self.nodes.times()
    }

    /// Appends the scores of a batch as rows: the outputs that [`NodePredictor::batches`](crate::NodePredictor::batches) of
    /// [`LinkPredictor::encoder`](crate::LinkPredictor::encoder) computes for [`LinkScorerBuilder::nodes`], batch by batch.
    ///
    /// # Errors
    /// Returns [`crate::ExactError::TooLarge`] if the rows do not fit in memory, and
    /// [`crate::RunError::Io`] if they cannot be written.
    ///
    /// # Panics
    /// Panics if the batch does not follow the last one, or has rows of another width.
    pub fn push(&mut self, batch: &PredictedRows) -> Result<()> {
        let Some(rows) = &batch.scores else { return Ok(()) };
        assert_eq!(batch.positions.start, self.n_rows, "expected the batch of the next nodes");
        let width = rows.width();
        if self.rows.is_none() {
            self.rows = Some(Rows { values: self.empty(width)?, width });
        }
        if let Some(of_batches) = &mut self.rows {
            assert_eq!(width, of_batches.width, "a model returned rows of another width");
            of_batches.values.append(rows.values())?;
        }
        self.non_finite
            .extend(rows.non_finite().into_iter().map(|row| self.nodes.nodes()[self.n_rows + row]));
        self.n_rows += rows.n_rows();
        Ok(())
    }

    /// Returns room for the rows of all nodes.
    fn empty(&self, width: usize) -> Result<Activations> {
        let n_bytes = (self.nodes().len() as u64).saturating_mul(4 * width as u64);
        match self.memory_bytes.is_some_and(|memory_bytes| memory_bytes < n_bytes) {
            true => Activations::in_file(&std::env::temp_dir()),
            false => Activations::in_memory(self.nodes().len(), width),
        }
    }

    /// Computes the batches of [`LinkScorerBuilder::nodes`], and returns their scorer.
    pub(crate) fn of_batches(mut self, batches: &PredictionBatches) -> Result<LinkScorer> {
        batches.for_each(0..batches.n_batches(), |rows| self.push(&rows))?;
        self.finish()
    }

    /// Returns the scorer.
    ///
    /// # Errors
    /// Returns [`crate::RunError::Io`] if the rows cannot be written or mapped.
    ///
    /// # Panics
    /// Panics if rows are missing.
    pub fn finish(self) -> Result<LinkScorer> {
        let Self { model, nodes, rows, n_rows, non_finite, known_nodes, .. } = self;
        assert_eq!(n_rows, nodes.nodes().len(), "expected a row for each node");
        let Rows { values, width } = match rows {
            Some(rows) if n_rows != 0 => rows,
            // An empty file cannot be mapped.
            _ => Rows { values: Activations::in_memory(0, 1)?, width: 1 },
        };
        let rows = Arc::new(values.finish(width)?);
        Ok(LinkScorer { model, nodes, rows, non_finite: non_finite.into(), known_nodes })
    }
}

impl LinkScorer {
    /// The number of sources that [`LinkScorer::top_k`] searches for at once. A program that passes the sources in parts
    /// of a multiple of this number gets bit-identical scores, as [`LinkScorer::for_each_top_k`] does.
    pub const SRCS_AT_ONCE: usize = 256;

    /// Returns the nodes that can be scored, ascending.
    pub fn nodes(&self) -> &[NodeId] {
        self.nodes.nodes()
    }

    /// Returns the nodes whose rows have a value that is not finite, ascending.
    pub fn non_finite(&self) -> &[NodeId] {
        &self.non_finite
    }

    /// Returns the score of each pair of nodes, in their order, at their times if the rows have times. Scores of rows that are
    /// not finite are not finite.
    ///
    /// # Errors
    /// Returns [`Error::Saved`] if the scorer does not have a node, or if rows have times and links have none.
    pub fn score(&self, links: impl Into<TimedLinks>) -> Result<Vec<f32>> {
        let links = links.into();
        if links.links().is_empty() {
            return Ok(Vec::new());
        }
        self.model.check_task(ModelTask::Links)?;
        let srcs = self.rows_of(links.links().srcs(), links.times())?;
        let dsts = self.rows_of(links.links().dsts(), links.times())?;
        pair_outputs(self.model.decoder()?, &self.rows, &srcs, &dsts, None, self.model.device())
    }

    /// Returns the outputs of a model of edges for each pair of nodes, in their order, one row per edge: the scores of classes or
    /// labels, or numbers in the units of the targets, at the times of the edges if the rows have times. `features` are the edges' own, a row for each, if the model reads some.
    ///
    /// # Errors
    /// Returns [`Error::Saved`] if the model was not trained for edges, if the scorer does not have a node, or if the features are
    /// missing, not read by the model, or have another number of rows or columns.
    pub fn edge_outputs(
        &self,
        edges: impl Into<TimedLinks>,
        features: Option<&EdgeFeatures>,
    ) -> Result<OutputRows> {
        let edges = edges.into();
        let links = edges.links();
        self.model.check_task(ModelTask::Edges)?;
        let decoder = self.model.decoder()?;
        let width = self.model.info().inputs.n_outputs;
        check_edge_features(decoder, links.len(), features)?;
        let mut outputs = Vec::new();
        for start in (0..links.len()).step_by(EDGES_AT_ONCE) {
            let part = start..links.len().min(start + EDGES_AT_ONCE);
            let times = edges.times().map(|times| &times[part.clone()]);
            let srcs = self.rows_of(&links.srcs()[part.clone()], times)?;
            let dsts = self.rows_of(&links.dsts()[part.clone()], times)?;
            let device = self.model.device();
            let rows = match features {
                None => None,
                Some(features) => {
                    let ids: Vec<EdgeId> = part.map(|edge| EdgeId(edge as u64)).collect();
                    let mut x = FeatureBuffer::empty(features.dtype());
                    features.gather(&ids, &mut x)?;
                    Some(widen(upload_features(x, features.dim(), device)))
                }
            };
            outputs.extend(pair_outputs(decoder, &self.rows, &srcs, &dsts, rows.as_ref(), device)?);
        }
        Ok(self.model.restored_rows(outputs, width))
    }

    /// Finds the destinations with the largest scores of each source among all nodes of the scorer, or those of
    /// [`TopKConfig::among`], by an exact search in blocks of rows. Returns the links of the first source, then those of the
    /// second, and so on; those of a source by descending score, and by ascending destination if scores are equal. A source
    /// has fewer than `k` links if there are not enough other nodes, and scores that are not finite are left out.
    ///
    /// The scores equal those of [`LinkScorer::score`] up to rounding. The search takes a product of `width` values per
    /// pair, holds one block of scores, 4 MiB, and reads all rows once per [`LinkScorer::SRCS_AT_ONCE`] sources.
    ///
    /// # Errors
    /// Returns [`Error::Saved`] if the scorer does not have a source, or the excluded edges are
    /// those of a graph with too few nodes.
    pub fn top_k(&self, srcs: &[NodeId], config: &TopKConfig) -> Result<Vec<ScoredLink>> {
        let mut found = Vec::new();
        self.for_each_top_k(srcs, config, |links| {
            found.extend_from_slice(links);
            Ok::<(), Error>(())
        })?;
        Ok(found)
    }

    /// Passes the links that [`LinkScorer::top_k`] returns on to `write`, those of at most [`LinkScorer::SRCS_AT_ONCE`] sources
    /// at once, so that the links of many sources need not be in memory.
    ///
    /// ```no_run
    /// # use kiln_graph::NodeId;
    /// # use kiln_train::{LinkScorer, TopKConfig};
    /// # fn example(scorer: LinkScorer) -> kiln_train::Result<()> {
    /// let srcs: Vec<NodeId> = (0..1_000_000).map(NodeId).collect();
    /// scorer.for_each_top_k(&srcs, &TopKConfig::new(10), |links| {
    ///     links.iter().for_each(|link| println!("{},{},{}", link.src.0, link.dst.0, link.score));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`LinkScorer::top_k`] and of `write`.
    pub fn for_each_top_k<E: From<Error>>(
        &self,
        srcs: &[NodeId],
        config: &TopKConfig,
        mut write: impl FnMut(&[ScoredLink]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.model.check_task(ModelTask::Links)?;
        let mut all_dsts = Cow::Borrowed(config.dsts(self.nodes()));
        if let Some(are_known) = &self.known_nodes {
            all_dsts.to_mut().retain(|node| are_known.get(node.index()).is_none_or(|is_known| *is_known));
        }
        if let (Some(graph), Some(&node)) = (config.excluded(), all_dsts.last())
            && graph.n_nodes() <= node.index()
        {
            let error = ModelNodesError::NoSuchNode { node, n_nodes: graph.n_nodes() };
            return Err(Error::from(ModelError::Nodes(error)).into());
        }
        // Pairs are counted, because few sources may have many destinations.
        let n_pairs = (srcs.len() as u64).saturating_mul(all_dsts.len() as u64);
        let progress = Progress::start("finding the best links", ProgressUnit::Links, n_pairs);
        for srcs in srcs.chunks(Self::SRCS_AT_ONCE) {
            write(&self.best_links(srcs, &all_dsts, config, &progress)?)?;
        }
        Ok(())
    }

    /// Returns the best links of sources that are searched for at once.
    fn best_links(
        &self,
        srcs: &[NodeId],
        all_dsts: &[NodeId],
        config: &TopKConfig,
        progress: &Progress,
    ) -> Result<Vec<ScoredLink>> {
        let mut best: Vec<Best<'_>> = srcs.iter().map(|&src| Best::of(src, config)).collect();
        let of_srcs = self.gather(srcs)?;
        for dsts in all_dsts.chunks(DSTS_AT_ONCE) {
            let scores = self.model.decoder()?.score_all(of_srcs.clone(), self.gather(dsts)?);
            let scores = to_vec_f32(scores);
            best.par_iter_mut()
                .zip(scores.par_chunks_exact(dsts.len()))
                .for_each(|(best, scores)| best.add(dsts, scores));
            progress.advance(scores.len() as u64);
        }
        Ok(best.into_iter().flat_map(Best::into_links).collect())
    }

    /// Copies the rows of nodes to the model's device, `[nodes.len(), width]`.
    fn gather(&self, nodes: &[NodeId]) -> Result<Tensor<2>> {
        Ok(gather_features(&*self.rows, &self.rows_of(nodes, None)?, self.model.device())?)
    }

    /// Returns the number of the row of each node.
    fn rows_of(&self, nodes: &[NodeId], times: Option<&[i64]>) -> Result<Vec<NodeId>> {
        if self.nodes.times().is_some() && times.is_none() && !nodes.is_empty() {
            return Err(ModelError::Mode(PredictModeError::NoItemTimes).into());
        }
        let mut rows = Vec::with_capacity(nodes.len());
        for (position, &node) in nodes.iter().enumerate() {
            let row = self.nodes.row(node, times.map(|times| times[position]));
            let row = row.ok_or(ModelError::Nodes(ModelNodesError::NoRow { node }))?;
            rows.push(NodeId(row as u32));
        }
        Ok(rows)
    }
}

/// Checks that edges have the features that the decoder of a model reads.
fn check_edge_features(decoder: &LinkDecoder, n_edges: usize, features: Option<&EdgeFeatures>) -> Result<()> {
    let expected = decoder.edge_dims().map_or(0, |dims| dims.d_edge);
    let got = features.map_or(0, EdgeFeatures::dim);
    if got != expected {
        return Err(ModelError::Edges(ModelEdgesError::ItemFeatureWidth { expected, got }).into());
    }
    let n_rows = features.map_or(n_edges as u64, EdgeFeatures::n_edges);
    match n_rows == n_edges as u64 {
        true => Ok(()),
        false => Err(ModelError::Edges(ModelEdgesError::ItemFeatureRows { n_rows, n_edges }).into()),
    }
}

impl fmt::Debug for LinkScorer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, nodes, .. } = self;
        f.debug_struct("LinkScorer")
            .field("model", model)
            .field("n_nodes", &nodes.nodes().len())
            .finish_non_exhaustive()
    }
}
