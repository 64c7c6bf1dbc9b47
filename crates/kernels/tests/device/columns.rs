//! Tests of column sums, of rows that are combined with all rows, and of batch normalisation.

use burn::tensor::{DType, Device, Tensor, TensorData, module};
use kiln_kernels::ops::{self, BatchNorm, BatchNormOutput, add_row, batch_norm, column_sums, mul_row};
use kiln_kernels::testing::{
    Launches, check_close, check_gradient, device, launches_of, ramp, supports, values,
};
use kiln_kernels::{is_cpu, to_vec_f32};

use super::common::is_on_cuda;

/// Returns the sums of the columns, and of their absolute values, in f64.
fn expected(x: &[f32], width: usize) -> Vec<(f64, f64)> {
    let mut sums = vec![(0.0, 0.0); width];
    for row in x.chunks(width.max(1)) {
        for ((sum, magnitude), value) in sums.iter_mut().zip(row) {
            *sum += f64::from(*value);
            *magnitude += f64::from(value.abs());
        }
    }
    sums
}

/// Returns the largest error of the sums, relative to the sums of the absolute values.
fn largest_error(got: &[f32], expected: &[(f64, f64)]) -> f64 {
    assert_eq!(got.len(), expected.len(), "the numbers of columns differ");
    let errors =
        got.iter().zip(expected).map(|(got, (sum, magnitude))| (f64::from(*got) - sum).abs() / magnitude);
    errors.fold(0.0, f64::max)
}

/// Shapes of one chunk and of several, of few and of many columns, with and without vectors of four values, and of so many
/// columns that a unit sums all rows.
const SHAPES: [[usize; 2]; 10] = [
    [1, 1],
    [3, 5],
    [1024, 47],
    [1025, 48],
    [4100, 3],
    [9000, 4],
    [2000, 260],
    [40, 20_000],
    [65, 16_384],
    [40_000, 2],
];

#[test]
fn column_sums_are_close_to_those_in_f64() {
    for shape in SHAPES {
        let x: Tensor<2> = ramp(shape, &device());
        let expected = expected(&values(x.clone()), shape[1]);
        let mut sums = x.clone();
        let launches = launches_of(|| sums = column_sums(x));
        assert_eq!(launches, Launches { direct: 1, reference: 0 }, "{shape:?}");
        assert_eq!(sums.dims(), [1, shape[1]]);
        let error = largest_error(&values(sums), &expected);
        assert!(error <= 1e-6, "{shape:?}: the relative error is {error}");
    }
}

/// A batch of ogbn-products has 60,000 rows in its largest layer. All values are positive, so the error is relative to the
/// sum.
#[test]
fn column_sums_of_60000_rows_are_closer_than_those_of_burn() {
    let x: Tensor<2> = ramp([60_000, 36], &device()) + 1.0;
    let expected = expected(&values(x.clone()), 36);
    let error = largest_error(&values(column_sums(x.clone())), &expected);
    assert!(error <= 1e-6, "the relative error is {error}");
    // On CPUs, also with CubeCL's runtime, the sums of Burn are divided, too.
    if is_on_cuda() {
        let of_burn = largest_error(&values(x.sum_dim(0)), &expected);
        assert!(error < of_burn, "the relative error is {error}, that of Burn {of_burn}");
    }
}

#[test]
fn column_sums_of_halves_are_rounded_once() {
    let device = device();
    for dtype in [DType::F16, DType::BF16] {
        if !supports(&device, dtype) {
            continue;
        }
        for shape in [[300, 7], [1100, 64]] {
            let x: Tensor<2> = ramp(shape, &device).cast(dtype);
            let exact = expected(&to_vec_f32(x.clone()), shape[1]);
            let sums: Vec<f32> = exact.iter().map(|(sum, _)| *sum as f32).collect();
            let rounded = Tensor::<2>::from_data(TensorData::new(sums, [1, shape[1]]), &Device::flex());
            let got = column_sums(x);
            assert_eq!(got.dtype(), dtype);
            // Halfway between two values of the type, the error of the sum may round to either.
            let epsilon = if dtype == DType::F16 { 1e-3 } else { 8e-3 };
            check_close(&to_vec_f32(got), &to_vec_f32(rounded), epsilon);
        }
    }
}

