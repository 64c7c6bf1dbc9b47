//! Tests of `.npy` arrays and hashes.

mod hash;
mod npy;
