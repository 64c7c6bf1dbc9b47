//! The entry point of the fuzz target, which runs the same body as the ordinary tests.

mod targets;

/// Runs the target on one input.
///
/// # Panics
/// Panics if a model violates an invariant.
pub fn model(input: &[u8]) {
    targets::model(input);
}
