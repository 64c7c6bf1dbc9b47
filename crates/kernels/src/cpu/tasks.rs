//! Parallel loops over the values of one array.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use crate::cpu::cost;

/// Calls `change(start, chunk)` for chunks of whole rows that cover all values, on rayon's threads if that is faster.
/// `value_ns` is the time of a value, one of the constants of [`cost`]. A width of 0 is the same as 1.
pub(super) fn in_tasks<T: Send>(
    values: &mut [T],
    width: usize,
    value_ns: f64,
    change: impl Fn(usize, &mut [T]) + Sync,
) {
    let width = width.max(1);
    let row_ns = width as f64 * value_ns;
    let task_values = cost::task_rows(row_ns) * width;
    if !cost::is_parallel(values.len() as f64 * value_ns, task_values as f64 * value_ns) {
        return change(0, values);
    }
    let tasks = values.par_chunks_mut(task_values).enumerate();
    tasks.for_each(|(task, values)| change(task * task_values, values));
}

/// Returns the sum of the `n` arrays that `compute(i, array)` writes to an empty vector, or an empty vector if `n` is 0.
/// They have equal lengths and are added in order, so the sum is bit-identical for any number of threads.
///
/// An array is added as soon as those before it are, and its memory is then used for the next one. So there are little more
/// arrays than threads, and each is likely to be in a cache of its thread.
pub(super) fn sum_in_order(
    n: usize,
    is_parallel: bool,
    compute: impl Fn(usize, &mut Vec<f32>) + Sync,
) -> Vec<f32> {
    let next = AtomicUsize::new(0);
    let sum = Mutex::new(OrderedSum::default());
    let work = |_| {
        let mut array = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if n <= i {
                break;
            }
            array.clear();
            compute(i, &mut array);
            array = sum.lock().unwrap_or_else(PoisonError::into_inner).add(i, array);
        }
    };
    match is_parallel {
        true => (0..rayon::current_num_threads().min(n)).into_par_iter().for_each(work),
        false => work(0),
    }
    sum.into_inner().unwrap_or_else(PoisonError::into_inner).sum
}

/// The sum of the first arrays of a sequence, and later arrays that wait for their turn.
#[derive(Default)]
struct OrderedSum {
    sum: Vec<f32>,
    n_added: usize,
    waiting: BTreeMap<usize, Vec<f32>>,
    /// Arrays whose memory can be used again.
    unused: Vec<Vec<f32>>,
}

impl OrderedSum {
    /// Adds array `i`, or keeps it until the arrays before it are added. Returns an array that is no longer needed.
    fn add(&mut self, i: usize, array: Vec<f32>) -> Vec<f32> {
        if i != self.n_added {
            self.waiting.insert(i, array);
            return self.unused.pop().unwrap_or_default();
        }
        let unused = self.add_next(array);
        while let Some(array) = self.waiting.remove(&self.n_added) {
            let unused = self.add_next(array);
            self.unused.push(unused);
        }
        unused
    }

    fn add_next(&mut self, array: Vec<f32>) -> Vec<f32> {
        self.n_added += 1;
        if self.n_added == 1 {
            return std::mem::replace(&mut self.sum, array);
        }
        add(&mut self.sum, &array);
        array
    }
}

/// Adds each value to the sum at its position.
pub(super) fn add(sums: &mut [f32], values: &[f32]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}

#[cfg(test)]
mod tests {
    use rayon::ThreadPoolBuilder;

    use super::*;

    /// Values of different magnitudes, whose sum depends on the order.
    fn array(i: usize, out: &mut Vec<f32>) {
        assert!(out.is_empty());
        out.extend((0..3).map(|column| 3.0_f32.powi((i * 7 % 11) as i32 - 5 + column)));
    }

    #[test]
    fn arrays_are_added_in_order_on_any_number_of_threads() {
        let mut expected = Vec::new();
        let mut values = Vec::new();
        array(0, &mut expected);
        for i in 1..200 {
            values.clear();
            array(i, &mut values);
            add(&mut expected, &values);
        }
        for n_threads in [1, 2, 5] {
            let pool = ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            assert_eq!(pool.install(|| sum_in_order(200, true, array)), expected, "{n_threads} threads");
        }
        assert_eq!(sum_in_order(200, false, array), expected);
    }

    #[test]
    fn arrays_wait_for_those_before_them() {
        let of = |i| {
            let mut values = Vec::new();
            array(i, &mut values);
            values
        };
        let mut sum = OrderedSum::default();
        for i in [2, 3, 0, 1, 5, 4] {
            sum.add(i, of(i));
        }
        assert_eq!((sum.sum, sum.n_added, sum.unused.len()), (sum_in_order(6, false, array), 6, 2));
    }

    #[test]
    fn one_array_is_the_sum_with_its_signs_and_no_array_is_empty() {
        let sum = sum_in_order(1, true, |_, out| out.push(-0.0));
        assert_eq!(sum.iter().map(|value| value.to_bits()).collect::<Vec<_>>(), [(-0.0_f32).to_bits()]);
        assert!(sum_in_order(0, true, array).is_empty());
    }
}
