//! Tests of the input encoder of heterogeneous graphs, against one linear layer per node.

use burn::tensor::{Device, Tensor};
use kiln_kernels::testing::{check_close, device, on_cpu, ramp, values};
use kiln_nn::{Error, InputEncoder, InputEncoderConfig, TypeOrder};
use kiln_sample::RngKey;

const HIDDEN: usize = 3;
/// Type 1 has trainable rows, and no node of type 2 is in the batch.
const WIDTHS: [Option<usize>; 4] = [Some(2), None, Some(7), Some(4)];
const TYPES: [usize; 9] = [1, 0, 3, 0, 1, 1, 3, 0, 1];

fn encoder(device: &Device) -> InputEncoder {
    InputEncoderConfig::new(WIDTHS, HIDDEN).init(RngKey::new(4), device).expect("the widths should be valid")
}

/// The rows of each type, whose values are the numbers of a ramp.
fn rows(device: &Device) -> Vec<Tensor<2>> {
    let of_type = |(node_type, width): (usize, &Option<usize>)| {
        let n_rows = TYPES.iter().filter(|of_node| **of_node == node_type).count();
        let width = width.unwrap_or(HIDDEN);
        ramp([n_rows, width], device)
    };
    WIDTHS.iter().enumerate().map(of_type).collect()
}

#[test]
fn each_node_has_the_row_of_its_types_layer() {
    let device = device();
    let (encoder, rows) = (encoder(&device), rows(&device));
    let by_type: Vec<Vec<f32>> = rows
        .iter()
        .zip(&encoder.layers)
        .map(|(rows, layer)| match layer {
            Some(_) if rows.dims()[0] == 0 => Vec::new(),
            Some(layer) => {
                let bias: Tensor<2> = on_cpu(&layer.bias.val()).unsqueeze();
                values(on_cpu(rows).matmul(on_cpu(&layer.weight.val())) + bias)
            }
            None => values(rows.clone()),
        })
        .collect();
    let mut n_before = [0; WIDTHS.len()];
    let mut expected = Vec::new();
    for node_type in TYPES {
        expected.extend_from_slice(&by_type[node_type][n_before[node_type]..][..HIDDEN]);
        n_before[node_type] += HIDDEN;
    }
    let order = TypeOrder::new(&TYPES, WIDTHS.len(), &device);
    assert_eq!(order.n_nodes(), TYPES.len());
    let found = encoder.forward(rows, &order);
    assert_eq!(found.dims(), [TYPES.len(), HIDDEN]);
    check_close(&values(found), &expected, 1e-5);
}

#[test]
fn a_batch_without_nodes_has_no_rows() {
    let device = device();
    let rows = WIDTHS.map(|width| Tensor::zeros([0, width.unwrap_or(HIDDEN)], &device)).to_vec();
    let found = encoder(&device).forward(rows, &TypeOrder::new(&[], WIDTHS.len(), &device));
    assert_eq!(found.dims(), [0, HIDDEN]);
}

#[test]
fn gradients_reach_the_weights_and_the_trainable_rows() {
    let device = device().autodiff();
    let (encoder, mut rows) = (encoder(&device), rows(&device));
    rows[1] = rows[1].clone().require_grad();
    let trainable = rows[1].clone();
    let output = encoder.forward(rows, &TypeOrder::new(&TYPES, WIDTHS.len(), &device));
    let factors = ramp([TYPES.len(), HIDDEN], &device);
    let gradients = (output * factors.clone()).sum().backward();
    // The gradient of a trainable row is that of its node's output.
    let factors = values(factors);
    let of_type = |wanted: usize| {
        TYPES.iter().enumerate().filter(move |(_, of_node)| **of_node == wanted).map(|(node, _)| node)
    };
    let expected: Vec<f32> =
        of_type(1).flat_map(|node| factors[node * HIDDEN..][..HIDDEN].to_vec()).collect();
    check_close(
        &values(trainable.grad(&gradients).expect("the rows should have a gradient")),
        &expected,
        1e-6,
    );
    let of_bias = |layer: usize| {
        let layer = encoder.layers[layer].as_ref().expect("the type should have features");
        layer.bias.val().grad(&gradients).map(values)
    };
    for node_type in [0, 3] {
        let mut expected = [0.0; HIDDEN];
        of_type(node_type).for_each(|node| {
            (0..HIDDEN).for_each(|column| expected[column] += factors[node * HIDDEN + column])
        });
        check_close(&of_bias(node_type).expect("the bias should have a gradient"), &expected, 1e-5);
    }
    assert!(of_bias(2).is_none(), "no node of type 2 is in the batch");
}

#[test]
fn the_order_of_one_type_does_not_change_outputs_and_gradients() {
    const N_NODES: usize = 7;
    let device = device().autodiff();
    let encoder = InputEncoderConfig::new([None], HIDDEN).init(RngKey::new(3), &device).unwrap();
    let run = |order: TypeOrder| {
        assert_eq!(order.n_nodes(), N_NODES);
        let rows = ramp([N_NODES, HIDDEN], &device).require_grad();
        let output = encoder.forward(vec![rows.clone()], &order);
        let gradients = (output.clone() * ramp([N_NODES, HIDDEN], &device)).sum().backward();
        let gradient = rows.grad(&gradients).expect("the rows should have a gradient");
        [output, gradient].map(|tensor| values(tensor).into_iter().map(f32::to_bits).collect::<Vec<_>>())
    };
    assert_eq!(run(TypeOrder::of_one_type(N_NODES)), run(TypeOrder::new(&[0; N_NODES], 1, &device)));
}

#[test]
fn wrong_widths_are_errors() {
    let device = device();
    let init = |widths: Vec<Option<usize>>, hidden| {
        InputEncoderConfig::new(widths, hidden).init(RngKey::new(0), &device)
    };
    assert!(matches!(init(Vec::new(), 3), Err(Error::OutOfRange { name: "the number of node types", .. })));
    assert!(matches!(init(vec![Some(0)], 3), Err(Error::OutOfRange { .. })));
    assert!(matches!(init(vec![None], 0), Err(Error::OutOfRange { .. })));
}

#[test]
#[should_panic(expected = "type 0 has 2 nodes, but 3 rows")]
fn rejects_another_number_of_rows_than_nodes() {
    let device = device();
    let order = TypeOrder::new(&[1, 0, 3, 0, 1, 1, 3, 1], WIDTHS.len(), &device);
    encoder(&device).forward(rows(&device), &order);
}
