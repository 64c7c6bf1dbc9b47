use std::io::Write;

use super::*;

/// Returns the value rounded to bf16 as `vcvtneps2bf16` does: to nearest even, with subnormal values as 0.
fn rounded(value: f32) -> f32 {
    let bits = value.to_bits();
    if value.is_nan() {
        return f32::from_bits((bits | 1 << 22) & 0xffff_0000);
    }
    let is_subnormal = value.abs() < f32::MIN_POSITIVE;
    let bits = if is_subnormal { bits & 1 << 31 } else { bits + 0x7fff + (bits >> 16 & 1) };
    f32::from_bits(bits & 0xffff_0000)
}

/// Returns the value, or 0 with its sign if it is subnormal.
fn flushed(value: f32) -> f32 {
    if value.abs() < f32::MIN_POSITIVE { 0.0_f32.copysign(value) } else { value }
}

/// Adds the products of two pairs to a sum as `vdpbf16ps` does: the second product first.
fn add_pair(sum: f32, left: [f32; 2], right: [f32; 2]) -> f32 {
    let sum = flushed(left[1].mul_add(right[1], flushed(sum)));
    flushed(left[0].mul_add(right[0], sum))
}

/// Adds the product of a row and a column to `start`, pair by pair.
fn chain(start: f32, inner: usize, left: impl Fn(usize) -> f32, right: impl Fn(usize) -> f32) -> f32 {
    let pair = |k: usize, at: &dyn Fn(usize) -> f32| {
        [rounded(at(k)), if k + 1 < inner { rounded(at(k + 1)) } else { 0.0 }]
    };
    (0..inner).step_by(2).fold(start, |sum, k| add_pair(sum, pair(k, &left), pair(k, &right)))
}

/// Computes `start + left * right` of row-major matrices.
fn reference(start: &[f32], left: &[f32], right: &[f32], [n, inner, m]: [usize; 3]) -> Vec<f32> {
    let cell =
        |i: usize, j: usize| chain(start[i * m + j], inner, |k| left[i * inner + k], |k| right[k * m + j]);
    (0..n * m).map(|at| cell(at / m, at % m)).collect()
}

/// Irregular values of several magnitudes and both signs.
fn values(n: usize, seed: u32) -> Vec<f32> {
    let of = |i: u32| {
        let word = (i ^ seed.rotate_left(13)).wrapping_mul(2_654_435_769);
        (word as f32 / 2_147_483_648.0 - 1.0) * 2.0_f32.powi((word >> 7) as i32 % 9 - 4)
    };
    (0..n as u32).map(of).collect()
}

fn transposed(values: &[f32], [n_rows, n_columns]: [usize; 2]) -> Vec<f32> {
    (0..n_rows * n_columns).map(|at| values[at % n_rows * n_columns + at / n_rows]).collect()
}

fn is_same(got: &[f32], expected: &[f32]) -> bool {
    let is_same = |(got, expected): (&f32, &f32)| {
        got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan()
    };
    got.len() == expected.len() && got.iter().zip(expected).all(is_same)
}

/// Returns true if the processor has the instructions; otherwise prints that the test was skipped.
fn has_instructions() -> bool {
    if !has_bf16_products() {
        // The test harness captures the output of `println!`.
        writeln!(std::io::stdout(), "kiln-skip: cpu: products in bf16: a processor without AVX512-BF16")
            .unwrap();
    }
    has_bf16_products()
}

fn panels(right: Matrix<'_>) -> Panels {
    // SAFETY: the tests return at once on processors without the instructions.
    unsafe { Panels::new(right) }
}

fn product(left: Matrix<'_>, panels: &Panels, out: &mut [f32], start: Start<'_>) {
    // SAFETY: initialised floats are valid as `MaybeUninit`, and only initialised floats are written.
    let out = unsafe { &mut *(std::ptr::from_mut(out) as *mut [MaybeUninit<f32>]) };
    panels.multiply(out, left, start);
}

/// Ragged shapes `[n_rows, inner, n_columns]`: all heights and widths of tiles, odd inner dimensions, several blocks.
const SHAPES: [[usize; 3]; 10] = [
    [1, 1, 1],
    [5, 3, 9],
    [6, 8, 64],
    [7, 31, 16],
    [12, 33, 17],
    [13, 64, 47],
    [25, 100, 65],
    [97, 128, 40],
    [200, 47, 130],
    [193, 1433, 8],
];

