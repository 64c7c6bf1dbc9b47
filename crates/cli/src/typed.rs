//! `kiln train` on a heterogeneous dataset, whole or partitioned.

use anyhow::{Context, bail, ensure};
use kiln::data::Dataset;
use kiln::feature::TargetKind;
use kiln::graph::GraphSchema;
use kiln::sample::RelationFanouts;
use kiln::{LinkNeighborLoader, NeighborLoader, PartitionedGraph, RankHandle};

use crate::data_id::DataId;
use crate::link::{require_links, require_same};
use crate::output::{print_notes, print_rank_zero};
use crate::partitions::TrafficLines;
use crate::train::{Outcome, TrainArgs, TrainRun};

impl TrainRun<'_> {
    /// Opens a heterogeneous dataset and prints a summary, after a check of the flags that do not apply to it.
    fn open_heterogeneous(&self) -> anyhow::Result<(Dataset, DataId)> {
        let source = &self.args.data;
        self.check_typed_device()?;
        source.check_typed()?;
        let (mut data, id) = source.data.load_typed()?;
        if source.verify {
            data.notes = data.validate().context("the data could not be verified")?;
        }
        if source.in_memory {
            data = data.in_memory();
        }
        print_rank_zero(&data);
        print_notes(&data.notes);
        Ok((data, id))
    }

    /// Sets batches and sampling of a loader as the flags request.
    fn configure_typed(
        &self,
        loader: NeighborLoader,
        fanouts: &RelationFanouts,
    ) -> anyhow::Result<NeighborLoader> {
        let TrainArgs { sampling, ranks, device, .. } = self.args;
        let loader = loader
            .batches(ranks.batches(false))
            .rule(sampling.rule.clone())
            .graph_mode(device.graph_mode)
            .evaluation(sampling.evaluation()?);
        let loader = configured(loader, fanouts)?;
        Ok(match ranks.workers {
            Some(workers) => loader.workers(workers),
            None => loader,
        })
    }

    /// Trains on the nodes of the type that has targets.
    pub(crate) fn typed_nodes(&self) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { model, loss, .. } = self.args;
        let (data, id) = self.open_heterogeneous()?;
        let Some(targets) = &data.targets else { bail!("{} has no targets to train on", data.name) };
        ensure!(!targets.split.train.is_empty(), "the train split of {} has no nodes: add one", data.name);
        let fanouts = fanouts_of(self.args, data.graph.schema())?;
        let loader =
            NeighborLoader::new(&data, &fanouts.of_all).objective(loss.objective(targets.values.kind())?);
        let loader = self.configure_typed(loader, &fanouts)?;
        let (metagraph, dims, n_layers) = (data.graph.metagraph(), data.dims(), fanouts.of_all.len());
        let model = model.of_typed_nodes(&metagraph, &dims, None, targets.values.n_outputs(), n_layers)?;
        self.launch(&id, |rank| self.fit_nodes(&model, &loader, &rank, &id.hash, ()))
    }

    /// Trains on the links of one relation of a heterogeneous dataset.
    pub(crate) fn typed_links(&self) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { model, ranks, link, .. } = self.args;
        let (data, id) = self.open_heterogeneous()?;
        let split = link.split.split_relation(&data, ranks.seed)?;
        let fanouts = fanouts_of(self.args, data.graph.schema())?;
        let nodes = NeighborLoader::new(&data, &fanouts.of_all);
        let loader = LinkNeighborLoader::new(self.configure_typed(nodes, &fanouts)?, &split)?;
        let loader = link.configure_typed(loader, &data, &split, self.link_loss()?)?;
        let (decoder, dims) = (link.decoder()?, data.dims());
        let metagraph = data.graph.metagraph();
        let encoder =
            model.of_typed_nodes(&metagraph, &dims, Some(link.embedding()), 0, fanouts.of_all.len())?;
        self.launch(&id, |rank| self.fit_links(&encoder, decoder, &loader, &rank, &id.hash, ()))
    }

    /// Trains on the nodes of the type that has labels in a partitioned graph.
    pub(crate) fn partitioned_typed_nodes(&self, graph: &PartitionedGraph) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { model, loss, .. } = self.args;
        self.check_typed_partitions(graph)?;
        let info = graph.info();
        let fanouts = fanouts_of(self.args, &info.schema)?;
        let n_outputs = info.targets.as_ref().map_or(0, |targets| targets.n_outputs);
        let (metagraph, n_layers) = (info.schema.metagraph(), fanouts.of_all.len());
        let model = model.of_typed_nodes(&metagraph, &info.dims, None, n_outputs, n_layers)?;
        let objective = loss.objective(TargetKind::Classes)?;
        let id = DataId::recorded(graph.info().hash.clone());
        self.launch(&id, |rank| {
            let (loader, traffic) = self.typed_loader_of(graph, &rank, &fanouts)?;
            let loader = loader.objective(objective.clone());
            self.fit_nodes(&model, &loader, &rank, &id.hash, traffic)
        })
    }

    /// Trains on the links of one relation of a partitioned graph. The links come from the data that was partitioned.
    pub(crate) fn partitioned_typed_links(&self) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { model, ranks, device, parts, link, .. } = self.args;
        let graph = parts.open(ranks.job.tls(), device.graph_mode)?;
        self.check_typed_partitions(&graph)?;
        let (data, id) = self.open_heterogeneous()?;
        require_links(data.links.is_some())?;
        let split = link.split.split_relation(&data, ranks.seed)?;
        let is_same = graph.info().hash == id.hash.wait()?;
        require_same(&graph, is_same, data.graph.n_nodes(), data.graph.n_edges())?;
        // The split sorts them, and partitions have them as the data does. The flags may name another reverse than the data.
        for relation in [Some(split.relation()), split.reverse()].into_iter().flatten() {
            let relation = data.graph.relation(relation);
            let is_sorted = relation.graph.has_sorted_neighbors();
            let sorted = is_sorted.then_some(()).ok_or(kiln::partition::Error::UnsortedNeighbors);
            sorted.with_context(|| format!("links are excluded from the relation `{}`", relation.name))?;
        }
        let fanouts = fanouts_of(self.args, data.graph.schema())?;
        let (metagraph, dims, n_layers) = (data.graph.metagraph(), data.dims(), fanouts.of_all.len());
        let encoder = model.of_typed_nodes(&metagraph, &dims, Some(link.embedding()), 0, n_layers)?;
        let (decoder, loss, links) = (link.decoder()?, self.link_loss()?, split.dataset_links());
        self.launch(&id, |rank| {
            let (nodes, traffic) = self.typed_loader_of(&graph, &rank, &fanouts)?;
            let loader = LinkNeighborLoader::new(nodes, links)?;
            let loader = link
                .configure_typed(loader, &data, &split, loss)
                .map_err(|error| kiln::Error::Other(error.into()))?;
            self.fit_links(&encoder, decoder, &loader, &rank, &id.hash, traffic)
        })
    }

    /// Checks that the flags suit a partitioned graph.
    fn check_typed_partitions(&self, graph: &PartitionedGraph) -> anyhow::Result<()> {
        self.check_typed_device()?;
        self.check_partitions(graph)
    }

    /// Returns a rank's loader of the nodes of a partitioned graph, and the callback that prints its traffic.
    fn typed_loader_of(
        &self,
        graph: &PartitionedGraph,
        rank: &RankHandle,
        fanouts: &RelationFanouts,
    ) -> kiln::Result<(NeighborLoader, TrafficLines)> {
        let TrainArgs { sampling, ranks, device, parts, .. } = self.args;
        let joined = graph.join(rank)?;
        let loader = NeighborLoader::new(&joined, &fanouts.of_all)
            .batches(ranks.batches(false))
            .rule(sampling.rule.clone())
            .graph_mode(device.graph_mode)
            .workers(ranks.remote_workers(parts.worker_concurrency))
            .queue_bytes(parts.queue_bytes());
        let traffic = self.traffic(rank, &joined);
        Ok((configured(loader, fanouts)?, traffic))
    }

    /// Checks that no flag of a feature cache on a device was given.
    fn check_typed_device(&self) -> anyhow::Result<()> {
        ensure!(
            !self.args.device.has_cache_flags(),
            "--feature-cache and --hot-by need a graph with one type of nodes: remove them"
        );
        Ok(())
    }
}

