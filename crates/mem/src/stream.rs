//! Writing a large array past the caches.

use std::arch::x86_64::{__m128i, _mm_load_si128, _mm_sfence, _mm_stream_si128};
use std::mem::MaybeUninit;

use bytemuck::Pod;

use crate::prefetch::LINE_BYTES;

/// Bytes that are collected before they are written. A core has few places for lines that are on their way to
/// memory, and requests for lines from there wait for the same ones; so whole lines go out many at a time.
/// 1 KiB: 20 % slower; 4, 16 and 32 KiB: within 5 %.
const STAGE_BYTES: usize = 8 << 10;

/// Bytes that one instruction writes. Every processor of this kind has it; the wider ones gave 5 to 10 %.
const STORE_BYTES: usize = size_of::<__m128i>();

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
}

#[derive(Debug)]
#[repr(align(64))]
struct Stage([MaybeUninit<u8>; STAGE_BYTES]);

impl<'v, T: Pod> Writer<'v, T> {
    pub(crate) fn new(out: &'v mut Vec<T>) -> Self {
        let to_line = out.spare_capacity_mut().as_ptr().cast::<u8>().align_offset(LINE_BYTES);
        let n_wanted = if to_line == 0 { STAGE_BYTES } else { to_line };
        Self { out, n_written: 0, stage: Stage([MaybeUninit::uninit(); STAGE_BYTES]), n_staged: 0, n_wanted }
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
        // SAFETY: no memory is touched; the stores above come before all that this thread does after it, as
        // ordinary ones do by themselves.
        unsafe { _mm_sfence() };
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
        if n_bytes == STAGE_BYTES {
            for offset in (0..STAGE_BYTES).step_by(STORE_BYTES) {
                // SAFETY: the whole stage is filled and lies at a line; so does the target, since the first
                // stage ended there and all others are whole lines.
                unsafe {
                    let value = _mm_load_si128(stage.add(offset).cast());
                    _mm_stream_si128(target.add(offset).cast(), value);
                }
            }
        } else {
            // SAFETY: the stage has so many filled bytes, and the vector room for them.
            unsafe { target.copy_from_nonoverlapping(stage, n_bytes) };
        }
        self.n_written += n_bytes;
        (self.n_staged, self.n_wanted) = (0, STAGE_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes numbers in parts of `n_part` behind `n_before` elements of the vector.
    fn check(n_before: usize, n_values: usize, n_part: usize) {
        let mut out: Vec<u16> = Vec::with_capacity(n_before + n_values);
        out.resize(n_before, 7);
        let values: Vec<u16> = (0..n_values).map(|value| value as u16).collect();
        let mut writer = Writer::new(&mut out);
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
                    check(n_before, n_values, n_part);
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
