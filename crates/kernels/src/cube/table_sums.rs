//! Sums of rows by the row of a small table that each of them belongs to, such as a row per edge type: the gradient of
//! the table where its rows were gathered.
//!
//! ```text
//! out[t] = sum over the positions p with items[p] == t of factors[p] * rows[p]
//! ```
//!
//! * *Contract.* Sums are f32, in the order of the positions within a chunk, and over the chunks in the fixed order of [column
//!   sums](crate::cube::column_sums). The result is rounded once. No list of the positions of each row of the table is needed, which would take longer to write than the sums.
//! * *Work distribution.* One unit per chunk of 64 or 512 positions, row of the table and vector of columns, which reads the
//!   items of the whole chunk, and the rows that belong to its row. //! * *Cost.* `F b` bytes per position for `F` columns of `b` bytes, and at most 64 for the sums of the chunks; its item comes
//!   from the caches for all but one of the units that read it.

use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::column_sums::{ColumnTerm, column_sums_of};
use crate::cube::launch::{self, Rows, launch_long_units};

/// The largest number of vectors of a table, so that a few cubes read each item.
const MOST_VECTORS: usize = 1024;

/// The number of vectors up to which chunks are short, because there are few units.
const FEW_VECTORS: usize = 64;

/// The numbers of positions of a short chunk and of a long one.
const CHUNKS: [usize; 2] = [64, 512];

/// The numbers that the kernel reads at run time. The width and the stride are in vectors of values.
#[derive(CubeType, CubeLaunch)]
struct Sizes {
    n_positions: usize,
    chunk_positions: usize,
    n_table_rows: usize,
    width: usize,
    stride: usize,
}

#[cube(launch, address_type = "dynamic")]
fn table_sums_kernel<F: Float, N: Size>(
    items: &[u32],
    rows: &[Vector<F, N>],
    factors: &[F],
    out: &mut [Vector<f32, N>],
    sizes: &Sizes,
    #[comptime] has_factors: bool,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let column = ABSOLUTE_POS % sizes.width;
    let table_row = ABSOLUTE_POS / sizes.width % sizes.n_table_rows;
    let first = ABSOLUTE_POS / sizes.width / sizes.n_table_rows * sizes.chunk_positions;
    let end = min(first + sizes.chunk_positions, sizes.n_positions);
    let mut sum = Vector::<f32, N>::zeroed();
    for position in first..end {
        if items[position] as usize == table_row {
            let mut value = Vector::<f32, N>::cast_from(rows[position * sizes.stride + column]);
            if comptime!(has_factors) {
                value *= Vector::new(f32::cast_from(factors[position]));
            }
            sum += value;
        }
    }
    out[ABSOLUTE_POS] = sum;
}

/// Sums rows by table row, `[n, d], [n] -> [n_table_rows, d]`, each multiplied by its factor if there are factors, `[n]`.
/// `None` for a large table.
pub(super) fn table_sums(
    items: &CubeTensor,
    n_table_rows: usize,
    rows: &Rows,
    factors: Option<&CubeTensor>,
) -> Option<CubeTensor> {
    let n_positions = rows.n_rows();
    let width = rows.width();
    let dtype = rows.tensor().dtype;
    let vector_size = rows.vector_size(&[width]);
    let n_vectors = n_table_rows * width / vector_size;
    if MOST_VECTORS < n_vectors {
        return None;
    }
    let [short, long] = CHUNKS;
    let chunk_positions = if n_vectors <= FEW_VECTORS { short } else { long };
    // Without positions, the sums of no chunk are zeros.
    let n_chunks = n_positions.div_ceil(chunk_positions);
    let chunk_sums = Rows::new(rows.tensor(), n_chunks, n_table_rows * width, DType::F32);
    if 0 < n_chunks * n_vectors {
        // The last position of a chunk may be behind the last one.
        launch::reach(n_chunks * chunk_positions);
        launch_long_units!(
            table_sums_kernel,
            rows.tensor(),
            n_chunks * n_vectors,
            vector_size,
            launch::buffer(items),
            rows.buffer(vector_size),
            factors.map_or_else(|| rows.buffer(1), launch::buffer),
            chunk_sums.buffer(vector_size),
            SizesLaunch::new(
                n_positions,
                chunk_positions,
                n_table_rows,
                width / vector_size,
                rows.stride / vector_size
            ),
            factors.is_some(),
            launch::element(rows.tensor())
        );
    }
    let sums = match n_chunks {
        1 => chunk_sums.into_tensor(),
        _ => column_sums_of(&chunk_sums, &ColumnTerm::Value),
    };
    let sums = CubeBackend::float_reshape(sums, Shape::new([n_table_rows, width]));
    Some(CubeBackend::float_cast(sums, dtype.into()))
}