#[test]
fn column_sums_read_views_and_matrices_without_rows_or_columns() {
    let device = device();
    // A slice that begins at a multiple of 512 bytes is a view on CUDA, with gaps between its rows.
    let wide: Tensor<2> = ramp([64, 256], &device);
    let view = wide.clone().slice([2..62, 128..250]);
    let copied: Vec<f32> =
        values(wide).chunks(256).skip(2).take(60).flat_map(|row| row[128..250].to_vec()).collect();
    let sums: Vec<f32> = expected(&copied, 122).iter().map(|(sum, _)| *sum as f32).collect();
    check_close(&values(column_sums(view)), &sums, 1e-5);

    let whole: Tensor<2> = ramp([50, 12], &device);
    let part = whole.clone().slice([3..48, 1..6]);
    let copied: Vec<f32> =
        values(whole.clone()).chunks(12).skip(3).take(45).flat_map(|row| row[1..6].to_vec()).collect();
    let sums: Vec<f32> = expected(&copied, 5).iter().map(|(sum, _)| *sum as f32).collect();
    check_close(&values(column_sums(part)), &sums, 1e-5);
    let sums: Vec<f32> = values(whole.clone()).chunks(12).map(|row| row.iter().sum()).collect();
    check_close(&values(column_sums(whole.transpose())), &sums, 1e-5);
    assert_eq!(values(column_sums(Tensor::zeros([0, 3], &device))), [0.0; 3]);
    assert_eq!(values(column_sums(Tensor::zeros([3, 0], &device))), [0.0; 0]);
}

#[test]
fn gradients_of_rows_match_finite_differences() {
    let device = device();
    let x: Tensor<2> = ramp([6, 5], &device);
    check_gradient(x.clone(), |x| column_sums(x.clone() * x));
    for width in [5, 1] {
        let row: Tensor<2> = ramp([1, width], &device);
        check_gradient(row.clone(), |row| add_row(x.clone().autodiff(), row));
        check_gradient(row.clone(), |row| mul_row(x.clone().autodiff(), row));
        check_gradient(x.clone(), |x| mul_row(add_row(x, row.clone().autodiff()), row.clone().autodiff()));
    }
}

#[test]
fn gradients_of_rows_are_column_sums() {
    let device = device().autodiff();
    let x: Tensor<2> = ramp([3000, 20], &device);
    let row = ramp([1, 20], &device).require_grad();
    let run = || {
        let factors = ramp([3000, 20], &device);
        let grads = (add_row(x.clone(), row.clone()) * factors.clone()).sum().backward();
        let gradient = values(row.grad(&grads).expect("the row should have a gradient"));
        assert!(largest_error(&gradient, &expected(&values(factors), 20)) <= 1e-6);
    };
    // On the CPU, Burn broadcasts the row.
    let direct = if is_cpu(&device) { 0 } else { 1 };
    assert_eq!(launches_of(run), Launches { direct, reference: 0 });
}

/// Rows, a bias, a scale, a shift and moving averages.
#[derive(Debug, Clone)]
struct NormInput {
    x: Tensor<2>,
    bias: Tensor<1>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    moving_mean: Tensor<1>,
    moving_variance: Tensor<1>,
}

const MOMENTUM: f64 = 0.3;

/// The results of a batch normalisation: the rows, both moving averages, and the gradients of the rows, the bias, the scale and
/// the shift.
#[derive(Debug)]
struct NormResults {
    rows: Vec<f32>,
    moving: [Vec<f32>; 2],
    of_x: Vec<f32>,
    of_bias: Vec<f32>,
    of_parameters: [Vec<f32>; 2],
}

