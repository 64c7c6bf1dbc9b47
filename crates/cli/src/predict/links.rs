//! `kiln predict` with a model of links: the scores of pairs, or the best destinations of each source.

use anyhow::Context;
use kiln::graph::{GraphSchema, Links, NodeId, RelationSchema};
use kiln::predictions::{WRITING_TIMEOUT, Written};
use kiln::prelude::{PredictMode, PredictOn, RankHandle};
use kiln::store::progress::{Progress, ProgressUnit};
use kiln::train::{LinkPredictor, LinkScorer, LinkScorerBuilder, ScoredLink, WantedRows};
use kiln::{LinkNodes, LinkPredictionFiles, PredictionOutput};

use super::args::PredictArgs;
use super::data::PredictedGraph;
use super::job::Job;
use super::link_request::LinkRequest;
use crate::output::print_rank_zero;

/// The number of pairs that are scored and written at once.
const LINES: usize = 1 << 16;

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
            names: [src_type, dst_type].map(|node_type| graph.whole()?.names(node_type)),
        };
        let new_srcs = graph.whole().and_then(|graph| graph.new_rows(src_type));
        let test = graph.whole().map(|graph| test_sources(args, graph, relation)).transpose()?;
        let known = match &whole {
            Some(predictor) if args.links.exclude_edges => Some(predictor.known_links()?),
            _ => None,
        };
        let request = LinkRequest::new(args, &test.unwrap_or_default(), new_srcs, &nodes, known)?;
        let mode = args.mode(&self.model)?;
        self.launch(&graph.identity(request.hash()), |rank, _| {
            let predictor = match &whole {
                Some(predictor) => predictor.clone(),
                None => self.model.on_links(graph.join(rank)?.source)?,
            };
            self.score(rank, &predictor, &request, &nodes, &mode)
        })
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
        let written = match self.rows(rank, predictor, request.nodes(&nodes.ids[1]), mode)? {
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
        mut nodes: Vec<NodeId>,
        mode: &PredictMode,
    ) -> kiln::Result<Option<LinkScorer>> {
        let predictor = predictor.with_model(&self.model_of(rank)?)?;
        nodes.sort_unstable();
        nodes.dedup();
        // The layers of exact mode have the other half of the limit.
        let memory =
            self.args.memory.map(|bytes| bytes / 2).or(self.model.info().evaluation.neighbors.memory_bytes());
        let builder = || LinkScorerBuilder::new(predictor.model(), nodes.clone(), memory);
        let rows = rank.is_zero().then(builder).transpose()?;
        let mut rows = rows.map(|rows| rows.known_nodes(predictor.known_nodes()));
        let (of_rows, output) = (WantedRows::Outputs, PredictionOutput::RankZero);
        rank.predict(predictor.encoder(), &nodes, mode, of_rows, output, |batch| {
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
        match request {
            LinkRequest::Pairs(links) => {
                let progress = Progress::start("scoring links", ProgressUnit::Links, links.len() as u64);
                for (srcs, dsts) in links.srcs().chunks(LINES).zip(links.dsts().chunks(LINES)) {
                    let scores = scorer.score(&Links::new(srcs.to_vec(), dsts.to_vec())?)?;
                    let pairs = srcs.iter().zip(dsts).zip(scores);
                    let links = pairs.map(|((&src, &dst), score)| ScoredLink { src, dst, score });
                    files.write(&links.collect::<Vec<_>>())?;
                    progress.advance(srcs.len() as u64);
                }
            }
            LinkRequest::TopK { srcs, config } => {
                scorer
                    .for_each_top_k(srcs, config, |links| -> kiln::Result<()> { Ok(files.write(links)?) })?;
                report_left_out(scorer, srcs, nodes, &mut files);
            }
        }
        Ok(Some(files.complete()?).unzip())
    }
}

/// Returns the sources of the test links of a relation that the flags request, ascending within their type; none for other
/// requests. Prints that held-out links are among the edges of data without links.
fn test_sources(args: &PredictArgs, graph: &PredictedGraph, relation: usize) -> anyhow::Result<Vec<NodeId>> {
    let Some(links) = graph.links.as_ref().filter(|links| links.relation == relation) else {
        print_rank_zero(
            "note: messages pass over all edges of the data, also over links that training held out",
        );
        return Ok(Vec::new());
    };
    if args.links.top_k.is_none() || args.keys.is_some() || args.nodes.as_os_str() != "test" {
        return Ok(Vec::new());
    }
    let schema = graph.source.schema();
    links.check(schema).context("the links of the data are damaged")?;
    let first = schema.node_ranges(relation)[0].start;
    let mut srcs = Vec::new();
    for &link in links.targets.split().test.iter() {
        let (src, _) = links.targets.links().pair(link);
        srcs.push(NodeId(src.0 - first));
    }
    srcs.sort_unstable();
    srcs.dedup();
    Ok(srcs)
}

/// Counts the sources without finite scores, and prints the number of destinations that no source has because their scores
/// are not finite.
fn report_left_out(scorer: &LinkScorer, srcs: &[NodeId], nodes: &LinkNodes, files: &mut LinkPredictionFiles) {
    let left_out = scorer.non_finite();
    for &src in srcs.iter().filter(|src| left_out.binary_search(src).is_ok()) {
        files.add_source_without_links(src);
    }
    let n_dsts = left_out.iter().filter(|node| nodes.ids[1].contains(&node.0)).count();
    if n_dsts != 0 {
        print_rank_zero(format_args!(
            "the outputs of {} are not finite: no source has them as a link",
            kiln::store::counted(n_dsts as u64, "destination")
        ));
    }
}
