//! Tests of `.npy` arrays, hashes and unfinished folders.

mod array_file;
mod hash;
mod npy;
mod unfinished;
