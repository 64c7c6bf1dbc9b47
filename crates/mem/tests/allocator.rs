//! The allocator, as this test program's own.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::Mutex;

use kiln_mem::HugePageAllocator;

#[global_allocator]
static ALLOCATOR: HugePageAllocator = HugePageAllocator::new();

/// Tests look at what the one allocator of the process holds, so they run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

const MIB: usize = 1 << 20;

fn bytes(n: usize, value: u8) -> Vec<u8> {
    vec![value; n]
}

#[test]
fn a_freed_buffer_serves_the_next_of_about_its_size() {
    let _alone = ALONE.lock().unwrap();
    let first = bytes(40 * MIB, 1);
    let address = first.as_ptr() as usize;
    drop(first);
    let second = bytes(39 * MIB, 2);
    assert_eq!(second.as_ptr() as usize, address);
    assert!(second.iter().all(|byte| *byte == 2));
}

#[test]
fn zeroed_buffers_are_zeros_whatever_was_there() {
    let _alone = ALONE.lock().unwrap();
    drop(bytes(7 * MIB, 255));
    let zeroed = bytes(7 * MIB, 0);
    assert!(zeroed.iter().all(|byte| *byte == 0));
}

/// Takes a buffer from an allocator that is not the program's, and gives it back; whether there was one.
fn takes_and_frees(allocator: &HugePageAllocator, n_bytes: usize) -> bool {
    let layout = Layout::from_size_align(n_bytes, 8).unwrap();
    // SAFETY: the layout has a size; the buffer is freed with the layout it was taken with.
    unsafe {
        let buffer = allocator.alloc(layout);
        if buffer.is_null() {
            return false;
        }
        allocator.dealloc(buffer, layout);
    }
    true
}

#[test]
fn at_most_a_quarter_more_is_held_than_was_lately_used() {
    let allocator = HugePageAllocator::new();
    // Few of these serve each other; each alone, so that the most in use is the largest.
    for n in [3, 160, 10, 90, 20, 45, 5, 130] {
        assert!(takes_and_frees(&allocator, n * MIB));
        let held = allocator.stats();
        assert_eq!(held.used_bytes, 0);
        assert!(held.kept_bytes <= (160 + 160 / 8) * MIB * 5 / 4, "{held:?}");
    }
}

#[test]
fn what_was_used_long_ago_is_given_back() {
    let allocator = HugePageAllocator::new();
    takes_and_frees(&allocator, 600 * MIB);
    // Buffers that the large region does not serve.
    for _ in 0..500 {
        takes_and_frees(&allocator, 3 * MIB);
    }
    assert!(600 * MIB <= allocator.stats().kept_bytes);
    for _ in 0..2000 {
        takes_and_frees(&allocator, 3 * MIB);
    }
    assert_eq!(allocator.stats().kept_bytes, 4 * MIB);
}

#[test]
fn before_a_buffer_is_refused_what_is_kept_is_given_back() {
    let allocator = HugePageAllocator::new();
    takes_and_frees(&allocator, 30 * MIB);
    assert_eq!(allocator.stats().kept_bytes, 32 * MIB);
    assert!(!takes_and_frees(&allocator, 1 << 50));
    assert_eq!(allocator.stats().kept_bytes, 0);
    assert!(takes_and_frees(&allocator, 30 * MIB));
}

#[test]
fn growing_and_shrinking_keep_what_is_in_a_buffer() {
    let _alone = ALONE.lock().unwrap();
    let mut values: Vec<u32> = Vec::new();
    // From the small ones of the system's allocator through many regions.
    for value in 0..3_000_000 {
        values.push(value);
    }
    values.truncate(700_000);
    values.shrink_to_fit();
    assert!(values.iter().copied().eq(0..700_000));
    values.truncate(10);
    values.shrink_to_fit();
    assert_eq!(values, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn shrinking_gives_pages_back() {
    let _alone = ALONE.lock().unwrap();
    let before = ALLOCATOR.stats();
    let mut values = bytes(100 * MIB, 1);
    values.truncate(30 * MIB);
    values.shrink_to_fit();
    let held = ALLOCATOR.stats();
    assert!(held.used_bytes - before.used_bytes <= 36 * MIB, "{held:?}");
    assert!(values.iter().all(|byte| *byte == 1));
}

#[test]
fn buffers_start_at_a_cache_line_and_larger_alignments_are_kept() {
    let _alone = ALONE.lock().unwrap();
    let buffer = bytes(2 * MIB, 1);
    assert_eq!(buffer.as_ptr() as usize % 64, 0);
    for align in [1, 128, 4096, 8192, 4 * MIB] {
        let layout = Layout::from_size_align(4 * MIB, align).unwrap();
        // SAFETY: the layout has a size; the buffer is resized and freed with the layout it has.
        unsafe {
            let buffer = ALLOCATOR.alloc(layout);
            assert_eq!(buffer as usize % align, 0);
            buffer.write_bytes(3, layout.size());
            let grown = ALLOCATOR.realloc(buffer, layout, 20 * MIB);
            assert_eq!(grown as usize % align, 0);
            assert!(std::slice::from_raw_parts(grown, 4 * MIB).iter().all(|byte| *byte == 3));
            ALLOCATOR.dealloc(grown, Layout::from_size_align(20 * MIB, align).unwrap());
        }
    }
}

#[test]
fn a_size_that_no_machine_has_is_refused() {
    let _alone = ALONE.lock().unwrap();
    let mut huge: Vec<u8> = Vec::new();
    assert!(huge.try_reserve_exact(isize::MAX as usize - 100).is_err());
    assert!(huge.try_reserve_exact(1 << 50).is_err());
}

#[test]
fn threads_have_buffers_of_their_own() {
    let _alone = ALONE.lock().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            scope.spawn(move || {
                for round in 0..40 {
                    let n = MIB + (usize::from(thread) * 977 + round * 131) % 5 * MIB;
                    let buffer = bytes(n, thread);
                    std::thread::yield_now();
                    assert!(buffer.iter().all(|byte| *byte == thread));
                }
            });
        }
    });
}
