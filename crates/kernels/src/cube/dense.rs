//! Matrix products with the kernels of the `cubek-matmul` library.
//!
//! On GPUs, Burn chooses the kernel: tensor cores if the device has them, otherwise a kernel that shares tiles within a
//! cube and synchronises at barriers. For f32 on CUDA, this module chooses the latter, because tensor cores would compute
//! in TF32, unless that precision is set. On CubeCL's CPU runtime, barriers cost far more than the arithmetic between them, so this module
//! uses the library's CPU kernel, which Burn does not select. By default, that kernel chooses tiles that divide the
//! matrices, which would compile a new kernel for almost every number of rows. With a fixed tile size there is one
//! kernel per layer.

use burn::backend::ops::FloatTensorOps;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::matmul::init_matmul_output;
use burn_cubecl::tensor::CubeTensor;
use cubecl::Device;
use cubek_matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek_matmul::routine::BlueprintStrategy;
use cubek_matmul::tiled::cpu_gemm::{CpuGemmBlueprint, InstructionShape, PlaneGrid};
use cubek_matmul::{launch, multi_level, strategy, tiled};
use cubek_std::InputBinding;

use crate::cube::launch::element;
use crate::ops::{MatmulPrecision, matmul_precision};

/// Computes the matrix product, `[n, k], [k, m] -> [n, m]`.
pub(super) fn product(left: CubeTensor, right: CubeTensor) -> CubeTensor {
    product_with(left, right, matmul_precision())
}

pub(crate) fn product_with(left: CubeTensor, right: CubeTensor, precision: MatmulPrecision) -> CubeTensor {
    let (n_rows, inner) = (left.meta.shape()[0], left.meta.shape()[1]);
    let is_empty = n_rows * inner * right.meta.shape()[1] == 0;
    match left.device {
        Device::Cpu(_) if !is_empty => product_on_cpu(left, right),
        Device::Cuda(_) if !is_empty && left.dtype == DType::F32 => match precision {
            MatmulPrecision::F32 | MatmulPrecision::Bf16 => product_in_f32(left, right),
            MatmulPrecision::Tf32 => CubeBackend::float_matmul(left, right),
        },
        _ => CubeBackend::float_matmul(left, right),
    }
}

/// The product of f32 matrices in full f32 precision. The library's default on a GPU with tensor cores rounds the
/// operands to TF32, which has a mantissa of 10 bits.
fn product_in_f32(left: CubeTensor, right: CubeTensor) -> CubeTensor {
    let plan = BlueprintStrategy::Inferred(Default::default());
    run(&strategy::Strategy::MultiLevel(multi_level::Strategy::SimpleUnit(plan)), left, right)
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
    run(&strategy::Strategy::Tiled(tiled::Strategy::CpuGemm(plan)), left, right)
}

fn run(strategy: &strategy::Strategy, left: CubeTensor, right: CubeTensor) -> CubeTensor {
    let dtype = element(&left);
    let out = init_matmul_output(&left, &right, left.dtype);
    let client = out.client.clone();
    let mut elements = MatmulElems::from_globals(&MatmulGlobalElems { lhs: dtype, rhs: dtype, out: dtype });
    let [left, right] = [left, right].map(|side| InputBinding::new(side.binding(), dtype));
    let launched = launch::launch_ref(strategy, &client, left, right, out.clone().binding(), &mut elements);
    launched.expect("the matrix product should launch");
    out
}
