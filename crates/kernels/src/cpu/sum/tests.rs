use super::*;
use crate::cpu::columns::{OverBases, PerBasis, PerHead};
use crate::cpu::fill::Filling;
use half::{bf16, f16};
use kiln_mem::vector;

/// Rows of 0, 3, 0, 1, 7 and 2 items out of nine, and one row with each of the nine twice.
const INDPTR: [i32; 8] = [0, 0, 3, 3, 4, 11, 13, 31];
const ITEMS: [i32; 31] =
    [8, 0, 3, 5, 1, 1, 7, 2, 0, 4, 6, 3, 3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8];

/// Factors of one type, so that the loops are compiled once for all of them.
type Factor<'a> = &'a (dyn Fn(usize, usize, usize) -> f32 + Sync);

/// The items whose rows are the own rows of the rows.
const OWN: [i32; 7] = [8, 2, 2, 0, 7, 5, 1];

fn numbers(n: usize) -> Vec<f32> {
    (0..n as u32).map(|i| (i.wrapping_mul(2_654_435_769) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
}

/// Computes the sum by its definition, for one row and column of the sums.
fn written_down<C: Columns, E: RowValue>(
    sum: &Sum<'_, Factor<'_>, C, Values, E>,
    row: usize,
    column: usize,
) -> f32 {
    let edges = sum.segments.of(row);
    let width = sum.columns.range_width(sum.x.width);
    let range = column / width;
    let from = sum.columns.first_column(range, sum.x.width) + column % width;
    let mut total = 0.0;
    for edge in edges.clone() {
        let item = sum.segments.items[edge] as usize;
        for term in 0..sum.columns.n_terms() {
            let value = sum.x.chunk::<1>(item, from + term * width)[0].widened();
            total += (sum.factor)(edge, item, range + term) * value;
        }
    }
    if sum.mean && !edges.is_empty() {
        total /= edges.len() as f32;
    }
    match sum.own {
        Own::Plus { rows, n_rows, weight } if row < n_rows => {
            total + weight * rows.chunk::<1>(row, column)[0].widened()
        }
        _ => total,
    }
}

/// Checks that a sum is bit-identical to its definition with each instruction set, with and without streaming
/// stores.
fn check<C: Columns, E: RowValue>(sum: &Sum<'_, Factor<'_>, C, Values, E>) {
    let (n_rows, width, n_before) = (INDPTR.len() - 1, sum.width(), sum.n_before());
    let mut expected = Vec::new();
    for row in 0..n_rows {
        let own = match sum.own {
            Own::Beside(rows) => rows.row(row, &(0..n_before)),
            Own::BesideOf { rows, items } => rows.row(items[row] as usize, &(0..n_before)),
            Own::Alone | Own::Plus { .. } => &[],
        };
        expected.extend(own.iter().map(|value| value.widened()));
        expected.extend((0..width - n_before).map(|column| written_down(sum, row, column)));
    }
    for streams in [false, true] {
        let mut results = Vec::new();
        let piece = Piece { rows: 0..n_rows, columns: 0..width };
        let fill = SumRows { sum: *sum, streams };
        let mut outs: Vec<Vec<MaybeUninit<f32>>> = vec![vec![MaybeUninit::new(9.0); n_rows * width]; 3];
        let mut none = [(); 3].map(|()| vec![MaybeUninit::new(()); n_rows * width]);
        let mut places = outs.iter_mut().zip(&mut none);
        let mut n_sets = 0;
        vector::run_with_each(|| {
            n_sets += 1;
            let (one, other) = places.next().expect("there should be at most three instruction sets");
            Filling { fill: &fill, piece: &piece, one, other }
        });
        for out in &outs[..n_sets] {
            // SAFETY: all elements were initialised when the vectors were created.
            results.push(out.iter().map(|value| unsafe { value.assume_init() }).collect::<Vec<f32>>());
        }
        for result in results {
            let name = format!("{:?}, width {}, {:?}", sum.columns, sum.x.width, sum.own);
            assert!(result == expected, "{name}, streams {streams}");
        }
    }
}

#[test]
fn sums_are_bit_identical_on_every_instruction_set() {
    check_widths(|value| value);
}

#[test]
fn sums_of_half_precision_rows_are_those_of_the_widened_rows() {
    check_widths(f16::from_f32);
    check_widths(bf16::from_f32);
}

/// Checks sums of rows whose values are rounded by `round`.
fn check_widths<E: RowValue>(round: impl Fn(f32) -> E) {
    let weights = numbers(ITEMS.len());
    let numbers = |n| numbers(n).into_iter().map(&round).collect::<Vec<E>>();
    let one: Factor<'_> = &|_, _, _| 1.0;
    let weight: Factor<'_> = &|edge, _, _| weights[edge];
    for d in (1..40).chain([47, 64, 100, 128, 129, 256, 602]) {
        let (x, pair) = (numbers(9 * d), numbers(9 * 2 * d));
        let segments = Segments { indptr: &INDPTR, items: &ITEMS };
        let (rows, right) = (Rows::new(&x, 0, d, d), Rows::new(&pair, d, d, 2 * d));
        let left = Rows::new(&pair, 0, d, 2 * d);
        let plus = Own::Plus { rows: left, n_rows: 4, weight: 0.3 };
        for own in [Own::Alone, Own::Beside(rows), Own::BesideOf { rows, items: &OWN }, plus] {
            check(&Sum { mean: true, own, ..Sum::new(segments, rows, one) });
            check(&Sum { own, ..Sum::new(segments, right, weight) });
        }
    }
}

#[test]
fn sums_with_several_weights_are_bit_identical_on_every_instruction_set() {
    let weights = numbers(3 * ITEMS.len());
    let weight: Factor<'_> = &|edge, _, k| weights[3 * edge + k];
    for d in [1, 3, 8, 17, 47, 64, 129] {
        let (x, left) = (numbers(9 * 3 * d), numbers(9 * 3 * d));
        let segments = Segments { indptr: &INDPTR, items: &ITEMS };
        let (rows, own) = (Rows::new(&x, 0, 3 * d, 3 * d), Rows::new(&left, 0, 3 * d, 3 * d));
        let plus = Own::Plus { rows: own, n_rows: 4, weight: 0.3 };
        let sum = Sum::new(segments, rows, weight);
        for own in [Own::Alone, Own::Beside(own), plus] {
            check(&Sum { mean: true, own, ..sum }.with_columns(PerHead(3)));
        }
        check(&Sum { own: Own::Beside(own), ..sum }.with_columns(PerBasis(3)));
        check(&Sum { own: plus, ..sum }.with_columns(OverBases(3)));
    }
}
