use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{process, result, thread};

use kiln_store::unfinished;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::{flag, low_level};

use crate::{Error, Result};

/// The time within which several signals are one request to stop: `timeout` of the coreutils and launchers send them twice.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// Installs handlers for SIGINT (Ctrl-C), SIGTERM and SIGUSR1 on the first call, and returns the flag that they set instead
/// of killing the process. Pass it to [`FitConfig::stop_flag`](crate::FitConfig::stop_flag) to stop a run after its current step,
/// with a checkpoint, a summary and a report.
///
/// A second SIGINT or SIGTERM ends the process at once, also while a stop waits for the hash of the data; the run continues
/// from its last checkpoint. Signals within a second of the first do not count as a second one, because launchers send them
/// twice. Further SIGUSR1 have no effect. A SIGINT that is ignored, as in the background of a script, stays ignored on Linux.
///
/// # Errors
/// Returns [`Error::Other`] if the system rejects a handler or a thread.
#[must_use = "pass it to FitConfig::stop_flag"]
pub fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    static FLAG: OnceLock<result::Result<Arc<AtomicBool>, String>> = OnceLock::new();
    let caught = FLAG.get_or_init(|| {
        let flag = Arc::<AtomicBool>::default();
        let ignored = ignored_signals();
        let caught = [SIGINT, SIGTERM, SIGUSR1].into_iter();
        let caught = caught.filter(|signal| *signal != SIGINT || !is_among(ignored, SIGINT));
        let signals = Signals::new(caught).map_err(|error| error.to_string())?;
        let stop = Arc::clone(&flag);
        let thread =
            thread::Builder::new().name("stop".to_owned()).spawn(move || wait_for_stop(signals, &stop));
        thread.map(|_| flag).map_err(|error| error.to_string())
    });
    caught.clone().map_err(not_installed)
}

/// Sets a flag at the first signal, and ends the process at the second.
fn wait_for_stop(mut signals: Signals, stop: &AtomicBool) {
    let mut first = None;
    for signal in signals.forever() {
        stop.store(true, Ordering::SeqCst);
        // A warning of a scheduler is no request to end at once.
        if signal == SIGUSR1 {
            continue;
        }
        if first.is_none() && signal == SIGINT {
            tracing::info!(
                name: "stop-requested", target: "kiln::signals",
                "stopping after the current step; Ctrl-C again after a second ends at once, without a checkpoint"
            );
        }
        let since = first.get_or_insert_with(Instant::now).elapsed();
        if ONE_REQUEST < since {
            // It returns only if the signal could not be sent.
            let _ = low_level::emulate_default_handler(signal);
            process::abort();
        }
    }
}

/// Removes the unfinished folders of this process when SIGINT (Ctrl-C), SIGTERM or SIGHUP arrives, and then ends the process as the
/// signal does; also when the process ends because another rank of its job was lost. A second signal ends it at once. A signal that is
/// ignored, as by `nohup`, stays ignored on Linux. Not for a process that calls [`stop_on_signals`], which ends by itself.
///
/// ```no_run
/// kiln::clean_up_on_signals()?;
/// # let data = kiln::data::Dataset::open("papers")?;
/// kiln::data::format::write(&data, "copy")?;
/// # Ok::<(), kiln::Error>(())
/// ```
///
/// # Errors
/// Returns [`Error::Other`] if the system rejects a handler or a thread.
pub fn clean_up_on_signals() -> Result<()> {
    static INSTALLED: OnceLock<result::Result<(), String>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        let ignored = ignored_signals();
        let mut caught = vec![SIGINT, SIGTERM, SIGHUP];
        caught.retain(|signal| !is_among(ignored, *signal));
        let is_ending = Arc::<AtomicBool>::default();
        // A second signal ends the process at once, also if the file system hangs. This action comes before the other one.
        for signal in &caught {
            let registered = flag::register_conditional_default(*signal, Arc::clone(&is_ending));
            registered.map_err(|error| error.to_string())?;
        }
        let mut signals = Signals::new(caught).map_err(|error| error.to_string())?;
        kiln_comm::clean_up_at_end(unfinished::remove_own);
        let thread = thread::Builder::new().name("signals".to_owned()).spawn(move || {
            if let Some(signal) = signals.forever().next() {
                is_ending.store(true, Ordering::SeqCst);
                unfinished::remove_own();
                // It returns only if the signal could not be sent.
                let _ = low_level::emulate_default_handler(signal);
                process::abort();
            }
        });
        thread.map(drop).map_err(|error| error.to_string())
    });
    installed.clone().map_err(not_installed)
}

/// Makes a write beyond the limit on the size of files (`ulimit -f`) an error of that write, instead of the end of the process.
///
/// ```
/// kiln::report_file_size_limit()?;
/// # Ok::<(), kiln::Error>(())
/// ```
///
/// # Errors
/// Returns [`Error::Other`] if the system rejects a handler.
pub fn report_file_size_limit() -> Result<()> {
    let unread = Arc::<AtomicBool>::default();
    flag::register(SIGXFSZ, unread).map(drop).map_err(|error| not_installed(error.to_string()))
}

/// Returns a bit for each signal that this process ignores, from signal 1; 0 where the system does not tell.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Returns true if the bit of a signal is set.
fn is_among(signals: u64, signal: i32) -> bool {
    signals >> (signal - 1) & 1 == 1
}

fn not_installed(error: String) -> Error {
    Error::Other(format!("the signal handlers could not be installed: {error}").into())
}
