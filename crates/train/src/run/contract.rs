//! What bits depend on besides a run's settings and data: versions, and the kind of CPU.

use serde::{Deserialize, Serialize};

/// The version of the determinism contract: with the same settings, data and version, a run has bit-identical results,
/// however often it is stopped and resumed.
///
/// It covers everything between a seed and the weights: the order of the items, the keys and the numbers drawn from
/// them, the sampled blocks, the initial weights and dropout masks, the order in which sums are made (over edges, batches
/// and ranks), the optimizers' steps and which epoch is kept. It is raised with every change after which a run with the
/// same settings gives other bits than before. The test that resumes a checkpoint of an old commit notices such a change.
///
/// It does not cover files: those have versions of their own. Nor does it cover the products of matrices, which round
/// differently from one kind of CPU or version of a library to another.
///
/// A checkpoint records the version; [`Run::start`](crate::Run::start) refuses one of another version, because the run
/// would end with weights that neither version gives. A checkpoint without a version is of version 1.
pub const DETERMINISM_CONTRACT: u32 = 1;

/// What wrote a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Provenance {
    pub(crate) contract: u32,
    /// The version of kiln.
    pub(crate) kiln: Option<String>,
    /// The kind of CPU that rank 0 ran on.
    pub(crate) cpu: Option<String>,
}

impl Default for Provenance {
    /// That of a checkpoint which does not record it.
    fn default() -> Self {
        Self { contract: 1, kiln: None, cpu: None }
    }
}

impl Provenance {
    /// That of this process.
    pub(crate) fn current() -> Self {
        let kiln = env!("CARGO_PKG_VERSION").to_owned();
        Self { contract: DETERMINISM_CONTRACT, kiln: Some(kiln), cpu: Some(cpu_kind()) }
    }

    /// The program that wrote the checkpoint, as messages name it.
    pub(crate) fn program(&self) -> String {
        self.kiln.as_ref().map_or_else(|| "the kiln that wrote it".to_owned(), |kiln| format!("kiln {kiln}"))
    }

    /// What the user should know of a checkpoint with this provenance that another process resumes.
    pub(crate) fn differences(&self, now: &Self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (what, then, now) in [("kiln", &self.kiln, &now.kiln), ("CPU", &self.cpu, &now.cpu)] {
            if let (Some(then), Some(now)) = (then, now)
                && then != now
            {
                warnings.push(format!(
                    "the checkpoint was written with another {what} ({then}, now {now}): products of matrices may \
                     round differently, so that the results need not be bit-identical to those of an uninterrupted run"
                ));
            }
        }
        warnings
    }
}

/// The kind of CPU: its architecture, the instruction sets that libraries choose between at run time, and its model where
/// the system names it.
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

/// The model in the text of Linux's `/proc/cpuinfo`.
fn model_name(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_model_of_the_cpu() {
        let cpuinfo =
            "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7763\n";
        assert_eq!(model_name(cpuinfo), Some("AMD EPYC 7763"));
        assert_eq!(model_name("processor : 0\nCPU implementer : 0x41\n"), None);
        assert!(cpu_kind().starts_with(std::env::consts::ARCH), "{}", cpu_kind());
        assert_eq!(cpu_kind(), cpu_kind());
    }

    #[test]
    fn warns_of_another_kiln_and_cpu_only_where_they_are_known() {
        let of = |kiln: &str, cpu: &str| Provenance {
            kiln: Some(kiln.to_owned()),
            cpu: Some(cpu.to_owned()),
            ..Provenance::default()
        };
        let now = of("0.2.0", "x86_64 avx2");
        assert_eq!(now.differences(&now), [""; 0]);
        assert_eq!(Provenance::default().differences(&now), [""; 0]);
        let [kiln, cpu] = &of("0.1.0", "aarch64").differences(&now)[..] else { panic!("two warnings") };
        assert!(kiln.contains("another kiln (0.1.0, now 0.2.0)"), "{kiln}");
        assert!(cpu.contains("another CPU (aarch64, now x86_64 avx2)"), "{cpu}");
    }
}
