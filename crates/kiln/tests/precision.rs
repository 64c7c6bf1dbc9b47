//! Tests of runs of a program that sets the precision of matrix products. It is a setting of the process, so these tests
//! have their own process and set it in one test function.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::Write;
use std::path::Path;

use kiln::data::synthetic;
use kiln::kernels::ops::{MatmulPrecision, has_bf16_products, set_matmul_precision};
use kiln::prelude::*;
use kiln::train::{Error as TrainError, RunError};

/// Trains two layers of 64 columns, and returns the hash of the weights.
fn fit(precision: MatmulPrecision, config: FitConfig) -> Result<String> {
    set_matmul_precision(precision);
    let config_of_data = synthetic::FakeConfig { avg_num_nodes: 500, num_channels: 16, ..Default::default() };
    let data = synthetic::fake(config_of_data).unwrap();
    let loader = NeighborLoader::new(&data, [5, 5]).batch_size(64).workers(1);
    let model = SageConfig::for_data(&data).layers(2).hidden(64);
    let mut trainer = Trainer::new(model, AdamConfig::new(1e-2)).seed(7);
    Ok(trainer.fit(&loader, config.quiet())?.best.weights_hash)
}

fn two_epochs(out: &Path) -> FitConfig {
    FitConfig::epochs(2).out(out)
}

#[test]
fn a_run_resumes_in_its_own_precision_only() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let f32 = fit(MatmulPrecision::F32, two_epochs(&at("f32"))).unwrap();
    let bf16 = fit(MatmulPrecision::Bf16, two_epochs(&at("bf16"))).unwrap();
    if !has_bf16_products() {
        // The processor lacks the instructions: the run is one in f32.
        assert_eq!(bf16, f32);
        let text = "kiln-skip: cpu: runs in bf16: a processor without AVX512-BF16";
        return writeln!(std::io::stdout(), "{text}").unwrap();
    }
    assert_ne!(bf16, f32);
    let out = at("resumed");
    fit(MatmulPrecision::Bf16, FitConfig::epochs(1).out(&out)).unwrap();
    let resume = || FitConfig::epochs(2).resume(&out);
    let error = fit(MatmulPrecision::F32, resume()).unwrap_err();
    let Error::Train(TrainError::Run(RunError::OtherRun { name, then, now })) = error else {
        panic!("{error}")
    };
    assert_eq!([name, then, now], ["matmul precision", "bf16", "not set"]);
    assert_eq!(fit(MatmulPrecision::Bf16, resume()).unwrap(), bf16);
}
