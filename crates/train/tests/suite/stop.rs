//! A run that is asked to stop, as by a signal, on any rank and after any step, writes a checkpoint of that step and
//! resumes to bit-identical weights.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kiln_train::{
    EpochReport, FitConfig, MetricSums, Run, RunFolder, RunIdentity, StepReport, TrainCallback, VALIDATION,
    fit, weights_to_bytes,
};

use crate::common::{data, loader, ranks, shard, trainer};

/// Raises the flag when the callback gets this step, counted over all epochs.
struct Ask {
    flag: Arc<AtomicBool>,
    after: usize,
    n_heard: usize,
}

impl TrainCallback for Ask {
    fn step(&mut self, _: &StepReport) {
        if self.n_heard == self.after {
            self.flag.store(true, Ordering::Relaxed);
        }
        self.n_heard += 1;
    }

    fn epoch(&mut self, _: usize, _: &EpochReport, _: &MetricSums, _: bool) {}
}

/// The end of a run: its position, whether it was interrupted, and its weights.
#[derive(Debug, PartialEq)]
struct End {
    interrupted: bool,
    n_epochs: usize,
    n_steps: usize,
    weights: Vec<u8>,
}

/// Runs two epochs of four steps. `asked` is a rank and the step, counted in this call, at which the rank raises the
/// flag.
fn train(folder: &Path, n_ranks: usize, asked: Option<(usize, usize)>) -> End {
    let data = data(320);
    let ends = ranks(n_ranks).run(|comm| {
        let (shard, flag) = (shard(&*comm), Arc::<AtomicBool>::default());
        let rank = comm.rank_info().rank;
        let [train, val] =
            [&data.split().train, &data.split().val].map(|nodes| loader(&data, nodes, 60, shard));
        let mut trainer = trainer(&data, comm).with_stop(Arc::clone(&flag));
        let open = || match folder.join("last").exists() {
            true => RunFolder::open(folder),
            false => RunFolder::create(folder),
        };
        let mut run = Run::start(&mut trainer, open, RunIdentity::default())?;
        let config = FitConfig { n_epochs: 2, patience: None, checkpoint_every: None };
        let validate =
            |trainer: &mut _| kiln_train::TaskTrainer::evaluate(trainer, val.epoch(VALIDATION), |_, _| ());
        let mut ask =
            asked.filter(|(asked, _)| *asked == rank).map(|(_, after)| Ask { flag, after, n_heard: 0 });
        let report = fit(&mut trainer, &train, config, validate, &mut run, &mut ask)?;
        let weights = weights_to_bytes(trainer.model())?;
        let (interrupted, n_epochs, n_steps) = (report.interrupted, run.n_epochs(), run.n_steps());
        assert_eq!(report.n_epochs, n_epochs);
        Ok(End { interrupted, n_epochs, n_steps, weights })
    });
    let mut ends = ends.unwrap();
    assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "all ranks should end in the same state");
    ends.remove(0)
}

#[test]
fn a_run_asked_to_stop_writes_a_checkpoint_and_resumes_to_identical_weights() {
    for n_ranks in [1, 3] {
        let whole = tempfile::tempdir().unwrap();
        let expected = train(whole.path(), n_ranks, None);
        assert_eq!((expected.interrupted, expected.n_epochs, expected.n_steps), (false, 2, 0));
        for after in 0..7 {
            let folder = tempfile::tempdir().unwrap();
            // The callback is called after a step, so the run stops after the next step.
            let stopped = train(folder.path(), n_ranks, Some((n_ranks - 1, after)));
            let n_done = after + 2;
            let (n_epochs, n_steps) = ((n_done - 1) / 4, (n_done - 1) % 4 + 1);
            assert_eq!((stopped.interrupted, stopped.n_epochs, stopped.n_steps), (true, n_epochs, n_steps));
            assert_eq!(train(folder.path(), n_ranks, None), expected, "{n_ranks} ranks, after step {after}");
        }
    }
}
