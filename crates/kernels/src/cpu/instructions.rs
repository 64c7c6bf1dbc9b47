//! The instructions of this machine's processor.

/// Returns true if the processor has the instructions for products in bf16.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_bf16_products() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512bw")
        && std::arch::is_x86_feature_detected!("avx512bf16")
}

/// Returns false: other architectures have no kernel for bf16.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn has_bf16_products() -> bool {
    false
}
