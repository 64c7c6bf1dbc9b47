//! `kit first-step` and `kit steps`: training steps of GraphSAGE with three layers of 256.

use std::path::Path;
use std::time::Instant;

use kiln_benches::{Endless, Input, Result, train};
use kiln_kernels::testing::device;
use kiln_kernels::{DeviceFeatures, DeviceGraph, DeviceSampler};
use kiln_train::DeviceNodeBatcher;

/// The largest number of steps before the timed ones, which compile kernels and allocate memory. Of fewer than 20 steps, it
/// is half.
const N_WARM_UP: usize = 10;

/// Opens a data set, sets up training, trains for one step and prints the loss.
///
/// # Errors
/// Returns an error if the data set cannot be opened or the step fails.
pub(crate) fn first(folder: &Path) -> Result {
    let started = Instant::now();
    let input = Input::open(folder)?;
    let device = device();
    let mut trainer = train::trainer(&input, &device)?;
    let mut batches = train::batches(&input, trainer.model(), &device)?;
    trainer.step(&mut batches, |_| ())?;
    trainer.read_back(|_| ())?;
    let report = trainer.end_epoch()?;
    let line = serde_json::json!({
        "first_step_s": started.elapsed().as_secs_f64(),
        "loss": report.counts.loss(),
    });
    println!("{line}");
    Ok(())
}

/// Prepares the first `n` batches on the device, trains on all of them and prints the mean time of a step, without the
/// first ones, and without sampling. Each step includes the forward and backward passes and Adam. `pyg_steps.py` does the
/// same with PyG.
///
/// # Errors
/// Returns an error if the data set cannot be opened, has too few batches, or if a step fails.
pub(crate) fn time(folder: &Path, n: usize) -> Result {
    let input = Input::open(folder)?;
    let device = device();
    let graph = DeviceGraph::new(input.dataset.csc()?.clone(), &device)?;
    let sampler = DeviceSampler::new(graph, input.fanouts.clone());
    let features = DeviceFeatures::new(input.dataset.node_features()?.clone(), &device)?;
    let batcher = DeviceNodeBatcher::new(sampler.into(), features.into(), input.dataset.labels());
    let mut batches: Vec<_> = Endless::new(train::loader(&input, batcher)?).take(n).collect();
    if batches.len() < 2 {
        return Err(format!("{n} batches, expected at least 2, of which half are not timed").into());
    }
    let timed = batches.split_off(N_WARM_UP.min(batches.len() / 2));
    let n_timed = timed.len();
    let mut trainer = train::trainer(&input, &device)?;
    let mut warm_up = batches.into_iter();
    while trainer.step(&mut warm_up, |_| ())? {}
    device.sync()?;
    let started = Instant::now();
    let mut timed = timed.into_iter();
    while trainer.step(&mut timed, |_| ())? {}
    device.sync()?;
    let ms = started.elapsed().as_secs_f64() * 1e3 / n_timed as f64;
    let loss = trainer.end_epoch()?.counts.loss();
    println!("{}", serde_json::json!({"library": "kiln", "steps": n_timed, "ms_per_step": ms, "loss": loss}));
    Ok(())
}
