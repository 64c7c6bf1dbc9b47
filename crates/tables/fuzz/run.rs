//! The entry point of the fuzz target, which runs the same body as the ordinary tests.

mod targets;

/// Runs the target on one input.
///
/// # Panics
/// Panics if the import violates an invariant.
pub fn spec(input: &[u8]) {
    targets::spec(input);
}
