//! The device tests that run on CubeCL's CPU runtime.
//!
//! The runtime compiles each kernel with LLVM, in every process anew, and takes more time for that than for running it.
//! So these tests launch each operation and each kernel of kiln once or a few times, and the programs take short paths. All
//! device tests run on the stub of the CUDA driver.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::binaries::Run;
use crate::cuda::kernels;
use crate::workspace;

/// The packages, and the parts of the names of their tests.
const TESTS: [(&str, &[&str]); 5] = [
    (
        "kiln-kernels",
        &[
            "adam::",
            "aggregate_features::",
            "attention::elu",
            "attention::gradients_of",
            "attention::no_op_of_attention",
            "attention::the_softmax_and_its_gradient",
            "bias_dropout::",
            "columns::a_batch_norm",
            "columns::batch_norm_equals",
            "columns::column_sums_are_close",
            "columns::gradients_of_rows_are",
            "columns::variances_of_large",
            "combinations::blocks_without_edges",
            "cross_entropy::losses_and_gradients",
            "dense::gradients_of_linear_match",
            "dense::products_have",
            "dense::relu_dropout",
            "dense::weight_gradients_have",
            "dropout::",
            "edge_features::blocks_have",
            "edge_messages::dots_and",
            "edge_messages::rows_of_sources",
            "edge_rows::sums_and_their",
            "features::caches",
            "features::every_half",
            "features::rows_of_the_host",
            "gradient::the_gradients_of_own_rows",
            "half_features::half_precision_rows",
            "half_precision::dropout_and_gradients",
            "have_the_expected_values",
            "maxima::",
            "ops::forward_and_backward",
            "ranges::",
            "relation_groups::dot_products",
            "relation_groups::each_type",
            "relation_groups::segments_are",
            "relation_groups::softmax_is",
            "rows::",
            "sampler::device_and_host_build",
            "sampler::device_and_host_sample",
            "sampler::the_host_waits",
            "sampler_edge_types::edge_types_are",
            "sampler_excluded::device_and_host_exclude_the_same_edges_of_a_hub",
            "sampler_times::",
            "sampler_typed::",
            "scan::",
            "segments::forward_and_backward",
            "segments::results_are",
            "segments::sums_of_very_long",
            "shares::",
        ],
    ),
    (
        "kiln-nn",
        &[
            "_computes_its_formula",
            "gcn::gradients_of_parameters",
            "gin::a_learnable_epsilon",
            "input_aggregation::models_compute",
            "input_encoder::gradients",
            "layer_values::",
            "link::losses_and_gradients",
            "link::mlp_equals",
            "loss::losses_and_gradients",
            "normalization::",
        ],
    ),
    ("kiln-examples", &["custom_sampler_on_the_cpu_runtime"]),
    ("kiln-train", &["batches_of_host_and_device", "batches_of_the_device", "two_ranks"]),
    (
        "kiln-cli",
        &[
            "bf16_is_rejected",
            "cross_validation_runs",
            "graph_classification_losses",
            "kernels_are_not_recompiled",
            "kiln_device_lists",
            "multi_node_losses",
            "node_classification_losses",
            "one_answer::",
            "rejects_a_missing_device",
            "tf32_is_rejected",
        ],
    ),
];

/// The kernels that run only on devices with planes, which this runtime does not have.
const WITH_PLANES: [&str; 2] = ["sums_in_tiles", "tile_sums"];

/// Returns the parts of the names of a package's tests that run on CubeCL's CPU runtime. Without parts, none run.
pub(super) fn tests_of(package: &str) -> &'static [&'static str] {
    TESTS.iter().find(|(name, _)| *name == package).map_or(&[], |(_, parts)| parts)
}

/// The files in which CubeCL lists the kernels that each run launches.
#[derive(Debug)]
pub(super) struct Logs {
    folder: PathBuf,
}

impl Logs {
    /// Creates an empty folder for the files.
    pub(super) fn create() -> Result<Self> {
        let folder = workspace::metadata()?.target_directory.join("cpu-runtime").into_std_path_buf();
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    /// Makes a run write a file.
    pub(super) fn set(&self, run: &mut Run, number: usize) {
        run.command.env("CUBECL_DEBUG_LOG", self.folder.join(number.to_string()));
    }

    /// Checks that each kernel of kiln that this runtime can run was launched.
    ///
    /// # Errors
    /// Returns an error that names the missing kernels.
    pub(super) fn check(&self) -> Result<()> {
        let mut launched = BTreeSet::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            launched.extend(text.lines().flat_map(names_in));
        }
        let missing = missing(kernels::names()?, &launched);
        let list = Path::new(file!()).display();
        ensure!(
            missing.is_empty(),
            "kernels that no test of {list} launches on CubeCL's CPU runtime: {}",
            missing.join(", ")
        );
        Ok(())
    }
}

/// Returns the kernels that are missing among the launched ones, which are in camel case.
fn missing(kernels: BTreeSet<String>, launched: &BTreeSet<String>) -> Vec<String> {
    let kernels = kernels.into_iter().filter(|kernel| !WITH_PLANES.contains(&kernel.as_str()));
    kernels.filter(|kernel| !launched.contains(&camel(kernel))).collect()
}

/// Returns the names in a line of a log, `| 131.5ms | SegmentSum_9c6a2d52`: those of the kernel and of its type parameter,
/// `| 46.7ms | CountByRule | Rotated_a224a506`.
fn names_in(line: &str) -> impl Iterator<Item = String> {
    let names = line.split('|').map(str::trim).filter(|name| name.starts_with(char::is_alphabetic));
    names.map(|name| name.rsplit_once('_').map_or(name, |(name, _hash)| name).to_owned())
}

/// Converts `segment_sum` to `SegmentSum`.
fn camel(name: &str) -> String {
    let mut camel = String::new();
    for word in name.split('_') {
        if let Some((first, rest)) = word.split_at_checked(1) {
            camel += &first.to_uppercase();
            camel += rest;
        }
    }
    camel
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_kernels_that_no_run_has_launched() {
        let log = "| 131.5ms   | SegmentSum_9c6a2d52\n| 1ms | CountByRule | Rotated_6\n| 1ms | IsNew_5\n";
        let launched: BTreeSet<String> = log.lines().flat_map(names_in).collect();
        assert_eq!(Vec::from_iter(&launched), ["CountByRule", "IsNew", "Rotated", "SegmentSum"]);
        let kernels = ["segment_sum", "pick", "count_by_rule", "tile_sums"].map(str::to_owned).into();
        assert_eq!(missing(kernels, &launched), ["pick"]);
    }

    #[test]
    fn packages_without_chosen_tests_run_none() {
        assert!(tests_of("kiln-kernels").contains(&"scan::"));
        assert!(tests_of("kiln-nccl").is_empty());
    }
}
