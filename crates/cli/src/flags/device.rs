//! The flags of `kiln train` that select where neighbours are sampled and features are gathered.

use clap::Args;
use kiln::kernels::Devices;
use kiln::kernels::ops::{self, MatmulPrecision, matmul_precision_on, set_matmul_precision};
use kiln::{CachedNodes, GraphMode, NeighborLoader};
use kiln_usage::ensure;

use crate::flags::parse;
use crate::output::{is_quiet, log, print_rank_zero};

/// The flags for the placement of graph and features.
#[derive(Debug, Args)]
#[command(next_help_heading = "Devices")]
pub(crate) struct DeviceArgs {
    /// Place where neighbours are sampled and their features gathered; the batches do not depend on it. For a
    /// partitioned graph, it applies to the rank's local partition; graph servers always sample on the CPU.
    #[arg(long, default_value = "cpu", value_parser = parse::choice([
        ("cpu", "On the host", GraphMode::Host),
        ("device", "On the compute device, from a copy of the graph and its edge features", GraphMode::Device),
        ("zero-copy", "On the compute device; the host sends the neighbour lists of each hop and the edge features of each batch", GraphMode::ZeroCopy),
    ]))]
    pub(crate) graph_mode: GraphMode,
    /// Size of the cache of node features on each device, such as 2GiB, filled with the hottest rows; the host sends the
    /// other rows with each batch. It does not limit edge features. Default: all rows.
    #[arg(long, value_parser = kiln::data::convert::parse_bytes)]
    feature_cache: Option<u64>,
    /// Ranking of the rows for --feature-cache. Default: degree.
    #[arg(long, value_parser = parse::choice([
        ("degree", "The nodes with the most out-edges", CachedNodes::ByDegree),
        ("presampling", "The nodes that a presampled first epoch reads most often", CachedNodes::ByPresampling),
    ]))]
    hot_by: Option<CachedNodes>,
    /// Precision of the factors of matrix products; sums, weights and the optimizer's state are f32.
    #[arg(long, alias = "matmul", default_value = "f32", value_parser = parse::choice([
        ("f32", "f32, without tensor cores", MatmulPrecision::F32),
        ("tf32", "TF32 on tensor cores of CUDA devices: factors are rounded to a mantissa of 10 bits", MatmulPrecision::Tf32),
        ("bf16", "factors are rounded to a mantissa of 7 bits. CUDA devices also keep and aggregate feature rows in \
            bf16. Processors without AVX512-BF16 compute in f32", MatmulPrecision::Bf16),
    ]))]
    precision: MatmulPrecision,
}

impl DeviceArgs {
    /// Sets the precision of matrix products, prints it if it is bf16, and returns the name of the precision that this
    /// processor computes in. It is f32 for bf16 without the instructions: such a run is one in f32.
    pub(crate) fn set_precision(&self, devices: &Devices) -> anyhow::Result<&'static str> {
        match self.precision {
            MatmulPrecision::F32 => {}
            MatmulPrecision::Tf32 => ensure!(
                devices.are_all("cuda"),
                "--precision tf32 requires CUDA devices: remove it, or use --device cuda"
            ),
            MatmulPrecision::Bf16 => ensure!(
                devices.are_all("cpu") || devices.are_all("cuda"),
                "--precision bf16 requires CUDA devices or the CPU: remove it, or use --device cuda or --device cpu"
            ),
        }
        set_matmul_precision(self.precision);
        let actual = matmul_precision_on(&devices.of_rank(0).device);
        if let Some(line) = precision_line(self.precision, actual) {
            print_rank_zero(line);
            // A rank without the instructions cannot join ranks with them, so it says why.
            if is_quiet() && actual != self.precision {
                log(line);
            }
        }
        Ok(actual.name())
    }

    /// Returns true if a flag configures a feature cache.
    pub(crate) fn has_cache_flags(&self) -> bool {
        self.feature_cache.is_some() || self.hot_by.is_some()
    }

    /// Sets where the loader samples neighbours and gathers features.
    pub(crate) fn configure(&self, loader: NeighborLoader) -> anyhow::Result<NeighborLoader> {
        let is_for_cache = self.feature_cache.is_some() || self.hot_by.is_none();
        ensure!(is_for_cache, "--hot-by requires --feature-cache: add it, or remove --hot-by");
        let loader = loader.graph_mode(self.graph_mode);
        let Some(n_bytes) = self.feature_cache else { return Ok(loader) };
        ensure!(
            self.graph_mode != GraphMode::Host,
            "--feature-cache requires --graph-mode device or zero-copy: add one, or remove --feature-cache"
        );
        Ok(loader.feature_cache_of(n_bytes, self.hot_by.unwrap_or_default()))
    }

    /// Prints where the edges are, the number of feature rows on a device, and the hit rate of the feature caches of
    /// all devices. Prints nothing if no device has a copy.
    pub(crate) fn report(&self, loader: &NeighborLoader) {
        let Some(copy) = loader.device_copies().into_iter().next() else { return };
        let location =
            if self.graph_mode == GraphMode::ZeroCopy { "stay on the host" } else { "are on the device" };
        let (n_edges, n_cached) = (copy.sampler.graph().n_edges(), copy.features.n_cached());
        let n_rows = copy.features.n_rows();
        let edges = if copy.edge_columns.is_empty() { "edges" } else { "edges with their features" };
        print_rank_zero(format_args!(
            "{n_edges} {edges} {location}; {n_cached} of {n_rows} feature rows are on the device"
        ));
        let hits = loader.cache_stats();
        print_rank_zero(format_args!(
            "feature hits    {:.1} % of {} rows",
            100.0 * hits.hit_rate(),
            hits.n_rows
        ));
    }
}

/// Sets the precision in which a saved model was trained, or prints a note if these devices do not compute in it.
pub(crate) fn set_trained_precision(trained: Option<&str>, devices: &Devices) {
    if let Some(name) = trained.filter(|name| !ops::set_trained_precision(name, devices)) {
        print_rank_zero(format_args!(
            "note: the model was trained with products in {name}, which this device does not compute: predictions are in \
             f32 and may differ from those of the run"
        ));
    }
}

/// Returns the line about the precision of matrix products for the precision that was chosen and the one that the
/// devices compute in.
fn precision_line(chosen: MatmulPrecision, actual: MatmulPrecision) -> Option<&'static str> {
    match (chosen, actual) {
        (MatmulPrecision::Bf16, MatmulPrecision::Bf16) => Some("matrix products  bf16 with sums in f32"),
        (MatmulPrecision::Bf16, _) => Some(
            "note: matrix products are in f32, because this processor lacks AVX512-BF16 for --precision bf16",
        ),
        _ => None,
    }
}

#[cfg(test)]
#[path = "../../tests/flags/device.rs"]
mod tests;
