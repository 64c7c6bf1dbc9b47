//! Writing a large array past the caches.

use std::arch::x86_64::{
    _mm_load_si128, _mm_sfence, _mm_stream_si128, _mm256_load_si256, _mm256_stream_si256,
};
use std::mem::MaybeUninit;

use bytemuck::Pod;

use crate::prefetch::LINE_BYTES;

/// Bytes that are collected before they are written. A core has few places for lines that are on their way to
/// memory, and requests for lines from there wait for the same ones; so whole lines go out many at a time.
/// A gather of 53 ms took 65 ms with 1 KiB, 57 with 2 and 55 with 4; more changed nothing.
const STAGE_BYTES: usize = 8 << 10;

/// Appends elements to a vector that has room for them, as whole lines that pass by the caches.
///
/// What was written belongs to the vector after [`Writer::finish`]; without it, it has none of them.
#[derive(Debug)]
pub(crate) struct Writer<'v, T> {
    out: &'v mut Vec<T>,
    /// Bytes behind the vector's elements that were written.
    n_written: usize,
    /// The next bytes.
    stage: Stage,
    /// How many of the stage's bytes are filled.
    n_staged: usize,
    /// When so many are filled they are written: up to the start of a line at first, then a whole stage.
    n_wanted: usize,
    /// Whether the processor writes 32 bytes by one instruction: 8 % faster than by two.
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

    /// Appends these elements.
    ///
    /// # Panics
    /// When the vector has no room for them.
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

    /// The vector has all that was written.
    pub(crate) fn finish(mut self) {
        self.write_stage();
        fence();
        let n_values = self.n_written / size_of::<T>().max(1);
        // SAFETY: the elements behind the vector's own, which it has room for, were written.
        unsafe { self.out.set_len(self.out.len() + n_values) };
    }

    /// Writes what the stage holds.
    fn write_stage(&mut self) {
        let room = self.out.spare_capacity_mut();
        let room_bytes = size_of_val(room);
        let (stage, n_bytes) = (self.stage.0.as_ptr().cast::<u8>(), self.n_staged);
        assert!(n_bytes <= room_bytes - self.n_written, "{n_bytes} bytes for room of {room_bytes}");
        // SAFETY: by the assertion, so many bytes lie in the vector's room.
        let target = unsafe { room.as_mut_ptr().cast::<u8>().add(self.n_written) };
        match n_bytes == STAGE_BYTES {
            // SAFETY: the whole stage is filled and lies at a line; so does the target, since the first stage ended
            // there and all others are whole lines. The processor has what the wide one needs.
            true if self.is_wide => unsafe { stream_wide(stage, target) },
            // SAFETY: as above.
            true => unsafe { stream(stage, target) },
            // SAFETY: the stage has so many filled bytes, and the vector room for them.
            false => unsafe { target.copy_from_nonoverlapping(stage, n_bytes) },
        }
        self.n_written += n_bytes;
        (self.n_staged, self.n_wanted) = (0, STAGE_BYTES);
    }
}

/// # Safety
/// Both are a stage's bytes, start at a line and do not overlap; those of the stage are filled.
unsafe fn stream(stage: *const u8, target: *mut u8) {
    for offset in (0..STAGE_BYTES).step_by(16) {
        // SAFETY: the offset is within the stage; every processor of this kind has the instructions.
        unsafe { _mm_stream_si128(target.add(offset).cast(), _mm_load_si128(stage.add(offset).cast())) };
    }
}

/// # Safety
/// As for [`stream`].
#[target_feature(enable = "avx")]
unsafe fn stream_wide(stage: *const u8, target: *mut u8) {
    for offset in (0..STAGE_BYTES).step_by(32) {
        // SAFETY: the offset is within the stage.
        unsafe {
            _mm256_stream_si256(target.add(offset).cast(), _mm256_load_si256(stage.add(offset).cast()))
        };
    }
}

/// Also when a writer is given up half way: the vector's memory may be anybody's next.
impl<T> Drop for Writer<'_, T> {
    fn drop(&mut self) {
        fence();
    }
}

/// The stores so far come before all that this thread does afterwards, as ordinary ones do by themselves.
fn fence() {
    // SAFETY: no memory is touched.
    unsafe { _mm_sfence() };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes numbers in parts of `n_part` behind `n_before` elements of the vector.
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
        assert_eq!(out[n_before..], values, "{n_before} before, parts of {n_part}");
    }

    #[test]
    fn every_element_is_written_wherever_lines_and_stages_begin() {
        for n_before in [0, 1, 31, 32, 33, 5000] {
            // Parts that end within a line, at a stage's end, and that are longer than several stages.
            for n_part in [1, 100, STAGE_BYTES / 2, STAGE_BYTES / 2 + 1, 3 * STAGE_BYTES + 5] {
                for n_values in [0, 1, 32, 33, STAGE_BYTES / 2, 5 * STAGE_BYTES + 17] {
                    check(n_before, n_values, n_part, true);
                    check(n_before, n_values, n_part, false);
                }
            }
        }
    }

    #[test]
    fn without_its_finish_nothing_is_there() {
        let mut out: Vec<u16> = Vec::with_capacity(2 * STAGE_BYTES);
        Writer::new(&mut out).write(&[1; STAGE_BYTES]);
        assert_eq!(out, []);
    }

    #[test]
    #[should_panic(expected = "bytes for room of")]
    fn more_than_there_is_room_for_is_refused() {
        let mut out: Vec<u16> = Vec::with_capacity(10);
        let mut writer = Writer::new(&mut out);
        writer.write(&[1; 2 * STAGE_BYTES]);
    }
}
