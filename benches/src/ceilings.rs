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

/// Rates of one number of threads, all together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ceilings {
    /// Number of threads.
    pub threads: usize,
    /// Bytes a second that are read one after the other.
    pub stream_read: f64,
    /// Bytes a second that are read and written one after the other, both counted.
    pub stream_copy: f64,
    /// Cache lines a second that are read at random places, 32 in flight.
    pub random_lines: f64,
    /// The same in pages of 4 KiB.
    pub random_lines_small_pages: f64,
    /// Rows at random places, read and written one after the other, both counted.
    pub gather_rows: Vec<RowRate>,
    /// Rows at random places, read and added up.
    pub read_rows: Vec<RowRate>,
    /// Floating-point operations a second of fused multiplications and additions, each being two.
    pub fma: f64,
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
    /// Measures them on each of these numbers of threads, in arrays of so many bytes.
    pub fn measure(threads: &[usize], array_bytes: usize) -> Vec<Self> {
        let mut small_pages = arrays::random_lines_small_pages(threads, array_bytes).into_iter();
        let arrays = Arrays::new(array_bytes);
        let on = |&n_threads: &usize| Self {
            threads: n_threads,
            stream_read: arrays.stream_read(n_threads),
            stream_copy: arrays.stream_copy(n_threads),
            random_lines: arrays.random_lines(n_threads),
            random_lines_small_pages: small_pages.next().unwrap_or(0.0),
            gather_rows: ROW_WIDTHS.map(|dim| arrays.gather_rows(n_threads, dim)).to_vec(),
            read_rows: ROW_WIDTHS.map(|dim| arrays.read_rows(n_threads, dim)).to_vec(),
            fma: compute::fma(n_threads),
        };
        threads.iter().map(on).collect()
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
            let rates =
                [of.stream_read, of.stream_copy, of.random_lines, of.random_lines_small_pages, of.fma];
            let rows = of.gather_rows.iter().chain(&of.read_rows).map(|rate| rate.bytes_per_second);
            let rates: Vec<f64> = rates.into_iter().chain(rows).collect();
            assert!(rates.iter().all(|rate| rate.is_finite() && 0.0 < *rate), "{rates:?}");
        }
    }

    #[test]
    fn arrays_are_a_power_of_two_of_bytes() {
        assert!(array_bytes().is_power_of_two() && array_bytes() <= MAX_ARRAY_BYTES);
    }
}
