//! Selection of the vector instructions of a loop at run time.
//!
//! ```
//! use kiln_mem::vector;
//! struct Double<'a>(&'a mut [u32]);
//! impl vector::VectorTask for Double<'_> {
//!     #[inline(always)]
//!     fn run(self) {
//!         self.0.iter_mut().for_each(|value| *value *= 2);
//!     }
//! }
//! let mut values = [1, 2, 3];
//! vector::run(Double(&mut values));
//! assert_eq!(values, [2, 4, 6]);
//! ```

/// A loop that is compiled once for each instruction set.
pub trait VectorTask {
    /// Runs the loop. The implementation and all functions that it calls in the loop must be `#[inline(always)]`;
    /// others are compiled for the baseline instruction set only.
    fn run(self);
}

/// Runs a task with the widest vector instructions of the CPU.
///
/// The compiler changes no result: it neither fuses products and additions nor reorders additions of floats.
#[inline]
pub fn run(task: impl VectorTask) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected;
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
            // SAFETY: the condition above checks that the CPU supports the instructions.
            return unsafe { with_avx512(task) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the condition above checks that the CPU supports the instructions.
            return unsafe { with_avx2(task) };
        }
    }
    with_least(task);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl")]
fn with_avx512(task: impl VectorTask) {
    task.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(task: impl VectorTask) {
    task.run();
}

/// Runs a task with the baseline instruction set of the architecture, which is SSE2 on x86-64 and NEON on AArch64.
fn with_least(task: impl VectorTask) {
    task.run();
}

/// Runs a task with each instruction set of the CPU, the baseline first, so that a test can compare the results.
#[doc(hidden)]
pub fn run_with_each<T: VectorTask>(mut task: impl FnMut() -> T) {
    with_least(task());
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the condition above checks that the CPU supports the instructions.
            unsafe { with_avx2(task()) };
        }
        run(task());
    }
}
