//! The mean time of inference per batch.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::time::Duration;

use kiln::prelude::*;

use crate::own_parts::{cycle, loader, trainer};

/// Trains for an epoch and returns the mean time of the test's batches after the warm-up.
fn mean_batch_time(loader: &NeighborLoader, data: &Dataset, n_ranks: usize) -> Option<Duration> {
    let folder = tempfile::tempdir().unwrap();
    let times = launch(RankConfig::threads(n_ranks), |rank| {
        let fit = FitConfig::epochs(1).out(folder.path()).quiet();
        let trained = trainer(data).rank(&rank).fit(loader, fit)?;
        Ok(trained.write_report(loader)?.map(|summary| summary.mean_batch_time))
    });
    times.unwrap().into_iter().flatten().next().expect("rank 0 should have a summary")
}

#[test]
fn batches_after_the_warm_up_have_a_mean_time() {
    let data = cycle(160, 3);
    let n_test = data.split().test.len();
    assert!(22 <= n_test, "{n_test} test nodes");
    for n_ranks in [1, 2] {
        let time = mean_batch_time(&loader(&data).batch_size(1), &data, n_ranks);
        assert!(time.is_some_and(|time| Duration::ZERO < time), "{time:?} of {n_ranks} ranks");
    }
    // All batches belong to the warm-up.
    assert_eq!(mean_batch_time(&loader(&data).batch_size(n_test.div_ceil(10)), &data, 1), None);
    let exact = loader(&data).batch_size(1).evaluation(EvalMode::Exact { memory_bytes: None });
    assert_eq!(mean_batch_time(&exact, &data, 1), None);
}
