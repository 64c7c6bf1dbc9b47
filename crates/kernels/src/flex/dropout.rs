use kiln_sample::RngKey;
use rayon::prelude::*;

use crate::ops::Keep;

/// Groups of four draws that are made at once.
const GROUPS: usize = 16;

/// Columns that they serve.
const COLUMNS: usize = 4 * GROUPS;

/// Values that a task works on where masks are drawn.
const TASK_VALUES: usize = 1 << 15;

/// Values that a task works on otherwise: 20 to 30 µs, so that what wakes another thread is worth it.
const PLAIN_TASK_VALUES: usize = 1 << 17;

/// Multiplies each row's values by 0 or by the scale, as the draw of the row's node and column says, in
/// place.
pub(super) fn dropout(values: &mut [f32], width: usize, nodes: &[u32], key: RngKey, keep: Keep) {
    for_each_row(values, width, nodes, |row, node| mask_row(row, node, key, keep));
}

/// ReLU, then the mask, in place. Nodes are not read where nothing is dropped.
pub(super) fn relu_dropout(values: &mut [f32], width: usize, nodes: &[u32], key: RngKey, keep: Keep) {
    if keep.is_everything() {
        return match values.len() {
            // Work for one task does not wake another thread for it.
            n if n <= PLAIN_TASK_VALUES => relu(values),
            _ => values.par_chunks_mut(PLAIN_TASK_VALUES).for_each(relu),
        };
    }
    for_each_row(values, width, nodes, |row, node| {
        relu(row);
        mask_row(row, node, key, keep);
    });
}

fn relu(values: &mut [f32]) {
    for value in values {
        // Written so that what is not a number stays so.
        *value = if *value <= 0.0 { 0.0 } else { *value };
    }
}

/// Calls `change` with each row and its node, on rayon's threads.
fn for_each_row(values: &mut [f32], width: usize, nodes: &[u32], change: impl Fn(&mut [f32], u32) + Sync) {
    if width == 0 {
        return;
    }
    let n_rows = (TASK_VALUES / width).max(1);
    let tasks = values.par_chunks_mut(n_rows * width).zip(nodes.par_chunks(n_rows));
    tasks.for_each(|(rows, nodes)| {
        for (row, &node) in rows.chunks_exact_mut(width).zip(nodes) {
            change(row, node);
        }
    });
}

/// Multiplies the gradient by the scale where the output is not zero, and by 0 elsewhere, in place.
pub(super) fn relu_dropout_adjoint(output: &[f32], grad: &mut [f32], keep: Keep) {
    let scale = keep.scale();
    let change = |grad: &mut [f32], output: &[f32]| {
        for (grad, output) in grad.iter_mut().zip(output) {
            // As bits, so that the compiler makes no branch of it: half the values take it either way, and what the
            // processor guessed wrong was a tenth of a training step.
            let mask = u32::from(*output <= 0.0).wrapping_sub(1);
            *grad = f32::from_bits((*grad * scale).to_bits() & mask);
        }
    };
    if grad.len() <= PLAIN_TASK_VALUES {
        return change(grad, output);
    }
    let tasks = grad.par_chunks_mut(PLAIN_TASK_VALUES).zip(output.par_chunks(PLAIN_TASK_VALUES));
    tasks.for_each(|(grad, output)| change(grad, output));
}

fn mask_row(row: &mut [f32], node: u32, key: RngKey, keep: Keep) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        return unsafe { mask_row_avx2(row, node, key, keep) };
    }
    mask_row_anywhere(row, node, key, keep);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn mask_row_avx2(row: &mut [f32], node: u32, key: RngKey, keep: Keep) {
    mask_row_anywhere(row, node, key, keep);
}

/// The same source for every set of instructions: it draws whole numbers and multiplies by one number,
/// so that the results are the same too.
#[inline(always)]
fn mask_row_anywhere(row: &mut [f32], node: u32, key: RngKey, keep: Keep) {
    for (batch, values) in row.chunks_mut(COLUMNS).enumerate() {
        let words = key.draw_groups::<GROUPS>(0, node, (batch * GROUPS) as u32);
        let factors = words.map(|words| words.map(|word| keep.scale_of(word)));
        for (group, values) in values.chunks_mut(4).enumerate() {
            for (value, factors) in values.iter_mut().zip(&factors) {
                *value *= factors[group];
            }
        }
    }
}
