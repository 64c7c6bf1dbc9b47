//! Thread-local counters of the ops that ran, by implementation, and of the reads from devices. Counting costs one
//! addition to a thread-local number per op.

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

thread_local! {
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

pub(crate) fn reads_so_far() -> Reads {
    READS.with(Cell::get)
}
