//! The parts of the CUDA toolkit that work without a GPU, from the wheels that NVIDIA publishes.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::wheel::Wheel;

/// The wheel with `libdevice`, the library of exponentials and logarithms that CubeCL links into kernels. On machines
/// with a GPU, the CUDA toolkit contains `libdevice`.
const NVVM: Wheel = Wheel {
    requirement: "nvidia-nvvm==13.5.37",
    file: "nvidia_nvvm-13.5.37-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl",
    sha256: "c41bfa362e407405163f103c2229f0765f8cc2ed7d148b754dc77f228bf7e070",
};

/// The wheel with `ptxas`, the assembler.
const NVCC: Wheel = Wheel {
    requirement: "nvidia-cuda-nvcc==13.5.37",
    file: "nvidia_cuda_nvcc-13.5.37-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    sha256: "f5c4f7ead5d964fb4af42bbf1e6d3ec3c1e6e9d83b53749f691d387e7fcaa3a7",
};

/// Installs `libdevice` in the folder of a toolkit, unless it is there.
pub(super) fn install_libdevice(toolkit: &Path) -> Result<()> {
    NVVM.install("nvidia/cu13/nvvm", toolkit, "nvvm", "libdevice/libdevice.10.bc")?;
    Ok(())
}

/// Installs the assembler in the folder of a toolkit, unless it is there, and returns its path.
pub(super) fn install_ptxas(toolkit: &Path) -> Result<PathBuf> {
    NVCC.install("nvidia/cu13/bin", toolkit, "bin", "ptxas")
}
