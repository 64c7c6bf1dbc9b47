use std::alloc::Layout;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{AllocatorStats, MAX_ALIGN};

/// Bytes of a huge page, on most machines; regions are whole numbers of them.
const HUGE_PAGE: usize = 2 << 20;

/// A freed region serves a buffer that needs at least this part of it, in sixteenths; less would waste it.
const LEAST_SIXTEENTHS: usize = 12;

/// One part in so many may be held over the most that was in use: sizes differ from step to step, and without
/// it a step's misses would unmap what the next step asks for.
const SLACK: usize = 4;

/// What was in use counts for at least so many buffers and at most twice as many, which are 5 to 20 training
/// steps: without an end, a graph that was sorted before training began would be paid for until the end of it.
const WINDOW: usize = 1 << 10;

/// Regions of memory in use and kept.
#[derive(Debug)]
pub(super) struct Regions {
    state: Mutex<State>,
}

/// Nothing is allocated while the lock is held, and nothing panics under it.
#[derive(Debug)]
struct State {
    /// The kept regions, the one that was freed last first.
    newest: *mut Header,
    oldest: *mut Header,
    held: AllocatorStats,
    /// The most bytes that were in use at one time, in the window before this one and in this one.
    peaks: [usize; 2],
    /// How many buffers were taken in this window.
    n_taken: usize,
}

/// Stands at the start of each region.
struct Header {
    n_bytes: usize,
    /// The neighbours in the list of kept regions, while the region is kept.
    newer: *mut Header,
    older: *mut Header,
}

/// At least so much stands before a buffer. A cache line, so that buffers start at one.
const HEADER_BYTES: usize = 64;

const _: () = assert!(size_of::<Header>() <= HEADER_BYTES && MAX_ALIGN < HUGE_PAGE);

// SAFETY: the pointers are to regions that only the holder of the lock touches.
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

    /// A buffer of this layout, whose alignment is below a huge page, and whether its pages are fresh, which are
    /// zeros; null when the system has no more memory.
    pub(super) fn take(&self, layout: Layout) -> (*mut u8, bool) {
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
            // A limit on the process or the system, which what is kept counts towards.
            state.unmap_until(|_| false);
            mapped = map(n_bytes);
        }
        let Some(header) = mapped else { return (ptr::null_mut(), false) };
        state.count_use(n_bytes);
        (header.cast::<u8>().wrapping_add(before), true)
    }

    /// # Safety
    /// The buffer came from `take` and nobody uses it any more.
    pub(super) unsafe fn give_back(&self, buffer: *mut u8) {
        let mut state = self.lock();
        let header = header_of(buffer);
        // SAFETY: by the caller's promise there is a header at the start of the buffer's region.
        state.held.used_bytes -= unsafe { (*header).n_bytes };
        state.keep(header);
    }

    /// Makes the buffer's region serve another size where it is, if it can: by giving up pages at its end.
    ///
    /// # Safety
    /// The buffer came from `take` and is the caller's.
    pub(super) unsafe fn resize(&self, buffer: *mut u8, size: usize) -> bool {
        let header = header_of(buffer);
        let before = buffer.addr() - header.addr();
        let Some(wanted) = region_bytes(before, size) else { return false };
        // SAFETY: by the caller's promise there is a header at the start of the buffer's region.
        let n_bytes = unsafe { (*header).n_bytes };
        if n_bytes < wanted {
            return false;
        }
        if wanted < n_bytes {
            // SAFETY: the pages behind the wanted ones belong to this region alone and hold nothing that the
            // caller keeps.
            let is_unmapped =
                unsafe { libc::munmap(header.cast::<u8>().add(wanted).cast(), n_bytes - wanted) };
            // Where the system refuses to split a mapping, the region stays as long as it was.
            if is_unmapped == 0 {
                // SAFETY: as above, and the header is at the start, which stays.
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
    /// The smallest kept region that serves.
    fn find(&self, n_bytes: usize) -> Option<*mut Header> {
        let mut best: Option<(usize, *mut Header)> = None;
        let mut header = self.newest;
        while !header.is_null() {
            // SAFETY: the list is of kept regions, each with its header.
            let (found, older) = unsafe { ((*header).n_bytes, (*header).older) };
            let serves = n_bytes <= found && found / 16 * LEAST_SIXTEENTHS <= n_bytes;
            if serves && best.is_none_or(|(least, _)| found < least) {
                best = Some((found, header));
            }
            // None fits better. Steps that are alike end here, after few of the headers, each in a page of its own.
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

    /// Unmaps the regions that were kept longest, until a new one of `n_bytes` is within the bound or none is
    /// left.
    fn make_room(&mut self, n_bytes: usize) {
        let used_bytes = self.held.used_bytes.saturating_add(n_bytes);
        let peak_bytes = self.peaks[0].max(self.peaks[1]).max(used_bytes);
        let bound = peak_bytes.saturating_add(peak_bytes / SLACK);
        self.unmap_until(|kept_bytes| used_bytes.saturating_add(kept_bytes) <= bound);
    }

    /// Unmaps the regions that were kept longest until so many bytes are kept that it is enough, or none is left.
    fn unmap_until(&mut self, is_enough: impl Fn(usize) -> bool) {
        while !is_enough(self.held.kept_bytes) && !self.oldest.is_null() {
            let header = self.oldest;
            self.unlink(header);
            // SAFETY: the list is of kept regions, each with its header; nobody else knows this one.
            unsafe {
                let n_bytes = (*header).n_bytes;
                // A system that refuses to split a mapping keeps the addresses; the memory goes back all the same.
                if libc::munmap(header.cast(), n_bytes) != 0 {
                    libc::madvise(header.cast(), n_bytes, libc::MADV_DONTNEED);
                }
            }
        }
    }

    fn keep(&mut self, header: *mut Header) {
        // SAFETY: the caller hands over a region with its header; the newest, if any, is a kept one.
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
        // SAFETY: the region is kept, so that it and its neighbours are kept regions with headers.
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

/// Bytes of a region for a buffer with so many bytes before it: whole huge pages, and of large ones at most an
/// eighth more than needed, so that buffers of about one size share regions. `None` for a size that no machine has.
fn region_bytes(before: usize, size: usize) -> Option<usize> {
    let needed = size.checked_add(before)?;
    let step = (needed / 8).checked_next_power_of_two()?.max(HUGE_PAGE);
    // Half a step is at most an eighth, for a step is less than a quarter.
    let step = if step > HUGE_PAGE { step / 2 } else { step };
    needed.checked_next_multiple_of(step).filter(|n_bytes| *n_bytes <= isize::MAX as usize)
}

/// Maps a fresh region with its header.
fn map(n_bytes: usize) -> Option<*mut Header> {
    let n_mapped = n_bytes.checked_add(HUGE_PAGE)?;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the system's choice touches no other memory; the parts before and
    // behind the aligned region are unmapped again and nobody has seen them.
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
        // Advice: a system without huge pages refuses it, and nothing else changes.
        libc::madvise(region.cast(), n_bytes, libc::MADV_HUGEPAGE);
        let header = region.cast::<Header>();
        header.write(Header { n_bytes, newer: ptr::null_mut(), older: ptr::null_mut() });
        Some(header)
    }
}

/// A buffer starts in the first huge page of its region.
fn header_of(buffer: *mut u8) -> *mut Header {
    buffer.map_addr(|address| address & !(HUGE_PAGE - 1)).cast()
}
