//! Predictions of the nodes and the links of a heterogeneous graph, whole or partitioned.

use std::ops::Range;
use std::sync::Arc;

use anyhow::Context;
use kiln::data::{NodeNames, Split, TypedLinks, TypedTargets};
use kiln::feature::{Labels, Targets};
use kiln::graph::{GraphSchema, NodeId, NodeTypes};
use kiln::prelude::{PredictOn, TypedDataset};
use kiln::store::sha256;
use kiln::{Error, GraphSource, PartitionedGraph, PredictionRequest, SplitParts};

use super::link_files::LinkNodes;
use super::link_request::LinkRequest;
use super::links::test_sources;
use super::request::{id_bytes, items, requested, selection};
use super::{Job, progress_bar};
use crate::data_id::DataId;
use crate::output::print_rank_zero;

/// The targets of the nodes of the predicted type and their split, numbered within the type.
struct TypeTargets {
    values: Targets<NodeId>,
    split: Split,
}

impl Job<'_> {
    /// Predicts nodes of the type that had targets in training, which are numbered within the type.
    pub(super) fn typed_nodes(&self) -> anyhow::Result<()> {
        let args = self.args;
        if args.parts.is_given() {
            return self.partitioned_typed_nodes();
        }
        let (data, id) = self.typed_data()?;
        let predictor = self.model.on_nodes(source_of(&data, &id))?;
        let node_type = self.target_type(data.graph.types())?;
        let targets = targets_of(data.targets.clone(), node_type, data.graph.types().range(node_type));
        let names = names_of(&data, node_type);
        let nodes = requested(args, &targets.split.test, predictor.n_nodes(), names.as_deref())?;
        let mode = args.mode(&self.model)?;
        let request = PredictionRequest {
            parts: SplitParts::new(predictor.n_nodes(), &targets.split),
            names,
            ..self.request(nodes.into(), targets.values)
        };
        self.launch(&sha256(&id_bytes(&request.items)), |rank| {
            self.predict_nodes(rank, &predictor, request.clone(), &mode, &progress_bar(rank))
        })
    }

    /// Predicts nodes of a partitioned graph. Their ids are those of the set that was partitioned.
    fn partitioned_typed_nodes(&self) -> anyhow::Result<()> {
        let args = self.args;
        let graph = args.parts.open(args.job.tls())?;
        let node_type = self.target_type(schema_of(&graph)?.types())?;
        args.job.share_partitions(&graph, self.launch.as_ref())?;
        let mode = args.mode(&self.model)?;
        self.launch(&format!("{} of {}", selection(args)?, graph.info().hash), |rank| {
            let joined = graph.join(rank)?;
            let predictor = self.model.on_nodes(&joined)?;
            let targets = targets_of(joined.targets(), node_type, joined.graph.target_nodes());
            let nodes = items(&args.nodes, &targets.split.test, predictor.n_nodes());
            let nodes = nodes.map_err(|error| Error::Other(error.into()))?;
            let request = PredictionRequest {
                parts: SplitParts::new(predictor.n_nodes(), &targets.split),
                ..self.request(nodes.into(), targets.values)
            };
            self.predict_nodes(rank, &predictor, request, &mode, &progress_bar(rank))
        })
    }

    /// Returns the position of the type of nodes that the model predicts.
    fn target_type(&self, types: &NodeTypes) -> anyhow::Result<usize> {
        let graph = self.model.info().inputs.graph.as_ref();
        let position = graph.and_then(|graph| types.position(&graph.target_type));
        position.context("the data lacks the type of nodes that the model predicts")
    }

    /// Scores links of the relation that training had. Sources and destinations are numbered within their types.
    pub(super) fn typed_links(&self) -> anyhow::Result<()> {
        let args = self.args;
        if args.parts.is_given() {
            return self.partitioned_typed_links();
        }
        let (data, id) = self.typed_data()?;
        let predictor = self.model.on_links(source_of(&data, &id))?;
        let relation = predictor.relation().context("the model names no relation")?;
        let is_of_model = |links: &&TypedLinks| data.graph.relation(links.relation).name == relation.name;
        let links = data.links.as_ref().filter(is_of_model);
        let test = test_sources(args, links.map(|links| &*links.targets), |_| {
            links.map_or(Ok(()), |links| links.check(data.graph.schema()))
        })?;
        let first_src = predictor.node_ranges()[0].start;
        let test: Vec<NodeId> = test.into_iter().map(|node| NodeId(node.0 - first_src)).collect();
        let names = [relation.src_type, relation.dst_type].map(|node_type| names_of(&data, node_type));
        let nodes = LinkNodes { ids: predictor.node_ranges(), names };
        let known = args.links.exclude_edges.then(|| predictor.known_links()).transpose()?;
        let request = LinkRequest::new(args, &test, &nodes, known)?;
        let mode = args.mode(&self.model)?;
        self.launch(&request.hash(), |rank| self.score(rank, &predictor, &request, &nodes, &mode))
    }

    /// Scores links of a partitioned graph. The ids of nodes are those of the set that was partitioned.
    fn partitioned_typed_links(&self) -> anyhow::Result<()> {
        let args = self.args;
        let graph = args.parts.open(args.job.tls())?;
        let (schema, of_model) = (schema_of(&graph)?, self.model.info().inputs.graph.as_ref());
        let relation = of_model.and_then(|graph| graph.relation.as_deref()).unwrap_or_default();
        let relation =
            schema.require(relation).context("the partitions are of other data than the model's")?;
        args.job.share_partitions(&graph, self.launch.as_ref())?;
        let nodes = LinkNodes { ids: schema.node_ranges(relation), names: [None, None] };
        let request = LinkRequest::new(args, &[], &nodes, None)?;
        let mode = args.mode(&self.model)?;
        self.launch(&format!("{} of {}", request.hash(), graph.info().hash), |rank| {
            let predictor = self.model.on_links(&graph.join(rank)?)?;
            self.score(rank, &predictor, &request, &nodes, &mode)
        })
    }

    /// Opens the heterogeneous dataset of the flags, prints a summary, and returns it with its identity.
    fn typed_data(&self) -> anyhow::Result<(TypedDataset, DataId)> {
        let args = self.args;
        let (data, id) = args.data.load_typed()?;
        let data = if args.in_memory { data.in_memory() } else { data };
        print_rank_zero(&data);
        Ok((data, id))
    }
}

