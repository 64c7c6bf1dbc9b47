//! Streaming stores: writes of a large array that bypass the caches.

use std::arch::x86_64::{
    _mm_load_si128, _mm_sfence, _mm_stream_si128, _mm256_load_si256, _mm256_stream_si256,
};
use std::mem::MaybeUninit;

use bytemuck::Pod;

use crate::prefetch::LINE_BYTES;

/// The size of the staging buffer in bytes. Streaming stores compete with loads for a core's few line-fill buffers.
/// Therefore a full stage is written at a time, instead of interleaving loads and stores.
const STAGE_BYTES: usize = 8 << 10;

/// A writer that appends elements to a vector's spare capacity by streaming stores of whole cache lines.
///
/// The elements become part of the vector in [`Writer::finish`]; a dropped writer leaves the vector unchanged.
#[derive(Debug)]
pub(crate) struct Writer<'v, T> {
    out: &'v mut Vec<T>,
    /// The number of bytes written to the spare capacity.
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

impl<'v, T: Pod> Writer<'v, T> {
    pub(crate) fn new(out: &'v mut Vec<T>) -> Self {
        let to_line = out.spare_capacity_mut().as_ptr().cast::<u8>().align_offset(LINE_BYTES);
        let n_wanted = if to_line == 0 { STAGE_BYTES } else { to_line };
        let stage = Stage([MaybeUninit::uninit(); STAGE_BYTES]);
        Self { out, n_written: 0, stage, n_staged: 0, n_wanted, is_wide: is_x86_feature_detected!("avx") }
    }

    /// Appends elements.
    ///
    /// # Panics
    /// Panics if they exceed the vector's capacity.
    #[inline(always)]
    pub(crate) fn write(&mut self, values: &[T]) {
        let mut bytes: &[u8] = bytemuck::cast_slice(values);
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

    /// Writes the rest of the stage and adds all written elements to the vector.
    pub(crate) fn finish(mut self) {
        self.write_stage();
        fence();
        let n_values = self.n_written / size_of::<T>().max(1);
        // SAFETY: the elements after the vector's length are within its capacity and have been written.
        unsafe { self.out.set_len(self.out.len() + n_values) };
    }

    /// Writes the filled bytes of the stage.
    fn write_stage(&mut self) {
        let room = self.out.spare_capacity_mut();
        let room_bytes = size_of_val(room);
        let (stage, n_bytes) = (self.stage.0.as_ptr().cast::<u8>(), self.n_staged);
        assert!(
            n_bytes <= room_bytes - self.n_written,
            "{n_bytes} bytes exceed the spare capacity of {room_bytes} bytes"
        );
        // SAFETY: by the assertion, the target is within the vector's spare capacity.
        let target = unsafe { room.as_mut_ptr().cast::<u8>().add(self.n_written) };
        match n_bytes == STAGE_BYTES {
            // SAFETY: the stage is full and aligned to a line. The target has room for it and is aligned to a line,
            // because the first write ended at the start of a line and later writes are whole lines. `is_wide` implies
            // AVX.
            true if self.is_wide => unsafe { stream_wide(stage, target) },
            // SAFETY: the conditions are those of `stream_wide`, except that AVX is not needed.
            true => unsafe { stream(stage, target) },
            // SAFETY: the stage has `n_bytes` filled bytes, and the vector has the capacity for them.
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

/// Orders the stores also if a writer is dropped before [`Writer::finish`], because the vector's memory may be reused.
impl<T> Drop for Writer<'_, T> {
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

    /// Writes numbers in chunks of `n_part` after `n_before` elements of the vector.
    fn check(n_before: usize, n_values: usize, n_part: usize, is_wide: bool) {
        let mut out: Vec<u16> = Vec::with_capacity(n_before + n_values);
        out.resize(n_before, 7);
        let values: Vec<u16> = (0..n_values).map(|value| value as u16).collect();
        let mut writer = Writer::new(&mut out);
        writer.is_wide &= is_wide;
        for part in values.chunks(n_part) {
            writer.write(part);
        }
        writer.finish();
        assert!(out[..n_before].iter().all(|value| *value == 7));
        assert_eq!(out[n_before..], values, "{n_before} before, chunks of {n_part}");
    }

    #[test]
    fn writes_all_elements_at_any_alignment_and_length() {
        for n_before in [0, 1, 31, 32, 33, 5000] {
            // The chunks end within a line or at the end of a stage, or are longer than several stages.
            for n_part in [1, 100, STAGE_BYTES / 2, STAGE_BYTES / 2 + 1, 3 * STAGE_BYTES + 5] {
                for n_values in [0, 1, 32, 33, STAGE_BYTES / 2, 5 * STAGE_BYTES + 17] {
                    check(n_before, n_values, n_part, true);
                    check(n_before, n_values, n_part, false);
                }
            }
        }
    }

    #[test]
    fn dropped_writer_leaves_the_vector_unchanged() {
        let mut out: Vec<u16> = Vec::with_capacity(2 * STAGE_BYTES);
        Writer::new(&mut out).write(&[1; STAGE_BYTES]);
        assert_eq!(out, []);
    }

    #[test]
    #[should_panic(expected = "bytes exceed the spare capacity of")]
    fn panics_if_elements_exceed_the_capacity() {
        let mut out: Vec<u16> = Vec::with_capacity(10);
        let mut writer = Writer::new(&mut out);
        writer.write(&[1; 2 * STAGE_BYTES]);
    }
}
