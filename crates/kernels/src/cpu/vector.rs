//! Which of the processor's vector instructions a loop runs with, chosen when it runs.

/// A loop that is compiled once for each set of instructions.
pub(super) trait Task {
    /// Runs the loop. It and what it calls in the loop must be `#[inline(always)]`: what is not is compiled for
    /// the least of the sets alone.
    fn run(self);
}

/// Runs a task with the widest vectors that the processor has.
///
/// A product and the addition that follows it are two roundings on all of them, and columns are added one by
/// one, so that they all give the same bits.
#[inline]
pub(super) fn run(task: impl Task) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected;
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
            // SAFETY: the processor has the instructions.
            return unsafe { with_avx512(task) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the instructions.
            return unsafe { with_avx2(task) };
        }
    }
    with_least(task);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl")]
fn with_avx512(task: impl Task) {
    task.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(task: impl Task) {
    task.run();
}

/// With what every processor of this kind has: SSE2, or NEON.
fn with_least(task: impl Task) {
    task.run();
}

/// Runs a task with each set that the processor has, the least first, so that a test can compare the bits.
#[cfg(test)]
pub(super) fn run_with_each<T: Task>(mut task: impl FnMut() -> T) {
    with_least(task());
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the instructions.
            unsafe { with_avx2(task()) };
        }
        run(task());
    }
}
