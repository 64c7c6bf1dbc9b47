//! Counts, for each thread, which implementation of an op ran. A count costs one addition to a
//! thread-local number for each op, not for each edge.

use std::cell::Cell;

/// How many ops ran, by implementation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Launches {
    /// Ops that a backend ran with its own kernel.
    pub direct: u64,
    /// Ops that ran as the reference in stock tensor operations.
    pub reference: u64,
}

/// What came back from devices other than the processor; what a caller read by other means than this crate's is not
/// counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// Waits for the device.
    pub n_reads: u64,
    /// Bytes that were then on the host.
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

/// Counts one wait for a device, at whose end so many bytes are on the host.
pub(crate) fn count_read(n_bytes: u64) {
    READS.with(|cell| {
        let Reads { n_reads, n_bytes: before } = cell.get();
        cell.set(Reads { n_reads: n_reads + 1, n_bytes: before + n_bytes });
    });
}

pub(crate) fn reads_so_far() -> Reads {
    READS.with(Cell::get)
}
