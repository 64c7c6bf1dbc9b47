use std::alloc::{GlobalAlloc, Layout, System};

/// A global allocator that keeps large freed buffers and hands them out again, in huge pages.
///
/// A training step takes and frees buffers of megabytes over and over. The system's allocator gives their
/// pages back, and the next taker has each 4 KiB of them mapped and cleared again: a third of a step's
/// processor time. Here a buffer of at least [`HugePageAllocator::LEAST_BYTES`] is a region of its own, mapped at a
/// multiple of 2 MiB with huge pages where the system has them, which makes random reads of rows up to twice as
/// fast, and a freed region serves the next buffer of about its size, whoever takes it. Smaller buffers, and all
/// on other systems than Linux, are [`System`]'s.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: kiln_mem::HugePageAllocator = kiln_mem::HugePageAllocator::new();
/// ```
///
/// **Bound.** Before a region is mapped, and now and then besides, those freed longest ago are unmapped until all
/// together are at most a quarter more than was lately in use at one time: while the last one to two thousand
/// large buffers were taken. A program that takes no more of them keeps what it last had. A buffer of 1 MiB takes a
/// huge page of 2, one of 2 MiB takes two.
///
/// It is made in a static: what is kept is not given back when it is dropped.
///
/// It is for programs: a library leaves the choice of an allocator to them.
#[derive(Debug)]
pub struct HugePageAllocator {
    #[cfg(target_os = "linux")]
    regions: regions::Regions,
}

/// The memory that a [`HugePageAllocator`] holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocatorStats {
    /// Bytes of regions in use.
    pub used_bytes: usize,
    /// Bytes of regions that were freed and are kept.
    pub kept_bytes: usize,
}

impl HugePageAllocator {
    /// Buffers of at least this many bytes are regions.
    pub const LEAST_BYTES: usize = 1 << 20;

    /// An allocator that holds nothing yet.
    #[expect(clippy::new_without_default, reason = "it is made in a static, which no default can do")]
    pub const fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            regions: regions::Regions::new(),
        }
    }

    /// The memory that is held now.
    pub fn stats(&self) -> AllocatorStats {
        #[cfg(target_os = "linux")]
        return self.regions.stats();
        #[cfg(not(target_os = "linux"))]
        AllocatorStats { used_bytes: 0, kept_bytes: 0 }
    }
}

/// Whether a buffer is a region: only by its layout, so that freeing it comes to the same answer.
#[inline]
fn is_large(layout: Layout) -> bool {
    cfg!(target_os = "linux")
        && HugePageAllocator::LEAST_BYTES <= layout.size()
        && layout.align() <= MAX_ALIGN
}

/// Buffers that want to start at a multiple of more are the system's. Matrix products ask for 128.
const MAX_ALIGN: usize = 4096;

// SAFETY: a large buffer is a region's bytes behind the header, mapped, of at least the layout's size, aligned as
// the layout says, and nobody else's until it is freed; everything else is the system allocator's. Which of the
// two a buffer is follows from its layout.
unsafe impl GlobalAlloc for HugePageAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        #[cfg(target_os = "linux")]
        if is_large(layout) {
            return self.regions.take(layout).0;
        }
        // SAFETY: the caller's promises are those that the system allocator asks for.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        #[cfg(target_os = "linux")]
        if is_large(layout) {
            let (buffer, is_fresh) = self.regions.take(layout);
            if !buffer.is_null() && !is_fresh {
                // SAFETY: the region has at least this many bytes behind its header, and they are ours.
                unsafe { buffer.write_bytes(0, layout.size()) };
            }
            return buffer;
        }
        // SAFETY: the caller's promises are those that the system allocator asks for.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, buffer: *mut u8, layout: Layout) {
        #[cfg(target_os = "linux")]
        if is_large(layout) {
            // SAFETY: a buffer of such a layout came from `take`, and the caller gives it up.
            return unsafe { self.regions.give_back(buffer) };
        }
        // SAFETY: the caller's promises are those that the system allocator asks for.
        unsafe { System.dealloc(buffer, layout) }
    }

    unsafe fn realloc(&self, buffer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that `size` with this alignment is a layout.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (is_large(layout), is_large(wanted)) {
            // SAFETY: the caller's promises are those that the system allocator asks for.
            (false, false) => unsafe { System.realloc(buffer, layout, size) },
            #[cfg(target_os = "linux")]
            // SAFETY: a buffer of such a layout came from `take`, and the caller owns it.
            (true, true) if unsafe { self.regions.resize(buffer, size) } => buffer,
            _ => {
                // SAFETY: as for `alloc`; both buffers have at least the smaller size, and are not the same.
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
