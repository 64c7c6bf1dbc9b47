//! Regression targets of the nodes of one type.

use std::path::Path;
use std::sync::{Arc, Mutex};

use kiln::feature::TargetKind;
use kiln::graph::NodeTypes;
use kiln::prelude::*;
use kiln::train::{EpochReport, MetricSums, StepReport, TrainCallback};

use crate::relation::relation;

const N_USERS: u32 = 60;
const N_ITEMS: u32 = 300;

/// Returns a number in `-1..1`.
fn taste(user: u32) -> f32 {
    (user.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0
}

/// Returns the users who buy an item.
fn buyers(item: u32) -> [u32; 4] {
    [0, 1, 2, 3].map(|purchase| (item * 31 + purchase * 17 + item / 60 * purchase) % N_USERS)
}

/// Items whose value is 3 more than the mean taste of their buyers. Every seventh item has no value.
fn data() -> Dataset {
    let users: Vec<u32> = (0..N_ITEMS).flat_map(buyers).collect();
    let items: Vec<u32> = (0..N_ITEMS).flat_map(|item| [item; 4]).collect();
    let buys = relation("buys", ["user", "item"], &users, &items);
    let parts = |parts: &[u32]| -> Vec<u32> {
        (0..N_ITEMS).filter(|item| item % 7 != 0 && parts.contains(&(item % 5))).collect()
    };
    Dataset::builder_with_types(
        NodeTypes::new([("user", N_USERS as usize), ("item", N_ITEMS as usize)]).unwrap(),
    )
    .relation(buys)
    .nodes("user")
    .features((0..N_USERS).map(taste).collect::<Vec<f32>>(), 1)
    .nodes("item")
    .features(vec![1.0; N_ITEMS as usize], 1)
    .nodes("item")
    .regression((0..N_ITEMS).map(value).collect::<Vec<f32>>(), 1)
    .split(parts(&[0, 1, 2]).clone(), parts(&[3]).clone(), parts(&[4]).clone())
    .build()
    .unwrap()
}

fn value(item: u32) -> f32 {
    match item % 7 {
        0 => f32::NAN,
        _ => 3.0 + buyers(item).map(taste).iter().sum::<f32>() / 4.0,
    }
}

/// Records the loss of each epoch.
struct Losses(Arc<Mutex<Vec<f64>>>);

impl TrainCallback for Losses {
    fn step(&mut self, _: &StepReport) {}

    fn epoch(&mut self, _: usize, report: &EpochReport, _: &MetricSums, _: bool) {
        self.0.lock().unwrap().push(report.counts.loss());
    }
}

fn fit(data: &Dataset, out: &Path, losses: Losses) -> (f64, MetricSums, f64) {
    let loader = NeighborLoader::new(data, [Fanout::All]).batch_size(32);
    let model = RgcnConfig::new(8, 1, 1).layers(1).dropout(0.0);
    let model = HeteroModelConfig::new(data.dims(), model);
    let fit = FitConfig::epochs(30).out(out).quiet().callback(losses);
    let best = Trainer::new(model, AdamConfig::new(2e-2)).seed(7).fit(&loader, fit).unwrap();
    assert_eq!(
        DataLoader::<kiln::nn::HeteroModel<kiln::nn::Rgcn>>::target_kind(&loader),
        TargetKind::Regression
    );
    let outputs = best.predict(&loader, Phase::Test).unwrap();
    let rmse = outputs.stats(Metric::Rmse).unwrap().value().unwrap();
    let counts = best.evaluate(&loader, Phase::Test).unwrap();
    (rmse, counts, best.target_scaler.unwrap().deviations()[0])
}

#[test]
fn regression_targets_of_one_type_are_learned() {
    let (data, folder, losses) = (data(), tempfile::tempdir().unwrap(), Arc::default());
    let (rmse, counts, deviation) = fit(&data, &folder.path().join("run"), Losses(Arc::clone(&losses)));
    let losses = losses.lock().unwrap();
    assert!(losses[29] < 0.05 * losses[0], "{losses:?}");
    let test: Vec<f64> =
        (0..N_ITEMS).filter(|item| item % 7 != 0 && item % 5 == 4).map(|item| value(item).into()).collect();
    let mean = test.iter().sum::<f64>() / test.len() as f64;
    let of_mean = (test.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / test.len() as f64).sqrt();
    assert!(rmse < 0.3 * of_mean, "{rmse}, that of the mean is {of_mean}");
    // The loss is that of targets in their deviations.
    let expected = (rmse / deviation).powi(2);
    assert!((counts.loss() - expected).abs() < 1e-6, "{} instead of {expected}", counts.loss());
}
