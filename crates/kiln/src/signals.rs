use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGTERM, SIGUSR1};

use crate::{Error, Result};

/// Installs handlers for SIGTERM and SIGUSR1 on the first call, and returns the flag that they set instead of killing
/// the process. Pass it to [`FitConfig::stop_flag`](crate::FitConfig::stop_flag) to stop a run with a checkpoint.
///
/// Further signals of these kinds have no effect, because launchers and batch systems send them more than once. SIGINT
/// (Ctrl-C) is not caught: it ends the process at once, also while a stop waits for the hash of the data.
///
/// # Errors
/// Returns [`Error::Other`] if the system rejects a handler.
#[must_use = "pass it to FitConfig::stop_flag"]
pub fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    static FLAG: OnceLock<std::result::Result<Arc<AtomicBool>, String>> = OnceLock::new();
    let caught = FLAG.get_or_init(|| {
        let flag = Arc::<AtomicBool>::default();
        for signal in [SIGTERM, SIGUSR1] {
            signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(|error| error.to_string())?;
        }
        Ok(flag)
    });
    caught
        .clone()
        .map_err(|error| Error::Other(format!("the signal handlers could not be installed: {error}").into()))
}
