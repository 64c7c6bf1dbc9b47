use burn::tensor::{DType, Tensor};

/// Reads a float tensor back to the host, row by row, as f32.
///
/// This is the one place where tensors are read: on CubeCL devices Burn's `into_data` gives a view of
/// the device's buffer that later operations may still change, so that its bytes must be copied at once.
///
/// # Panics
/// When the device fails: kernels' failures surface here.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn read_f32<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().convert_dtype(DType::F32).try_to_vec().expect("data of type f32 should read as f32")
}

/// Tells the process's allocator to keep large freed buffers instead of giving their pages back. A training
/// step frees and takes buffers of up to tens of megabytes over and over; where each comes as fresh pages,
/// the system clears them again and again: 0.6 to 1.9 s of system time in a run of 9 s of processor time on
/// two cores, 0.3 to 0.6 s with this. Call it first thing in `main`, before there are threads.
///
/// It changes a setting of the whole process, so it is for programs, not for libraries. Does nothing where
/// the allocator is not glibc's.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `mallopt` only sets numbers of the allocator; it takes the allocator's lock.
    unsafe {
        // The largest threshold that glibc takes; above it, buffers are mapped and unmapped one by one.
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        // What a worker took, the trainer frees: with one pool it serves the next taker, whoever it is.
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
