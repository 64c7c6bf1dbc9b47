//! Where `kiln train` samples neighbours and gathers features.

use anyhow::ensure;
use clap::Args;
use kiln::{CachedNodes, GraphMode, NeighborLoader};

use crate::flags;
use crate::output::print_rank_zero;

/// Where graph and features are read.
#[derive(Debug, Args)]
#[command(next_help_heading = "Devices")]
pub(crate) struct DeviceArgs {
    /// Where neighbours are sampled, and features gathered for them. The batches are the same. Of a partitioned graph, that is the rank's own part; servers sample on their processors.
    #[arg(long, default_value = "cpu", value_parser = flags::choice([
        ("cpu", "On the host, from the graph as it is", GraphMode::Host),
        ("device", "On the device that computes, from a copy in its memory", GraphMode::Device),
        ("zero-copy", "On the device, to which the host sends the neighbour lists of each hop", GraphMode::ZeroCopy),
    ]))]
    pub(crate) graph_mode: GraphMode,
    /// Bytes of features that the device holds, as in 2GiB, the hottest ones first; the others are sent batch by batch. All, if not given.
    #[arg(long, value_parser = kiln::data::convert::parse_bytes)]
    feature_cache: Option<u64>,
    /// Which features count as hot: by degree, if not given.
    #[arg(long, value_parser = flags::choice([
        ("degree", "Those of nodes that are many nodes' neighbours", CachedNodes::ByDegree),
        ("presampling", "Those that the first epoch reads most often, which is sampled to find out", CachedNodes::ByPresampling),
    ]))]
    hot_by: Option<CachedNodes>,
}

impl DeviceArgs {
    /// The loader, whose batches are prepared there.
    pub(crate) fn place(&self, loader: NeighborLoader) -> anyhow::Result<NeighborLoader> {
        let is_for_cache = self.feature_cache.is_some() || self.hot_by.is_none();
        ensure!(is_for_cache, "--hot-by is for --feature-cache: give both or neither");
        let loader = loader.graph_mode(self.graph_mode);
        let Some(n_bytes) = self.feature_cache else { return Ok(loader) };
        ensure!(
            self.graph_mode != GraphMode::Host,
            "--feature-cache is for --graph-mode device or zero-copy: give both or neither"
        );
        Ok(loader.feature_cache_of(n_bytes, self.hot_by.unwrap_or_default()))
    }

    /// Prints what was copied to devices, and how often they had what was asked for.
    pub(crate) fn report(&self, loader: &NeighborLoader) {
        let Some(copy) = loader.device_copies().into_iter().next() else { return };
        let place =
            if self.graph_mode == GraphMode::ZeroCopy { "stay with the host" } else { "are on the device" };
        let (n_edges, n_cached) = (copy.sampler.graph().n_edges(), copy.features.n_cached());
        let n_rows = copy.features.n_rows();
        print_rank_zero(format_args!(
            "{n_edges} edges {place}; {n_cached} of {n_rows} feature rows are on the device"
        ));
        let hits = loader.cache_stats();
        print_rank_zero(format_args!(
            "feature hits    {:.1} % of {} rows",
            100.0 * hits.hit_rate(),
            hits.n_rows
        ));
    }
}
