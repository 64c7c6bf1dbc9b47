//! What the machine can do: the rates that benches are compared with, measured before them in a process of its own.
//!
//! Each rate is the best of several passes, as a ceiling is what nothing exceeds. Arrays are as large as memory
//! allows, up to 2 GiB, so that random places are in no cache, and lie in huge pages, which the benches' allocator
//! gives, unless said otherwise.

mod arrays;
mod compute;
mod timing;

use serde::Serialize;

use arrays::Arrays;

/// Columns of rows whose rates are measured: those of ogbn-products and of ogbn-arxiv.
const ROW_WIDTHS: [usize; 2] = [100, 128];

/// Bytes of the largest array.
const MAX_ARRAY_BYTES: usize = 2 << 30;

/// Bytes of the smaller arrays that random places are in: what a core's neighbours share of their last cache at most,
/// and what is larger than most last caches, but not than all.
const SMALLER_ARRAYS: [usize; 2] = [32 << 20, 512 << 20];

/// Rates of one number of threads, all together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ceilings {
    /// Number of threads.
    pub threads: usize,
    /// Bytes a second that are read one after the other.
    pub stream_read: f64,
    /// Bytes a second that are read and written one after the other, both counted.
    pub stream_copy: f64,
    /// Cache lines a second that are read at random places of the largest array in pages of 4 KiB.
    pub random_lines_small_pages: f64,
    /// Random places of arrays in huge pages, by the array's size, ascending.
    pub random: Vec<RandomPlaces>,
    /// Floating-point operations a second of fused multiplications and additions, each being two.
    pub fma: f64,
}

/// Rates of random places of an array.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RandomPlaces {
    /// Bytes of the array.
    pub array_bytes: usize,
    /// Cache lines a second.
    pub lines: f64,
    /// Rows, read and written one after the other, both counted.
    pub gather_rows: Vec<RowRate>,
    /// Rows, read and added up.
    pub read_rows: Vec<RowRate>,
}

/// The rate of rows of one width.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RowRate {
    /// Bytes of a row.
    pub row_bytes: usize,
    /// Bytes a second.
    pub bytes_per_second: f64,
}

impl Ceilings {
    /// Measures them on each of these numbers of threads, in arrays of at most so many bytes.
    pub fn measure(threads: &[usize], array_bytes: usize) -> Vec<Self> {
        let mut small_pages = arrays::random_lines_small_pages(threads, array_bytes).into_iter();
        let arrays = Arrays::new(array_bytes);
        let on = |&n_threads: &usize| Self {
            threads: n_threads,
            stream_read: arrays.stream_read(n_threads),
            stream_copy: arrays.stream_copy(n_threads),
            random_lines_small_pages: small_pages.next().unwrap_or(0.0),
            random: RandomPlaces::measure(&arrays, n_threads, array_bytes),
            fma: compute::fma(n_threads),
        };
        threads.iter().map(on).collect()
    }
}

impl RandomPlaces {
    fn measure(arrays: &Arrays, n_threads: usize, array_bytes: usize) -> Vec<Self> {
        let smaller = SMALLER_ARRAYS.into_iter().filter(|&bytes| bytes < array_bytes);
        let of_size = |array_bytes| {
            let part = arrays.first(array_bytes);
            Self {
                array_bytes,
                lines: part.random_lines(n_threads),
                gather_rows: ROW_WIDTHS.map(|dim| part.gather_rows(n_threads, dim)).to_vec(),
                read_rows: ROW_WIDTHS.map(|dim| part.read_rows(n_threads, dim)).to_vec(),
            }
        };
        smaller.chain([array_bytes]).map(of_size).collect()
    }
}

/// Bytes of an array that leave three quarters of the free memory alone: a power of two, at most 2 GiB.
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
    fn every_rate_of_every_number_of_threads_is_measured() {
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
    fn arrays_are_a_power_of_two_of_bytes() {
        assert!(array_bytes().is_power_of_two() && array_bytes() <= MAX_ARRAY_BYTES);
    }
}
