use crate::plan::{Flags, Plan};

/// The share of the cores that each run of a sweep has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreShare {
    /// The maximum number of runs at a time.
    pub parallel: usize,
    /// The cores that each of them has.
    pub cores_per_run: usize,
}

impl CoreShare {
    /// Divides the cores. Without `parallel`, there are as many runs at a time as cores for their ranks and `--threads-per-rank`; one if
    /// runs use other devices than the CPU, whose memory is not known here, or all cores (`--ranks auto`).
    ///
    /// ```
    /// use kiln_sweep::{CoreShare, Plan};
    /// let plan = Plan::parse("ranks = 2\n[sweep]\nlr = [0.1, 0.01, 0.001]", "sweep.toml".as_ref())?;
    /// assert_eq!(CoreShare::new(&plan, None, 8), CoreShare { parallel: 3, cores_per_run: 2 });
    /// assert_eq!(CoreShare::new(&plan, Some(1), 8), CoreShare { parallel: 1, cores_per_run: 8 });
    /// # Ok::<(), kiln_sweep::PlanError>(())
    /// ```
    pub fn new(plan: &Plan, parallel: Option<usize>, n_cores: usize) -> Self {
        let n_cores = n_cores.max(1);
        let needed = plan.runs().iter().map(|flags| needed_cores(flags, n_cores)).max().unwrap_or(1);
        let n_runs = plan.runs().len().max(1);
        let parallel = parallel.unwrap_or_else(|| (n_cores / needed).clamp(1, n_runs));
        Self { parallel, cores_per_run: (n_cores / parallel.max(1)).max(1) }
    }

    /// Returns the `--threads-per-rank` of a run; `None` if its flags determine it.
    pub fn threads_per_rank(&self, flags: &Flags) -> Option<usize> {
        let n_ranks = flags.get("ranks").map_or(Ok(1), |ranks| ranks.parse::<usize>()).ok()?;
        let is_given = flags.contains_key("threads-per-rank");
        (!is_given).then(|| (self.cores_per_run / n_ranks.max(1)).max(1))
    }

    /// Returns the number of threads of the pool of a run: its cores, or the smaller number in `given`, that of the environment.
    ///
    /// ```
    /// let cores = kiln_sweep::CoreShare { parallel: 2, cores_per_run: 4 };
    /// assert_eq!([None, Some("3"), Some("8"), Some("0")].map(|given| cores.pool_threads(given)), [4, 3, 4, 4]);
    /// ```
    pub fn pool_threads(&self, given: Option<&str>) -> usize {
        // Without a number above 0, a pool has a thread for each core of the machine.
        let given = given.and_then(|given| given.parse().ok()).filter(|n_threads| 0 < *n_threads);
        given.map_or(self.cores_per_run, |n_threads: usize| n_threads.min(self.cores_per_run))
    }
}

/// Returns the number of cores that a run needs.
fn needed_cores(flags: &Flags, n_cores: usize) -> usize {
    let number = |flag: &str| flags.get(flag).map_or(Ok(1), |value| value.parse::<usize>());
    let is_on_cpu = flags.get("device").is_none_or(|device| device == "cpu");
    match (number("ranks"), number("threads-per-rank")) {
        (Ok(n_ranks), Ok(n_threads)) if is_on_cpu => n_ranks.saturating_mul(n_threads).max(1),
        _ => n_cores,
    }
}
