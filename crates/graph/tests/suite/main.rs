//! Graphs: how they are built, mapped, normalised, spread over larger ones, and read by source.

mod buf;
mod builder;
mod norm;
mod spread;
mod transposed;
