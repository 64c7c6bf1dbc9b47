//! Tests of the allocator, which is also the global allocator of this test binary.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::Mutex;

use kiln_mem::HugePageAllocator;

#[global_allocator]
static ALLOCATOR: HugePageAllocator = HugePageAllocator::new();

/// Serialises the tests that check the process's global allocator.
static ALONE: Mutex<()> = Mutex::new(());

const MIB: usize = 1 << 20;

fn bytes(n: usize, value: u8) -> Vec<u8> {
    vec![value; n]
}

#[test]
fn freed_buffer_is_reused_for_one_of_similar_size() {
    let _alone = ALONE.lock().unwrap();
    let first = bytes(40 * MIB, 1);
    let address = first.as_ptr() as usize;
    drop(first);
    let second = bytes(39 * MIB, 2);
    assert_eq!(second.as_ptr() as usize, address);
    assert!(second.iter().all(|byte| *byte == 2));
}

#[test]
fn reused_zeroed_buffers_are_zero() {
    let _alone = ALONE.lock().unwrap();
    drop(bytes(7 * MIB, 255));
    let zeroed = bytes(7 * MIB, 0);
    assert!(zeroed.iter().all(|byte| *byte == 0));
}

/// Allocates and frees a buffer with a separate allocator. Returns false if the allocation failed.
fn takes_and_frees(allocator: &HugePageAllocator, n_bytes: usize) -> bool {
    let layout = Layout::from_size_align(n_bytes, 8).unwrap();
    // SAFETY: the layout has a nonzero size; the buffer is freed with the layout of its allocation.
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
fn held_memory_is_at_most_a_quarter_above_recent_peak() {
    let allocator = HugePageAllocator::new();
    // Few of these sizes can reuse each other's regions. One buffer is in use at a time, so the peak is the largest
    // size.
    for n in [3, 160, 10, 90, 20, 45, 5, 130] {
        assert!(takes_and_frees(&allocator, n * MIB));
        let held = allocator.stats();
        assert_eq!(held.used_bytes, 0);
        assert!(held.kept_bytes <= (160 + 160 / 8) * MIB * 5 / 4, "{held:?}");
    }
}

#[test]
fn regions_unused_for_two_windows_are_unmapped() {
    let allocator = HugePageAllocator::new();
    takes_and_frees(&allocator, 600 * MIB);
    // The large region cannot be reused for these small buffers.
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
fn kept_regions_are_unmapped_before_an_allocation_fails() {
    let allocator = HugePageAllocator::new();
    takes_and_frees(&allocator, 30 * MIB);
    assert_eq!(allocator.stats().kept_bytes, 32 * MIB);
    assert!(!takes_and_frees(&allocator, 1 << 50));
    assert_eq!(allocator.stats().kept_bytes, 0);
    assert!(takes_and_frees(&allocator, 30 * MIB));
}

#[test]
fn realloc_keeps_the_contents_when_growing_and_shrinking() {
    let _alone = ALONE.lock().unwrap();
    let mut values: Vec<u32> = Vec::new();
    // The buffer grows from the system allocator's small buffers through many regions.
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
fn shrinking_unmaps_pages() {
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
fn buffers_are_aligned_to_cache_lines_and_their_layout() {
    let _alone = ALONE.lock().unwrap();
    let buffer = bytes(2 * MIB, 1);
    assert_eq!(buffer.as_ptr() as usize % 64, 0);
    for align in [1, 128, 4096, 8192, 4 * MIB] {
        let layout = Layout::from_size_align(4 * MIB, align).unwrap();
        // SAFETY: the layout has a nonzero size; the buffer is resized and freed with its current layout.
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
fn rejects_sizes_beyond_the_address_space() {
    let _alone = ALONE.lock().unwrap();
    let mut huge: Vec<u8> = Vec::new();
    assert!(huge.try_reserve_exact(isize::MAX as usize - 100).is_err());
    assert!(huge.try_reserve_exact(1 << 50).is_err());
}

#[test]
fn concurrent_threads_get_distinct_buffers() {
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
