//! The terms of a sum over segments: what the row of an item contributes to the sum of a segment.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::launch::{self, Rows};

/// What the row of an item contributes, column by column, before it is multiplied by a factor. `own` is the row of the
/// segment in another matrix.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "a value exists only during a launch")]
pub(super) enum Term {
    /// The row.
    Row,
    /// The ReLU of the row plus the row of the position's edge in `edge_rows`.
    ReluOfEdge { edge_rows: Rows },
    /// The row where `own` plus the row of the position's edge in `edge_rows` is above 0, or NaN.
    WhereAboveZero { own: Rows, edge_rows: Rows },
    /// The leaky ReLU of `own` plus the row.
    Leaky { own: Rows, slope: f32 },
    /// The derivative of [`Term::Leaky`].
    LeakySlope { own: Rows, slope: f32 },
    /// The row where the item's row in `max_edges`, of i32, is the position's edge.
    WhereMax { max_edges: Rows },
    /// The exponential of the row minus `own`.
    ExpMinus { own: Rows },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum TermKind {
    Row,
    ReluOfEdge,
    WhereAboveZero,
    Leaky,
    LeakySlope,
    WhereMax,
    ExpMinus,
}

impl TermKind {
    fn reads_own(self) -> bool {
        matches!(self, Self::WhereAboveZero | Self::Leaky | Self::LeakySlope | Self::ExpMinus)
    }
}

/// The arrays and numbers of a term. A kernel needs all of them as arguments, so unused ones are arbitrary arrays. Strides are
/// in vectors.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Terms<F: Float, N: Size> {
    own: Box<[Vector<F, N>]>,
    edge_rows: Box<[Vector<F, N>]>,
    max_edges: Box<[Vector<i32, N>]>,
    own_stride: usize,
    edge_stride: usize,
    slope: f32,
}

/// Returns the row of a segment that the terms of its sum read, or zeros.
#[cube]
pub(super) fn own_row<F: Float, N: Size>(
    terms: &Terms<F, N>,
    segment: usize,
    column: usize,
    #[comptime] kind: TermKind,
) -> Vector<f32, N> {
    let mut own = Vector::<f32, N>::zeroed();
    if comptime!(kind.reads_own()) {
        own = Vector::cast_from(terms.own[segment * terms.own_stride + column]);
    }
    own
}

/// Returns what the row of an item contributes to the sum of a segment with the row `own`.
#[cube]
pub(super) fn term_of<F: Float, N: Size>(
    terms: &Terms<F, N>,
    row: Vector<f32, N>,
    own: Vector<f32, N>,
    item: usize,
    edge: usize,
    column: usize,
    #[comptime] kind: TermKind,
) -> Vector<f32, N> {
    let zero = Vector::<f32, N>::zeroed();
    match comptime!(kind) {
        TermKind::Row => row,
        TermKind::ReluOfEdge => {
            let sum = row + Vector::<f32, N>::cast_from(terms.edge_rows[edge * terms.edge_stride + column]);
            select_many(sum.less_equal(&zero), zero, sum)
        }
        TermKind::WhereAboveZero => {
            let sum = own + Vector::<f32, N>::cast_from(terms.edge_rows[edge * terms.edge_stride + column]);
            select_many(sum.less_equal(&zero), zero, row)
        }
        TermKind::Leaky => leaky::<N>(own + row, terms.slope),
        TermKind::LeakySlope => {
            let one = Vector::new(f32::new(1.0));
            select_many((own + row).less_equal(&zero), Vector::new(terms.slope), one)
        }
        TermKind::WhereMax => {
            let came_from = terms.max_edges[item * terms.edge_stride + column];
            select_many(came_from.equal(&Vector::new(edge as i32)), row, zero)
        }
        TermKind::ExpMinus => (row - own).exp(),
    }
}

/// The leaky ReLU.
#[cube]
pub(super) fn leaky<N: Size>(sum: Vector<f32, N>, slope: f32) -> Vector<f32, N> {
    let zero = Vector::<f32, N>::zeroed();
    select_many(sum.less_equal(&zero), sum * Vector::new(slope), sum)
}

impl Term {
    pub(super) fn kind(&self) -> TermKind {
        match self {
            Self::Row => TermKind::Row,
            Self::ReluOfEdge { .. } => TermKind::ReluOfEdge,
            Self::WhereAboveZero { .. } => TermKind::WhereAboveZero,
            Self::Leaky { .. } => TermKind::Leaky,
            Self::LeakySlope { .. } => TermKind::LeakySlope,
            Self::WhereMax { .. } => TermKind::WhereMax,
            Self::ExpMinus { .. } => TermKind::ExpMinus,
        }
    }

    /// Returns true if the term depends on the edge of a position.
    pub(super) fn reads_edges(&self) -> bool {
        matches!(self, Self::ReluOfEdge { .. } | Self::WhereAboveZero { .. } | Self::WhereMax { .. })
    }

    /// Returns the rows of the segments, those of the edges or, for [`Term::WhereMax`], of the items, and the slope.
    fn inputs(&self) -> (Option<&Rows>, Option<&Rows>, f32) {
        match self {
            Self::Row => (None, None, 0.0),
            Self::ReluOfEdge { edge_rows } => (None, Some(edge_rows), 0.0),
            Self::WhereAboveZero { own, edge_rows } => (Some(own), Some(edge_rows), 0.0),
            Self::Leaky { own, slope } | Self::LeakySlope { own, slope } => (Some(own), None, *slope),
            Self::WhereMax { max_edges } => (None, Some(max_edges), 0.0),
            Self::ExpMinus { own } => (Some(own), None, 0.0),
        }
    }

    /// Returns the largest vector size in which the rows can be read, in ranges of `width` columns; `None` without rows.
    pub(super) fn vector_size(&self, width: usize) -> Option<usize> {
        let (own, of_edges, _) = self.inputs();
        own.into_iter().chain(of_edges).map(|rows| rows.vector_size(&[width])).min()
    }

    pub(super) fn arrays<F: Float, N: Size>(
        &self,
        any_rows: &Rows,
        any_ints: &CubeTensor,
        vector_size: usize,
    ) -> TermsLaunch<F, N> {
        let (own, of_edges, slope) = self.inputs();
        let own = own.unwrap_or(any_rows);
        let of_edges = of_edges.unwrap_or(any_rows);
        let (edge_rows, max_edges) = match self {
            Self::WhereMax { .. } => (any_rows.buffer(vector_size), of_edges.buffer(vector_size)),
            _ => (of_edges.buffer(vector_size), launch::vectors(any_ints, vector_size)),
        };
        TermsLaunch::new(
            own.buffer(vector_size),
            edge_rows,
            max_edges,
            own.stride / vector_size,
            of_edges.stride / vector_size,
            slope,
        )
    }
}
