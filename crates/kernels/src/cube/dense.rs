//! Products of matrices: the library's kernels.
//!
//! Burn chooses one for GPUs: tensor cores where the device has them, otherwise one that shares tiles within a cube and
//! waits for them at barriers. f32 on CUDA is the exception: tensor cores would compute it in TF32, so that it runs on
//! the other kernel. On CubeCL's CPU runtime a barrier costs far more than the arithmetic between two (a
//! product of 2,000 x 128 and 128 x 64 took 3.0 s on two cores of an Intel Xeon, November 2026), so that there the kernel
//! is the library's for processors, which Burn does not offer (4 ms). It would choose tiles that divide the matrices, and
//! so compile a kernel for nearly each number of rows; tiles of one size keep it at one for each layer.

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

/// `[n, k], [k, m] -> [n, m]`.
pub(super) fn product(left: CubeTensor, right: CubeTensor) -> CubeTensor {
    let (n_rows, inner) = (left.meta.shape()[0], left.meta.shape()[1]);
    let is_empty = n_rows * inner * right.meta.shape()[1] == 0;
    match left.device {
        Device::Cpu(_) if !is_empty => product_on_cpu(left, right),
        Device::Cuda(_) if !is_empty && left.dtype == DType::F32 => product_in_f32(left, right),
        _ => CubeBackend::float_matmul(left, right),
    }
}

/// The product of f32 values in f32: the library's choice for a GPU with tensor cores rounds them to TF32 first, whose
/// mantissa has 10 bits.
fn product_in_f32(left: CubeTensor, right: CubeTensor) -> CubeTensor {
    let plan = BlueprintStrategy::Inferred(Default::default());
    run(&strategy::Strategy::MultiLevel(multi_level::Strategy::SimpleUnit(plan)), left, right)
}

/// Rows and steps of the sum that a tile has.
const TILE: usize = 8;

/// The most columns that a tile has.
const MOST_COLUMNS: usize = 16;

/// The columns of a tile: widths are the model's, and do not change from batch to batch.
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
    launched.expect("a device should have a kernel for any product");
    out
}
