use std::alloc::Layout;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{AllocatorStats, IS_USED, MAX_ALIGN};

/// The size of a huge page on most machines. The size of a region is a multiple of it.
const HUGE_PAGE: usize = 2 << 20;

/// The minimum share of a freed region, in sixteenths, that a buffer must fill to reuse the region. It limits the
/// wasted memory.
const LEAST_SIXTEENTHS: usize = 12;

/// The memory held may exceed the recent peak by the share `1 / SLACK`. Buffer sizes differ from step to step; without
/// slack, a step that needs other sizes would unmap regions that the next step needs.
const SLACK: usize = 4;

/// The number of allocations in a window. The peak is taken over the current and the previous window, which together
/// span several training steps. An unlimited peak would keep the memory of preprocessing for the whole training.
const WINDOW: usize = 1 << 10;

/// The regions in use and those kept for reuse.
#[derive(Debug)]
pub(super) struct Regions {
    state: Mutex<State>,
}

/// The list of kept regions and the statistics. The code under its lock must neither allocate nor panic.
#[derive(Debug)]
struct State {
    /// The most recently freed region: the head of the list of kept regions.
    newest: *mut Header,
    oldest: *mut Header,
    held: AllocatorStats,
    /// The peaks of bytes in use: `[in the previous window, in the current window]`.
    peaks: [usize; 2],
    /// The number of allocations in the current window.
    n_taken: usize,
}

/// The header at the start of each region.
struct Header {
    n_bytes: usize,
    /// The links in the list of kept regions; unused while the region is in use.
    newer: *mut Header,
    older: *mut Header,
}

/// The minimum number of bytes before a buffer: one cache line, so that buffers are aligned to cache lines.
const HEADER_BYTES: usize = 64;

const _: () = assert!(size_of::<Header>() <= HEADER_BYTES && MAX_ALIGN < HUGE_PAGE);

// SAFETY: the pointers refer to regions that only the holder of the lock accesses.
unsafe impl Send for State {}

impl Regions {
    pub(super) const fn new() -> Self {
        let held = AllocatorStats { used_bytes: 0, kept_bytes: 0 };
        let state =
            State { newest: ptr::null_mut(), oldest: ptr::null_mut(), held, peaks: [0; 2], n_taken: 0 };
        Self { state: Mutex::new(state) }
    }

    pub(super) fn stats(&self) -> AllocatorStats {
        self.lock().held
    }

    /// Allocates a buffer of this layout, whose alignment must be at most [`MAX_ALIGN`]. The flag is true if its pages
    /// are newly mapped, which means zeroed. The pointer is null if the system is out of memory.
    pub(super) fn take(&self, layout: Layout) -> (*mut u8, bool) {
        IS_USED.store(true, Ordering::Relaxed);
        let before = layout.align().max(HEADER_BYTES);
        let Some(n_bytes) = region_bytes(before, layout.size()) else { return (ptr::null_mut(), false) };
        let mut state = self.lock();
        if let Some(header) = state.find(n_bytes) {
            state.unlink(header);
            // SAFETY: a kept region starts with its header.
            state.count_use(unsafe { (*header).n_bytes });
            return (header.cast::<u8>().wrapping_add(before), false);
        }
        state.make_room(n_bytes);
        let mut mapped = map(n_bytes);
        if mapped.is_none() {
            // The kept regions count towards memory limits, so they are unmapped before the allocation fails.
            state.unmap_until(|_| false);
            mapped = map(n_bytes);
        }
        let Some(header) = mapped else { return (ptr::null_mut(), false) };
        state.count_use(n_bytes);
        (header.cast::<u8>().wrapping_add(before), true)
    }

    /// Frees a buffer; its region is kept for reuse.
    ///
    /// # Safety
    /// The buffer must come from `take` and must no longer be used.
    pub(super) unsafe fn give_back(&self, buffer: *mut u8) {
        let mut state = self.lock();
        let header = header_of(buffer);
        // SAFETY: by the function's contract there is a header at the start of the buffer's region.
        state.held.used_bytes -= unsafe { (*header).n_bytes };
        state.keep(header);
    }

