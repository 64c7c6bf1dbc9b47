use kiln_mem::vector;
use kiln_sample::RngKey;

use crate::cpu::cost::{EXP_NS, MASK_NS, PASS_NS};
use crate::cpu::tasks::in_tasks;
use crate::ops::keep::Keep;

/// The number of groups of four draws that are computed together.
const GROUPS: usize = 16;

/// The number of columns that [`GROUPS`] groups of draws cover.
const COLUMNS: usize = 4 * GROUPS;

/// Multiplies each value in place by 0 or by the scale, depending on the draw of the row's node and the column.
pub(super) fn dropout(values: &mut [f32], width: usize, nodes: &[u32], key: RngKey, keep: Keep) {
    mask_rows(values, width, nodes, |_| (), key, keep);
}

/// Applies ReLU and then the mask, in place. If nothing is dropped, `nodes` is not read.
pub(super) fn relu_dropout(values: &mut [f32], width: usize, nodes: &[u32], key: RngKey, keep: Keep) {
    match keep.is_everything() {
        true => in_tasks(values, 1, PASS_NS, |_, values| relu(values)),
        false => mask_rows(values, width, nodes, relu, key, keep),
    }
}

#[inline(always)]
fn relu(values: &mut [f32]) {
    for value in values {
        // The comparison is false for NaN, so that NaN stays NaN.
        *value = if *value <= 0.0 { 0.0 } else { *value };
    }
}

/// Multiplies the gradient by the scale in place, and sets it to 0 where the output is at most 0.
pub(super) fn relu_dropout_adjoint(output: &[f32], grad: &mut [f32], keep: Keep) {
    let scale = keep.scale();
    in_tasks(grad, 1, PASS_NS, |start, grad| {
        for (grad, output) in grad.iter_mut().zip(&output[start..]) {
            // Masking the bits prevents the compiler from emitting a branch, which would be mispredicted for about half
            // of the values.
            let mask = u32::from(*output <= 0.0).wrapping_sub(1);
            *grad = f32::from_bits((*grad * scale).to_bits() & mask);
        }
    });
}

/// Applies the exponential linear unit in place.
pub(super) fn elu(values: &mut [f32]) {
    in_tasks(values, 1, EXP_NS, |_, values| {
        for value in values {
            *value = if *value < 0.0 { value.exp() - 1.0 } else { *value };
        }
    });
}

/// Multiplies the gradient in place by the derivative of the exponential linear unit, which follows from its output.
pub(super) fn elu_adjoint(output: &[f32], grad: &mut [f32]) {
    in_tasks(grad, 1, PASS_NS, |start, grad| {
        for (grad, output) in grad.iter_mut().zip(&output[start..]) {
            *grad *= output.min(0.0) + 1.0;
        }
    });
}

/// Applies `before` to each row, then masks it.
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
    // Masks are drawn for all columns of a group, also those that a narrow row does not have.
    let value_ns = MASK_NS * width.next_multiple_of(COLUMNS) as f64 / width as f64;
    in_tasks(values, width, value_ns, |start, values| {
        let nodes = &nodes[start / width..];
        vector::run(MaskRows { values, width, nodes, before, key, keep });
    });
}

/// The loop that masks rows. It draws integers and multiplies each value by one number, so its results are
/// bit-identical on all instruction sets.
struct MaskRows<'a, B> {
    values: &'a mut [f32],
    width: usize,
    /// The nodes of the rows, possibly followed by the nodes of later rows.
    nodes: &'a [u32],
    before: B,
    key: RngKey,
    keep: Keep,
}

impl<B: Fn(&mut [f32])> vector::VectorTask for MaskRows<'_, B> {
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
