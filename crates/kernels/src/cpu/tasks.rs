//! Parallel loops over the values of one array.

use rayon::prelude::*;

/// Calls `change(start, chunk)` on rayon's threads for each chunk of `task_values` values; the last one may be shorter.
/// A single chunk runs in the calling thread, because waking another would take as long as the work.
pub(super) fn in_tasks(values: &mut [f32], task_values: usize, change: impl Fn(usize, &mut [f32]) + Sync) {
    if values.len() <= task_values {
        return change(0, values);
    }
    let tasks = values.par_chunks_mut(task_values).enumerate();
    tasks.for_each(|(task, values)| change(task * task_values, values));
}
