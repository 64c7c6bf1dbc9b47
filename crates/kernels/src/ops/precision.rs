//! The precision of matrix products.

use std::sync::atomic::{AtomicU8, Ordering};

use burn::tensor::Device;

use crate::device::devices::{Devices, is_cpu, is_cuda};

/// The precision of matrix products of f32 values. The sums, the results and the weights are f32 in all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MatmulPrecision {
    /// Computes in f32, without tensor cores: each product has the relative error of f32, 2^-24.
    #[default]
    F32,
    /// On CUDA devices, rounds the factors to TF32, which has a mantissa of 10 bits, and adds the products in f32 on
    /// tensor cores. The error of an element of the result is at most about 2^-9 times the sum of the magnitudes of its
    /// products. Other devices compute in f32.
    Tf32,
    /// Rounds the factors to bf16, which has a mantissa of 7 bits and the range of f32, and adds the products in f32. The
    /// error of an element of the result is at most about 2^-7 times the sum of the magnitudes of its products.
    ///
    /// On CUDA devices, the products run on tensor cores, which compute in bf16 since compute capability 8.0. Feature rows are
    /// kept in bf16 on the device, and aggregations for products read and write rows in bf16 and add them in f32
    /// ([`aggregate_for_linear`](crate::ops::aggregate_for_linear)), which halves the bytes that they move. Sums with attention
    /// weights and features of edges stay f32.
    ///
    /// On the CPU, subnormal factors, sums and results count as 0. Results are bit-identical for any number of threads;
    /// those of different processors agree by the definition of the instructions, which was compared on a Zen 4. Products
    /// with fewer than 1,024 weights, or with fewer than 8 rows or columns of weights, stay in f32, because the gradients of
    /// small weights are faster there. Processors without the instructions ([`has_bf16_products`]) compute in f32.
    ///
    /// Other devices compute in f32.
    Bf16,
}

impl MatmulPrecision {
    /// All precisions.
    pub const ALL: [Self; 3] = [Self::F32, Self::Tf32, Self::Bf16];

    /// Returns the name of the precision: `f32`, `tf32` or `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        }
    }
}

/// The precision, as the position of its variant. It is a setting of the process, as in PyTorch, because Burn's operations
/// have no place for a setting.
static PRECISION: AtomicU8 = AtomicU8::new(MatmulPrecision::F32 as u8);

/// Sets the precision of all later matrix products of f32 values of [`linear`](crate::ops::linear) and its gradients in
/// this process, on the devices that compute in it ([`matmul_precision_on`]). The default is [`MatmulPrecision::F32`]. Set
/// the precision before training: gradients of products that were computed before the call use the new one.
///
/// It does not apply to Burn's own `matmul` and layers, which use TF32 on CUDA.
///
/// The default is f32, as in PyTorch, because results then agree on all devices within the rounding of f32. TF32 and bf16
/// trade accuracy for speed: their instructions have several times, or twice, the arithmetic rate.
pub fn set_matmul_precision(precision: MatmulPrecision) {
    PRECISION.store(precision as u8, Ordering::Relaxed);
}

/// Returns the precision in which a device computes products: the one that [`set_matmul_precision`] has set, or f32 if the
/// device lacks its instructions.
///
/// ```
/// # use burn::tensor::Device;
/// # use kiln_kernels::ops::{MatmulPrecision, matmul_precision_on, set_matmul_precision};
/// set_matmul_precision(MatmulPrecision::Tf32);
/// // TF32 is a precision of tensor cores.
/// assert_eq!(matmul_precision_on(&Device::flex()), MatmulPrecision::F32);
/// # set_matmul_precision(MatmulPrecision::F32);
/// ```
pub fn matmul_precision_on(device: &Device) -> MatmulPrecision {
    let precision = matmul_precision();
    let computes_in_it = match precision {
        MatmulPrecision::F32 => true,
        MatmulPrecision::Tf32 => is_cuda(device),
        MatmulPrecision::Bf16 => is_cuda(device) || is_cpu(device) && has_bf16_products(),
    };
    if computes_in_it { precision } else { MatmulPrecision::F32 }
}

/// Sets the precision in which a model was trained, by its name, so that its outputs are those of its training. Returns false,
/// and sets nothing, if the devices do not compute in it.
///
/// ```
/// use kiln_kernels::Devices;
/// use kiln_kernels::ops::set_trained_precision;
/// // TF32 is a precision of tensor cores.
/// assert!(!set_trained_precision("tf32", &Devices::open("cpu")?));
/// # Ok::<(), kiln_kernels::DeviceError>(())
/// ```
pub fn set_trained_precision(name: &str, devices: &Devices) -> bool {
    let precision = MatmulPrecision::ALL.into_iter().find(|precision| precision.name() == name);
    let computes_in_it = match precision {
        Some(MatmulPrecision::Tf32) => devices.are_all("cuda"),
        Some(MatmulPrecision::Bf16) => {
            devices.are_all("cuda") || devices.are_all("cpu") && has_bf16_products()
        }
        Some(MatmulPrecision::F32) | None => false,
    };
    if let Some(precision) = precision.filter(|_| computes_in_it) {
        set_matmul_precision(precision);
    }
    computes_in_it
}

/// Returns the precision that [`set_matmul_precision`] has set.
pub(crate) fn matmul_precision() -> MatmulPrecision {
    let number = PRECISION.load(Ordering::Relaxed);
    let mut all = MatmulPrecision::ALL.into_iter();
    all.find(|precision| *precision as u8 == number).unwrap_or_default()
}

/// Returns true if this processor has instructions for products in bf16, [`MatmulPrecision::Bf16`]: AVX512-BF16, which
/// AMD's processors have since Zen 4 and Intel's Xeons since Cooper Lake, except Ice Lake.
pub fn has_bf16_products() -> bool {
    crate::cpu::has_bf16_products()
}
