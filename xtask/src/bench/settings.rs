use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// The settings of bench processes.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    /// The folders of data sets to bench; the built-in inputs if empty.
    pub(super) data: Vec<PathBuf>,
    /// True if the data sets are copied into memory.
    pub(super) in_memory: bool,
    /// The fanouts of data sets, each as `NAME=15,10,5`.
    pub(super) fanouts: Vec<String>,
    /// The number of threads of parallel loops; `None` for all cores.
    pub(super) threads: Option<u32>,
    /// The only bench to run; `None` for all.
    pub(super) only: Option<String>,
    /// The device on which the device stage runs; `None` to run the other stages.
    pub(super) device: Option<String>,
}

impl Settings {
    /// Returns the environment variables of a bench process.
    pub(super) fn env(&self) -> Result<BTreeMap<&'static str, OsString>> {
        let mut env = BTreeMap::new();
        if !self.data.is_empty() {
            let paths = env::join_paths(&self.data)
                .context("a path given with --data contains the separator of path lists")?;
            env.insert("KILN_BENCH_DATA", paths);
        }
        if self.in_memory {
            env.insert("KILN_BENCH_IN_MEMORY", "1".into());
        }
        if !self.fanouts.is_empty() {
            env.insert("KILN_BENCH_FANOUTS", self.fanouts.join(";").into());
        }
        if let Some(device) = &self.device {
            env.insert("KILN_DEVICE", device.into());
        }
        if let Some(threads) = self.threads {
            env.insert("RAYON_NUM_THREADS", threads.to_string().into());
        }
        Ok(env)
    }

    pub(super) fn n_threads(&self) -> usize {
        self.threads.map_or_else(n_cores, |threads| threads as usize)
    }
}

/// Returns the number of cores that this process may use.
pub(super) fn n_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_environment_variables_of_bench_processes() {
        let fanouts = vec!["a=1".into(), "b=2,3".into()];
        let data = vec!["x/a".into(), "y/b".into()];
        let device = Some("cuda:1".into());
        let env = Settings { data, in_memory: true, fanouts, threads: Some(2), only: None, device };
        let env = env.env().unwrap();
        let values: Vec<_> = env.iter().map(|(name, value)| (*name, value.to_str().unwrap())).collect();
        let data = env::join_paths(["x/a", "y/b"]).unwrap();
        let expected = [
            ("KILN_BENCH_DATA", data.to_str().unwrap()),
            ("KILN_BENCH_FANOUTS", "a=1;b=2,3"),
            ("KILN_BENCH_IN_MEMORY", "1"),
            ("KILN_DEVICE", "cuda:1"),
            ("RAYON_NUM_THREADS", "2"),
        ];
        assert_eq!(values, expected);
        assert!(Settings::default().env().unwrap().is_empty());
    }
}