#[test]
fn products_equal_the_reference_bit_for_bit() {
    if !has_instructions() {
        return;
    }
    for [n, inner, m] in SHAPES.into_iter().chain([[0, 4, 3]]) {
        let (left, right) = (values(n * inner, 1), values(inner * m, 2));
        let (row, sum) = (values(m, 3), values(n * m, 4));
        let rows: Vec<f32> = row.iter().copied().cycle().take(n * m).collect();
        let of_columns = transposed(&right, [inner, m]);
        let views = [Matrix::new(&right, [inner, m]), Matrix::new(&of_columns, [m, inner]).transposed()];
        for right_panels in views.map(panels) {
            for (start, base) in
                [(Start::Nothing, &vec![0.0; n * m]), (Start::Row(&row), &rows), (Start::There, &sum)]
            {
                let mut out = sum.clone();
                product(Matrix::new(&left, [n, inner]), &right_panels, &mut out, start);
                let expected = reference(base, &left, &right, [n, inner, m]);
                assert!(is_same(&out, &expected), "{n} x {inner} x {m}, {start:?}");
            }
        }
    }
}

#[test]
fn transposed_products_equal_the_reference_bit_for_bit() {
    if !has_instructions() {
        return;
    }
    for [d_in, n, d_out] in SHAPES.into_iter().chain([[4, 0, 3]]) {
        let (x, grad) = (values(n * d_in, 5), values(n * d_out, 6));
        let mut got = Vec::new();
        // SAFETY: the processor has the instructions.
        unsafe { sum_of_chunks(&mut got, Matrix::new(&x, [n, d_in]), Matrix::new(&grad, [n, d_out])) };
        let expected =
            reference(&vec![0.0; d_in * d_out], &transposed(&x, [n, d_in]), &grad, [d_in, n, d_out]);
        assert!(is_same(&got, &expected), "{d_in} x {n} x {d_out}");
    }
}

#[test]
fn special_values_are_those_of_the_reference() {
    if !has_instructions() {
        return;
    }
    let special = [
        f32::NAN,
        -f32::NAN,
        f32::from_bits(0x7f80_0001),
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        f32::MIN_POSITIVE,
        f32::MIN_POSITIVE / 3.0,
        -f32::MIN_POSITIVE / 3.0,
        1e-20,
        -0.0,
        1.0 + 2.0_f32.powi(-8),
        1.0 + 3.0 * 2.0_f32.powi(-8),
    ];
    let (n, m) = (special.len(), special.len());
    // Each pair of special values is multiplied in both positions of a pair, and added to each summand.
    let left: Vec<f32> = special.iter().flat_map(|&value| [value, 1.0, -2.0, value]).collect();
    for summand in special {
        let right = [special.to_vec(), vec![1.0; m], vec![0.5; m], special.to_vec()].concat();
        let mut out = vec![summand; n * m];
        let expected = reference(&out, &left, &right, [n, 4, m]);
        product(Matrix::new(&left, [n, 4]), &panels(Matrix::new(&right, [4, m])), &mut out, Start::There);
        assert!(is_same(&out, &expected), "{summand}: {out:?}, expected {expected:?}");
    }
}

/// A value that is not a number must reach the result, in every position and also in the padding's neighbourhood.
#[test]
fn nan_spreads_to_its_row_only() {
    if !has_instructions() {
        return;
    }
    let (n, inner, m) = (14, 9, 20);
    let right = panels(Matrix::new(&values(inner * m, 1), [inner, m]));
    for at in 0..n * inner {
        let mut left = values(n * inner, 2);
        left[at] = f32::NAN;
        let mut out = vec![0.0; n * m];
        product(Matrix::new(&left, [n, inner]), &right, &mut out, Start::Nothing);
        assert!(out.iter().enumerate().all(|(place, value)| value.is_nan() == (place / m == at / inner)));
    }
}

#[test]
#[should_panic(expected = "the inner dimensions of a product differ")]
fn rejects_a_product_with_different_inner_dimensions() {
    if !has_instructions() {
        panic!("the inner dimensions of a product differ");
    }
    let right = panels(Matrix::new(&[0.0; 80], [8, 10]));
    product(Matrix::new(&[0.0; 20], [2, 10]), &right, &mut [0.0; 20], Start::Nothing);
}
