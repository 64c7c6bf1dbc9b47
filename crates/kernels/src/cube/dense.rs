//! Matrix products with the kernels of the `cubek-matmul` library.
//!
//! * On GPUs, Burn chooses the kernel: tensor cores if the device has them, otherwise a kernel that shares tiles within a
//!   cube and synchronises at barriers. For f32 on CUDA, this module chooses the latter, because tensor cores would
//!   compute in TF32, unless that precision is set.
//! * With [`MatmulPrecision::Bf16`] on CUDA, the factors of a product with f32 weights are rounded to bf16, unless they are
//!   bf16 already, and Burn's choice adds their products in f32.
//! * On CUDA, that kernel gives a cube a tile of 128 or 256 rows and 128 columns of the result. A result with too few of
//!   these tiles to keep a large GPU busy is divided into tiles of [`SMALL_TILE`] rows and columns, or half as many.
//! * A weight gradient has a small result and a long inner dimension, the rows of a batch. On CUDA, the
//!   rows are divided into parts. The products of the parts are one batch of products, and the [column
//!   sums](super::column_sums) of these products are the gradient. The division depends on the shape only.
//! * So is a product with a small result and a long inner dimension, such as that of the last layer of a model of relations.
//! * On CubeCL's CPU runtime, barriers cost far more than the arithmetic between them, so this module uses the library's
//!   CPU kernel, which Burn does not select. By default, that kernel chooses tiles that divide the matrices, which would
//!   compile a new kernel for almost every number of rows. With a fixed tile size there is one kernel per layer.

use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, FloatDType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::kernel::matmul::{MatmulStrategy, init_matmul_output, matmul};
use burn_cubecl::tensor::CubeTensor;
use cubecl::Device;
use cubecl::ir::{AddressType, ElemType};
use cubek_matmul::definition::{MatmulElems, MatmulGlobalElems, MatmulProblem};
use cubek_matmul::multi_level::components::stage::PartitionBuffering;
use cubek_matmul::multi_level::components::tile::TileMatmulKind;
use cubek_matmul::multi_level::definition::{BatchMatmulBlueprint, TilingScheme};
use cubek_matmul::multi_level::routines::batch::simple_unit::SimpleUnitAlgorithm;
use cubek_matmul::routine::BlueprintStrategy;
use cubek_matmul::strategy::Strategy;
use cubek_matmul::tiled::cpu_gemm::{CpuGemmBlueprint, InstructionShape, PlaneGrid};
use cubek_matmul::{launch, multi_level, tiled};
use cubek_std::InputBinding;

use crate::cube::column_sums::column_sums;
use crate::cube::launch::{Rows, element, new_tensor, values_from};
use crate::ops::MatmulPrecision;
use crate::ops::precision::matmul_precision;

/// The number of tiles of the library's choice below which a result is divided into small tiles: two per multiprocessor
/// of an H100.
const LEAST_TILES: usize = 264;

/// The number of rows and of columns of a small tile, which 64 units compute. Each unit computes as many values as with
/// the library's choice, and so reads as much of the shared memory per multiplication.
const SMALL_TILE: usize = 64;

/// The number of small tiles below which a result is divided into tiles of half as many rows and columns: one tile for two
/// multiprocessors of an H100.
const LEAST_SMALL_TILES: usize = 66;

/// The number of cubes into which a weight gradient is divided: about four per multiprocessor of an H100.
const GRADIENT_CUBES: usize = 512;

/// The least number of rows of a part of a weight gradient.
const LEAST_PART_ROWS: usize = 128;

/// The largest number of rows of a part of a weight gradient, whose products one unit adds in sequence: the error of the
/// sum grows with their number.
const MOST_PART_ROWS: usize = 2048;

/// The least length of a part of the inner dimension of a product.
const LEAST_PART_INNER: usize = 512;

/// The number of values of all products of the parts, 64 MiB, up to which [`MOST_PART_ROWS`] adds parts.
const MOST_PRODUCT_VALUES: usize = 1 << 24;

/// Computes the matrix product, `[n, k], [k, m] -> [n, m]`.
pub(super) fn product(left: CubeTensor, right: CubeTensor) -> CubeTensor {
    product_with(left, right, matmul_precision())
}

