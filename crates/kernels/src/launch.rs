//! Counts, for each thread, which implementation of an op ran. A count costs one addition to a
//! thread-local number for each op, not for each edge.

use std::cell::Cell;

use crate::testing::Launches;

thread_local! {
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
