//! Predictions of nodes.

use std::path::Path;

use anyhow::Context;
use kiln::graph::{GraphSchema, NodeId};
use kiln::predictions::{SelectableItems, Written, id_bytes};
use kiln::prelude::{PredictMode, PredictOn, RankHandle};
use kiln::store::sha256;
use kiln::train::{NamedTargets, NodePredictor, WantedRows};
use kiln::{PredictionRequest, SplitParts};

use super::data::PredictedGraph;
use super::job::Job;
use crate::flags::ranks::convert_error;
use crate::output::print_note_lines;

impl Job<'_> {
    /// Predicts nodes; of a heterogeneous graph, those of the type that had targets in training, numbered within the type.
    pub(super) fn nodes(&self) -> anyhow::Result<()> {
        let args = self.args;
        let graph = self.open()?;
        let whole = graph.whole().map(|graph| self.node_request(graph, true)).transpose()?;
        // A partitioned graph without the type is an error before the ranks start.
        self.node_type(graph.schema())?;
        let mode = args.mode(&self.model)?;
        let request = match &whole {
            Some((_, request)) => sha256(&id_bytes(&request.items)),
            None => args.selection().identity()?,
        };
        self.launch(&graph.identity(request), |rank, folder| {
            let (predictor, request) = match &whole {
                Some(prepared) => prepared.clone(),
                None => self.node_request(&graph.join(rank)?, rank.is_zero()).map_err(convert_error)?,
            };
            self.predict_nodes(rank, folder, &predictor, request, &mode)
        })
    }

    /// Returns the predictor and the request of the nodes of a graph. Prints notes on its targets if `prints` is true.
    fn node_request(
        &self,
        graph: &PredictedGraph,
        prints: bool,
    ) -> anyhow::Result<(NodePredictor, PredictionRequest<NodeId>)> {
        let predictor = self.model.on_nodes(&graph.source)?;
        let n_nodes = predictor.n_nodes();
        let node_type = self.node_type(graph.source.schema())?;
        let names = graph.data.names(node_type);
        let (NamedTargets { targets, notes }, split) = graph.data.named_targets(&self.model, node_type)?;
        print_note_lines(notes.iter().filter(|_| prints));
        let selectable = SelectableItems {
            n_items: n_nodes,
            test: &split.test,
            new: graph.data.new_rows(node_type),
            targets: graph.data.targets(&self.model, node_type).map(|of_type| &of_type.values),
        };
        let nodes = self.args.select_nodes(&selectable, self.args.selection(), names.as_deref())?;
        let parts = SplitParts::new(n_nodes, &split);
        let request = PredictionRequest { names, ..self.request(nodes, targets, parts) };
        Ok((predictor, request))
    }

    /// Returns the position of the type of nodes that the model predicts.
    fn node_type(&self, schema: &GraphSchema) -> anyhow::Result<usize> {
        let Some(info) = &self.model.info().inputs.graph else { return Ok(0) };
        let position = schema.types().position(&info.target_type);
        position.context("the data lacks the type of nodes that the model predicts")
    }

    /// Predicts nodes on one rank, to a folder.
    fn predict_nodes(
        &self,
        rank: &RankHandle,
        folder: &Path,
        predictor: &NodePredictor,
        request: PredictionRequest<NodeId>,
        mode: &PredictMode,
    ) -> kiln::Result<Written> {
        let predictor = predictor.with_model(&self.model_of(rank)?)?;
        let nodes = request.items.clone();
        let wanted = if self.args.embeddings { WantedRows::Both } else { WantedRows::Outputs };
        let embedding_width = if self.args.embeddings { embedding_width(&predictor)? } else { None };
        let request = PredictionRequest { embedding_width, ..request };
        if !predictor.is_exact(mode) {
            // A request that is invalid is an error before the first file.
            predictor.batches(&nodes, mode, wanted)?;
        }
        self.write(rank, folder, request, |output, each| {
            rank.predict(&predictor, &nodes, mode, wanted, output, |rows| each(&rows))
        })
    }
}

/// Returns the width of the embeddings; `None` if it is unknown, because the type that is predicted has no nodes.
fn embedding_width(predictor: &NodePredictor) -> kiln::Result<Option<usize>> {
    match predictor.embedding_width() {
        Err(kiln::train::Error::NotLayerWise) if predictor.n_nodes() == 0 => Ok(None),
        width => Ok(Some(width?)),
    }
}
