//! How memory is reached: asking for it ahead of its use ([`prefetch`]), copying rows from random places
//! ([`copy_rows`]), and large buffers whose pages are used again ([`HugePageAllocator`]).
//!
//! This crate knows no graph, no feature and no tensor. What it does changes how long things take and never
//! what they give.
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
mod prefetch;
mod rows;
#[cfg(target_arch = "x86_64")]
mod stream;

pub use allocator::{AllocatorStats, HugePageAllocator};
pub use prefetch::{prefetch, prefetch_far, prefetch_range, prefetch_range_far};
pub use rows::copy_rows;

/// The snippet of this crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct CrateReadMe;
