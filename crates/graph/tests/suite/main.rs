//! Graphs: how they are built, mapped, normalised, spread over larger ones, and read by source.

mod buf;
mod builder;
#[cfg(unix)]
mod mapped;
mod norm;
mod spread;
mod transposed;
