//! Stage `graph`: `open` opens a data set on disk, `ingest` builds a [`Csc`] from an edge list in memory, `order-by-time` the
//! order of its edges by time. The rates count data sets for `open`, and edges for the others.

use std::path::PathBuf;

use kiln_benches::{Input, Result, Stage, Work, inputs, n_threads};
use kiln_data::format;
use kiln_graph::{Csc, CscBuilder, Duplicates, NodeId, SharedArray};

/// The number of edges above which an iteration takes seconds. Benches of larger graphs use only 10 samples and omit
/// the variant `ingest-symmetrize-deduplicate`.
const MANY_EDGES: u64 = 20_000_000;

pub(crate) fn main() -> Result {
    let mut stage = Stage::new("graph");
    for input in inputs()? {
        bench_open(&mut stage, &input)?;
        let graph = &input.dataset.graph;
        let name = &input.name;
        let n_nodes = graph.n_nodes() as u64;
        let n_edges = graph.n_edges();
        // The lower bound assumes that each edge of the list is read once, and the CSC's arrays are written once.
        let bytes = 12 * n_edges + 8 * n_nodes;
        let work = Work::new(n_edges, "edges", n_threads()).streamed(bytes);
        let (srcs, dsts) = scattered_edges(&graph.relation(0).graph);
        let plain = CscBuilder::new(graph.n_nodes());
        let is_large = MANY_EDGES < n_edges;
        if is_large {
            stage.samples(10);
        }
        stage.bench("ingest", name, work, |bencher| {
            bencher.iter(|| plain.build(&srcs, &dsts).expect("the edges should be valid"));
        })?;
        let csc = &graph.relation(0).graph;
        let times: Vec<i64> =
            (0..n_edges).map(|edge| (edge.wrapping_mul(0x9E37_79B9) % (1 << 40)) as i64).collect();
        let times = SharedArray::from(times);
        // 8 bytes of a time are read and 4 of the order are written for each edge.
        let work = Work::new(n_edges, "edges", n_threads()).streamed(12 * n_edges);
        stage.bench("order-by-time", name, work, |bencher| {
            bencher
                .iter(|| Csc::clone(csc).with_edge_times(times.clone()).expect("the edges should be valid"));
        })?;
        if !is_large {
            let both = plain.clone().symmetrize().duplicates(Duplicates::Remove);
            stage.bench("ingest-symmetrize-deduplicate", name, work, |bencher| {
                bencher.iter(|| both.build(&srcs, &dsts).expect("the edges should be valid"));
            })?;
        }
    }
    stage.finish();
    Ok(())
}

/// Benches opening a data set. A generated data set is first written in the kiln format.
fn bench_open(stage: &mut Stage, input: &Input) -> Result {
    let (folder, is_written) = match &input.folder {
        Some(folder) => (folder.clone(), false),
        None => (write(input)?, true),
    };
    stage.bench("open", &input.name, Work::new(1, "sets", 1), |bencher| {
        bencher.iter(|| kiln_data::open(&folder).expect("the data set should open"));
    })?;
    if is_written {
        std::fs::remove_dir_all(folder)?;
    }
    Ok(())
}

fn write(input: &Input) -> Result<PathBuf> {
    let name = format!("bench-open-{}-{}", input.name, std::process::id());
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    format::write(&input.dataset, &folder)?;
    Ok(folder)
}

/// Returns the sources and destinations of the graph's edges in an order that is sorted by neither sources nor
/// destinations, as in typical edge-list files.
fn scattered_edges(graph: &Csc) -> (Vec<u32>, Vec<u32>) {
    let n_edges = graph.n_edges() as usize;
    if n_edges == 0 {
        return (Vec::new(), Vec::new());
    }
    let mut dst_of_edge = Vec::with_capacity(n_edges);
    for dst in 0..graph.n_nodes() as u32 {
        dst_of_edge.extend(std::iter::repeat_n(dst, graph.in_neighbors(NodeId(dst)).len()));
    }
    // A prime stride that does not divide the number of edges visits each edge once.
    const STRIDE: usize = 1_000_003;
    assert_ne!(n_edges % STRIDE, 0, "{n_edges} edges are a multiple of the stride");
    let order = || (0..n_edges).map(|i| i * STRIDE % n_edges);
    let srcs = order().map(|edge| graph.indices()[edge].0).collect();
    (srcs, order().map(|edge| dst_of_edge[edge]).collect())
}
