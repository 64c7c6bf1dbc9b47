/// Asks the processor to load `n_values` values from `start` on; beyond the end it asks for nothing.
#[inline]
pub(super) fn prefetch(values: &[f32], start: usize, n_values: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(values) = values.get(start..start + n_values) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        for line in values.chunks(16) {
            // SAFETY: a prefetch reads nothing that the program can see, and the address is a slice's.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, start, n_values);
}