pub(crate) fn product_with(left: CubeTensor, right: CubeTensor, precision: MatmulPrecision) -> CubeTensor {
    let n_rows = left.meta.shape()[0];
    let inner = left.meta.shape()[1];
    let is_empty = n_rows * inner * right.meta.shape()[1] == 0;
    match left.device {
        Device::Cpu(_) if !is_empty => product_on_cpu(left, right),
        Device::Cuda(_) if !is_empty && is_in_f32([&left, &right]) => {
            let [left, right] = [left, right].map(|factor| rounded(factor, precision));
            match inner_parts(&left, &right) {
                1 => {
                    let out = init_matmul_output(&left, &right, DType::F32);
                    write_f32_products(left, right, &out, precision);
                    out
                }
                n_parts => divided_product(left, right, n_parts, precision),
            }
        }
        _ if is_in_f32([&left, &right]) => {
            let [left, right] = [left, right].map(|factor| rounded(factor, MatmulPrecision::F32));
            CubeBackend::float_matmul(left, right)
        }
        _ => CubeBackend::float_matmul(left, right),
    }
}

/// Returns true if the result of a product is f32: one of the factors is f32, the other one f32 or bf16.
fn is_in_f32(factors: [&CubeTensor; 2]) -> bool {
    let types = factors.map(|factor| factor.dtype);
    types.contains(&DType::F32) && types.iter().all(|dtype| matches!(dtype, DType::F32 | DType::BF16))
}

/// Returns a factor of an f32 product in the type in which products of a precision read it: bf16 or f32.
fn rounded(factor: CubeTensor, precision: MatmulPrecision) -> CubeTensor {
    let dtype = match precision {
        MatmulPrecision::Bf16 => FloatDType::BF16,
        MatmulPrecision::F32 | MatmulPrecision::Tf32 => FloatDType::F32,
    };
    CubeBackend::float_cast(factor, dtype)
}

/// Returns the number of parts into which the inner dimension of a product is divided: more than one if a result has few tiles and a
/// long inner dimension.
fn inner_parts(left: &CubeTensor, right: &CubeTensor) -> usize {
    let [n_rows, inner] = matrix_shape(left);
    let [_, n_columns] = matrix_shape(right);
    let are_in_line = [left, right].iter().all(|side| side.meta.strides()[1] == 1);
    let half = SMALL_TILE / 2;
    let n_tiles = n_rows.div_ceil(half) * n_columns.div_ceil(half);
    let mut n_parts = 1;
    while are_in_line
        && n_tiles * n_parts < 2 * LEAST_SMALL_TILES
        && LEAST_PART_INNER <= inner / (2 * n_parts)
        && inner.is_multiple_of(2 * n_parts)
    {
        n_parts *= 2;
    }
    n_parts
}

/// Computes a product as the sum of the products of equal parts of the inner dimension.
fn divided_product(
    left: CubeTensor,
    right: CubeTensor,
    n_parts: usize,
    precision: MatmulPrecision,
) -> CubeTensor {
    let left = Rows::of(left);
    let right = Rows::of(right);
    let n_rows = left.n_rows();
    let n_columns = right.width();
    let products = new_tensor(left.tensor(), Shape::new([n_parts, n_rows, n_columns]), DType::F32);
    let part = right.n_rows() / n_parts;
    write_f32_products(left.column_parts(n_parts), right.parts(0, n_parts, part), &products, precision);
    let products = CubeBackend::float_reshape(products, Shape::new([n_parts, n_rows * n_columns]));
    CubeBackend::float_reshape(column_sums(products), Shape::new([n_rows, n_columns]))
}

/// Computes the product of the transposed `x` and `grad`, `[n, d_in], [n, d_out] -> [d_in, d_out]`.
pub(super) fn weight_gradient(x: CubeTensor, grad: CubeTensor) -> CubeTensor {
    weight_gradient_with(x, grad, matmul_precision())
}

pub(crate) fn weight_gradient_with(
    x: CubeTensor,
    grad: CubeTensor,
    precision: MatmulPrecision,
) -> CubeTensor {
    let [n_rows, d_in] = x.meta.shape().dims();
    let [_, d_out] = grad.meta.shape().dims();
    let is_divided = matches!(x.device, Device::Cuda(_)) && is_in_f32([&x, &grad]);
    let n_parts = if is_divided { n_parts(n_rows, [d_in, d_out]) } else { 1 };
    if n_parts == 1 || d_in * d_out == 0 {
        return product_with(CubeBackend::float_transpose(x), grad, precision);
    }
    let x = Rows::of(rounded(x, precision));
    let grad = Rows::of(rounded(grad, precision));
    let n_values = d_in * d_out;
    // The rows that are left over are a part of their own, of fewer than `n_parts` rows.
    let part_rows = n_rows / n_parts;
    let n_left_over = n_rows % n_parts;
    let n_products = n_parts + n_left_over.min(1);
    let products = new_tensor(x.tensor(), Shape::new([n_products, n_values]), DType::F32);
    let divided = Parts { first_row: 0, n_parts, part_rows };
    divided.write(&x, &grad, &products, 0, precision);
    if 0 < n_left_over {
        let left_over = Parts { first_row: n_parts * part_rows, n_parts: 1, part_rows: n_left_over };
        left_over.write(&x, &grad, &products, n_parts, precision);
    }
    CubeBackend::float_reshape(column_sums(products), Shape::new([d_in, d_out]))
}

