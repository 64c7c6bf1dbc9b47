//! `kiln train --task link` and `--task edge`.

use anyhow::Context;
use kiln::data::{Dataset, LinkSplit};
use kiln::feature::{EdgeFeatures, Preparation};
use kiln::nn::{BlockModel, EdgeDims, LinkDecoderConfig, LinkModelConfig, ModelConfig};
use kiln::train::ConfigVisitor;
use kiln::{LinkLoaderError, LinkNeighborLoader, Messages, TrainingLinks};
use kiln_usage::ensure;

use super::flag_rules::Task;
use super::graph::{RankTraining, TrainingGraph};
use super::run::{Outcome, TrainArgs, TrainRun};
use crate::dataset::OpenedDataset;
use crate::flags::links::select_loss;

impl TrainRun<'_> {
    /// Trains on the links of a graph, of one relation if there are several. Those of a partitioned graph come from the data
    /// that was partitioned.
    pub(super) fn links(&self) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { data, ranks, parts, link, loss, sampling, .. } = self.args;
        let is_partitioned = parts.are_given();
        let at_item_times = matches!(sampling.messages, Some(Messages::AtItemTime(_)));
        link.check_negatives(at_item_times)?;
        link.split.check(at_item_times)?;
        let opened = self.open_dataset()?;
        require_links(&opened.data, is_partitioned, data.is_symmetrized())?;
        let split = link.split.split_links(&opened.data, ranks.seed, at_item_times)?;
        let data = opened.data.clone();
        let (graph, training_links) = match is_partitioned {
            true => {
                let graph = self.open_partitions()?;
                check_partitions(&graph, &opened, &split)?;
                (graph, TrainingLinks::from(split.dataset_links()))
            }
            false => (TrainingGraph::Whole(opened), TrainingLinks::from(&split)),
        };
        let config = self.configure_nodes(&graph, link.embedding(), true)?;
        let (outcomes, shared) = match self.task {
            Task::Edge => {
                let targets = split.targets();
                let values =
                    targets.values().ok_or_else(|| LinkLoaderError::NoTargets { name: data.name.clone() })?;
                let d_edge = targets.features().map_or(0, EdgeFeatures::dim);
                let decoder = link.edge_decoder(EdgeDims { d_edge, n_outputs: values.n_outputs() });
                let objective = loss.objective(values.kind())?;
                self.train_on(
                    &graph,
                    |source| {
                        let nodes = self.node_loader(source, &config)?;
                        let loader = LinkNeighborLoader::with_targets(nodes, training_links.clone())?;
                        let loader = loader.node_names(&data.names);
                        Ok(link.configure_edges(loader, objective.clone(), loss.target_scale))
                    },
                    |training| config.model.visit(LinkTraining { training, decoder }),
                )?
            }
            _ => {
                let decoder = link.decoder()?;
                let loss = select_loss(loss)?;
                self.train_on(
                    &graph,
                    |source| {
                        let nodes = self.node_loader(source, &config)?;
                        let loader = LinkNeighborLoader::new(nodes, training_links.clone())?;
                        let loader = loader.node_names(&data.names);
                        Ok(link.configure(loader, &data, &split, loss, at_item_times)?)
                    },
                    |training| config.model.visit(LinkTraining { training, decoder }),
                )?
            }
        };
        if let Some(loader) = shared {
            self.args.device.report(loader.nodes());
        }
        Ok(outcomes)
    }
}

/// Checks that data has a split of links if its partitions are given, and none if the flags would add its reverse edges.
fn require_links(data: &Dataset, is_partitioned: bool, is_symmetrized: bool) -> anyhow::Result<()> {
    ensure!(
        !is_partitioned || data.links.is_some(),
        "--task link on a partitioned graph needs --data with a split of links: split the links first (`kiln data \
         split-links`), partition the result, and give both"
    );
    ensure!(
        !is_symmetrized || data.links.is_none(),
        "--symmetrize would add the reverses of edges to a graph whose links are split already, among them links for \
         validation and test: remove it, and symmetrize the data before its split"
    );
    Ok(())
}

/// Checks that the partitions are those of the data. Those of another split would pass messages over links of the validation
/// and the test.
fn check_partitions(graph: &TrainingGraph, opened: &OpenedDataset, split: &LinkSplit) -> anyhow::Result<()> {
    let TrainingGraph::Partitioned(graph) = graph else { return Ok(()) };
    let info = graph.info();
    // `kiln data partition --add-self-loops` records the hash of the data with self loops.
    let has_loops = info.preparation.as_ref().is_some_and(Preparation::adds_self_loops);
    let data = opened.data.clone();
    let data = if has_loops { data.add_self_loops_dropping_columns()?.0 } else { data };
    let hash = if has_loops { data.hash()? } else { opened.hash()? };
    let n_nodes = data.graph.n_nodes();
    let n_edges = data.graph.n_edges();
    let has_sizes = (info.schema.n_nodes(), info.schema.n_edges()) == (n_nodes, n_edges);
    // `kiln data partition --standardize` records the hash of the scaled data.
    let may_be_scaled = has_sizes && !data.is_heterogeneous();
    let is_same = info.hash == hash || (may_be_scaled && info.hash == data.standardize()?.hash()?);
    anyhow::ensure!(
        is_same,
        "the partitions ({} nodes, {} edges) are those of other data than --data ({n_nodes} nodes, {n_edges} edges), or \
         of another split: partition the data of --data, whose graph lacks the links of the validation and the test",
        info.schema.n_nodes(),
        info.schema.n_edges()
    );
    check_order(&opened.data, split)
}

/// Checks that the neighbours in the relations of the links ascend. The split sorts them, and partitions have them as the data
/// does. The flags may name another reverse than the data.
fn check_order(data: &Dataset, split: &LinkSplit) -> anyhow::Result<()> {
    if !data.is_heterogeneous() {
        return Ok(());
    }
    for position in [Some(split.relation()), split.reverse()].into_iter().flatten() {
        let relation = data.graph.relation(position);
        let is_sorted = relation.graph.has_sorted_neighbors();
        let sorted = is_sorted.then_some(()).ok_or(kiln::partition::Error::UnsortedNeighbors);
        sorted.with_context(|| format!("links are excluded from the relation `{}`", relation.name))?;
    }
    Ok(())
}

/// The training of a model of links on one rank, whose encoder is a model of nodes.
struct LinkTraining<'a> {
    training: RankTraining<'a, LinkNeighborLoader>,
    decoder: LinkDecoderConfig,
}

impl ConfigVisitor for LinkTraining<'_> {
    type Output = kiln::Result<Outcome>;

    fn visit<C: ModelConfig<Model: BlockModel> + 'static>(self, encoder: C) -> Self::Output {
        let config = LinkModelConfig { encoder, decoder: self.decoder };
        let RankTraining { run, loader, rank, traffic } = self.training;
        run.fit(&config, loader, rank, traffic)
    }
}
