//! Callbacks that read the outputs of validations, log values and stop the run.

use std::sync::{Arc, Mutex};

use kiln::train::{Evaluation, Prediction, TensorBoard};

use super::*;

/// What a callback has seen after each validation: the epoch, and the predictions if there are outputs.
type Seen = Arc<Mutex<Vec<(usize, Option<Vec<Prediction>>)>>>;

/// Reads the outputs if `wants` is true, logs two values, and stops after an epoch.
struct Watch {
    seen: Seen,
    wants: bool,
    stop_after: Option<usize>,
}

impl TrainCallback for Watch {
    fn wants_outputs(&mut self) -> bool {
        self.wants
    }

    fn validation_end(&mut self, end: &mut ValidationEnd<'_>) {
        let predictions = end.outputs().map(Evaluation::predictions);
        self.seen.lock().unwrap().push((end.epoch(), predictions));
        end.log("own/epoch", 1.0);
        end.log("own/epoch", end.epoch() as f64);
        end.log("own/gap", end.validation().sums.loss() - end.train().counts.loss());
        if self.stop_after == Some(end.epoch()) {
            end.stop("the gap is large");
            end.stop("not the first reason");
        }
    }
}

fn watch(wants: bool, stop_after: Option<usize>) -> (Watch, Seen) {
    let seen = Seen::default();
    (Watch { seen: Arc::clone(&seen), wants, stop_after }, seen)
}

#[test]
fn rank_zero_sees_the_outputs_of_all_ranks() {
    let (data, folder) = (cycle(160, 3), tempfile::tempdir().unwrap());
    let n_val = data.split().val.len();
    for n_ranks in [1, 2] {
        for (metric, is_exact) in [(Metric::Accuracy, false), (Metric::F1Macro, true)] {
            let loader = loader(&data).batch_size(32 / n_ranks);
            let loader =
                if is_exact { loader.evaluation(EvalMode::Exact { memory_bytes: None }) } else { loader };
            let out = folder.path().join(format!("{n_ranks}-{metric}"));
            let of_ranks = launch(RankConfig::threads(n_ranks).threads_per_rank(1), |rank| {
                let (callback, seen) = watch(true, None);
                let config = quiet(2, &out).metric(metric).callback(callback);
                let best = trainer(&data).rank(&rank).fit(&loader, config)?;
                let outputs = best.predict(&loader, Phase::Validation)?;
                let seen = std::mem::take(&mut *seen.lock().unwrap());
                Ok((best.best.epoch, outputs.predictions(), seen))
            })
            .unwrap();
            for (rank, (best, expected, seen)) in of_ranks.into_iter().enumerate() {
                let epochs: Vec<usize> = seen.iter().map(|(epoch, _)| *epoch).collect();
                assert_eq!(epochs, [1, 2]);
                let outputs = &seen[best - 1].1;
                assert_eq!((rank == 0, outputs.as_ref()), (rank == 0, Some(&expected).filter(|_| rank == 0)));
                assert_eq!(expected.len(), if rank == 0 { n_val } else { 0 });
            }
        }
    }
}

#[test]
fn no_outputs_are_held_unless_they_are_wanted() {
    let (data, folder) = (cycle(80, 3), tempfile::tempdir().unwrap());
    let weights = [true, false].map(|wants| {
        let (callback, seen) = watch(wants, None);
        let config = quiet(2, &folder.path().join(wants.to_string())).callback(callback);
        let best = trainer(&data).fit(&loader(&data), config).unwrap();
        assert!(seen.lock().unwrap().iter().all(|(_, outputs)| outputs.is_some() == wants));
        best.best.weights_hash
    });
    assert_eq!(weights[0], weights[1]);
}

#[test]
fn logged_values_are_in_the_rows_and_the_events() {
    let (data, folder) = (cycle(80, 3), tempfile::tempdir().unwrap());
    let out = folder.path().join("run");
    // The order of the callbacks does not matter.
    let tensorboard = TensorBoard::new(|error| panic!("{error}"));
    let config = quiet(2, &out).callback((tensorboard, watch(false, None).0));
    trainer(&data).fit(&loader(&data), config).unwrap();
    for (epoch, row) in rows(&out).iter().enumerate() {
        let gap = row["val_loss"].as_f64().unwrap() - row["train_loss"].as_f64().unwrap();
        assert_eq!(row["logged"], serde_json::json!({"own/epoch": (epoch + 1) as f64, "own/gap": gap}));
        assert_eq!(record(&out).epochs[epoch].logged["own/gap"], gap);
    }
    let events = std::fs::read_dir(out.join("tensorboard")).unwrap().next().unwrap().unwrap().path();
    let events = std::fs::read(events).unwrap();
    assert_eq!(String::from_utf8_lossy(&events).matches("own/gap").count(), 2);
}

#[test]
fn a_run_that_any_rank_stops_is_complete_with_the_reason() {
    let (data, folder) = (cycle(160, 3), tempfile::tempdir().unwrap());
    for n_ranks in [1, 2] {
        let out = folder.path().join(n_ranks.to_string());
        let loader = loader(&data).batch_size(32 / n_ranks);
        let fit = |config: &(dyn Fn() -> FitConfig + Sync)| {
            launch(RankConfig::threads(n_ranks).threads_per_rank(1), |rank| {
                // The last rank stops the run.
                let stop_after = (rank.index() + 1 == n_ranks).then_some(2);
                let best =
                    trainer(&data).rank(&rank).fit(&loader, config().callback(watch(false, stop_after).0))?;
                best.write_report(&loader)?;
                Ok(best.report)
            })
            .unwrap()
        };
        let report = fit(&|| quiet(5, &out)).remove(0);
        assert_eq!((report.n_epochs, report.stopped_early, report.interrupted), (2, true, false));
        let of_file = summary(&out);
        assert_eq!(
            (&of_file["stop_reason"], &of_file["stopped_early"]),
            (&"the gap is large".into(), &true.into())
        );
        assert!(record(&out).summary.unwrap().to_string().contains("2, stopped early: the gap is large"));
        // It stays complete when a scheduler starts it again.
        assert_eq!(fit(&|| FitConfig::epochs(9).start_or_resume(&out).quiet())[0].n_epochs, 2);
        assert_eq!(summary(&out)["stop_reason"], "the gap is large");
    }
}
