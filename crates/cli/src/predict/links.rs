//! `kiln predict` with a model of links: the scores of pairs, or the best destinations of each source.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, bail};
use kiln::graph::{Csc, GraphSchema, NodeId, RelationSchema};
use kiln::predictions::{
    ItemSelection, ItemSelectionError, LinkRequest, SelectableItems, WRITING_TIMEOUT, Written,
};
use kiln::prelude::{PredictMode, PredictOn, RankHandle};
use kiln::train::{LinkPredictor, LinkScorer, LinkScorerBuilder, TimedNodes, TopKConfig, WantedRows};
use kiln::{LinkNodes, LinkPredictionFiles, PredictionOutput};

use super::job::Job;
use crate::output::print_rank_zero;

impl Job<'_> {
    /// Scores links; of a heterogeneous graph, those of the relation that training had. Sources and destinations are numbered
    /// within their types.
    pub(super) fn links(&self) -> anyhow::Result<()> {
        let args = self.args;
        let graph = self.open()?;
        let whole = graph.whole().map(|graph| self.model.on_links(&graph.source)).transpose()?;
        let relation = self.relation(graph.schema())?;
        let RelationSchema { src_type, dst_type, .. } = graph.schema().relations()[relation];
        let nodes = LinkNodes {
            ids: graph.schema().node_ranges(relation),
            names: [src_type, dst_type].map(|node_type| graph.whole()?.data.names(node_type)),
        };
        let of_relation = graph.whole().and_then(|graph| graph.data.links(relation));
        let is_timed = self.model.info().inputs.has_item_times();
        if graph.whole().is_some() && of_relation.is_none() && !is_timed {
            print_rank_zero(
                "note: messages pass over all edges of the data, also over links that training held out",
            );
        }
        let request = match args.links.read_pairs(&nodes)? {
            Some(links) => LinkRequest::Pairs(links),
            None => {
                let known = match &whole {
                    Some(predictor) if args.links.exclude_edges => Some(predictor.known_links()?),
                    _ => None,
                };
                let test = match of_relation {
                    Some(links) if args.selects_test() => nodes.test_sources(links, graph.schema())?,
                    _ => Vec::new(),
                };
                let new = graph.whole().and_then(|graph| graph.data.new_rows(src_type));
                self.top_k(&nodes, &test, new, known)?
            }
        };
        let mode = args.mode(&self.model)?;
        self.launch(&graph.identity(request.hash()), |rank, _| {
            let predictor = match &whole {
                Some(predictor) => predictor.clone(),
                None => self.model.on_links(graph.join(rank)?.source)?,
            };
            self.score(rank, &predictor, &request, &nodes, &mode)
        })
    }

    /// Returns the request of `--top-k`. `test` are the sources of the test links within their type, `new` those that were appended
    /// to the data, and `known` has the edges that are left out.
    fn top_k(
        &self,
        nodes: &LinkNodes,
        test: &[NodeId],
        new: Option<Range<u32>>,
        known: Option<Arc<Csc>>,
    ) -> anyhow::Result<LinkRequest> {
        let args = self.args;
        let n_items = nodes.ids[0].len();
        let mut selection = args.selection();
        if args.selects_test() && test.is_empty() {
            match (&args.nodes, args.parts.is_given()) {
                (_, true) => {
                    bail!(kiln::predictions::Error::from(ItemSelectionError::NoTestLinksOfPartitions))
                }
                (Some(_), false) => bail!(kiln::predictions::Error::from(ItemSelectionError::NoTestLinks)),
                (None, false) => selection = &ItemSelection::All,
            }
            print_rank_zero(format_args!(
                "note: the data has no test links: --top-k ranks the destinations of all {n_items} sources; --nodes and --keys select \
                 others"
            ));
        }
        let config = TopKConfig::new(args.links.top_k.unwrap_or(1)).among(nodes.ids[1].clone());
        let config = match known {
            Some(graph) => config.excluding(graph)?,
            None => config,
        };
        let srcs = SelectableItems { n_items, test, new, targets: None };
        let srcs = args.select_nodes(&srcs, selection, nodes.names[0].as_deref())?;
        Ok(LinkRequest::TopK { srcs: nodes.graph_ids(0, &srcs), config })
    }

    /// Returns the position of the relation whose links the model predicts.
    pub(super) fn relation(&self, schema: &GraphSchema) -> anyhow::Result<usize> {
        let Some(info) = &self.model.info().inputs.graph else { return Ok(0) };
        let name = info.relation.as_deref().context("the model names no relation")?;
        schema.require(name).context("the partitions are of other data than the model's")
    }

    /// Scores links: all ranks compute the rows of the nodes, and rank 0 scores the links and writes them.
    fn score(
        &self,
        rank: &RankHandle,
        predictor: &LinkPredictor,
        request: &LinkRequest,
        nodes: &LinkNodes,
        mode: &PredictMode,
    ) -> kiln::Result<Written> {
        let written = match self.rows(rank, predictor, request.nodes(&nodes.ids[1]).into(), mode)? {
            Some(scorer) => rank.with_machine_threads(|| self.write_links(&scorer, request, nodes))?,
            None => Written::default(),
        };
        rank.communicator("scores of links")?.barrier(WRITING_TIMEOUT)?;
        Ok(written)
    }

    /// Computes the rows of nodes on all ranks, and returns them on rank 0. Collective: every rank must call it.
    pub(super) fn rows(
        &self,
        rank: &RankHandle,
        predictor: &LinkPredictor,
        nodes: TimedNodes,
        mode: &PredictMode,
    ) -> kiln::Result<Option<LinkScorer>> {
        let predictor = predictor.with_model(&self.model_of(rank)?)?;
        // The layers of exact mode have the other half of the limit.
        let memory =
            self.args.memory.map(|bytes| bytes / 2).or(self.model.info().evaluation.neighbors.memory_bytes());
        let builder = || LinkScorerBuilder::with_times(predictor.model(), nodes.clone(), memory);
        let rows = rank.is_zero().then(builder).transpose()?;
        let mut rows = rows.map(|rows| rows.known_nodes(predictor.known_nodes()));
        let (of_rows, output) = (WantedRows::Outputs, PredictionOutput::RankZero);
        let encoder = nodes.times().map(|times| predictor.encoder().with_item_times(Arc::clone(times)));
        let encoder = encoder.as_ref().unwrap_or(predictor.encoder());
        rank.predict(encoder, nodes.nodes(), mode, of_rows, output, |batch| {
            Ok(rows.as_mut().map_or(Ok(()), |rows| rows.push(&batch))?)
        })?;
        Ok(rows.map(LinkScorerBuilder::finish).transpose()?)
    }

    fn write_links(
        &self,
        scorer: &LinkScorer,
        request: &LinkRequest,
        nodes: &LinkNodes,
    ) -> kiln::Result<Written> {
        let mut files = LinkPredictionFiles::create(&self.args.out, self.args.format.into(), nodes.clone())?;
        let n_left_out = request.write(scorer, &mut files)?;
        if n_left_out != 0 {
            print_rank_zero(format_args!(
                "the outputs of {} are not finite: no source has them as a link",
                kiln::store::counted(n_left_out as u64, "destination")
            ));
        }
        Ok(Some(files.complete()?).unzip())
    }
}
