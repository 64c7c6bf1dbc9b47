//! The entry points of the fuzz targets, which run the same bodies as the ordinary tests.

mod targets;

use std::sync::Once;

/// Runs the target of specs on one input.
///
/// # Panics
/// Panics if the import violates an invariant.
pub fn spec(input: &[u8]) {
    targets::spec(input);
}

/// Runs the target of Parquet files on one input.
///
/// # Panics
/// Panics if the import violates an invariant.
pub fn parquet(input: &[u8]) {
    // A panic of the Parquet library becomes an error. The fuzzer's hook would end the process before.
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    targets::parquet(input);
}
