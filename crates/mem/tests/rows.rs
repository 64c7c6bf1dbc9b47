//! Compares `copy_rows` and `copy_rows_to` with a naive loop, for several types, widths and numbers of rows.
#![allow(clippy::unwrap_used)]

use bytemuck::Pod;
use kiln_mem::{copy_rows, copy_rows_to};

/// A naive reference for `copy_rows`.
fn reference<T: Pod>(rows: &[T], dim: usize, ids: &[u32]) -> Vec<T> {
    ids.iter().flat_map(|&id| rows[id as usize * dim..][..dim].to_vec()).collect()
}

/// Copies `n_ids` rows of `dim` elements, with repeated and unsorted ids, and compares the result with the reference.
fn check<T: Pod + PartialEq + std::fmt::Debug>(dim: usize, n_ids: usize, value: impl Fn(usize) -> T) {
    let n_rows = 1009;
    let rows: Vec<T> = (0..n_rows * dim).map(value).collect();
    let ids: Vec<u32> = (0..n_ids).map(|at| (at * 40_503 % n_rows) as u32).collect();
    // `copy_rows` should replace the previous contents of the vector.
    let mut out = rows[..dim].to_vec();
    copy_rows(&rows, dim, &ids, &mut out);
    let expected = reference(&rows, dim, &ids);
    assert!(out == expected, "{n_ids} rows of {dim}");
    // The memory need not be aligned to the values. The byte before it should not change.
    let expected: &[u8] = bytemuck::cast_slice(&expected);
    let mut bytes = vec![7; 1 + expected.len()];
    copy_rows_to(&rows, dim, &ids, &mut bytes[1..]);
    assert!(bytes[0] == 7 && bytes[1..] == *expected, "the bytes of {n_ids} rows of {dim}");
}

#[test]
fn rows_are_copied_in_the_order_of_their_ids() {
    for dim in [1, 3, 16, 100, 1000] {
        for n_ids in [0, 1, 63, 64, 65, 400] {
            check(dim, n_ids, |at| at as f32);
            check(dim, n_ids, |at| at as u16);
        }
    }
}

#[test]
fn streamed_outputs_equal_the_reference() {
    // The outputs have at least 40 MB. A row is a whole number of cache lines, a part of a line, or longer than many
    // stages.
    for (dim, n_ids) in [(128, 80_000), (101, 100_000), (100_000, 100)] {
        check(dim, n_ids, |at| at as u32);
        check(dim, 2 * n_ids, |at| at as u16);
    }
}

#[test]
fn sufficient_allocation_is_reused() {
    let mut out: Vec<f32> = Vec::with_capacity(64);
    let address = out.as_ptr();
    copy_rows(&[0.5, 1.5, 2.5], 1, &[2_u32, 2], &mut out);
    assert_eq!((out.as_slice(), out.capacity(), out.as_ptr()), ([2.5, 2.5].as_slice(), 64, address));
}

#[test]
#[should_panic(expected = "range end index 6 out of range")]
fn panics_on_id_out_of_range() {
    copy_rows(&[0, 1, 2, 3], 2, &[0_u32, 2], &mut Vec::new());
}

#[test]
#[should_panic(expected = "the output should have the size of 2 rows")]
fn panics_on_output_of_another_size() {
    copy_rows_to(&[0_u16, 1, 2, 3], 2, &[0_u32, 1], &mut [0; 7]);
}
