//! Parallel loops over the values of one array.

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
