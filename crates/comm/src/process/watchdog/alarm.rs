use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::EXIT_RETRY;
use crate::process::watchdog::exit::end;
use crate::rpc::log;

/// A thread that ends this process when something takes too long that cannot be interrupted, unless it is dropped
/// before.
#[derive(Debug)]
pub(crate) struct Alarm {
    /// The thread ends when this is dropped.
    _alive: Sender<()>,
}

impl Alarm {
    /// Says every 10 s what is waited for, and ends the process after `limit`.
    pub(crate) fn set(limit: Duration, what: &'static str) -> Self {
        let (alive, dropped) = mpsc::channel::<()>();
        let started = Instant::now();
        let body = move || {
            loop {
                let rest = limit.saturating_sub(started.elapsed());
                let outcome = dropped.recv_timeout(rest.min(Duration::from_secs(10)));
                if outcome == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
                if limit <= started.elapsed() {
                    end(EXIT_RETRY, Some(&format!("the job is over: waited for {what} for {limit:?}")));
                }
                log(&format!("waiting for {what}: {} s of {limit:?}", started.elapsed().as_secs()));
            }
        };
        // Without a thread nothing is watched, and the wait is as long as it is.
        let _ = thread::Builder::new().name("kiln-alarm".to_owned()).spawn(body);
        Self { _alive: alive }
    }
}
