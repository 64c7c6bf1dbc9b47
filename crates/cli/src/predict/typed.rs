//! Predictions of the nodes and the links of a heterogeneous graph.

use anyhow::{Context, ensure};
use kiln::PredictionOutput;
use kiln::data::{NodeNames, TypedLinks};
use kiln::feature::{Labels, Targets};
use kiln::graph::NodeId;
use kiln::prelude::{PredictOnDataset, TypedDataset};
use kiln::store::sha256;
use kiln::train::WantedRows;

use super::files::Request;
use super::link_request::{LinkNodes, LinkRequest};
use super::links::test_sources;
use super::request::{id_bytes, requested};
use super::{Job, progress_bar, show};
use crate::output::print_rank_zero;

impl Job<'_> {
    /// Predicts nodes of the type that had targets in training, which are numbered within the type.
    pub(super) fn typed_nodes(&self) -> anyhow::Result<()> {
        let (args, data) = (self.args, self.typed_data()?);
        let predictor = self.model.on_typed_dataset(&data)?;
        let target_type = self.model.info().inputs.graph.as_ref().map(|graph| &*graph.target_type);
        let target_type = target_type.and_then(|name| data.graph.types().position(name));
        let node_type = target_type.context("the data lacks the type of nodes that the model predicts")?;
        let (targets, test) = targets_of(&data, node_type);
        let names = names_of(&data, node_type);
        let nodes = requested(args, &test, predictor.n_nodes(), names)?;
        let mode = args.mode(&self.model)?;
        let wanted = if args.embeddings { WantedRows::Both } else { WantedRows::Outputs };
        // The width of the embeddings of a part without nodes.
        let first = if args.embeddings && predictor.n_nodes() != 0 { &[NodeId(0)][..] } else { &[] };
        let embedding_width = predictor.embed(first, &mode)?.map(|rows| rows.width());
        self.launch(&sha256(&id_bytes(&nodes)), |rank| {
            let predictor = predictor.with_model(&self.model_of(rank)?)?;
            let batches = predictor.batches(&nodes, &mode, wanted)?;
            let (model, format) = (&self.model, args.format);
            let (items, targets) = (&nodes[..], &targets);
            let request = Request { items, targets, names, model, format, embedding_width };
            self.write(rank, &request, |output, each| {
                rank.predict_batches(&batches, output, |rows| each(&rows))
            })
        })
    }
}

impl Job<'_> {
    /// Scores links of the relation that training had. Sources and destinations are numbered within their types.
    pub(super) fn typed_links(&self) -> anyhow::Result<()> {
        let (args, data) = (self.args, self.typed_data()?);
        let predictor = self.model.on_typed_links(&data)?;
        let relation = predictor.relation();
        let is_of_model = |links: &&TypedLinks| data.graph.relation(links.relation).name == relation.name;
        let links = data.links.as_ref().filter(is_of_model);
        let src_ids = &predictor.node_ranges()[0];
        let test = test_sources(links.map(|links| &*links.targets)).into_iter();
        // The links of a damaged set may have nodes of other types.
        let test = test.filter(|node| src_ids.contains(&node.0)).map(|node| NodeId(node.0 - src_ids.start));
        let test: Vec<NodeId> = test.collect();
        let names = [relation.src_type, relation.dst_type].map(|node_type| names_of(&data, node_type));
        let nodes = LinkNodes { ids: predictor.node_ranges(), names };
        let known = args.links.exclude_edges.then(|| predictor.known_links()).transpose()?;
        let request = LinkRequest::new(args, &test, &nodes, known)?;
        let mode = args.mode(&self.model)?;
        self.launch(&request.hash(), |rank| {
            let (predictor, bar) = (predictor.with_model(&self.model_of(rank)?)?, progress_bar(rank));
            self.score_rows(rank, predictor.model(), &request, &nodes, &bar, |of_links, each| {
                let batches = predictor.batches(of_links, &mode)?;
                rank.predict_batches(&batches, PredictionOutput::RankZero, |batch| {
                    show(&bar, batch.positions.end as u64, of_links.len() as u64);
                    each(&batch)
                })
            })
        })
    }

    /// Opens the heterogeneous dataset of the flags, and prints a summary.
    fn typed_data(&self) -> anyhow::Result<TypedDataset> {
        let args = self.args;
        ensure!(
            !args.parts.is_given(),
            "--parts and --servers need a graph with one type of nodes: use --data"
        );
        let (data, _) = args.data.load_typed()?;
        let data = if args.in_memory { data.in_memory() } else { data };
        print_rank_zero(&data);
        Ok(data)
    }
}

/// Returns the names of the nodes of a type; `None` for nodes without names.
fn names_of(data: &TypedDataset, node_type: usize) -> Option<&NodeNames> {
    data.names.get(node_type).filter(|names| !names.is_empty()).map(|names| &**names)
}

/// Returns the targets of the nodes of a type and its test split, numbered within the type; both empty if the targets of the data
/// are those of another type.
fn targets_of(data: &TypedDataset, node_type: usize) -> (Targets<NodeId>, Vec<NodeId>) {
    let start = data.graph.types().range(node_type).start;
    match data.targets.as_ref().filter(|targets| targets.node_type == node_type) {
        Some(targets) => {
            let test = targets.split.test.iter().map(|node| NodeId(node.0 - start)).collect();
            (targets.values.clone(), test)
        }
        None => (Targets::Classes(Labels::new(Vec::<i32>::new(), 0).into()), Vec::new()),
    }
}
