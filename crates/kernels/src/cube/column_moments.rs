//! The means and variances of the columns of f32 rows, and their moving averages: the statistics of a batch normalisation.
//!
//! * *Contract.* Rows are read once. Means and sums of squared deviations of ranges of rows are joined as by Chan, Golub and
//!   LeVeque (1979), so large means cost no accuracy. The order depends only on the shapes and the layouts.
//! * *Work distribution.* That of [column chunks](crate::cube::column_chunks): one launch, or two for several chunks. The
//!   last one also computes the moving averages.
//! * *Cost.* Memory-bound: `4 F` bytes per row of `F` columns.

use burn::tensor::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::column_chunks::{ColumnChunks, Sizes, UNITS, chunk_of_unit, column_of_unit, lane_of_unit};
use crate::cube::launch::{self, Rows, launch_kernel};

/// The moments of ranges of rows, a row per range.
#[derive(CubeType, CubeLaunch)]
struct Ranges<N: Size> {
    means: Box<[Vector<f32, N>]>,
    squares: Box<[Vector<f32, N>]>,
    /// The number of rows of each range but the last.
    range_rows: usize,
    /// The number of rows of all ranges.
    n_rows: usize,
}

/// The mean of values, and the sum of their squared deviations from it.
#[derive(CubeType)]
struct Moments<N: Size> {
    mean: Vector<f32, N>,
    squares: Vector<f32, N>,
}

/// The share of `m` of the `n + m` rows of two ranges; 0 if both are empty.
#[cube]
fn share_of_second(n: f32, m: f32) -> f32 {
    m / max(n + m, f32::new(1.0))
}

/// The moments of the column of the calling unit, over the rows of its lane, or over the rows that the ranges of its lane have.
/// The first lane returns those of all lanes. Without ranges, `ranges` is not read.
#[cube]
fn moments_of_column<N: Size>(
    rows: &[Vector<f32, N>],
    ranges: &Ranges<N>,
    sizes: &Sizes,
    #[comptime] of_ranges: bool,
    #[comptime] n_lanes: u32,
) -> Moments<N> {
    let column = column_of_unit(sizes, n_lanes);
    let lane = lane_of_unit(n_lanes);
    let first = chunk_of_unit(sizes, n_lanes) * sizes.chunk_rows;
    let end = min(first + sizes.chunk_rows, sizes.n_rows);
    let mut n = f32::new(0.0);
    let mut mean = Vector::<f32, N>::zeroed();
    let mut squares = Vector::<f32, N>::zeroed();
    if column < sizes.width {
        let mut row = first + lane as usize;
        while row < end {
            let mut m = f32::new(1.0);
            if comptime!(of_ranges) {
                m = f32::cast_from(min(ranges.range_rows, ranges.n_rows - row * ranges.range_rows));
                squares += ranges.squares[row * sizes.width + column];
            }
            let other = if comptime!(of_ranges) {
                ranges.means[row * sizes.width + column]
            } else {
                rows[row * sizes.stride + column]
            };
            let difference = other - mean;
            let share = share_of_second(n, m);
            mean += difference * Vector::new(share);
            squares += difference * (difference * Vector::new(n * share));
            n += m;
            row += comptime!(n_lanes as usize);
        }
    }
    if comptime!(1 < n_lanes) {
        let n_vectors = comptime!(UNITS / n_lanes);
        let mut all_n = Shared::<[f32]>::new_slice(comptime!(UNITS as usize));
        let mut all_means = Shared::<[Vector<f32, N>]>::new_slice(comptime!(UNITS as usize));
        let mut all_squares = Shared::<[Vector<f32, N>]>::new_slice(comptime!(UNITS as usize));
        let own = UNIT_POS as usize;
        all_n[own] = n;
        all_means[own] = mean;
        all_squares[own] = squares;
        sync_cube();
        let mut n_left = comptime!(n_lanes / 2).runtime();
        while 0u32 < n_left {
            if lane < n_left {
                let other = (UNIT_POS + n_left * n_vectors) as usize;
                let difference = all_means[other] - mean;
                let share = share_of_second(n, all_n[other]);
                mean += difference * Vector::new(share);
                squares += all_squares[other] + difference * (difference * Vector::new(n * share));
                n += all_n[other];
                all_n[own] = n;
                all_means[own] = mean;
                all_squares[own] = squares;
            }
            sync_cube();
            n_left /= 2u32;
        }
    }
    Moments::<N> { mean, squares }
}

/// Computes the moments of the chunks, `[n_chunks, width]`.
#[cube(launch, address_type = "dynamic")]
fn moments_of_chunks<N: Size>(
    rows: &[Vector<f32, N>],
    ranges: &Ranges<N>,
    means: &mut [Vector<f32, N>],
    squares: &mut [Vector<f32, N>],
    sizes: &Sizes,
    #[comptime] n_lanes: u32,
) {
    let chunk = chunk_of_unit(sizes, n_lanes);
    if chunk >= sizes.n_chunks {
        terminate!();
    }
    let column = column_of_unit(sizes, n_lanes);
    let moments = moments_of_column::<N>(rows, ranges, sizes, false, n_lanes);
    if lane_of_unit(n_lanes) == 0 && column < sizes.width {
        means[chunk * sizes.width + column] = moments.mean;
        squares[chunk * sizes.width + column] = moments.squares;
    }
}

