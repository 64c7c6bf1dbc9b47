use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

/// A global allocator that keeps large freed buffers for reuse and backs them with huge pages.
///
/// A training step repeatedly allocates and frees buffers of megabytes. The system allocator returns their pages to the
/// kernel, which maps and zeroes each page of 4 KiB again for the next buffer; this takes a large part of a step's CPU
/// time. Here each buffer of at least [`HugePageAllocator::LEAST_BYTES`] is a separate region, mapped at a multiple of
/// 2 MiB and backed with huge pages where the system supports them, which makes random reads of rows faster. A freed
/// region is reused for the next buffer of similar size, on any thread. Smaller buffers, and all buffers on systems
/// other than Linux, come from [`System`].
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: kiln_mem::HugePageAllocator = kiln_mem::HugePageAllocator::new();
/// ```
///
/// **Memory bound.** Before a region is mapped, and periodically, the least recently freed regions are unmapped until
/// the total is at most 25 % above the recent peak of memory in use, over the last 1,024 to 2,048 allocations of large
/// buffers. A program that stops allocating large buffers keeps its regions. A buffer of 1 MiB takes one huge page of
/// 2 MiB; one of 2 MiB takes two, because of the region's header.
///
/// The allocator must be a static: dropping it does not unmap the kept regions.
///
/// It is meant for programs; a library should leave the choice of the allocator to the program. kiln's programs use it:
/// of the allocators that were compared, it alone is faster than glibc's and needs no C compiler
/// (`docs/benchmarks/not-helped.md`).
#[derive(Debug)]
pub struct HugePageAllocator {
    #[cfg(target_os = "linux")]
    regions: regions::Regions,
}

/// The memory held by a [`HugePageAllocator`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocatorStats {
    /// Bytes of regions in use.
    pub used_bytes: usize,
    /// Bytes of freed regions that are kept for reuse.
    pub kept_bytes: usize,
}

impl HugePageAllocator {
    /// The size in bytes from which a buffer is a separate region.
    pub const LEAST_BYTES: usize = 1 << 20;

    /// Creates an allocator without any regions.
    #[expect(
        clippy::new_without_default,
        reason = "a static needs a const constructor, and `default` is not const"
    )]
    pub const fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            regions: regions::Regions::new(),
        }
    }

    /// Returns true if the process has taken a large buffer from such an allocator. False on systems other than Linux, where
    /// there are no regions.
    pub fn is_used() -> bool {
        IS_USED.load(Ordering::Relaxed)
    }

    /// Returns the memory that the allocator holds at present.
    pub fn stats(&self) -> AllocatorStats {
        #[cfg(target_os = "linux")]
        return self.regions.stats();
        #[cfg(not(target_os = "linux"))]
        AllocatorStats { used_bytes: 0, kept_bytes: 0 }
    }
}

/// True once an allocator was asked for a large buffer.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// Returns true if a buffer is a region. It depends only on the layout, so `dealloc` gets the same result as `alloc`.
#[inline]
fn is_large(layout: Layout) -> bool {
    cfg!(target_os = "linux")
        && HugePageAllocator::LEAST_BYTES <= layout.size()
        && layout.align() <= MAX_ALIGN
}

/// The maximum alignment of buffers in regions; buffers with a larger alignment come from the system allocator.
const MAX_ALIGN: usize = 4096;

// SAFETY: a large buffer is the mapped memory of a region after its header, has at least the layout's size and
// alignment, and is used by no other buffer until it is freed. All other buffers come from the system allocator. The
// layout determines which of the two a buffer is.
unsafe impl GlobalAlloc for HugePageAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        #[cfg(target_os = "linux")]
        if is_large(layout) {
            return self.regions.take(layout).0;
        }
        // SAFETY: the caller upholds the contract of the system allocator.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        #[cfg(target_os = "linux")]
        if is_large(layout) {
            let (buffer, is_fresh) = self.regions.take(layout);
            if !buffer.is_null() && !is_fresh {
                // SAFETY: the region has at least this many bytes after its header, and no other buffer uses them.
                unsafe { buffer.write_bytes(0, layout.size()) };
            }
            return buffer;
        }
        // SAFETY: the caller upholds the contract of the system allocator.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, buffer: *mut u8, layout: Layout) {
        #[cfg(target_os = "linux")]
        if is_large(layout) {
            // SAFETY: a buffer with such a layout came from `take`, and the caller no longer uses it.
            return unsafe { self.regions.give_back(buffer) };
        }
        // SAFETY: the caller upholds the contract of the system allocator.
        unsafe { System.dealloc(buffer, layout) }
    }

    unsafe fn realloc(&self, buffer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that `size` with this alignment is a valid layout.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (is_large(layout), is_large(wanted)) {
            // SAFETY: the caller upholds the contract of the system allocator.
            (false, false) => unsafe { System.realloc(buffer, layout, size) },
            #[cfg(target_os = "linux")]
            // SAFETY: a buffer with such a layout came from `take`, and the caller owns it.
            (true, true) if unsafe { self.regions.resize(buffer, size) } => buffer,
            _ => {
                // SAFETY: the buffers are allocated and freed under the same conditions as in `alloc` and `dealloc`;
                // both have at least the smaller size and do not overlap.
                unsafe {
                    let moved = self.alloc(wanted);
                    if !moved.is_null() {
                        moved.copy_from_nonoverlapping(buffer, layout.size().min(size));
                        self.dealloc(buffer, layout);
                    }
                    moved
                }
            }
        }
    }
}

#[cfg(target_os = "linux")]
mod regions;
