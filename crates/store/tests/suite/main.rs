//! Tests of `.npy` arrays, hashes, unfinished folders and progress.

mod array_file;
mod hash;
mod npy;
mod progress;
mod progress_printer;
mod unfinished;
