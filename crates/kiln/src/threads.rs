use crate::{Error, Result};

/// Starts the threads of rayon's global pool, which conversions, imports and predictions use. Without this call, the first use starts
/// them, and panics where they cannot start. Call it once, before all other functions, and not after the program has built the pool
/// itself.
///
/// ```
/// kiln::start_threads()?;
/// # Ok::<(), kiln::Error>(())
/// ```
///
/// # Errors
/// Returns [`Error::Other`] if a thread cannot be started, or if the pool was built before.
pub fn start_threads() -> Result<()> {
    let built = rayon::ThreadPoolBuilder::new().build_global();
    built.map_err(|error| {
        let advice = "allow more processes or memory, or set RAYON_NUM_THREADS to fewer threads";
        Error::Other(format!("the threads of this process could not be started: {error}: {advice}").into())
    })
}
