//! The least time for reading rows in the order in which a bench reads them.

use std::hint::black_box;

use kiln_mem::{prefetch_range, prefetch_range_far};
use pulp::{Arch, Simd, WithSimd};

use crate::ceilings::best_rate;

/// The ways to prefetch rows: into the first-level or the second-level cache, this number of rows ahead.
const WAYS: [(Ask, usize); 5] =
    [(Ask::Nothing, 0), (Ask::Near, 4), (Ask::Near, 8), (Ask::Far, 16), (Ask::Far, 48)];

#[derive(Clone, Copy)]
enum Ask {
    Nothing,
    Near,
    Far,
}

/// Returns the seconds for reading the rows `order` of `values`, which have `dim` columns, and adding them up in registers,
/// on `n_threads` threads, each with an equal part of the order. It is the best of several passes with each way to
/// prefetch.
///
/// In contrast to a ceiling of random rows, rows that are read again come from a cache as they do in the bench.
pub fn seconds_to_read_rows(values: &[f32], dim: usize, order: &[u32], n_threads: usize) -> f64 {
    let per_thread = order.len().div_ceil(n_threads).max(1);
    let passes_per_second = WAYS.iter().map(|&(ask, ahead)| {
        best_rate(n_threads, 1, |thread| {
            let order = order.chunks(per_thread).nth(thread).unwrap_or_default();
            move || {
                black_box(Arch::new().dispatch(ReadRows { values, dim, order, ask, ahead }));
            }
        })
    });
    1.0 / passes_per_second.fold(0.0, f64::max)
}

struct ReadRows<'a> {
    values: &'a [f32],
    dim: usize,
    order: &'a [u32],
    ask: Ask,
    ahead: usize,
}

impl WithSimd for ReadRows<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        let Self { values, dim, order, ask, ahead } = self;
        let start = |position: usize| order[position.min(order.len() - 1)] as usize * dim;
        let mut sums = [simd.splat_f32s(0.0); 4];
        for position in 0..order.len() {
            match ask {
                Ask::Nothing => (),
                Ask::Near => prefetch_range(values, start(position + ahead), dim),
                Ask::Far => prefetch_range_far(values, start(position + ahead), dim),
            }
            let (vectors, _) = S::as_simd_f32s(&values[start(position)..][..dim]);
            for (number, vector) in vectors.iter().enumerate() {
                sums[number % 4] = simd.add_f32s(sums[number % 4], *vector);
            }
        }
        sums.into_iter().map(|sum| simd.reduce_sum_f32s(sum)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_reads_each_row_of_the_order() {
        // The values of a row sum to 128 times its number.
        let values: Vec<f32> = (0..1000 * 128).map(|at| (at / 128) as f32).collect();
        let order: Vec<u32> = (0..300).map(|at| at * 7919 % 1000).collect();
        let expected = 128 * order.iter().sum::<u32>();
        for (ask, ahead) in WAYS {
            let read = ReadRows { values: &values, dim: 128, order: &order, ask, ahead };
            assert_eq!(Arch::new().dispatch(read), expected as f32);
        }
        for order in [&order[..], &[]] {
            let seconds = seconds_to_read_rows(&values, 128, order, 2);
            assert!(seconds.is_finite() && 0.0 <= seconds, "{seconds}");
        }
    }
}
