//! Compares every metric with scikit-learn on random cases with ties, empty classes, constant and missing targets.
//! `fixtures/metrics/make.py` draws the same cases and computed the expected values.

// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use kiln_feature::TargetKind;
use kiln_train::{Metric, MetricStats};

/// The tolerance for about a hundred additions and divisions of numbers of about 1 in f64, relative to the value.
const TOLERANCE: f64 = 1e-11;

/// The generator SplitMix64, as in `make.py`.
struct Draws(u64);

impl Draws {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 33) % n
    }
}

/// The items of a case for one kind of targets.
struct Items {
    kind: TargetKind,
    n_outputs: usize,
    classes: Vec<i32>,
    targets: Vec<f32>,
    outputs: Vec<f32>,
}

impl Items {
    /// Computes a metric from statistics to which the items are added in two parts.
    fn value(&self, metric: Metric) -> Option<f64> {
        let mut stats = MetricStats::new(metric, self.kind, self.n_outputs).unwrap();
        let half = self.outputs.len() / self.n_outputs / 2;
        let (of_first, of_rest) = self.outputs.split_at(half * self.n_outputs);
        match self.kind {
            TargetKind::Classes => {
                stats.add_classes(&self.classes[..half], of_first);
                stats.add_classes(&self.classes[half..], of_rest);
            }
            TargetKind::MultiLabel | TargetKind::Regression => {
                stats.add_targets(&self.targets[..of_first.len()], of_first);
                stats.add_targets(&self.targets[of_first.len()..], of_rest);
            }
            TargetKind::Links => {
                stats.add_links(of_first);
                stats.add_links(of_rest);
            }
        }
        stats.value()
    }
}

fn classes(draws: &mut Draws) -> Items {
    let (n, k) = (1 + draws.below(40), 2 + draws.below(5));
    let n_rows = 1 + draws.below(30);
    let row = |draws: &mut Draws| (0..k).map(|_| draws.below(1 << 16) as f32 / 4096.0 - 8.0).collect();
    let pool: Vec<Vec<f32>> = (0..n_rows).map(|_| row(draws)).collect();
    let n_drawn = 1 + draws.below(k);
    let (mut classes, mut outputs) = (Vec::new(), Vec::new());
    for _ in 0..n {
        classes.push(draws.below(n_drawn) as i32);
        outputs.extend(&pool[draws.below(n_rows) as usize]);
    }
    Items { kind: TargetKind::Classes, n_outputs: k as usize, classes, targets: Vec::new(), outputs }
}

fn labels(draws: &mut Draws, has_missing: bool) -> Items {
    let (n, k) = (1 + draws.below(40), 1 + draws.below(5));
    let share: Vec<u64> = (0..k).map(|_| draws.below(5)).collect();
    let (mut targets, mut outputs) = (Vec::new(), Vec::new());
    for _ in 0..n {
        for &share in &share {
            let target = f32::from(u8::from(draws.below(4) < share));
            outputs.push(draws.below(17) as f32 / 4.0 - 2.0);
            let is_missing = has_missing && draws.below(3) == 0;
            targets.push(if is_missing { f32::NAN } else { target });
        }
    }
    Items { kind: TargetKind::MultiLabel, n_outputs: k as usize, classes: Vec::new(), targets, outputs }
}

fn regression(draws: &mut Draws, has_missing: bool) -> Items {
    let (n, k) = (1 + draws.below(40), 1 + draws.below(4));
    let spread: Vec<u64> = (0..k).map(|_| 1 + draws.below(3) * 40).collect();
    let (mut targets, mut outputs) = (Vec::new(), Vec::new());
    for _ in 0..n {
        for &spread in &spread {
            let target = (draws.below(spread) + 7) as f32 / 64.0;
            let is_exact = draws.below(4) == 0;
            outputs.push(if is_exact { target } else { draws.below(128) as f32 / 64.0 });
            let is_missing = has_missing && draws.below(3) == 0;
            targets.push(if is_missing { f32::NAN } else { target });
        }
    }
    Items { kind: TargetKind::Regression, n_outputs: k as usize, classes: Vec::new(), targets, outputs }
}

fn links(draws: &mut Draws) -> Items {
    let (n, k) = (1 + draws.below(20), 1 + draws.below(120));
    let spread = 1 + draws.below(300);
    let outputs = (0..n * (1 + k)).map(|_| draws.below(spread) as f32 / 8.0 - 2.0).collect();
    let (classes, targets) = (Vec::new(), Vec::new());
    Items { kind: TargetKind::Links, n_outputs: 1 + k as usize, classes, targets, outputs }
}

#[test]
fn metrics_equal_those_of_scikit_learn() {
    let table = kiln_store::npy::read::<f64>(include_bytes!("../fixtures/metrics/metrics.npy")).unwrap();
    let [n_cases, n_columns] = table.shape[..] else { panic!("the shape is {:?}", table.shape) };
    assert_eq!((n_cases, n_columns), (1000, 20));
    let (mut n_undefined, mut columns) = (vec![0; n_columns], Vec::new());
    for (case, row) in table.values.chunks_exact(n_columns).enumerate() {
        let (mut draws, has_missing) = (Draws(case as u64), case % 2 == 1);
        let of_values =
            [classes(&mut draws), labels(&mut draws, has_missing), regression(&mut draws, has_missing)];
        let all: Vec<Items> = of_values.into_iter().chain([links(&mut draws)]).collect();
        let values = all.iter().flat_map(|items| {
            Metric::of_kind(items.kind).map(move |metric| ((items.kind, metric), items.value(metric)))
        });
        let (names, values): (Vec<_>, Vec<_>) = values.unzip();
        assert_eq!(values.len(), n_columns);
        for (column, (value, &expected)) in values.into_iter().zip(row).enumerate() {
            let is_equal = match value {
                Some(value) => (value - expected).abs() <= TOLERANCE * expected.abs().max(1.0),
                None => expected.is_nan(),
            };
            assert!(is_equal, "case {case}, {:?}: {value:?}, expected {expected}", names[column]);
            n_undefined[column] += usize::from(value.is_none());
        }
        columns = names;
    }
    // Every metric was compared, and the cases include undefined values of those that can be undefined.
    let is_undefined = |kind, metric| {
        let column = columns.iter().position(|column| *column == (kind, metric)).unwrap();
        0 < n_undefined[column]
    };
    assert!(is_undefined(TargetKind::Classes, Metric::RocAuc));
    assert!(is_undefined(TargetKind::MultiLabel, Metric::RocAuc));
    assert!(is_undefined(TargetKind::Regression, Metric::R2));
}
