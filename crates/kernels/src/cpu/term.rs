//! The terms of sums: what an item's row contributes to the sum of a row.

use std::fmt::Debug;

use crate::cpu::rows::Rows;

/// A function of an item's row and of the row whose sum is computed, value by value.
pub(super) trait Term: Debug + Copy + Sync {
    /// Returns the contributions of `N` values of the row of the item at `position`, which start at a column, to the sum of
    /// row `row`.
    fn of<const N: usize>(self, row: usize, position: usize, column: usize, values: &[f32; N]) -> [f32; N];
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
    fn of<const N: usize>(self, _: usize, _: usize, _: usize, values: &[f32; N]) -> [f32; N] {
        *values
    }
}

impl Term for LeakySum<'_> {
    #[inline(always)]
    fn of<const N: usize>(self, row: usize, _: usize, column: usize, values: &[f32; N]) -> [f32; N] {
        let own = self.rows.chunk::<N>(row, column);
        std::array::from_fn(|i| leaky_relu(values[i] + own[i], self.slope))
    }
}

impl Term for SlopeOfSum<'_> {
    #[inline(always)]
    fn of<const N: usize>(self, row: usize, _: usize, column: usize, values: &[f32; N]) -> [f32; N] {
        let own = self.rows.chunk::<N>(row, column);
        std::array::from_fn(|i| if values[i] + own[i] <= 0.0 { self.slope } else { 1.0 })
    }
}

/// The ReLU of the item's row plus the row at the same position of this matrix.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReluOfEdge<'a> {
    pub(super) edge_rows: Rows<'a>,
}

/// The item's row where the row whose sum is computed, plus the row of the position's edge, is not below or at 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct WhereAboveZero<'a> {
    pub(super) rows: Rows<'a>,
    pub(super) edge_rows: Rows<'a>,
    /// The edge of each position.
    pub(super) edges: &'a [u32],
}

impl Term for ReluOfEdge<'_> {
    #[inline(always)]
    fn of<const N: usize>(self, _: usize, position: usize, column: usize, values: &[f32; N]) -> [f32; N] {
        let of_edge = self.edge_rows.chunk::<N>(position, column);
        std::array::from_fn(|i| relu(values[i] + of_edge[i]))
    }
}

impl Term for WhereAboveZero<'_> {
    #[inline(always)]
    fn of<const N: usize>(self, row: usize, position: usize, column: usize, values: &[f32; N]) -> [f32; N] {
        let own = self.rows.chunk::<N>(row, column);
        let of_edge = self.edge_rows.chunk::<N>(self.edges[position] as usize, column);
        std::array::from_fn(|i| if own[i] + of_edge[i] <= 0.0 { 0.0 } else { values[i] })
    }
}

/// The ReLU. A NaN stays NaN.
#[inline(always)]
fn relu(value: f32) -> f32 {
    if value <= 0.0 { 0.0 } else { value }
}

/// The leaky ReLU with this slope below 0.
#[inline(always)]
pub(super) fn leaky_relu(value: f32, slope: f32) -> f32 {
    if value <= 0.0 { slope * value } else { value }
}
