//! Tests of dropout masks: exact values, independence of the block, and the fraction of kept values.

use burn::tensor::{Int, Tensor, TensorData};
use kiln_kernels::ops::dropout;
use kiln_kernels::testing::{Launches, device, launches_of, reference, values};
use kiln_sample::{KeyDomain, RngKey};

fn nodes(ids: &[u32]) -> Tensor<1, Int> {
    let ids = TensorData::new(ids.to_vec(), [ids.len()]);
    Tensor::from_data(ids, (&device(), burn::tensor::DType::U32))
}

fn mask(ids: &[u32], width: usize, key: u64, layer: usize, p: f64) -> Vec<f32> {
    let ones = Tensor::<2>::ones([ids.len(), width], &device());
    values(dropout(ones, &nodes(ids), RngKey::new(key), layer, p))
}

#[test]
fn the_dropout_mask_follows_its_definition() {
    let ids = [0, 7, u32::MAX, 1 << 31];
    for (width, p) in [(1, 0.5), (4, 0.25), (7, 0.9), (37, 0.1)] {
        let threshold = (p * 4_294_967_296.0_f64).round() as u64;
        let key = RngKey::new(42).fold_in(KeyDomain::Dropout, 2);
        let mut expected = Vec::new();
        for node in ids {
            for column in 0..width as u32 {
                let word = key.draw4(0, node, column / 4)[column as usize % 4];
                let kept = threshold <= u64::from(word);
                expected.push(if kept { (1.0 / (1.0 - p)) as f32 } else { 0.0 });
            }
        }
        assert_eq!(mask(&ids, width, 42, 2, p), expected, "width {width}, p {p}");
    }
}

#[test]
fn the_dropout_mask_matches_recorded_values() {
    let kept: Vec<u8> = mask(&[0, 1, 2], 8, 0, 0, 0.5).iter().map(|value| u8::from(*value == 2.0)).collect();
    let expected = [[1, 1, 1, 0, 0, 1, 0, 1], [1, 0, 1, 1, 0, 0, 0, 0], [1, 0, 1, 1, 1, 1, 1, 1]];
    assert_eq!(kept, expected.concat());
}

#[test]
fn a_node_has_the_same_dropout_mask_in_every_block() {
    let one = mask(&[5, 900, 3], 100, 1, 0, 0.5);
    let other = mask(&[3, 5], 100, 1, 0, 0.5);
    assert_eq!(one[..100], other[100..]);
    assert_eq!(one[200..], other[..100]);
}

#[test]
fn dropout_masks_differ_between_layers_and_between_keys() {
    let one = mask(&[5], 256, 1, 0, 0.5);
    assert_ne!(one, mask(&[5], 256, 1, 1, 0.5));
    assert_ne!(one, mask(&[5], 256, 2, 0, 0.5));
    assert_ne!(one, mask(&[6], 256, 1, 0, 0.5));
}

#[test]
fn dropout_keeps_a_fraction_of_one_minus_p() {
    let ids: Vec<u32> = (0..1000).collect();
    for p in [0.1, 0.5, 0.8] {
        let mask = mask(&ids, 100, 9, 0, p);
        let n_kept = mask.iter().filter(|value| **value != 0.0).count() as f64;
        // The tolerance is four standard deviations of a binomial count of 100,000.
        let slack = 4.0 * (1e5 * p * (1.0 - p)).sqrt();
        assert!((n_kept - 1e5 * (1.0 - p)).abs() < slack, "p {p}: kept {n_kept}");
    }
}

#[test]
fn accepts_probability_zero_and_rejects_one() {
    assert_eq!(mask(&[1, 2], 3, 0, 0, 0.0), [1.0; 6]);
    for p in [1.0, -0.1, f64::NAN] {
        let refused = std::panic::catch_unwind(|| mask(&[1], 1, 0, 0, p)).expect_err("p should be rejected");
        let message = refused.downcast_ref::<String>().expect("the panic should have a message");
        assert!(message.contains("expected 0 <= p < 1"), "{message}");
    }
}

#[test]
fn the_gradient_has_the_mask_of_the_forward_pass() {
    let device = device().autodiff();
    let ids = nodes(&[4, 2, 99]);
    let x = Tensor::<2>::ones([3, 50], &device).require_grad();
    let run = || {
        let result = dropout(x.clone(), &ids, RngKey::new(8), 1, 0.3);
        let gradient = x.grad(&result.clone().sum().backward()).expect("the gradient should exist");
        assert_eq!(values(result), values(gradient));
    };
    assert_eq!(launches_of(run), Launches { direct: 2, reference: 0 });
}

#[test]
fn backend_dropout_equals_the_reference_and_keeps_the_input_unchanged() {
    let device = device();
    let ids: Vec<u32> = (0..500).map(|k| k * 3).collect();
    for width in [1, 3, 128] {
        let x = Tensor::<2>::ones([502, width + 2], &device) * 3.0;
        let view = x.clone().slice([1..501, 0..width]);
        let expected = values(reference::dropout(view.clone(), &nodes(&ids), RngKey::new(5), 0, 0.5));
        assert_eq!(values(dropout(view, &nodes(&ids), RngKey::new(5), 0, 0.5)), expected);
        assert!(values(x).iter().all(|value| *value == 3.0));
    }
}

#[test]
#[should_panic(expected = "2 nodes for 3 rows")]
fn rejects_fewer_nodes_than_rows() {
    let _ = dropout(Tensor::<2>::ones([3, 1], &device()), &nodes(&[1, 2]), RngKey::new(0), 0, 0.5);
}