/// Returns the fanouts of `--fanouts`, one per layer. Those of relations without their own are never empty: if all have
/// their own, they are those of the first.
fn fanouts_of(args: &TrainArgs, schema: &GraphSchema) -> anyhow::Result<RelationFanouts> {
    let fanouts = args.relation_fanouts()?;
    let has_own = |name: &String| fanouts.of_relations.iter().any(|(own, _)| own == name);
    let without = schema.relations().iter().map(|relation| &relation.name).find(|name| !has_own(name));
    match (without, fanouts.of_relations.first()) {
        (Some(name), _) if fanouts.of_all.is_empty() => bail!(
            "--fanouts has no list for the relation `{name}`: add `;{name}=...`, or a list without a name for all \
             others"
        ),
        (None, Some((_, first))) if fanouts.of_all.is_empty() => {
            Ok(RelationFanouts { of_all: first.clone(), ..fanouts })
        }
        _ => Ok(fanouts),
    }
}

/// Sets the fanouts of relations that have their own.
fn configured(loader: NeighborLoader, fanouts: &RelationFanouts) -> kiln::Result<NeighborLoader> {
    let mut of_relations = fanouts.of_relations.iter();
    of_relations.try_fold(loader, |loader, (name, list)| loader.relation_fanouts(name, list))
}
