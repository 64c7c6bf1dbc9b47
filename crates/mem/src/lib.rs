//! Fast memory access: prefetching ([`prefetch`]), copies of rows at random positions ([`copy_rows`]), and a global
//! allocator that reuses large buffers and backs them with huge pages ([`HugePageAllocator`]). [`vector`] runs loops with
//! the vector instructions of the CPU.
//!
//! The crate is independent of graphs, features and tensors. It affects performance only, never results.
//!
//! ```
//! use kiln_mem::prefetch;
//! let (table, places) = ([3, 1, 4, 1, 5], [4, 0, 2]);
//! let mut sum = 0;
//! for (at, &place) in places.iter().enumerate() {
//!     if let Some(&later) = places.get(at + 2) {
//!         prefetch(&table, later);
//!     }
//!     sum += table[place];
//! }
//! assert_eq!(sum, 12);
//! ```

mod allocator;
mod page_faults;
mod prefetch;
mod rows;
#[cfg(target_arch = "x86_64")]
mod stream;
pub mod vector;

pub use allocator::{AllocatorStats, HugePageAllocator};
pub use page_faults::PageFaults;
pub use prefetch::{prefetch, prefetch_far, prefetch_range, prefetch_range_far};
pub use rows::{RowId, copy_rows, copy_rows_to};

/// The code example of this crate's README, run as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct CrateReadMe;