/// Returns the number of parts of equal length into which the rows of a weight gradient are divided.
fn n_parts(n_rows: usize, [d_in, d_out]: [usize; 2]) -> usize {
    let n_tiles = d_in.div_ceil(SMALL_TILE) * d_out.div_ceil(SMALL_TILE);
    let for_cubes = GRADIENT_CUBES.div_ceil(n_tiles.max(1)).min(n_rows / LEAST_PART_ROWS);
    let most_parts = MOST_PRODUCT_VALUES / (d_in * d_out).max(1);
    for_cubes.max(n_rows.div_ceil(MOST_PART_ROWS).min(most_parts)).max(1)
}

/// Adjacent ranges of rows of equal length.
struct Parts {
    first_row: usize,
    n_parts: usize,
    part_rows: usize,
}

impl Parts {
    /// Writes the product of the transposed `x` and `grad` of each part to a row of `products`, from the row `first` on.
    fn write(&self, x: &Rows, grad: &Rows, products: &CubeTensor, first: usize, precision: MatmulPrecision) {
        let &Self { first_row, n_parts, part_rows } = self;
        let [d_in, d_out] = [x, grad].map(Rows::width);
        let n_values = d_in * d_out;
        let out = values_from(products, first * n_values, n_parts * n_values);
        let out = CubeBackend::float_reshape(out, Shape::new([n_parts, d_in, d_out]));
        let [x, grad] = [x, grad].map(|rows| rows.parts(first_row, n_parts, part_rows));
        write_f32_products(CubeBackend::float_transpose(x), grad, &out, precision);
    }
}

/// Writes the products of matrices of f32, or of bf16 in that precision, `[.., n, k], [.., k, m] -> [.., n, m]`.
fn write_f32_products(left: CubeTensor, right: CubeTensor, out: &CubeTensor, precision: MatmulPrecision) {
    let [left, right] = [left, right].map(without_repetition);
    match precision {
        MatmulPrecision::F32 => {
            // The library's default on a GPU with tensor cores rounds the operands to TF32, which has a mantissa of 10
            // bits.
            let plan = plan_in_f32(&left, &right, out);
            run(&Strategy::MultiLevel(multi_level::Strategy::SimpleUnit(plan)), left, right, out);
        }
        MatmulPrecision::Tf32 | MatmulPrecision::Bf16 => {
            let written = matmul(left, right, Some(out.clone()), MatmulStrategy::default(), out.dtype);
            written.expect("the matrix product should launch");
        }
    }
}

/// Returns a copy of a matrix whose rows or columns are one row or column repeated, which the library does not read, and
/// other matrices unchanged.
fn without_repetition(matrix: CubeTensor) -> CubeTensor {
    let strides = matrix.meta.strides();
    let is_repeated = strides[strides.len() - 2..].contains(&0);
    if is_repeated { into_contiguous(matrix) } else { matrix }
}

/// Returns the plan of products in f32: the library's, or small tiles for results with few of the library's tiles.
fn plan_in_f32(
    left: &CubeTensor,
    right: &CubeTensor,
    out: &CubeTensor,
) -> BlueprintStrategy<(), SimpleUnitAlgorithm> {
    let [n_rows, n_columns] = matrix_shape(out);
    let n_matrices = out.meta.num_elements() / (n_rows * n_columns).max(1);
    let n_tiles =
        |rows: usize, columns: usize| n_matrices * n_rows.div_ceil(rows) * n_columns.div_ceil(columns);
    let large_rows = if n_rows < 512 { 128 } else { 256 };
    if LEAST_TILES <= n_tiles(large_rows, 128) {
        return BlueprintStrategy::Inferred(Default::default());
    }
    let is_small = LEAST_SMALL_TILES <= n_tiles(SMALL_TILE, SMALL_TILE);
    let elements = elements(element(out));
    let shape_of = |tensor: &CubeTensor| tensor.meta.shape().clone();
    let strides_of = |tensor: &CubeTensor| tensor.meta.strides().clone();
    let n_values = [left, right, out].map(|tensor| tensor.meta.num_elements());
    let address = AddressType::from_len(n_values.into_iter().max().unwrap_or(0));
    let problem = MatmulProblem::from_shapes_and_strides(
        shape_of(left),
        shape_of(right),
        shape_of(out),
        strides_of(left),
        strides_of(right),
        strides_of(out),
        elements.as_global_elems(),
        address,
        None,
        None,
    );
    let problem = problem.expect("the shapes of a product should fit");
    let tiles = if is_small { small_tiles(2) } else { small_tiles(1) };
    let plane_size = out.client.properties().hardware.plane_size_max;
    let plan = BatchMatmulBlueprint::builder(TileMatmulKind::Register, tiles, plane_size, &problem)
        .partition_buffering(PartitionBuffering::Single)
        .build();
    // The kernel checks the bounds that depend on the batch, so that it need not be compiled for batches of other sizes.
    BlueprintStrategy::Forced(BatchMatmulBlueprint { check_m_bounds: true, check_k_bounds: true, ..plan })
}

