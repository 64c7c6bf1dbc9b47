//! Streaming stores: writes of a large array that bypass the caches.

use std::arch::x86_64::{
    _mm_load_si128, _mm_sfence, _mm_stream_si128, _mm256_load_si256, _mm256_stream_si256,
};
use std::mem::MaybeUninit;

use crate::prefetch::LINE_BYTES;

/// The size of the staging buffer in bytes. Streaming stores compete with loads for a core's few line-fill buffers.
/// Therefore a full stage is written at a time, instead of interleaving loads and stores.
const STAGE_BYTES: usize = 8 << 10;

/// A writer that fills memory from its start, by streaming stores of whole cache lines.
///
/// The bytes are in the memory after [`Writer::finish`]; a dropped writer has written part of them.
#[derive(Debug)]
pub(crate) struct Writer<'m> {
    out: &'m mut [MaybeUninit<u8>],
    /// The number of bytes written to the memory.
    n_written: usize,
    /// The staging buffer, with the next bytes to write.
    stage: Stage,
    /// The number of filled bytes in the staging buffer.
    n_staged: usize,
    /// The value of `n_staged` at which the stage is written. The first write ends at the start of a cache line of the
    /// output; all later ones have the size of the stage.
    n_wanted: usize,
    /// True if the processor supports AVX, whose 32-byte stores are faster than 16-byte ones.
    is_wide: bool,
}

#[derive(Debug)]
#[repr(align(64))]
struct Stage([MaybeUninit<u8>; STAGE_BYTES]);

impl<'m> Writer<'m> {
    /// Creates a writer of `out`. It writes initialised bytes only, never uninitialised ones.
    pub(crate) fn new(out: &'m mut [MaybeUninit<u8>]) -> Self {
        let to_line = out.as_ptr().align_offset(LINE_BYTES);
        let n_wanted = if to_line == 0 { STAGE_BYTES } else { to_line };
        let stage = Stage([MaybeUninit::uninit(); STAGE_BYTES]);
        Self { out, n_written: 0, stage, n_staged: 0, n_wanted, is_wide: is_x86_feature_detected!("avx") }
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// Panics if they exceed the memory.
    #[inline(always)]
    pub(crate) fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let n_bytes = bytes.len().min(self.n_wanted - self.n_staged);
            let (now, later) = bytes.split_at(n_bytes);
            self.stage.0[self.n_staged..self.n_staged + n_bytes].write_copy_of_slice(now);
            self.n_staged += n_bytes;
            if self.n_staged == self.n_wanted {
                self.write_stage();
            }
            bytes = later;
        }
    }

    /// Writes the rest of the stage, and returns the number of bytes at the start of the memory that are now
    /// initialised.
    ///
    /// # Panics
    /// Same as [`Writer::write`].
    pub(crate) fn finish(mut self) -> usize {
        self.write_stage();
        self.n_written
    }

    /// Writes the filled bytes of the stage.
    fn write_stage(&mut self) {
        let stage = self.stage.0.as_ptr().cast::<u8>();
        let n_bytes = self.n_staged;
        let room_bytes = self.out.len();
        assert!(
            n_bytes <= room_bytes - self.n_written,
            "{n_bytes} bytes exceed the memory of {room_bytes} bytes, of which {} are written",
            self.n_written
        );
        let target = self.out[self.n_written..].as_mut_ptr().cast::<u8>();
        match n_bytes == STAGE_BYTES {
            // SAFETY: the stage is full and aligned to a line. The target has room for it and is aligned to a line,
            // because the first write ended at the start of a line and later writes are whole lines. `is_wide` implies
            // AVX.
            true if self.is_wide => unsafe { stream_wide(stage, target) },
            // SAFETY: the conditions are those of `stream_wide`, except that AVX is not needed.
            true => unsafe { stream(stage, target) },
            // SAFETY: the stage has `n_bytes` filled bytes, and by the assertion the target has room for them.
            false => unsafe { target.copy_from_nonoverlapping(stage, n_bytes) },
        }
        self.n_written += n_bytes;
        (self.n_staged, self.n_wanted) = (0, STAGE_BYTES);
    }
}

/// Copies a stage to the target with 16-byte streaming stores.
///
/// # Safety
/// `stage` and `target` must be aligned to a cache line and valid for [`STAGE_BYTES`] bytes, and they must not overlap.
/// The stage must be initialised.
unsafe fn stream(stage: *const u8, target: *mut u8) {
    for offset in (0..STAGE_BYTES).step_by(16) {
        // SAFETY: the offset is within the stage; every x86-64 processor supports SSE2.
        unsafe { _mm_stream_si128(target.add(offset).cast(), _mm_load_si128(stage.add(offset).cast())) };
    }
}

/// Copies a stage to the target with 32-byte streaming stores.
///
/// # Safety
/// Same as for [`stream`]; in addition, the processor must support AVX.
#[target_feature(enable = "avx")]
unsafe fn stream_wide(stage: *const u8, target: *mut u8) {
    for offset in (0..STAGE_BYTES).step_by(32) {
        // SAFETY: the offset is within the stage.
        unsafe {
            _mm256_stream_si256(target.add(offset).cast(), _mm256_load_si256(stage.add(offset).cast()))
        };
    }
}

/// Orders the stores after [`Writer::finish`], and also if a writer is dropped before, because the memory may be reused.
impl Drop for Writer<'_> {
    fn drop(&mut self) {
        fence();
    }
}

/// Orders all streaming stores before later stores of this thread, as is the case for ordinary stores.
fn fence() {
    // SAFETY: the instruction accesses no memory.
    unsafe { _mm_sfence() };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes numbers in chunks of `n_part` bytes, from `n_before` bytes after the start of the memory.
    fn check(n_before: usize, n_bytes: usize, n_part: usize, is_wide: bool) {
        let mut out = vec![7_u8; n_before + n_bytes + 1];
        let values: Vec<u8> = (0..n_bytes).map(|value| (value % 251) as u8).collect();
        let mut memory = vec![MaybeUninit::new(7); n_before + n_bytes + 1];
        let mut writer = Writer::new(&mut memory[n_before..n_before + n_bytes]);
        writer.is_wide &= is_wide;
        for part in values.chunks(n_part) {
            writer.write(part);
        }
        assert_eq!(writer.finish(), n_bytes);
        out[n_before..n_before + n_bytes].copy_from_slice(&values);
        // SAFETY: all bytes were initialised.
        let got: Vec<u8> = memory.into_iter().map(|byte| unsafe { byte.assume_init() }).collect();
        assert!(got == out, "{n_before} before, {n_bytes} bytes in chunks of {n_part}");
    }

    #[test]
    fn writes_all_bytes_at_any_alignment_and_length() {
        for n_before in [0, 2, 62, 63, 66, 10_000] {
            // The chunks end within a line or at the end of a stage, or are longer than several stages.
            for n_part in [3, 200, STAGE_BYTES, STAGE_BYTES + 2, 6 * STAGE_BYTES + 10] {
                for n_bytes in [0, 2, 64, 66, STAGE_BYTES, 10 * STAGE_BYTES + 34] {
                    check(n_before, n_bytes, n_part, true);
                    check(n_before, n_bytes, n_part, false);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "bytes exceed the memory of 20 bytes")]
    fn panics_if_bytes_exceed_the_memory() {
        let mut memory = [MaybeUninit::uninit(); 20];
        let mut writer = Writer::new(&mut memory);
        writer.write(&[1; 2 * STAGE_BYTES]);
    }
}