/// Normalizes rows whose values drift, so that the means of chunks of rows differ by several deviations. `n_gaps` columns are
/// between two rows.
fn normalized(
    on: &Device,
    [n_rows, width]: [usize; 2],
    n_gaps: usize,
    run: impl Fn(NormInput) -> BatchNormOutput,
) -> NormResults {
    let drift = |i: usize| 30.0 * (i / (width + n_gaps)) as f32 / n_rows as f32;
    let plain = values(ramp([n_rows, width + n_gaps], &Device::flex()));
    let wide: Vec<f32> = plain.iter().enumerate().map(|(i, value)| value * 3.0 + 5.0 + drift(i)).collect();
    let wide = Tensor::<2>::from_data(TensorData::new(wide, [n_rows, width + n_gaps]), on);
    let input = NormInput {
        x: wide.narrow(1, 0, width).autodiff().require_grad(),
        bias: (ramp([width], on) * 4.0).autodiff().require_grad(),
        gamma: (ramp([width], on) + 2.0).autodiff().require_grad(),
        beta: ramp([width], on).autodiff().require_grad(),
        moving_mean: (ramp([width], on) + 0.2).autodiff(),
        moving_variance: (ramp([width], on) + 1.5).autodiff(),
    };
    let BatchNormOutput { rows, moving_mean, moving_variance } = run(input.clone());
    let factors = (ramp([n_rows, width + n_gaps], on) + 0.1).narrow(1, 0, width).autodiff();
    let grads = (rows.clone() * factors).sum().backward();
    NormResults {
        rows: values(rows),
        moving: [moving_mean, moving_variance].map(values),
        of_x: values(input.x.grad(&grads).expect("x should have a gradient")),
        of_bias: values(input.bias.grad(&grads).expect("the bias should have a gradient")),
        of_parameters: [input.gamma, input.beta]
            .map(|parameter| values(parameter.grad(&grads).expect("the parameters should have a gradient"))),
    }
}

/// Runs the op that is tested.
fn normalize_by_op(input: NormInput, relu: bool) -> BatchNormOutput {
    let NormInput { x, bias, gamma, beta, moving_mean, moving_variance } = input;
    let momentum = MOMENTUM;
    let epsilon = 1e-5;
    batch_norm(x, BatchNorm { bias, gamma, beta, moving_mean, moving_variance, momentum, epsilon, relu })
}

/// Runs Burn's batch normalisation.
fn normalize_by_burn(input: NormInput, relu: bool) -> BatchNormOutput {
    let out = module::batch_norm_train(input.x + input.bias.unsqueeze(), input.gamma, input.beta, 1e-5);
    let moved = |old: Tensor<1>, new: Tensor<1>| old * (1.0 - MOMENTUM) + new * MOMENTUM;
    BatchNormOutput {
        rows: if relu { burn::tensor::activation::relu(out.output) } else { out.output },
        moving_mean: moved(input.moving_mean, out.mean),
        moving_variance: moved(input.moving_variance, out.variance),
    }
}

/// Few rows, which are one chunk, and many, with and without vectors of four values, with gaps between rows, and with a last
/// chunk of few rows.
#[test]
fn batch_norm_equals_that_of_burn_on_the_cpu() {
    for (shape, n_gaps) in
        [([1, 4], 0), ([7, 3], 0), ([700, 9], 0), ([700, 12], 4), ([5000, 100], 0), ([66_000, 4], 0)]
    {
        for relu in [false, true] {
            println!("{shape:?}, {n_gaps} columns between rows, relu {relu}");
            let expected = normalized(&Device::flex(), shape, n_gaps, |input| normalize_by_burn(input, relu));
            let got = normalized(&device(), shape, n_gaps, |input| normalize_by_op(input, relu));
            check_close(&got.rows, &expected.rows, 2e-4);
            for (got, expected) in got.moving.iter().zip(&expected.moving) {
                check_close(got, expected, 1e-5);
            }
            check_close(&got.of_x, &expected.of_x, 2e-4);
            // Burn's gradient of the bias is a sum of numbers that cancel.
            assert_eq!(got.of_bias, vec![0.0; shape[1]]);
            // These are sums over all rows.
            let tolerance = 2e-4 * (shape[0] as f32 / 700.0).max(1.0);
            for (got, expected) in got.of_parameters.iter().zip(&expected.of_parameters) {
                check_close(got, expected, tolerance);
            }
        }
    }
}

