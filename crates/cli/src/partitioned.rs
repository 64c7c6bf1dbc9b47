//! `kiln train` on the nodes of a partitioned graph, and what training on its links has in common.

use anyhow::ensure;
use kiln::feature::TargetKind;
use kiln::sample::Fanout;
use kiln::{EvalMode, JoinedGraph, NeighborLoader, PartitionedGraph, RankHandle};

use crate::data_id::DataId;
use crate::node_model::NodeModel;
use crate::partitions::{TrafficLines, print_memory};
use crate::train::{Outcome, TrainArgs, TrainRun};

impl TrainRun<'_> {
    /// Trains on the nodes of a partitioned graph.
    pub(crate) fn partitioned_nodes(&self) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { model, ranks, device, parts, loss, .. } = self.args;
        let graph = parts.open(ranks.job.tls(), device.graph_mode)?;
        if graph.info().is_heterogeneous {
            return self.partitioned_typed_nodes(&graph);
        }
        let fanouts = self.args.fanouts()?;
        let model = model.of_nodes(&graph, None, fanouts.len())?;
        self.check_partitioned(&graph, &model)?;
        let objective = loss.objective(TargetKind::Classes)?;
        let id = DataId::recorded(graph.info().hash.clone());
        self.launch(&id, |rank| {
            let (loader, traffic) = self.partitioned_loader(&graph, &rank, &fanouts, &model)?;
            self.fit_nodes(&model, &loader.objective(objective.clone()), &rank, &id.hash, traffic)
        })
    }

    /// Checks that the model, the ranks and the evaluation suit a partitioned graph.
    pub(crate) fn check_partitioned(
        &self,
        graph: &PartitionedGraph,
        model: &NodeModel,
    ) -> anyhow::Result<()> {
        model.check_partitioned()?;
        self.check_partitions(graph)
    }

    /// Checks that the ranks and the evaluation suit a partitioned graph.
    pub(crate) fn check_partitions(&self, graph: &PartitionedGraph) -> anyhow::Result<()> {
        self.args.ranks.job.share_partitions(graph, self.launch.as_ref())?;
        ensure!(
            self.args.sampling.evaluation()? == EvalMode::Sampled,
            "--eval exact needs the whole graph: use --data instead of --parts or --servers"
        );
        Ok(())
    }

    /// Returns a rank's loader of the nodes of a partitioned graph, for a model, and the callback that prints its traffic.
    pub(crate) fn partitioned_loader(
        &self,
        graph: &PartitionedGraph,
        rank: &RankHandle,
        fanouts: &[Fanout],
        model: &NodeModel,
    ) -> kiln::Result<(NeighborLoader, TrafficLines)> {
        let TrainArgs { sampling, ranks, device, parts, .. } = self.args;
        let joined = graph.join(rank)?;
        let loader = NeighborLoader::new(&joined, fanouts)
            .batches(ranks.batches(false))
            .workers(ranks.remote_workers(parts.worker_concurrency))
            .queue_bytes(parts.queue_bytes())
            .graph_mode(device.graph_mode);
        let traffic = self.traffic(rank, &joined);
        Ok((model.configure(loader, &sampling.rule)?, traffic))
    }

    /// Prints the memory limits of a partitioned graph on rank 0: the client, and the bytes of its features' caches. Returns
    /// the callback that prints the traffic of a rank.
    pub(crate) fn traffic(&self, rank: &RankHandle, joined: &JoinedGraph) -> TrafficLines {
        let TrainArgs { ranks, device, parts, .. } = self.args;
        if rank.is_zero() {
            let workers = ranks.remote_workers(parts.worker_concurrency);
            let feature_bytes = joined.cache_memory_bytes();
            print_memory(&joined.graph, feature_bytes, workers, parts.queue_bytes(), device.graph_mode);
        }
        TrafficLines::new(rank, joined.graph.clone())
    }
}
