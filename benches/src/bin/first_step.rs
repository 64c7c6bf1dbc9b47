//! Opens a data set, sets up training, trains for some steps and prints the loss: `first_step FOLDER STEPS`. `cargo
//! xtask bench --peers` measures the memory of the process, and the time from its start to its output.

use std::path::Path;

use kiln_benches::{Input, Result, train};

fn main() -> Result {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, n_steps] = args.as_slice() else {
        return Err("expected two arguments: a folder and a number of steps".into());
    };
    let n_steps: usize = n_steps.parse()?;
    let input = Input::open(Path::new(folder))?;
    let device = kiln_kernels::testing::device();
    let mut trainer = train::trainer(&input, &device)?;
    let mut batches = train::batches(&input, trainer.model(), &device)?;
    for _ in 0..n_steps {
        trainer.step(&mut batches, |_| ())?;
    }
    trainer.read_back(|_| ())?;
    let report = trainer.end_epoch()?;
    let line = serde_json::json!({
        "steps": report.n_steps,
        "loss": report.counts.loss(),
    });
    println!("{line}");
    Ok(())
}