/// The arrays from which moving averages are computed, with a value per column.
#[derive(CubeType, CubeLaunch)]
struct Averages<N: Size> {
    bias: Box<[Vector<f32, N>]>,
    means: Box<[Vector<f32, N>]>,
    variances: Box<[Vector<f32, N>]>,
    /// The weight of the new statistics.
    share: f32,
}

/// Computes the means and variances of all rows, and the moving averages of both.
#[cube(launch, address_type = "dynamic")]
fn statistics_kernel<N: Size>(
    rows: &[Vector<f32, N>],
    ranges: &Ranges<N>,
    before: &Averages<N>,
    means: &mut [Vector<f32, N>],
    variances: &mut [Vector<f32, N>],
    moving_means: &mut [Vector<f32, N>],
    moving_variances: &mut [Vector<f32, N>],
    sizes: &Sizes,
    #[comptime] of_ranges: bool,
    #[comptime] n_lanes: u32,
) {
    if chunk_of_unit(sizes, n_lanes) >= sizes.n_chunks {
        terminate!();
    }
    let column = column_of_unit(sizes, n_lanes);
    let moments = moments_of_column::<N>(rows, ranges, sizes, of_ranges, n_lanes);
    if lane_of_unit(n_lanes) == 0 && column < sizes.width {
        let variance = moments.squares / Vector::new(f32::cast_from(ranges.n_rows));
        means[column] = moments.mean;
        variances[column] = variance;
        let share = Vector::new(before.share);
        let kept = Vector::new(f32::new(1.0) - before.share);
        moving_means[column] = before.means[column] * kept + (moments.mean + before.bias[column]) * share;
        moving_variances[column] = before.variances[column] * kept + variance * share;
    }
}

/// The reciprocal of the standard deviation.
#[cube]
pub(super) fn reciprocal_deviation<N: Size>(variance: Vector<f32, N>, epsilon: f32) -> Vector<f32, N> {
    Vector::new(f32::new(1.0)) / (variance + Vector::new(epsilon)).sqrt()
}

/// The statistics of the columns of rows, each `[d]`.
#[derive(Debug)]
pub(super) struct ColumnStatistics {
    pub(super) means: CubeTensor,
    pub(super) variances: CubeTensor,
    /// The moving averages of the means, each with the bias, and of the variances.
    pub(super) moving: [CubeTensor; 2],
}

/// Computes the statistics of rows, at least one, and the moving averages from those `before`, `[d]`. To the means, the moving
/// averages add `bias`, `[d]`.
pub(super) fn column_statistics(
    rows: &Rows,
    bias: &CubeTensor,
    before: [&CubeTensor; 2],
    share: f64,
) -> ColumnStatistics {
    let tensor = rows.tensor();
    let n_rows = rows.n_rows();
    let width = rows.width();
    let [means, variances, moving_mean, moving_variance] =
        [(); 4].map(|()| launch::new_tensor(tensor, Shape::new([width]), DType::F32));
    let moving = [moving_mean, moving_variance];
    let statistics = ColumnStatistics { means, variances, moving };
    if width == 0 {
        return statistics;
    }
    let [old_means, old_variances] = before;
    let of_columns = [bias, old_means, old_variances].map(|array| launch::vector_size(array, &[width]));
    let chunks = ColumnChunks::of(rows, of_columns.into_iter().fold(usize::MAX, usize::min), width);
    let ColumnChunks { vector_size, n_lanes, chunk_rows } = chunks;
    let ranges = (1 < chunks.n_chunks(n_rows)).then(|| launch_moments(chunks, rows));
    let [range_means, range_squares] = ranges.as_ref().map_or([rows; 2], |[means, squares]| [means, squares]);
    // All ranges are one chunk of this launch.
    let chunks = ColumnChunks { chunk_rows: range_means.n_rows(), ..chunks };
    let of = |tensor: &CubeTensor| launch::vectors(tensor, vector_size);
    launch_kernel!(
        statistics_kernel,
        tensor,
        width / vector_size,
        chunks.cubes(tensor, 1, width / vector_size),
        vector_size,
        rows.buffer(vector_size),
        RangesLaunch::new(
            range_means.buffer(vector_size),
            range_squares.buffer(vector_size),
            chunk_rows,
            n_rows
        ),
        AveragesLaunch::new(of(bias), of(old_means), of(old_variances), share as f32),
        of(&statistics.means),
        of(&statistics.variances),
        of(&statistics.moving[0]),
        of(&statistics.moving[1]),
        chunks.sizes(range_means, width / vector_size),
        ranges.is_some(),
        n_lanes
    );
    statistics
}

/// Returns the means of the chunks and the sums of their squared deviations, each `[n_chunks, d]`.
fn launch_moments(chunks: ColumnChunks, rows: &Rows) -> [Rows; 2] {
    let ColumnChunks { vector_size, n_lanes, chunk_rows } = chunks;
    let tensor = rows.tensor();
    let n_chunks = chunks.n_chunks(rows.n_rows());
    let width = rows.width() / vector_size;
    let moments = [(); 2].map(|()| Rows::new(tensor, n_chunks, rows.width(), DType::F32));
    let [means, squares] = &moments;
    let any = || rows.buffer(vector_size);
    launch_kernel!(
        moments_of_chunks,
        tensor,
        n_chunks * width,
        chunks.cubes(tensor, n_chunks, width),
        vector_size,
        rows.buffer(vector_size),
        RangesLaunch::new(any(), any(), chunk_rows, rows.n_rows()),
        means.buffer(vector_size),
        squares.buffer(vector_size),
        chunks.sizes(rows, width),
        n_lanes
    );
    moments
}
