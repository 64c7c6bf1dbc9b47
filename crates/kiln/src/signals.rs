use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGTERM, SIGUSR1};

use crate::{Error, Result};

/// The flag that SIGTERM and SIGUSR1 set, from the first call on, instead of ending the process: for
/// [`FitConfig::stop_flag`](crate::FitConfig::stop_flag), by which a run ends with a checkpoint.
///
/// # Errors
/// Those of the system.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    static FLAG: OnceLock<std::result::Result<Arc<AtomicBool>, String>> = OnceLock::new();
    let caught = FLAG.get_or_init(|| {
        let flag = Arc::<AtomicBool>::default();
        for signal in [SIGTERM, SIGUSR1] {
            signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(|error| error.to_string())?;
        }
        Ok(flag)
    });
    caught.clone().map_err(|error| Error::Other(format!("catching signals: {error}").into()))
}
