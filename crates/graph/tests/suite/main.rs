//! Graphs: how they are built, mapped, normalised, spread over larger ones, and read by source.

mod builder;
#[cfg(unix)]
mod mapped_file;
mod norm;
mod scatter_rows;
mod shared_array;
mod transposed_block;