    /// Resizes a buffer in place and unmaps pages at the end of its region that are no longer needed. Returns false if
    /// the region is too small.
    ///
    /// # Safety
    /// The buffer must come from `take`, and the caller must own it.
    pub(super) unsafe fn resize(&self, buffer: *mut u8, size: usize) -> bool {
        let header = header_of(buffer);
        let before = buffer.addr() - header.addr();
        let Some(wanted) = region_bytes(before, size) else { return false };
        // SAFETY: by the function's contract there is a header at the start of the buffer's region.
        let n_bytes = unsafe { (*header).n_bytes };
        if n_bytes < wanted {
            return false;
        }
        if wanted < n_bytes {
            // SAFETY: the pages after the wanted ones belong to this region alone, and the caller no longer needs
            // their contents.
            let is_unmapped =
                unsafe { libc::munmap(header.cast::<u8>().add(wanted).cast(), n_bytes - wanted) };
            // If the kernel refuses to split the mapping, the region keeps its size.
            if is_unmapped == 0 {
                // SAFETY: the header is at the start of the region, which stays mapped.
                unsafe { (*header).n_bytes = wanted };
                self.lock().held.used_bytes -= n_bytes - wanted;
            }
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Finds the smallest kept region that can be reused for `n_bytes`.
    fn find(&self, n_bytes: usize) -> Option<*mut Header> {
        let mut best: Option<(usize, *mut Header)> = None;
        let mut header = self.newest;
        while !header.is_null() {
            // SAFETY: the list contains kept regions, each with a header.
            let (found, older) = unsafe { ((*header).n_bytes, (*header).older) };
            let serves = n_bytes <= found && found / 16 * LEAST_SIXTEENTHS <= n_bytes;
            if serves && best.is_none_or(|(least, _)| found < least) {
                best = Some((found, header));
            }
            // An exact fit ends the search. In similar steps an exact fit is found after few headers, each of which
            // costs a TLB miss.
            if found == n_bytes {
                break;
            }
            header = older;
        }
        best.map(|(_, header)| header)
    }

    fn count_use(&mut self, n_bytes: usize) {
        self.held.used_bytes += n_bytes;
        self.peaks[1] = self.peaks[1].max(self.held.used_bytes);
        self.n_taken += 1;
        if self.n_taken == WINDOW {
            self.n_taken = 0;
            self.peaks = [self.peaks[1], self.held.used_bytes];
            self.make_room(0);
        }
    }

    /// Unmaps the oldest kept regions until a new region of `n_bytes` is within the bound or none is left.
    fn make_room(&mut self, n_bytes: usize) {
        let used_bytes = self.held.used_bytes.saturating_add(n_bytes);
        let peak_bytes = self.peaks[0].max(self.peaks[1]).max(used_bytes);
        let bound = peak_bytes.saturating_add(peak_bytes / SLACK);
        self.unmap_until(|kept_bytes| used_bytes.saturating_add(kept_bytes) <= bound);
    }

    /// Unmaps the oldest kept regions until `is_enough` returns true for the number of kept bytes, or none is left.
    fn unmap_until(&mut self, is_enough: impl Fn(usize) -> bool) {
        while !is_enough(self.held.kept_bytes) && !self.oldest.is_null() {
            let header = self.oldest;
            self.unlink(header);
            // SAFETY: the list contains kept regions, each with a header, and this one has just been removed from it.
            unsafe {
                let n_bytes = (*header).n_bytes;
                // If the kernel refuses to split the mapping, the address range stays, but its memory is freed.
                if libc::munmap(header.cast(), n_bytes) != 0 {
                    libc::madvise(header.cast(), n_bytes, libc::MADV_DONTNEED);
                }
            }
        }
    }

    fn keep(&mut self, header: *mut Header) {
        // SAFETY: the caller passes ownership of a region with its header; `newest`, if any, is a kept region.
        unsafe {
            (*header).newer = ptr::null_mut();
            (*header).older = self.newest;
            match self.newest.is_null() {
                true => self.oldest = header,
                false => (*self.newest).newer = header,
            }
            self.held.kept_bytes += (*header).n_bytes;
        }
        self.newest = header;
    }

    fn unlink(&mut self, header: *mut Header) {
        // SAFETY: the region is kept, so it and its neighbours in the list are kept regions with headers.
        unsafe {
            let Header { n_bytes, newer, older } = ptr::read(header);
            match newer.is_null() {
                true => self.newest = older,
                false => (*newer).older = older,
            }
            match older.is_null() {
                true => self.oldest = newer,
                false => (*older).newer = newer,
            }
            self.held.kept_bytes -= n_bytes;
        }
    }
}

/// Returns the size of a region for a buffer of `size` bytes with `before` bytes before it. Sizes are rounded up to
/// whole huge pages, and for large buffers to multiples of a larger step, at most an eighth of the size, so that
/// buffers of similar sizes can reuse each other's regions. Returns `None` if the size exceeds the address space.
fn region_bytes(before: usize, size: usize) -> Option<usize> {
    let needed = size.checked_add(before)?;
    let step = (needed / 8).checked_next_power_of_two()?.max(HUGE_PAGE);
    // The power of two is less than twice an eighth of the size, so half of it is below an eighth.
    let step = if step > HUGE_PAGE { step / 2 } else { step };
    needed.checked_next_multiple_of(step).filter(|n_bytes| *n_bytes <= isize::MAX as usize)
}

/// Maps a new region and writes its header.
fn map(n_bytes: usize) -> Option<*mut Header> {
    let n_mapped = n_bytes.checked_add(HUGE_PAGE)?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address chosen by the kernel affects no other memory; the unaligned parts before and
    // after the region are unmapped before any pointer to them exists.
    unsafe {
        let start = libc::mmap(ptr::null_mut(), n_mapped, protection, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return None;
        }
        let start = start.cast::<u8>();
        let before = start.align_offset(HUGE_PAGE);
        if 0 < before {
            libc::munmap(start.cast(), before);
        }
        let region = start.add(before);
        libc::munmap(region.add(n_bytes).cast(), HUGE_PAGE - before);
        // A system without huge pages refuses this advice, which has no other effect.
        libc::madvise(region.cast(), n_bytes, libc::MADV_HUGEPAGE);
        let header = region.cast::<Header>();
        header.write(Header { n_bytes, newer: ptr::null_mut(), older: ptr::null_mut() });
        Some(header)
    }
}

/// Returns the header of a buffer's region. A buffer starts in the first huge page of its region.
fn header_of(buffer: *mut u8) -> *mut Header {
    buffer.map_addr(|address| address & !(HUGE_PAGE - 1)).cast()
}
