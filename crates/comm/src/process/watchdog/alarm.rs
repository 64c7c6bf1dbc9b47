use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::EXIT_RETRY;
use crate::process::watchdog::exit::end;

/// A thread that ends this process if an operation that cannot be interrupted takes too long. Dropping the alarm
/// cancels it.
#[derive(Debug)]
pub(crate) struct Alarm {
    /// The thread ends when this is dropped.
    _alive: Sender<()>,
}

impl Alarm {
    /// Starts the alarm. It logs every 10 s that the process waits for `what`, and ends the process after `limit`.
    pub(crate) fn set(limit: Duration, what: &'static str) -> Self {
        Self::set_and_log(limit, Duration::from_secs(10), what)
    }

    /// Sets an alarm that logs every `every` that it waits.
    fn set_and_log(limit: Duration, every: Duration, what: &'static str) -> Self {
        let (alive, dropped) = mpsc::channel::<()>();
        let started = Instant::now();
        // If the thread cannot be started, the wait has no limit.
        let _ = thread::Builder::new().name("kiln-alarm".to_owned()).spawn(move || {
            loop {
                let rest = limit.saturating_sub(started.elapsed());
                let outcome = dropped.recv_timeout(rest.min(every));
                if outcome == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
                if limit <= started.elapsed() {
                    end(EXIT_RETRY, Some(&format!("the job is over: waited for {what} for {limit:?}")));
                }
                let seconds = started.elapsed().as_secs();
                tracing::info!(
                    name: "waiting-for-job", target: "kiln_comm::job", what, seconds,
                    "waiting for {what}: {seconds} s of {limit:?}"
                );
            }
        });
        Self { _alive: alive }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_logs_what_it_waits_for() {
        kiln_testkit::recorded_log();
        let alarm = Alarm::set_and_log(Duration::from_secs(3600), Duration::from_millis(1), "this test");
        let is_line = |event: &kiln_testkit::LogEvent| event.text == "waiting for this test: 0 s of 3600s";
        let started = Instant::now();
        while !kiln_testkit::recorded_log().iter().any(is_line) {
            assert!(started.elapsed() < Duration::from_secs(60), "the alarm should log");
            thread::yield_now();
        }
        drop(alarm);
    }
}
