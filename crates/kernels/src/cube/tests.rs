//! Tests of kernel arguments whose memory is longer than their values.

use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, Device, Int, Shape, Tensor, TensorData};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::AddressType;
use cubecl::prelude::BufferArg;

use crate::cube::by_source::Transposed;
use crate::cube::launch::*;
use crate::cube::scan::running_sums;
use crate::cube::segments::{CHUNK, Segments};

/// An array whose handle is longer than its values, as on CUDA, with garbage after them.
fn padded(values: &[u32]) -> CubeTensor {
    let any = Tensor::<1, Int>::from_data(TensorData::from([0]), &Device::cpu());
    let any = any.try_into_primitive::<CubeBackend>().expect("the device should run CubeCL kernels");
    let garbage = (0..100).map(|place| [1, 0, 7][place % 3]);
    let longer: Vec<u32> = values.iter().copied().chain(garbage).collect();
    let CubeTensor { handle, .. } = upload(&any, &longer);
    let shape = Shape::new([values.len()]);
    CubeTensor::new_contiguous(any.client.clone(), any.device.clone(), shape, handle, DType::I32)
}

#[test]
fn kernel_arguments_are_trimmed_to_the_declared_length() {
    for n_values in [0, 1, 340] {
        let array = padded(&vec![3; n_values]);
        assert_eq!(array.handle.size_in_used(), 4 * (n_values as u64 + 100));
        let BufferArg::Handle { handle } = buffer(&array) else { panic!("expected a handle") };
        assert_eq!(handle.handle.size_in_used(), 4 * n_values as u64);
    }
    let pairs = vectors(&padded(&[3; 6]), 2);
    let BufferArg::Handle { handle } = &pairs else { panic!("expected a handle") };
    assert_eq!((handle.handle.size_in_used(), pairs.len()), (24, 3));
}

#[test]
fn kernel_arguments_of_rows_with_gaps_are_trimmed_after_the_last_row() {
    let CubeTensor { client, device, handle, .. } = padded(&[0; 20]);
    let wide = CubeTensor::new_contiguous(client, device, Shape::new([4, 5]), handle, DType::F32);
    let mut narrow = wide;
    narrow.meta.shape[1] = 2;
    let BufferArg::Handle { handle } = Rows::of(narrow).buffer(1) else { panic!("expected a handle") };
    assert_eq!(handle.handle.size_in_used(), 4 * (3 * 5 + 2));
}

#[test]
fn edges_by_source_ignore_memory_behind_the_arrays() {
    let n_src = 90;
    let indptr: Vec<u32> = (0..=70).map(|dst| dst * 3).collect();
    let indices: Vec<u32> = (0..210).map(|edge| edge * 37 % n_src).collect();
    let listed = Transposed::list(&padded(&indptr), &padded(&indices), n_src as usize, None).read();
    let mut edges: Vec<u32> = (0..210).collect();
    edges.sort_by_key(|edge| indices[*edge as usize]);
    let starts = |src: u32| indices.iter().filter(|idx| **idx < src).count() as u32;
    let expected = [(0..=n_src).map(starts).collect(), edges.iter().map(|edge| edge / 3).collect(), edges];
    assert_eq!(listed, expected);
}

#[test]
fn running_sums_ignore_memory_behind_the_values() {
    let values: Vec<u32> = (0..131).collect();
    let [sums] = read([&running_sums(&padded(&values))]);
    let expected: Vec<u32> = (0..=131).map(|n| (0..n).sum()).collect();
    assert_eq!(sums, expected);
}

/// Uses 600 positions, more than a chunk has, so that the kernels for long segments run, which search in `indptr`.
#[test]
fn segment_sums_ignore_memory_behind_the_arrays() {
    let (indptr, n_positions) = ([0, 550, 550, 600], 600);
    let rows: Vec<f32> = (0..40).map(|row| row as f32).collect();
    let items: Vec<u32> = (0..n_positions).map(|position| position % 40).collect();
    let array = padded(&indptr);
    let rows = upload_as(&array, &rows, DType::F32);
    let column = |tensor: CubeTensor| {
        let CubeTensor { client, device, handle, .. } = tensor;
        CubeTensor::new_contiguous(client, device, Shape::new([40, 1]), handle, DType::F32)
    };
    let n_positions = n_positions as usize;
    let items = padded(&items);
    let segments =
        Segments { indptr: array, items, n_segments: 3, n_positions, edges: None, longest: n_positions };
    let sums = segments.sum_of(column(rows)).launch();
    let sums: Vec<f32> = values(&read_bytes(&[&sums])[0], &sums);
    let sum = |range: std::ops::Range<u32>| range.map(|position| (position % 40) as f32).sum::<f32>();
    assert_eq!(sums, [sum(0..550), 0.0, sum(550..600)]);
}

/// A launch is addressed by the longest of its arguments, and the next launch by its own.
#[test]
fn positions_have_64_bits_if_an_argument_or_the_units_need_them() {
    let short = padded(&[3; 6]);
    take_address(0);
    drop(buffer(&short));
    assert_eq!(take_address(100), AddressType::U32);
    let many = u32::MAX as usize + 8;
    reach(many);
    drop(buffer(&short));
    assert_eq!(take_address(100), AddressType::U64);
    assert_eq!(take_address(100), AddressType::U32);
    assert_eq!(take_address(many), AddressType::U64);
}

/// The bound on the length of segments decides which kernels run, and must not change a bit: the host and the device know
/// different bounds of the same block.
#[test]
fn sums_of_segments_do_not_depend_on_the_bound_of_their_lengths() {
    let lengths: Vec<u32> = (0..60).map(|segment| CHUNK - segment * 37 % (CHUNK + 1)).collect();
    let ends = lengths.iter().scan(0, |end, length| {
        *end += length;
        Some(*end)
    });
    let indptr: Vec<u32> = std::iter::once(0).chain(ends).collect();
    let n_positions = *indptr.last().unwrap_or(&0) as usize;
    let items: Vec<u32> = (0..n_positions as u32).map(|position| position * 7 % 40).collect();
    let array = upload(&padded(&[0]), &indptr);
    let values_of_rows: Vec<f32> = (0..40 * 8).map(|value| (value as f32 * 0.37).sin()).collect();
    let rows = upload_as(&array, &values_of_rows, DType::F32);
    let rows = CubeBackend::float_reshape(rows, Shape::new([40, 8]));
    let sums = |longest: usize| -> Vec<u32> {
        let items = upload(&array, &items);
        let n_segments = lengths.len();
        let indptr = array.clone();
        let segments = Segments { indptr, items, n_segments, n_positions, edges: None, longest };
        let sums = segments.sum_of(rows.clone()).launch();
        values(&read_bytes(&[&sums])[0], &sums)
    };
    // The first segment has as many positions as one unit adds: with this bound, none is added in chunks.
    assert_eq!(sums(CHUNK as usize), sums(n_positions));
}
