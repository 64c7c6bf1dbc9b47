//! The conversion of an edge list with edge features. The graph is built in memory, because the rows are written in its
//! order; the rows themselves are read from their mapped file.

use std::thread::available_parallelism;

use kiln_graph::{CscBuilder, EdgeId, SelfLoops, TracedGraph};
use kiln_store::array_folder::FolderWriter;
use kiln_store::npy::DType;
use kiln_store::{ArrayFile, check_count};

use super::buckets::{FIXED_BYTES, Written};
use super::options::ConvertOptions;
use super::rest::written_type;
use crate::arrays::{RowsOf, check_converted, row_shape};
use crate::edge_features::position_in_list;
use crate::edges::EdgeList;
use crate::format::write_graph;
use crate::{Error, Result};

/// The bytes per node of the graph while it is built.
const NODE_BYTES: u64 = 24;

/// The bytes per edge of the list and of the graph while it is built, with weights and types.
const EDGE_BYTES: u64 = 48;

/// The bytes per thread of [`CscBuilder`].
const THREAD_BYTES: u64 = 1 << 20;

/// Builds the graph of an edge list, and writes it with the rows of its edges in CSC order. `rows` has the rows in the
/// order of the list.
pub(super) fn write_with_rows(
    list: &EdgeList,
    rows: &ArrayFile,
    n_nodes: usize,
    options: &ConvertOptions,
    set: &mut FolderWriter,
) -> Result<Written> {
    if options.self_loops == SelfLoops::Add {
        return Err(Error::BadParameter {
            what: "the treatment of self loops",
            expected: "keep or remove, because an added loop would have no row in edge_features.npy",
            got: "add".into(),
        });
    }
    let n_rows = row_shape(rows)?.0;
    // The rows bound the memory, so a longer list must be found before it is read.
    if let Some(n_edges) = list.n_edges() {
        check_count(rows.path(), RowsOf::Edges.count(), n_edges, n_rows)?;
    }
    check_memory(n_rows, n_nodes, options)?;
    let mut builder = CscBuilder::new(n_nodes).duplicates(options.duplicates).self_loops(options.self_loops);
    if options.symmetrize {
        builder = builder.symmetrize();
    }
    let (traced, n_coo_edges) = list.build_traced(n_nodes, builder, options.memory_bytes)?;
    check_count(rows.path(), RowsOf::Edges.count(), n_coo_edges, n_rows)?;
    write_graph(set, &traced.graph)?;
    write_rows(rows, &traced, set)?;
    let n_edges = traced.graph.n_edges() as usize;
    Ok(Written { n_coo_edges: n_coo_edges as u64, n_edges, n_buckets: 1, n_readings: 1 })
}

fn check_memory(n_rows: usize, n_nodes: usize, options: &ConvertOptions) -> Result<()> {
    let budget_bytes = options.memory_bytes;
    let n_edges = (n_rows as u64).saturating_mul(if options.symmetrize { 2 } else { 1 });
    let n_threads = available_parallelism().map_or(1, usize::from) as u64;
    let needed_bytes = EDGE_BYTES
        .saturating_mul(n_edges)
        .saturating_add(NODE_BYTES * n_nodes as u64 + THREAD_BYTES * n_threads + FIXED_BYTES);
    match needed_bytes <= budget_bytes {
        true => Ok(()),
        false => Err(Error::Memory {
            what: format!("building a graph of {n_edges} edges with features, which is done in memory,"),
            needed_bytes,
            budget_bytes,
        }),
    }
}

fn write_rows(array: &ArrayFile, traced: &TracedGraph, set: &mut FolderWriter) -> Result<()> {
    let dim = row_shape(array)?.1;
    let mut rows = set.rows(RowsOf::Edges.file(), written_type(array)?, dim)?;
    let (bytes, row_bytes) = (array.value_bytes(), dim * array.dtype().bytes());
    let mut values: Vec<f32> = Vec::new();
    for edge in (0..traced.graph.n_edges()).map(EdgeId) {
        let position = position_in_list(traced, edge) as usize;
        let row = &bytes[position * row_bytes..][..row_bytes];
        if array.dtype() != DType::F64 {
            rows.push_bytes(row)?;
            continue;
        }
        values.clear();
        values.extend(row.chunks_exact(8).map(|bytes| bytemuck::pod_read_unaligned::<f64>(bytes) as f32));
        check_converted(array, &values, position * dim, dim, RowsOf::Edges)?;
        rows.push(&values)?;
    }
    Ok(set.add(rows)?)
}
