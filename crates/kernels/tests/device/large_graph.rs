//! Sampling on a device from a graph of more than 2^31 edges. The graph takes 9 GB of the device's memory, so the test
//! runs on CUDA devices, or on any device if the environment variable `KILN_LARGE` is 1. If it is 0, the test is skipped.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use kiln_graph::{Csc, MappedFile, NodeId};
use kiln_kernels::testing::{device, read_block};
use kiln_kernels::{DeviceGraph, DeviceSampler};
use kiln_sample::{Fanout, FrontierSampler, NeighborSampler, RngKey, Scratch, Seeds};

const N_NODES: u64 = 2000;

/// The number of in-edges of node 0, all of them self loops.
const N_LOOPS: u64 = (1 << 31) + 5;

/// The number of in-edges of node 1, whose sources are node 2 and later nodes.
const N_OTHERS: u64 = 1000;

/// The graph, mapped from a sparse file.
fn graph(folder: &tempfile::TempDir) -> Arc<Csc> {
    let path = folder.path().join("indices");
    let file = File::create(&path).unwrap();
    file.set_len(4 * (N_LOOPS + N_OTHERS)).unwrap();
    let others: Vec<u8> = (0..N_OTHERS as u32).flat_map(|number| (2 + number / 2).to_le_bytes()).collect();
    file.write_all_at(&others, 4 * N_LOOPS).unwrap();
    let indices = MappedFile::open(&path).unwrap();
    let indices = indices.slice::<NodeId>(0..4 * (N_LOOPS + N_OTHERS) as usize).unwrap();
    let mut indptr = vec![N_LOOPS + N_OTHERS; N_NODES as usize + 1];
    indptr[..2].copy_from_slice(&[0, N_LOOPS]);
    Arc::new(Csc::new(indptr.into(), indices).unwrap())
}

#[test]
fn device_and_host_sample_identical_blocks_with_edge_ids_above_31_bits() {
    let device_name = std::env::var("KILN_DEVICE").unwrap_or_default();
    let runs = match std::env::var("KILN_LARGE") {
        Ok(large) => large == "1",
        Err(_) => device_name.starts_with("cuda"),
    };
    if !runs {
        // `writeln!` bypasses the test harness, which captures the `println!` output of passing tests.
        let mut out = std::io::stdout();
        let skip =
            "kiln-skip: gpu: a graph of 2^31 edges: it takes 9 GB of a device's memory; KILN_LARGE=1 runs it";
        return writeln!(out, "{skip}").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let graph = graph(&folder);
    let on_device = DeviceGraph::new(Arc::clone(&graph), &device()).unwrap();
    for key in (0..5).map(RngKey::new) {
        for fanouts in [[7, 9].map(Fanout::UpTo), [Fanout::UpTo(3), Fanout::UpTo(1000)]] {
            let seeds = Seeds::nodes([1, 0, 3].map(NodeId).to_vec());
            let expected = NeighborSampler::new(Arc::clone(&graph), fanouts);
            let expected = expected.sample_blocks(&seeds, key, &mut Scratch::default()).unwrap();
            let got = DeviceSampler::new(on_device.clone(), fanouts);
            let got = got.sample_blocks(&seeds, key, &mut Scratch::default()).unwrap();
            let last = expected.blocks[1].edge_ids().iter().max().unwrap();
            assert!(1 << 31 < last.0);
            for (got, expected) in got.blocks.iter().zip(expected.blocks) {
                assert_eq!(read_block(got), expected);
            }
        }
    }
}
