//! Loops over the values of one array, in tasks.

use rayon::prelude::*;

/// Calls `change` with parts of the values, `task_values` of them and fewer at the end, on rayon's threads, and with
/// where each part starts. Work for one task stays in the calling thread: to wake another takes as long as the work.
pub(super) fn in_tasks(values: &mut [f32], task_values: usize, change: impl Fn(usize, &mut [f32]) + Sync) {
    if values.len() <= task_values {
        return change(0, values);
    }
    let tasks = values.par_chunks_mut(task_values).enumerate();
    tasks.for_each(|(task, values)| change(task * task_values, values));
}