/// Returns the types and relations of a partitioned heterogeneous graph.
fn schema_of(graph: &PartitionedGraph) -> anyhow::Result<&GraphSchema> {
    graph.info().heterogeneous.as_ref().map(|info| &info.schema).context(
        "the partitions are of a graph with one type of nodes, and the model is of a heterogeneous graph: use partitions of its \
         training data",
    )
}

/// Returns the names of the nodes of a type; `None` for nodes without names.
fn names_of(data: &TypedDataset, node_type: usize) -> Option<Arc<NodeNames>> {
    data.names.get(node_type).filter(|names| !names.is_empty()).cloned()
}

/// Returns the targets of a type, whose nodes have these ids in the graph; none if the targets of the data are those of another.
fn targets_of(targets: Option<TypedTargets>, node_type: usize, nodes: Range<u32>) -> TypeTargets {
    let Some(targets) = targets.filter(|targets| targets.node_type == node_type) else {
        return TypeTargets { values: Labels::new(Vec::<i32>::new(), 0).into(), split: Split::default() };
    };
    // Predictions reject a node of another type, which damaged partitions may have.
    let number = |node: &NodeId| NodeId(node.0.wrapping_sub(nodes.start));
    let within = |nodes: &[NodeId]| nodes.iter().map(number).collect::<Vec<_>>().into();
    let Split { train, val, test } = targets.split;
    let split = Split { train: within(&train), val: within(&val), test: within(&test) };
    TypeTargets { values: targets.values, split }
}

/// Returns the source of a dataset, with its hash if that is known.
fn source_of(data: &TypedDataset, id: &DataId) -> GraphSource {
    let source = GraphSource::from(data);
    match id.hash.known() {
        Some(hash) => source.with_hash(hash),
        None => source,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use clap::Parser;
    use indicatif::ProgressBar;
    use kiln::graph::RelationEdges;
    use kiln::prelude::*;

    use super::*;
    use crate::predict::PredictArgs;

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        predict: PredictArgs,
    }

    /// Pages that link to the next page, of two classes.
    fn pages() -> TypedDataset {
        let next: Vec<u32> = (0..100).map(|page| (page + 1) % 100).collect();
        let all: Vec<u32> = (0..100).collect();
        let links = RelationEdges {
            name: "links",
            src_type: "page",
            dst_type: "page",
            srcs: &all,
            dsts: &next,
            weights: None,
        };
        TypedDataset::builder(NodeTypes::new([("page", 100)]).unwrap())
            .relation(links)
            .features("page", vec![0.5; 100], 1)
            .labels("page", (0..100).map(|page| page % 2).collect::<Vec<i32>>(), 2)
            .split(&all[..40], &all[40..60], &all[60..])
            .build()
            .unwrap()
    }

    #[test]
    fn predictions_of_heterogeneous_nodes_show_their_progress() {
        let root = tempfile::tempdir().unwrap();
        let [run, out] = ["run", "out"].map(|name| root.path().join(name));
        let data = pages();
        let loader = NeighborLoader::new(&data, [2]).batch_size(8).workers(0);
        let config = TypedModelConfig::new(data.dims(), RsageConfig::new(1, 2).layers(1));
        let fit = FitConfig::epochs(1).out(&run).quiet();
        Trainer::new(config, AdamConfig::new(1e-2)).fit(&loader, fit).unwrap();
        let model = SavedModel::open(&run).unwrap();
        let predictor = model.on_nodes(&data).unwrap();
        let flags = format!("kiln --run {} --out {}", run.display(), out.display());
        let args = Flags::try_parse_from(flags.split(' ')).unwrap().predict;
        let job = Job { args: &args, model, local_rank: 0, launch: None, started: Instant::now() };
        let targets = targets_of(data.targets.clone(), 0, 0..100);
        let bar = ProgressBar::hidden();
        launch(RankConfig::threads(1), |rank| {
            let nodes: Vec<NodeId> = targets.split.test.to_vec();
            let request = job.request(nodes.into(), targets.values.clone());
            job.predict_nodes(&rank, &predictor, request, &PredictMode::AsEvaluated, &bar)
        })
        .unwrap();
        assert_eq!((bar.position(), bar.length()), (40, Some(40)));
    }
}
