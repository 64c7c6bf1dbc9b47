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
    quiet();
    targets::parquet(input);
}

/// Runs the target of Arrow files on one input.
///
/// # Panics
/// Panics if the import violates an invariant.
pub fn arrow(input: &[u8]) {
    quiet();
    targets::arrow(input);
}

/// Silences the panics of the libraries, which become errors. The fuzzer's hook would end the process before.
fn quiet() {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}
