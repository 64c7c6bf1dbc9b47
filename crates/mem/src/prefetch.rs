/// The size of a cache line on the supported processors, in bytes.
pub(crate) const LINE_BYTES: usize = 64;

/// Prefetches the cache line of `values[index]` into the L1 cache. An index beyond the end is harmless. A loop over
/// random positions of a large table should prefetch 8 to 32 positions ahead, to overlap its cache misses.
#[inline(always)]
pub fn prefetch<T>(values: &[T], index: usize) {
    line::<false>(values.as_ptr().wrapping_add(index).cast());
}

/// Same as [`prefetch`], but into the L2 cache only, which supports more outstanding misses than the L1 cache. Use it
/// in loops that prefetch 64 positions ahead or more.
#[inline(always)]
pub fn prefetch_far<T>(values: &[T], index: usize) {
    line::<true>(values.as_ptr().wrapping_add(index).cast());
}

/// Prefetches all cache lines of `values[start..start + n]` into the L1 cache.
#[inline(always)]
pub fn prefetch_range<T>(values: &[T], start: usize, n: usize) {
    for_each_line::<_, false>(values, start, n);
}

/// Prefetches all cache lines of `values[start..start + n]` into the L2 cache, like [`prefetch_far`]. It suits long
/// rows at random positions.
#[inline(always)]
pub fn prefetch_range_far<T>(values: &[T], start: usize, n: usize) {
    for_each_line::<_, true>(values, start, n);
}

/// Prefetches each cache line of `values[start..start + n]`, into the L2 cache if `FAR`.
#[inline(always)]
fn for_each_line<T, const FAR: bool>(values: &[T], start: usize, n: usize) {
    if n == 0 {
        return;
    }
    let first: *const u8 = values.as_ptr().wrapping_add(start).cast();
    let n_bytes = n * size_of::<T>();
    // The offsets count from the start of the first line, so that the line of the last byte is included.
    let before = first.addr() % LINE_BYTES;
    for offset in (0..before + n_bytes).step_by(LINE_BYTES) {
        line::<FAR>(first.wrapping_sub(before).wrapping_add(offset));
    }
}

/// Prefetches the cache line of an address into the L1 cache, or into the L2 cache if `FAR`. The processor ignores
/// unmapped addresses.
#[inline(always)]
fn line<const FAR: bool>(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no architectural effect and never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        match FAR {
            false => _mm_prefetch::<_MM_HINT_T0>(address.cast()),
            true => _mm_prefetch::<_MM_HINT_T1>(address.cast()),
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch never faults, whatever the address; the instructions modify no register and no memory.
    unsafe {
        use std::arch::asm;
        match FAR {
            false => {
                asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly))
            }
            true => {
                asm!("prfm pldl2keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly))
            }
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
