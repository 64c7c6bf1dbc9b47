//! The lines that training on a partitioned graph prints: limits of memory, and traffic.

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::Arc;

use kiln::remote::{DistGraph, FetchStats};
use kiln::train::{EpochReport, MetricSums, StepReport, TrainCallback};
use kiln::{GraphMode, RankHandle};
use serde_json::json;

use crate::output::{is_json, print_event, print_rank_zero};

/// Prints where the local partition is sampled, and upper bounds for the memory of graph data and of the queue.
/// `feature_bytes` is the memory of the caches of features.
pub(crate) fn print_memory(
    graph: &DistGraph,
    feature_bytes: usize,
    workers: usize,
    queue_bytes: usize,
    mode: GraphMode,
) {
    let n_nodes = graph.n_nodes();
    // Each worker of the three loaders (training, validation, test) has a relabelling table with 8 bytes per node.
    let tables = 3 * workers.max(1) * 8 * n_nodes;
    // A device samples each relation of the local partition through an index of all nodes.
    let by_node = if mode == GraphMode::Host { 0 } else { 8 * n_nodes * graph.schema().relations().len() };
    let mib = |bytes: usize| bytes.div_ceil(1 << 20);
    let graph_mib = mib(graph.memory_bytes() + feature_bytes + tables + by_node);
    let batches = mib(queue_bytes);
    let (besides, location) = match mode {
        GraphMode::Host => ("", None),
        GraphMode::Device => (" and the local partition on the device", Some("are on the device")),
        GraphMode::ZeroCopy => (" and the neighbour lists of each sampled hop", Some("stay on the host")),
    };
    if let (Some(part), Some(location)) = (graph.local_part(), location) {
        let (index, n_edges) = (part.index, part.n_edges());
        print_rank_zero(format_args!("sampling        partition {index}: {n_edges} edges {location}"));
    }
    print_rank_zero(format_args!(
        "memory          at most {graph_mib} MiB for the graph and {batches} MiB for prefetched batches per rank, \
         plus a training step{besides}"
    ));
}

/// Prints a line per epoch and rank with the fetch statistics of training, without those of validation.
pub(crate) struct TrafficLines {
    rank: usize,
    graph: Arc<DistGraph>,
    stats: Cell<FetchStats>,
}

impl TrafficLines {
    /// Returns a callback that prints the lines of a rank for a partitioned graph.
    pub(crate) fn new(rank: &RankHandle, graph: Arc<DistGraph>) -> Self {
        Self { rank: rank.index(), graph, stats: Cell::default() }
    }
}

impl TrainCallback for TrafficLines {
    fn started(&mut self, _: &kiln::train::Run, _: usize) {
        self.graph.take_fetch_stats();
    }

    fn step(&mut self, _: &StepReport) {}

    fn epoch_trained(&mut self, _: &EpochReport) {
        self.stats.set(self.graph.take_fetch_stats());
    }

    fn epoch(&mut self, epoch: usize, train: &EpochReport, _: &MetricSums, _: bool) {
        self.graph.take_fetch_stats();
        let (rank, loss, seconds) = (self.rank, train.counts.loss(), train.wall.as_secs_f64());
        let stats = self.stats.get();
        if is_json() {
            let fields = json!({
                "rank": rank, "epoch": epoch, "loss": loss, "seconds": seconds, "traffic": stats.to_string(),
            });
            return print_event("traffic", fields);
        }
        // Every rank prints its own line, so `print_rank_zero` is not used.
        let line = format!("trainer {rank}  epoch {epoch:3}  loss {loss:.4}  {seconds:.2} s  {stats}");
        let _ = writeln!(io::stdout(), "{line}");
    }
}
