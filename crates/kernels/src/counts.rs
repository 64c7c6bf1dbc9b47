//! Thread-local counters of the ops that ran, by implementation, of the reads from devices, and of the
//! feature rows sent to them. Counting costs one addition to a thread-local number per op.

use std::cell::Cell;

/// The numbers of ops that ran, by implementation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Launches {
    /// The number of ops that ran with an implementation of the backend: CPU loops or CubeCL kernels.
    pub direct: u64,
    /// The number of ops that ran with the reference implementation, in Burn's own tensor operations.
    pub reference: u64,
}

/// The number and the size of the reads from devices other than the CPU. Reads that a caller makes without this crate
/// are not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// The number of times that the host waited for a read.
    pub n_reads: u64,
    /// The number of bytes copied to the host.
    pub n_bytes: u64,
}

/// The bytes of feature rows that were sent to devices other than the CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Uploads {
    /// The number of bytes sent.
    pub n_bytes: u64,
    /// The number of bytes that a device copied from pinned memory, without a copy by the thread that launches kernels.
    pub n_pinned_bytes: u64,
}

thread_local! {
    static UPLOADS: Cell<Uploads> = const { Cell::new(Uploads { n_bytes: 0, n_pinned_bytes: 0 }) };
    static READS: Cell<Reads> = const { Cell::new(Reads { n_reads: 0, n_bytes: 0 }) };
    static LAUNCHES: Cell<Launches> = const { Cell::new(Launches { direct: 0, reference: 0 }) };
}

pub(crate) fn count_direct() {
    LAUNCHES.with(|cell| cell.set(Launches { direct: cell.get().direct + 1, ..cell.get() }));
}

pub(crate) fn count_reference() {
    LAUNCHES.with(|cell| cell.set(Launches { reference: cell.get().reference + 1, ..cell.get() }));
}

pub(crate) fn so_far() -> Launches {
    LAUNCHES.with(Cell::get)
}

/// Counts one read from a device that copies `n_bytes` to the host.
pub(crate) fn count_read(n_bytes: u64) {
    READS.with(|cell| {
        let Reads { n_reads, n_bytes: before } = cell.get();
        cell.set(Reads { n_reads: n_reads + 1, n_bytes: before + n_bytes });
    });
}

/// Counts feature rows of `n_bytes` bytes that were sent to a device.
#[cfg(feature = "cube")]
pub(crate) fn count_upload(n_bytes: u64, is_pinned: bool) {
    UPLOADS.with(|cell| {
        let Uploads { n_bytes: before, n_pinned_bytes } = cell.get();
        let n_pinned_bytes = n_pinned_bytes + if is_pinned { n_bytes } else { 0 };
        cell.set(Uploads { n_bytes: before + n_bytes, n_pinned_bytes });
    });
}

pub(crate) fn uploads_so_far() -> Uploads {
    UPLOADS.with(Cell::get)
}

pub(crate) fn reads_so_far() -> Reads {
    READS.with(Cell::get)
}
