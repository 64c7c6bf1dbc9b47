use kiln_sample::RngKey;

use crate::cpu::tasks::in_tasks;
use crate::cpu::vector;
use crate::ops::keep::Keep;

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
    mask_rows(values, width, nodes, |_| (), key, keep);
}

/// ReLU, then the mask, in place. Nodes are not read where nothing is dropped.
pub(super) fn relu_dropout(values: &mut [f32], width: usize, nodes: &[u32], key: RngKey, keep: Keep) {
    match keep.is_everything() {
        true => in_tasks(values, PLAIN_TASK_VALUES, |_, values| relu(values)),
        false => mask_rows(values, width, nodes, relu, key, keep),
    }
}

#[inline(always)]
fn relu(values: &mut [f32]) {
    for value in values {
        // Written so that what is not a number stays so.
        *value = if *value <= 0.0 { 0.0 } else { *value };
    }
}

/// Multiplies the gradient by the scale where the output is not zero, and by 0 elsewhere, in place.
pub(super) fn relu_dropout_adjoint(output: &[f32], grad: &mut [f32], keep: Keep) {
    let scale = keep.scale();
    in_tasks(grad, PLAIN_TASK_VALUES, |start, grad| {
        for (grad, output) in grad.iter_mut().zip(&output[start..]) {
            // As bits, so that the compiler makes no branch of it: half the values take it either way, and what the
            // processor guessed wrong was a tenth of a training step.
            let mask = u32::from(*output <= 0.0).wrapping_sub(1);
            *grad = f32::from_bits((*grad * scale).to_bits() & mask);
        }
    });
}

/// Changes each row by `before`, then masks it.
fn mask_rows(
    values: &mut [f32],
    width: usize,
    nodes: &[u32],
    before: impl Fn(&mut [f32]) + Copy + Sync,
    key: RngKey,
    keep: Keep,
) {
    if width == 0 {
        return;
    }
    let n_rows = (TASK_VALUES / width).max(1);
    in_tasks(values, n_rows * width, |start, values| {
        let nodes = &nodes[start / width..];
        vector::run(MaskRows { values, width, nodes, before, key, keep });
    });
}

/// It draws whole numbers and multiplies by one number, so that all instructions give the same bits.
struct MaskRows<'a, B> {
    values: &'a mut [f32],
    width: usize,
    /// Of these rows, and perhaps of later ones.
    nodes: &'a [u32],
    before: B,
    key: RngKey,
    keep: Keep,
}

impl<B: Fn(&mut [f32])> vector::Task for MaskRows<'_, B> {
    #[inline(always)]
    fn run(self) {
        for (row, &node) in self.values.chunks_exact_mut(self.width).zip(self.nodes) {
            (self.before)(row);
            mask_row(row, node, self.key, self.keep);
        }
    }
}

#[inline(always)]
fn mask_row(row: &mut [f32], node: u32, key: RngKey, keep: Keep) {
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
