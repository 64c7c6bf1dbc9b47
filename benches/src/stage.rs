use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use criterion::{Bencher, BenchmarkId, Criterion, Throughput};
use serde::Serialize;

use crate::{Result, Work};

/// Returns the number of threads of a bench's parallel loops: `RAYON_NUM_THREADS`, or all cores.
pub fn n_threads() -> usize {
    let given = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok());
    given.filter(|&n| 0 < n).unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// The benches of one stage.
pub struct Stage {
    name: &'static str,
    criterion: Criterion,
    n_samples: usize,
}

/// A line of `work.jsonl`, a file in criterion's folder that `cargo xtask bench` reads. It is needed because criterion
/// stores only one number for the work of an iteration.
#[derive(Serialize)]
struct Declared<'a> {
    bench: &'a str,
    #[serde(flatten)]
    work: Work,
}

impl Stage {
    /// Creates the stage of this name. By default, a bench takes twenty samples in about three seconds, or in more time
    /// if twenty iterations take longer. Command-line arguments override criterion's settings.
    pub fn new(name: &'static str) -> Self {
        let criterion = Criterion::default()
            .warm_up_time(Duration::from_millis(500))
            .measurement_time(Duration::from_secs(2))
            // `cargo xtask bench` reads the samples and ignores criterion's bootstrap estimates, so few resamples
            // suffice.
            .nresamples(1001)
            .configure_from_args();
        Self { name, criterion, n_samples: 20 }
    }

    /// Sets the number of samples, at least 10, of the benches that run after this call.
    pub fn samples(&mut self, n_samples: usize) {
        self.n_samples = n_samples;
    }

    /// Runs the bench `stage/variant/size`. `work` is the work of one iteration.
    ///
    /// # Errors
    /// Returns an error if `work.jsonl` cannot be written.
    pub fn bench(
        &mut self,
        variant: &str,
        size: &str,
        work: Work,
        mut routine: impl FnMut(&mut Bencher<'_>),
    ) -> Result {
        let id = BenchmarkId::new(variant, size);
        declare(&format!("{}/{variant}/{size}", self.name), work)?;
        let mut group = self.criterion.benchmark_group(self.name);
        group.sample_size(self.n_samples).throughput(Throughput::Elements(work.elements));
        group.bench_function(id, |bencher| routine(bencher));
        group.finish();
        Ok(())
    }

    /// Prints criterion's final summary.
    pub fn finish(self) {
        self.criterion.final_summary();
    }
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Appends the work of a bench to `work.jsonl`, if `cargo xtask bench` has set `CRITERION_HOME`.
fn declare(bench: &str, work: Work) -> Result {
    let Some(folder) = std::env::var_os("CRITERION_HOME").map(PathBuf::from) else { return Ok(()) };
    std::fs::create_dir_all(&folder)?;
    let mut file = OpenOptions::new().create(true).append(true).open(folder.join("work.jsonl"))?;
    writeln!(file, "{}", serde_json::to_string(&Declared { bench, work })?)?;
    Ok(())
}
