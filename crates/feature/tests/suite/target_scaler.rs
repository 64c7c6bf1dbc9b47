//! The standardisation of regression targets: means and deviations of the training items, in f64.

use kiln_feature::{Error, ScalingError, TargetScaler, TargetValues, TargetsError};
use kiln_graph::NodeId;

const NAN: f32 = f32::NAN;

fn nodes(ids: impl IntoIterator<Item = u32>) -> Vec<NodeId> {
    ids.into_iter().map(NodeId).collect()
}

/// The expected values are those of NumPy's `nanmean` and `nanstd` over the items.
#[test]
fn each_column_has_the_mean_and_the_deviation_of_the_known_targets_of_the_items() {
    let rows = [[100_000.0, 0.5, 7.0, NAN], [350_000.0, NAN, 7.0, NAN], [120_000.0, -0.25, 7.0, NAN]];
    let others = [[9e9, 9e9, 9e9, 1.0], [230_000.0, 1.0, NAN, NAN]];
    let values: Vec<f32> = rows.iter().chain(&others).flatten().copied().collect();
    let targets = TargetValues::regression(values, 4).unwrap();
    let scaler = TargetScaler::standardize(&targets, &nodes([0, 1, 2, 4])).unwrap();
    assert_eq!(scaler.means(), [200_000.0, 0.416_666_666_666_666_7, 7.0, 0.0]);
    for (deviation, expected) in
        scaler.deviations().iter().zip([99_749.686_716_300_01, 0.513_701_166_914_081_4, 1.0, 1.0])
    {
        assert!((deviation - expected).abs() < 1e-15 * expected, "{deviation} instead of {expected}");
    }
    let mut scaled = rows[1].to_vec();
    scaler.scale(&mut scaled);
    assert_eq!((scaled[0], scaled[2]), (1.503_764_2, 0.0));
    assert!(scaled[1].is_nan() && scaled[3].is_nan());
    // A model may have more outputs than columns.
    let mut outputs = vec![scaled[0], 0.0, 0.5, 3.0, 9.0];
    scaler.restore(&mut outputs, 5);
    assert_eq!(outputs, [350_000.0, 0.416_666_66, 7.5, 3.0, 9.0]);
}

#[test]
fn no_items_change_nothing() {
    let targets = TargetValues::<NodeId>::regression(vec![5.0, 6.0], 1).unwrap();
    let scaler = TargetScaler::standardize(&targets, &[]).unwrap();
    assert_eq!((scaler.means(), scaler.deviations()), (&[0.0][..], &[1.0][..]));
}

/// The squares of these targets are outside the range of f32, and the deviation of the second column is not normal in f32.
#[test]
fn targets_near_the_limits_of_f32_are_scaled_and_restored() {
    let values = [3e38, 1e-45, -3e38, 3e-45, 3e38, 1e-45, -3e38, 3e-45];
    let targets = TargetValues::regression(values.to_vec(), 2).unwrap();
    let scaler = TargetScaler::standardize(&targets, &nodes(0..4)).unwrap();
    let mut scaled = values.to_vec();
    scaler.scale(&mut scaled);
    assert_eq!(scaled, [1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0]);
    scaler.restore(&mut scaled, 2);
    assert_eq!(scaled, values);
}

#[test]
fn neighbouring_numbers_are_told_apart() {
    let values: Vec<f32> = (0..1000).map(|step| f32::from_bits(1e8_f32.to_bits() + step % 2)).collect();
    let targets = TargetValues::regression(values.clone(), 1).unwrap();
    let scaler = TargetScaler::standardize(&targets, &nodes(0..1000)).unwrap();
    assert_eq!((scaler.means(), scaler.deviations()), (&[100_000_004.0][..], &[4.0][..]));
    // The mean of equal numbers is rounded, but their deviation is 1.
    let equal = TargetValues::regression(vec![0.1; 1000], 1).unwrap();
    assert_eq!(TargetScaler::standardize(&equal, &nodes(0..1000)).unwrap().deviations(), [1.0]);
}

#[test]
fn rejects_infinite_and_missing_targets_and_damaged_scalers() {
    let targets = TargetValues::regression(vec![0.5, NAN, f32::INFINITY], 1).unwrap();
    let error = TargetScaler::standardize(&targets, &nodes([0, 2])).unwrap_err();
    assert!(matches!(error, Error::Targets(TargetsError::BadTarget { id: 2, column: 0, .. })), "{error}");
    let error = TargetScaler::standardize(&targets, &nodes([0, 1])).unwrap_err();
    assert!(matches!(error, Error::Targets(TargetsError::Untargeted { id: 1, .. })), "{error}");
    let scaler = TargetScaler::standardize(&targets, &nodes([0])).unwrap();
    scaler.check(1).unwrap();
    let error = scaler.check(2).unwrap_err();
    let is_expected = matches!(
        error,
        Error::Scaling(ScalingError::TargetScalingWidth { what: "means", expected: 2, got: 1 })
    );
    assert!(is_expected, "{error}");
}
