//! Tests of graphs: building, mapping, normalising, scattering rows, and transposing blocks.

mod builder;
#[cfg(unix)]
mod links;
mod mapped_file;
mod norm;
mod relation_groups;
mod relations;
mod scatter_rows;
mod self_loops;
mod shared_array;
mod sort_neighbors;
mod transposed_block;
