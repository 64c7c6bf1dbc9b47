//! `kiln predict` with a model of edges: the classes, labels or numbers of edges of the data, or of pairs of nodes.

use std::path::Path;

use kiln::graph::{LinkId, Links, RelationSchema};
use kiln::predictions::{ItemSelection, SelectableItems, WRITING_TIMEOUT, Written, id_bytes};
use kiln::prelude::{PredictMode, PredictOn, RankHandle};
use kiln::store::sha256;
use kiln::train::{LinkPredictor, NamedTargets};
use kiln::{EdgeEnds, LinkNodes, PredictedEdges, PredictionRequest, SplitParts};
use kiln_usage::ensure;

use super::data::OpenedGraph;
use super::job::Job;
use crate::output::{print_note_lines, print_rank_zero};

impl Job<'_> {
    /// Predicts edges; of a heterogeneous graph, those of the relation that training had.
    pub(super) fn edges(&self) -> anyhow::Result<()> {
        let graph = self.open()?;
        let relation = self.relation(graph.schema())?;
        let RelationSchema { src_type, dst_type, .. } = graph.schema().relations()[relation];
        let nodes = LinkNodes {
            ids: graph.schema().node_ranges(relation),
            names: [src_type, dst_type].map(|node_type| graph.whole()?.data.names(node_type)),
        };
        let (edges, items) = self.requested_edges(&graph, relation, &nodes)?;
        let has_own_times = self.model.info().inputs.has_item_times() && self.args.at.is_none();
        let edges = if has_own_times { edges } else { edges.without_times() };
        let (targets, class_names) = edges.targets();
        let NamedTargets { targets, notes } = self.model.targets_by_name(targets, class_names)?;
        print_note_lines(notes);
        let ends = edges.ends(&items);
        let parts = SplitParts::new(edges.links().len(), edges.split());
        let request = PredictionRequest {
            ends: Some(EdgeEnds { links: edges.links().clone(), nodes }),
            ..self.request(items, targets, parts)
        };
        let whole = graph.whole().map(|graph| self.model.on_links(&graph.source)).transpose()?;
        let mode = self.args.mode(&self.model)?;
        let hash = sha256(&[id_bytes(ends.srcs()), id_bytes(ends.dsts()), id_bytes(&request.items)].concat());
        self.launch(&graph.identity(hash), |rank, folder| {
            let predictor = match &whole {
                Some(predictor) => predictor.clone(),
                None => self.model.on_links(graph.join(rank)?.source)?,
            };
            self.predict_edges(rank, folder, &predictor, &edges, request.clone(), &mode)
        })
    }

    /// Returns the edges of the data, and those of them that the flags request.
    fn requested_edges(
        &self,
        graph: &OpenedGraph,
        relation: usize,
        nodes: &LinkNodes,
    ) -> anyhow::Result<(PredictedEdges, Vec<LinkId>)> {
        let args = self.args;
        let pairs = args.links.read_pairs(nodes)?;
        let reads_features = self.model.edge_dims().is_some_and(|dims| dims.d_edge != 0);
        let Some(graph) = graph.whole() else {
            ensure!(
                pairs.is_some() && !reads_features,
                "partitions have no list of edges and no features of them: use --data, or --pairs with a model that reads no \
                 features of edges"
            );
            return Ok(all_of(pairs.unwrap_or_default()));
        };
        let is_timed = self.model.info().inputs.has_item_times();
        if !is_timed && (pairs.is_some() || *args.selection() != ItemSelection::Test || args.at.is_some()) {
            let of_time =
                args.at.as_ref().map_or_else(String::new, |time| format!(" that are before {time}"));
            print_rank_zero(format_args!(
                "note: messages pass over all edges of the data{of_time}, the predicted ones among them"
            ));
        }
        if let Some(pairs) = pairs {
            if !reads_features {
                return Ok(all_of(pairs));
            }
            let edges = graph.data.edges(relation)?;
            let found = edges.find(&pairs)?;
            return Ok((edges, found));
        }
        let edges = graph.data.edges(relation)?;
        let (targets, _) = edges.targets();
        let selectable = SelectableItems {
            n_items: edges.links().len(),
            test: &edges.split().test,
            new: None,
            targets: Some(targets),
        };
        let items = selectable.select(args.selection())?;
        Ok((edges, items))
    }

    /// Predicts edges: all ranks compute the rows of the nodes, and rank 0 the outputs of the edges, and writes them.
    fn predict_edges(
        &self,
        rank: &RankHandle,
        folder: &Path,
        predictor: &LinkPredictor,
        edges: &PredictedEdges,
        request: PredictionRequest<LinkId>,
        mode: &PredictMode,
    ) -> kiln::Result<Written> {
        let items = request.items.clone();
        let nodes = edges.timed_ends(&items).map_err(kiln::Error::from)?.nodes();
        let scorer = self.rows(rank, predictor, nodes, mode)?;
        let written = self.write(rank, folder, request, |_, each| {
            let Some(scorer) = &scorer else { return Ok(()) };
            for positions in PredictedEdges::parts(items.len()) {
                let rows = rank.with_machine_threads(|| Ok(edges.outputs(scorer, &items, positions)?))?;
                each(&rows)?;
            }
            Ok(())
        })?;
        rank.communicator("outputs of edges")?.barrier(WRITING_TIMEOUT)?;
        Ok(written)
    }
}

/// Returns pairs of nodes as edges without features, all of which are requested.
fn all_of(pairs: Links) -> (PredictedEdges, Vec<LinkId>) {
    let items = (0..pairs.len() as u32).map(LinkId).collect();
    (PredictedEdges::from_pairs(pairs), items)
}
