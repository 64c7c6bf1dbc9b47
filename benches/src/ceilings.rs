//! The ceilings of the machine: the rates that benches are compared with, measured before them in a separate process.
//!
//! Each rate is the best of several passes, because a ceiling is an upper bound. Arrays are as large as memory allows,
//! up to 2 GiB, so that random accesses miss the caches. They are in huge pages, from the benches' allocator, unless
//! stated otherwise.

mod arrays;
mod compute;
mod row_rate;
mod timing;

use serde::Serialize;

use arrays::Arrays;
pub use row_rate::RowRate;
pub(crate) use timing::best_rate;

/// The numbers of columns of the measured rows: 100 as in ogbn-products, and 128 as in ogbn-arxiv.
const ROW_WIDTHS: [usize; 2] = [100, 128];

/// The size in bytes of the largest array.
const MAX_ARRAY_BYTES: usize = 2 << 30;

/// The sizes in bytes of the smaller arrays for random accesses: that of a large last-level cache shared by a group of
/// cores, and one that exceeds most, but not all, last-level caches.
const SMALLER_ARRAYS: [usize; 2] = [32 << 20, 512 << 20];

/// The rates that a number of threads reach together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ceilings {
    /// The number of threads.
    pub threads: usize,
    /// The rate of sequential reads, in bytes per second.
    pub stream_read: f64,
    /// The rate of sequential copies, in bytes per second; reads and writes both count.
    pub stream_copy: f64,
    /// The rate of random reads of the largest array with pages of 4 KiB, in cache lines per second.
    pub random_lines_small_pages: f64,
    /// The rates of random accesses with huge pages, ascending by the array's size.
    pub random: Vec<RandomPlaces>,
    /// The rate of floating-point operations per second; a fused multiply-add counts as two.
    pub fma: f64,
}

/// The rates of random accesses to an array.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RandomPlaces {
    /// The size of the array in bytes.
    pub array_bytes: usize,
    /// The number of cache lines read per second.
    pub lines: f64,
    /// The rates of copying random rows to sequential rows, by width; reads and writes both count.
    pub gather_rows: Vec<RowRate>,
    /// The rates of summing random rows, by width.
    pub read_rows: Vec<RowRate>,
}

impl Ceilings {
    /// Measures the ceilings for each number in `threads`, in arrays of at most `array_bytes` bytes.
    pub fn measure(threads: &[usize], array_bytes: usize) -> Vec<Self> {
        let mut small_pages = arrays::random_lines_small_pages(threads, array_bytes).into_iter();
        let arrays = Arrays::new(array_bytes);
        threads
            .iter()
            .map(|&n_threads: &usize| Self {
                threads: n_threads,
                stream_read: arrays.stream_read(n_threads),
                stream_copy: arrays.stream_copy(n_threads),
                random_lines_small_pages: small_pages.next().unwrap_or(0.0),
                random: RandomPlaces::measure(&arrays, n_threads, array_bytes),
                fma: compute::fma(n_threads),
            })
            .collect()
    }
}

impl RandomPlaces {
    fn measure(arrays: &Arrays, n_threads: usize, array_bytes: usize) -> Vec<Self> {
        let smaller = SMALLER_ARRAYS.into_iter().filter(|&bytes| bytes < array_bytes);
        smaller
            .chain([array_bytes])
            .map(|array_bytes| {
                let part = arrays.first(array_bytes);
                Self {
                    array_bytes,
                    lines: part.random_lines(n_threads),
                    gather_rows: ROW_WIDTHS.map(|dim| part.gather_rows(n_threads, dim)).to_vec(),
                    read_rows: ROW_WIDTHS.map(|dim| part.read_rows(n_threads, dim)).to_vec(),
                }
            })
            .collect()
    }
}

/// Returns the size in bytes of the largest array: a power of two, at most a quarter of the free memory and 2 GiB, but
/// at least 64 MiB.
pub fn array_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    let quarter = kib.map_or(0, |kib| kib * 1024 / 4).clamp(64 << 20, MAX_ARRAY_BYTES);
    1 << quarter.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_all_rates_for_each_number_of_threads() {
        let found = Ceilings::measure(&[1, 2], 1 << 20);
        assert_eq!(found.iter().map(|of| of.threads).collect::<Vec<_>>(), [1, 2]);
        for of in found {
            let whole = [of.stream_read, of.stream_copy, of.random_lines_small_pages, of.fma];
            assert_eq!(of.random.iter().map(|places| places.array_bytes).collect::<Vec<_>>(), [1 << 20]);
            let places = &of.random[0];
            let rows = places.gather_rows.iter().chain(&places.read_rows).map(|rate| rate.bytes_per_second);
            let rates: Vec<f64> = whole.into_iter().chain([places.lines]).chain(rows).collect();
            assert_eq!(rates.len(), 9);
            assert!(rates.iter().all(|rate| rate.is_finite() && 0.0 < *rate), "{rates:?}");
        }
    }

    #[test]
    fn array_bytes_is_a_power_of_two() {
        assert!(array_bytes().is_power_of_two() && array_bytes() <= MAX_ARRAY_BYTES);
    }
}
