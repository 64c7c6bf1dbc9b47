//! The division of a matrix into chunks of rows and vectors of columns, for sums over the rows.
//!
//! * A cube processes a chunk of rows for some neighbouring vectors of columns. Several units, the lanes, share a vector:
//!   lane `l` of `k` reads the rows `l`, `l + k` and so on of the chunk, and the results of the lanes are joined as a binary
//!   tree in shared memory.
//! * With one lane, a unit reads all rows of its chunk in their order, without shared memory and barriers: on CubeCL's CPU
//!   runtime, where a barrier takes microseconds, and for a few wide rows, which have enough vectors for all units.

use burn_cubecl::tensor::CubeTensor;
use cubecl::Device;
use cubecl::calculate_cube_count_elemwise;
use cubecl::prelude::*;

use crate::cube::launch::{self, Rows};

/// The number of units of a cube with several lanes.
pub(super) const UNITS: u32 = 256;

/// The largest number of vectors of columns of a cube with several lanes: 8 vectors of 16 bytes are a cache line.
const MOST_VECTORS: u32 = 8;

/// The number of rows of a lane, unless there would be more than [`MOST_CHUNKS`] chunks.
const LANE_ROWS: usize = 16;

/// The number of rows of a chunk with one lane.
const UNIT_ROWS: usize = 256;

/// The largest number of chunks.
const MOST_CHUNKS: usize = 1024;

/// The largest number of rows, and the least number of vectors of columns, for which one lane reads all rows on a device
/// with shared memory.
const WIDE: (usize, usize) = (64, 4096);

/// The numbers that the kernels read at run time. The width and the stride are in vectors of values.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Sizes {
    pub(super) n_rows: usize,
    /// The number of results of a chunk.
    pub(super) width: usize,
    pub(super) stride: usize,
    pub(super) chunk_rows: usize,
    pub(super) n_chunks: usize,
}

/// The chunk of the calling unit, which may be behind the last one.
#[cube]
pub(super) fn chunk_of_unit(sizes: &Sizes, #[comptime] n_lanes: u32) -> usize {
    if comptime!(n_lanes == 1) { ABSOLUTE_POS / sizes.width } else { CUBE_POS / n_groups(sizes, n_lanes) }
}

/// The vector of columns of the calling unit, which may be behind the last one.
#[cube]
pub(super) fn column_of_unit(sizes: &Sizes, #[comptime] n_lanes: u32) -> usize {
    if comptime!(n_lanes == 1) {
        ABSOLUTE_POS % sizes.width
    } else {
        let n_vectors = comptime!(UNITS / n_lanes);
        CUBE_POS % n_groups(sizes, n_lanes) * n_vectors as usize + (UNIT_POS % n_vectors) as usize
    }
}

/// The lane of the calling unit.
#[cube]
pub(super) fn lane_of_unit(#[comptime] n_lanes: u32) -> u32 {
    if comptime!(n_lanes == 1) { 0u32.runtime() } else { UNIT_POS / comptime!(UNITS / n_lanes) }
}

/// The number of cubes that share a chunk.
#[cube]
fn n_groups(sizes: &Sizes, #[comptime] n_lanes: u32) -> usize {
    (sizes.width + comptime!((UNITS / n_lanes - 1) as usize)) / comptime!((UNITS / n_lanes) as usize)
}

/// The division of a matrix. It depends only on the shapes and the layouts of the matrix and of what is read with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ColumnChunks {
    pub(super) vector_size: usize,
    pub(super) n_lanes: u32,
    pub(super) chunk_rows: usize,
}

impl ColumnChunks {
    /// Divides rows with `n_results` results per chunk. The vectors have at most `most_values` values.
    pub(super) fn of(rows: &Rows, most_values: usize, n_results: usize) -> Self {
        let n_rows = rows.n_rows();
        let vector_size = rows.vector_size(&[rows.width()]).min(most_values);
        let width = n_results / vector_size;
        let (most_rows, least_width) = WIDE;
        let is_wide = n_rows <= most_rows && least_width <= width;
        let n_lanes = match rows.tensor().device {
            Device::Cpu(_) => 1,
            _ if is_wide => 1,
            _ => UNITS / MOST_VECTORS.min((width as u32).next_power_of_two()),
        };
        let least = UNIT_ROWS.max(LANE_ROWS * n_lanes as usize);
        let chunk_rows = match n_rows {
            _ if n_rows <= 2 * least => n_rows,
            _ => least.max(n_rows.div_ceil(MOST_CHUNKS).next_multiple_of(n_lanes as usize)),
        };
        Self { vector_size, n_lanes, chunk_rows }
    }

    pub(super) fn n_chunks(&self, n_rows: usize) -> usize {
        n_rows.div_ceil(self.chunk_rows)
    }

    /// The number and the size of the cubes for `n_chunks` chunks with `width` vectors of results.
    pub(super) fn cubes(&self, like: &CubeTensor, n_chunks: usize, width: usize) -> (CubeCount, CubeDim) {
        if self.n_lanes == 1 {
            return launch::units(like, n_chunks * width);
        }
        let dim = CubeDim::new_1d(UNITS);
        let n_cubes = n_chunks * width.div_ceil((UNITS / self.n_lanes) as usize);
        (calculate_cube_count_elemwise(&like.client, n_cubes * UNITS as usize, dim), dim)
    }

    /// The numbers of a launch that writes `width` vectors of results per chunk.
    pub(super) fn sizes(&self, rows: &Rows, width: usize) -> SizesLaunch {
        let &Self { vector_size, chunk_rows, .. } = self;
        let n_rows = rows.n_rows();
        // Row numbers may exceed the last row by a chunk.
        launch::reach(n_rows + chunk_rows);
        SizesLaunch::new(n_rows, width, rows.stride / vector_size, chunk_rows, self.n_chunks(n_rows))
    }
}