/// Returns the division of a result among cubes of 8 x 8 units. A unit computes `n` x `n` tiles of 4 x 4 values, and the
/// units of a cube share 16 columns of the left matrix at a time.
fn small_tiles(n: u32) -> TilingScheme {
    let tiles = TilingScheme::builder()
        .with_tile_size((4, 4, 4).into())
        .with_partition_size((n, n, 4).into())
        .with_stage_size((8, 8, 1).into());
    tiles.build().expect("the sizes of the tiles should be complete")
}

/// Returns the numbers of rows and columns of a matrix, or of each matrix of a batch.
fn matrix_shape(tensor: &CubeTensor) -> [usize; 2] {
    let shape = tensor.meta.shape();
    let rank = shape.num_dims();
    [shape[rank - 2], shape[rank - 1]]
}

/// The number of rows of a tile, and its size along the inner dimension.
const TILE: usize = 8;

/// The maximum number of columns of a tile.
const MOST_COLUMNS: usize = 16;

/// The number of columns of a tile: a divisor of the matrix's width. The width is set by the model, so the size of the
/// tile is the same for all batches.
fn tile_columns(width: usize) -> usize {
    (1..=MOST_COLUMNS).rev().find(|columns| width.is_multiple_of(*columns)).unwrap_or(1)
}

fn product_on_cpu(left: CubeTensor, right: CubeTensor) -> CubeTensor {
    let plan = BlueprintStrategy::Forced(CpuGemmBlueprint {
        instruction: InstructionShape { m: TILE, n: tile_columns(right.meta.shape()[1]), k: TILE },
        planes: PlaneGrid {
            m: left.client.properties().hardware.max_units_per_cube.clamp(1, 2) as usize,
            n: 1,
        },
    });
    let out = init_matmul_output(&left, &right, left.dtype);
    run(&Strategy::Tiled(tiled::Strategy::CpuGemm(plan)), left, right, &out);
    out
}

fn run(strategy: &Strategy, left: CubeTensor, right: CubeTensor, out: &CubeTensor) {
    let dtype = element(&left);
    let [left, right] = [left, right].map(|side| InputBinding::new(side.binding(), dtype));
    let binding = out.clone().binding();
    let launched = launch::launch_ref(strategy, &out.client, left, right, binding, &mut elements(dtype));
    launched.expect("the matrix product should launch");
}

fn elements(dtype: ElemType) -> MatmulElems {
    MatmulElems::from_globals(&MatmulGlobalElems { lhs: dtype, rhs: dtype, out: dtype })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_weight_gradients_keep_many_cubes_busy_and_have_few_rows() {
        assert_eq!(n_parts(60_000, [6000, 6000]), 1, "the products of 30 parts would take 4 GiB");
        for shape in [[100, 256], [512, 256], [512, 47], [100, 4], [1204, 256], [1, 1]] {
            for n_rows in [1, 127, 128, 1000, 6000, 60_000, 100_000] {
                let n_parts = n_parts(n_rows, shape);
                let part_rows = n_rows.div_ceil(n_parts);
                assert!(part_rows <= MOST_PART_ROWS, "{n_rows} rows, {shape:?}: {n_parts} parts");
                assert!(n_parts <= n_rows, "{n_rows} rows, {shape:?}: {n_parts} parts");
                let n_cubes = n_parts * shape[0].div_ceil(SMALL_TILE) * shape[1].div_ceil(SMALL_TILE);
                assert!(
                    GRADIENT_CUBES <= n_cubes || part_rows < 2 * LEAST_PART_ROWS,
                    "{n_rows} rows, {shape:?}: {n_cubes} cubes"
                );
            }
        }
    }
}