/// Returns the moving variance of one column after a step that keeps nothing of the old one.
fn variance_of(x: Vec<f32>) -> f32 {
    let device = device();
    let n_rows = x.len();
    let x = Tensor::<2>::from_data(TensorData::new(x, [n_rows, 1]), &device);
    let zeros = || Tensor::<1>::zeros([1], &device);
    let norm = BatchNorm {
        bias: zeros(),
        gamma: Tensor::ones([1], &device),
        beta: zeros(),
        moving_mean: zeros(),
        moving_variance: zeros(),
        momentum: 1.0,
        epsilon: 1e-5,
        relu: false,
    };
    values(batch_norm(x, norm).moving_variance)[0]
}

/// The mean exceeds the deviation 10,000 times: a variance from sums of squares would have no correct digit. There are several
/// chunks, and their means differ.
#[test]
fn variances_of_large_values_are_accurate() {
    let value = |row: usize| 10_000.0 + (row % 7) as f32 * 0.5 + (row / 2500) as f32;
    let x: Vec<f32> = (0..20_000).map(value).collect();
    let n_rows = x.len() as f64;
    let mean = x.iter().map(|value| f64::from(*value)).sum::<f64>() / n_rows;
    let variance = x.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum::<f64>() / n_rows;
    check_close(&[variance_of(x)], &[variance as f32], 5e-3);
    assert!(variance_of(vec![2e19; 30]).is_finite(), "the squares of the values would overflow");
}

#[test]
fn a_batch_norm_with_relu_is_one_op_in_each_pass() {
    let launches = launches_of(|| {
        normalized(&device(), [5000, 12], 0, |input| normalize_by_op(input, true));
    });
    let expected = if is_cpu(&device()) {
        Launches { direct: 0, reference: 2 }
    } else {
        Launches { direct: 2, reference: 0 }
    };
    assert_eq!(launches, expected);
}

#[test]
fn gradients_of_batch_norm_match_finite_differences() {
    let device = device();
    let x: Tensor<2> = ramp([7, 3], &device);
    let parameter = |plus: f64| ramp::<1>([3], &device) + plus;
    let rows = |x: Tensor<2>, gamma: Tensor<1>, beta: Tensor<1>| {
        let [bias, moving_mean, moving_variance] = [0.3, 0.0, 1.0].map(|plus| parameter(plus).autodiff());
        let momentum = 0.1;
        let epsilon = 0.1;
        let norm =
            BatchNorm { bias, gamma, beta, moving_mean, moving_variance, momentum, epsilon, relu: false };
        batch_norm(x, norm).rows
    };
    let gamma = parameter(1.5);
    let beta = parameter(0.0);
    check_gradient(x.clone(), |x| rows(x, gamma.clone().autodiff(), beta.clone().autodiff()));
    check_gradient(gamma.clone(), |gamma| rows(x.clone().autodiff(), gamma, beta.clone().autodiff()));
    check_gradient(beta.clone(), |beta| rows(x.clone().autodiff(), gamma.clone().autodiff(), beta));
}

#[test]
#[should_panic(expected = "the row is [1, 4], expected [1, 5] or [1, 1]")]
fn rejects_a_row_of_another_width() {
    let _ = ops::add_row(ramp([3, 5], &device()), ramp([1, 4], &device()));
}

#[test]
#[should_panic(expected = "x has no rows")]
fn rejects_a_batch_norm_without_rows() {
    let device = device();
    let row = || ramp::<1>([2], &device);
    let norm = BatchNorm {
        bias: row(),
        gamma: row(),
        beta: row(),
        moving_mean: row(),
        moving_variance: row(),
        momentum: 0.1,
        epsilon: 1e-5,
        relu: false,
    };
    let _ = batch_norm(Tensor::zeros([0, 2], &device), norm);
}
