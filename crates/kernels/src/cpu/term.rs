//! The terms of sums: what an item's row contributes to the sum of a row.

use std::fmt::Debug;

use crate::cpu::rows::Rows;

/// A function of an item's row and of the row whose sum is computed, value by value.
pub(super) trait Term: Debug + Copy + Sync {
    /// Returns the contributions of `N` values of an item's row, which start at a column, to the sum of row `row`.
    fn of<const N: usize>(self, row: usize, column: usize, values: &[f32; N]) -> [f32; N];
}

/// The values of the item's row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Values;

/// The leaky ReLU of the item's row plus the row of this matrix.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeakySum<'a> {
    pub(super) rows: Rows<'a>,
    pub(super) slope: f32,
}

/// The derivative of [`LeakySum`].
#[derive(Debug, Clone, Copy)]
pub(super) struct SlopeOfSum<'a> {
    pub(super) rows: Rows<'a>,
    pub(super) slope: f32,
}

impl Term for Values {
    #[inline(always)]
    fn of<const N: usize>(self, _: usize, _: usize, values: &[f32; N]) -> [f32; N] {
        *values
    }
}

impl Term for LeakySum<'_> {
    #[inline(always)]
    fn of<const N: usize>(self, row: usize, column: usize, values: &[f32; N]) -> [f32; N] {
        let own = self.rows.chunk::<N>(row, column);
        std::array::from_fn(|i| leaky_relu(values[i] + own[i], self.slope))
    }
}

impl Term for SlopeOfSum<'_> {
    #[inline(always)]
    fn of<const N: usize>(self, row: usize, column: usize, values: &[f32; N]) -> [f32; N] {
        let own = self.rows.chunk::<N>(row, column);
        std::array::from_fn(|i| if values[i] + own[i] <= 0.0 { self.slope } else { 1.0 })
    }
}

/// The leaky ReLU with this slope below 0.
#[inline(always)]
pub(super) fn leaky_relu(value: f32, slope: f32) -> f32 {
    if value <= 0.0 { slope * value } else { value }
}
