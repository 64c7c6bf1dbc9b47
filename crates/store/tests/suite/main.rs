//! Tests of `.npy` arrays, hashes and unfinished folders.

mod hash;
mod npy;
mod unfinished;
