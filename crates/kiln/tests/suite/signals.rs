//! Tests of the signals that stop a run.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The variable that the process has which the signals end.
const CHILD: &str = "KILN_TEST_OF_SIGNALS";

fn send(child: &Child, signal: &str) {
    let mut kill = Command::new("kill");
    kill.arg(format!("-{signal}")).arg(child.id().to_string()).stderr(Stdio::null());
    kill.status().expect("kill should run");
}

/// Waits for the flag, and then for the end by a signal.
fn wait_for_signals() -> ! {
    kiln::print_log_with(|line| println!("{line}"));
    let stop = kiln::stop_on_signals().expect("the handlers should be installed");
    println!("ready");
    while !stop.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    println!("stopping");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_second_signal_ends_a_process_that_has_not_stopped() {
    if std::env::var_os(CHILD).is_some() {
        wait_for_signals();
    }
    let program = std::env::current_exe().expect("the program should have a path");
    for (signal, number) in [("INT", 2), ("TERM", 15)] {
        // A shell's background processes ignore the signal.
        let mut child = Command::new("env")
            .arg("--default-signal=INT")
            .arg(&program)
            .args(["--exact", "signals::a_second_signal_ends_a_process_that_has_not_stopped", "--nocapture"])
            .env(CHILD, "")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the process should start");
        let output = child.stdout.take().expect("the output should be piped");
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.ends_with("ready")), "{signal}");
        let started = Instant::now();
        // SIGUSR1 stops, too, and never ends the process.
        send(&child, "USR1");
        assert!(lines.any(|line| line.ends_with("stopping")), "{signal}");
        let status = loop {
            send(&child, signal);
            send(&child, "USR1");
            if let Some(status) = child.try_wait().expect("the process should be a child") {
                break status;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "{signal} did not end the process");
        };
        assert_eq!(status.signal(), Some(number), "{status}");
        let note = "note: stopping after the current step; Ctrl-C again";
        assert_eq!(lines.any(|line| line.contains(note)), signal == "INT", "{signal}");
        // What launchers send twice is one request.
        assert!(Duration::from_secs(1) <= started.elapsed(), "{signal}: {:?}", started.elapsed());
    }
}
