//! The factors of a sum over segments: one per position, or several, each for some of the columns.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::launch::{self, Rows};

/// The factor by which the row of a position is multiplied.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "a value exists only during a launch")]
pub(super) enum Factor {
    One,
    /// One row of numbers per edge.
    OfEdge(CubeTensor),
    /// The reciprocal of the length of a segment in another list of segments. The item of the position is the index of
    /// that segment, and `indptr` has the bounds of the segments in that list.
    Share {
        indptr: CubeTensor,
    },
    /// Both: the numbers of the edge divided by the length of the segment.
    ShareOfEdge {
        weights: CubeTensor,
        indptr: CubeTensor,
    },
}

/// The columns that each factor of a position belongs to. The summed columns of the result are divided into equal ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SumColumns {
    /// One factor for all columns.
    All,
    /// A factor for each of this many ranges of columns of the rows, which are the ranges of the result.
    PerHead(usize),
    /// This many factors: the result has a sum of whole rows for each of them.
    PerBasis(usize),
    /// A factor for each of this many ranges of columns of the rows: the result is their sum.
    OverBases(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum FactorKind {
    One,
    OfEdge,
    Share,
    ShareOfEdge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ColumnsKind {
    All,
    PerHead,
    PerBasis,
    OverBases,
}

/// The arrays of a factor. A kernel needs all of them as arguments, so unused ones are arbitrary arrays.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Factors<F: Float> {
    weights: Box<[F]>,
    indptr: Box<[u32]>,
}

/// Returns the factor of a position for a range of columns.
#[cube]
pub(super) fn factor_of<F: Float>(
    factors: &Factors<F>,
    n_factors: usize,
    edge: usize,
    item: usize,
    range: usize,
    #[comptime] kind: FactorKind,
    #[comptime] columns: ColumnsKind,
) -> f32 {
    match comptime!(kind) {
        FactorKind::One => f32::new(1.0),
        FactorKind::OfEdge => weight_of::<F>(factors, n_factors, edge, range, columns),
        FactorKind::Share => f32::new(1.0) / length_of::<F>(factors, item),
        FactorKind::ShareOfEdge => {
            weight_of::<F>(factors, n_factors, edge, range, columns) / length_of::<F>(factors, item)
        }
    }
}

/// Returns the length of a segment in the other list.
#[cube]
fn length_of<F: Float>(factors: &Factors<F>, segment: usize) -> f32 {
    f32::cast_from(factors.indptr[segment + 1] - factors.indptr[segment])
}

#[cube]
fn weight_of<F: Float>(
    factors: &Factors<F>,
    n_factors: usize,
    edge: usize,
    range: usize,
    #[comptime] columns: ColumnsKind,
) -> f32 {
    f32::cast_from(factors.weights[place_of_factor(n_factors, edge, range, columns)])
}

/// Returns the place of a factor in the weights, given its row.
#[cube]
fn place_of_factor(n_factors: usize, row: usize, range: usize, #[comptime] columns: ColumnsKind) -> usize {
    if comptime!(columns == ColumnsKind::All) { row } else { row * n_factors + range }
}

impl Factor {
    pub(super) fn kind(&self) -> FactorKind {
        match self {
            Self::One => FactorKind::One,
            Self::OfEdge(_) => FactorKind::OfEdge,
            Self::Share { .. } => FactorKind::Share,
            Self::ShareOfEdge { .. } => FactorKind::ShareOfEdge,
        }
    }

    /// Returns true if the factor depends on the edge of a position.
    pub(super) fn reads_edges(&self) -> bool {
        matches!(self, Self::OfEdge(_) | Self::ShareOfEdge { .. })
    }

    pub(super) fn arrays<F: Float>(&self, any_floats: &Rows, any_ints: &CubeTensor) -> FactorsLaunch<F> {
        let (weights, indptr) = match self {
            Self::One => (any_floats.buffer(1), any_ints),
            Self::OfEdge(weights) => (launch::buffer(weights), any_ints),
            Self::Share { indptr } => (any_floats.buffer(1), indptr),
            Self::ShareOfEdge { weights, indptr } => (launch::buffer(weights), indptr),
        };
        FactorsLaunch::new(weights, launch::buffer(indptr))
    }
}
