//! The conditions for bit-identical results besides settings and data: software versions and the kind of CPU.

use serde::{Deserialize, Serialize};

/// The version of the determinism contract. Runs with the same settings, data and version have bit-identical results,
/// however often they are stopped and resumed.
///
/// The contract covers everything between the seed and the weights: the order of the items, the random keys and the
/// numbers drawn from them, the sampled blocks, the initial weights and dropout masks, the order of sums (over edges,
/// batches and ranks), the optimizer steps, and the choice of the best epoch. The version must be raised with every
/// change that alters the results of a run with the same settings. A test that resumes a checkpoint of an old commit
/// detects such changes.
///
/// File formats are not covered; they have their own versions. Matrix products are not covered either: they round
/// differently on another kind of CPU or with another version of a library.
///
/// | version | change |
/// |---|---|
/// | 2 | in evaluations and predictions, the neighbours of a node depend on the seed, the layer, the relation and the node only, and no longer on the split, the step and the batch; a row of a product no longer depends on the number of rows |
///
/// A checkpoint records the version, and so does `model.json`. [`Run::start`](crate::Run::start) rejects a checkpoint of
/// another version, because the resumed run would end with weights that neither version produces. A checkpoint without a
/// version has version 1.
pub const DETERMINISM_CONTRACT: u32 = 2;

/// The program and the machine that wrote a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Provenance {
    pub(crate) contract: u32,
    /// The version of kiln.
    pub(crate) kiln: Option<String>,
    /// The kind of CPU of rank 0.
    pub(crate) cpu: Option<String>,
}

impl Default for Provenance {
    /// Returns the provenance of checkpoints that record none.
    fn default() -> Self {
        Self { contract: 1, kiln: None, cpu: None }
    }
}

impl Provenance {
    /// Returns the provenance of checkpoints that this process writes.
    pub(crate) fn current() -> Self {
        let kiln = env!("CARGO_PKG_VERSION").to_owned();
        Self { contract: DETERMINISM_CONTRACT, kiln: Some(kiln), cpu: Some(cpu_kind()) }
    }

    /// Returns the name and version of the program for messages.
    pub(crate) fn program(&self) -> String {
        self.kiln
            .as_ref()
            .map_or_else(|| "the version of kiln that wrote it".to_owned(), |kiln| format!("kiln {kiln}"))
    }

    /// Compares this provenance with that of the process that resumes, and returns a warning for each difference that
    /// may change results.
    pub(crate) fn differences(&self, now: &Self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (what, then, now) in [("kiln", &self.kiln, &now.kiln), ("CPU", &self.cpu, &now.cpu)] {
            if let (Some(then), Some(now)) = (then, now)
                && then != now
            {
                warnings.push(format!(
                    "the checkpoint was written with another {what} ({then}, now {now}): matrix products may round \
                     differently, so the results may not be bit-identical to those of an uninterrupted run"
                ));
            }
        }
        warnings
    }
}

/// Returns the kind of CPU: its architecture, the instruction sets that libraries select at run time, and the model
/// name if the system reports it.
fn cpu_kind() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut kind = std::env::consts::ARCH.to_owned();
    for set in instruction_sets() {
        kind += &format!(" {set}");
    }
    if let Some(model) = model_name(&cpuinfo) {
        kind += &format!(", {model}");
    }
    kind
}

#[cfg(target_arch = "x86_64")]
fn instruction_sets() -> Vec<&'static str> {
    use std::arch::is_x86_feature_detected;
    let sets = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
    ];
    sets.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn instruction_sets() -> Vec<&'static str> {
    Vec::new()
}

/// Extracts the model name from the text of Linux's `/proc/cpuinfo`.
fn model_name(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_cpu_model_from_cpuinfo() {
        let cpuinfo =
            "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7763\n";
        assert_eq!(model_name(cpuinfo), Some("AMD EPYC 7763"));
        assert_eq!(model_name("processor : 0\nCPU implementer : 0x41\n"), None);
        assert!(cpu_kind().starts_with(std::env::consts::ARCH), "{}", cpu_kind());
        assert_eq!(cpu_kind(), cpu_kind());
    }

    #[test]
    fn warns_of_another_kiln_or_cpu_only_if_the_checkpoint_records_it() {
        let of = |kiln: &str, cpu: &str| Provenance {
            kiln: Some(kiln.to_owned()),
            cpu: Some(cpu.to_owned()),
            ..Provenance::default()
        };
        let now = of("0.2.0", "x86_64 avx2");
        assert_eq!(now.differences(&now), [""; 0]);
        assert_eq!(Provenance::default().differences(&now), [""; 0]);
        let [kiln, cpu] = &of("0.1.0", "aarch64").differences(&now)[..] else {
            panic!("expected two warnings")
        };
        assert!(kiln.contains("another kiln (0.1.0, now 0.2.0)"), "{kiln}");
        assert!(cpu.contains("another CPU (aarch64, now x86_64 avx2)"), "{cpu}");
    }
}
