//! Arrays on disk, NumPy's own bytes and every way to be no array; hashes.

mod hash;
mod npy;
