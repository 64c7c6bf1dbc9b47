//! The lines of a printer, with a clock of the test.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kiln_store::progress::{Progress, ProgressOutput, ProgressPrinter, ProgressScope, ProgressUnit};

/// A printer whose time and output belong to the test.
struct Printed {
    printer: Arc<ProgressPrinter>,
    milliseconds: Arc<AtomicU64>,
    written: Arc<Mutex<Vec<u8>>>,
}

struct Screen(Arc<Mutex<Vec<u8>>>);

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Printed {
    fn new(output: impl FnOnce(Screen) -> ProgressOutput) -> Self {
        let milliseconds = Arc::new(AtomicU64::new(5_000));
        let written = Arc::default();
        let clock = Arc::clone(&milliseconds);
        let now = move || Duration::from_millis(clock.load(Ordering::Relaxed));
        let printer = Arc::new(ProgressPrinter::with_clock(output(Screen(Arc::clone(&written))), now));
        Self { printer, milliseconds, written }
    }

    fn on_terminal() -> Self {
        Self::on_terminal_of(None)
    }

    fn on_terminal_of(columns: Option<usize>) -> Self {
        Self::new(|screen| ProgressOutput::Terminal {
            screen: Box::new(screen),
            columns: Box::new(move || columns),
        })
    }

    fn in_lines() -> Self {
        Self::new(|mut screen| {
            ProgressOutput::Lines(Box::new(move |line| writeln!(screen, "{line}").unwrap()))
        })
    }

    fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        ProgressScope::new(self.printer.clone()).run(work)
    }

    /// Lets time pass in steps of half a second, as the thread of a printer does, and returns what was written meanwhile.
    fn pass(&self, seconds: f64) -> String {
        for _ in 0..(seconds * 2.0) as usize {
            self.milliseconds.fetch_add(500, Ordering::Relaxed);
            self.printer.tick();
        }
        self.taken()
    }

    fn taken(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.written.lock().unwrap())).unwrap()
    }
}

#[test]
fn a_stage_of_less_than_two_seconds_prints_nothing() {
    for printed in [Printed::in_lines(), Printed::on_terminal()] {
        printed.run(|| {
            for _ in 0..100 {
                let progress = Progress::start("reading", ProgressUnit::Rows, 10);
                progress.advance(10);
                assert_eq!(printed.pass(1.5), "");
            }
        });
        assert_eq!(printed.pass(10.0), "");
    }
}

#[test]
fn lines_are_printed_after_2_10_30_and_60_seconds_and_then_each_minute() {
    let printed = Printed::in_lines();
    printed.run(|| {
        let _progress = Progress::start("waiting", ProgressUnit::Rows, None);
        let lines = printed.pass(400.0);
        let times = ["2 s", "10 s", "30 s", "1 min 0 s", "2 min 0 s", "3 min 0 s", "4 min 0 s", "5 min 0 s"];
        let expected: String = times.iter().map(|time| format!("waiting: {time}\n")).collect();
        assert_eq!(lines, expected + "waiting: 6 min 0 s\n");
        assert!(printed.pass(3_600.0).contains("waiting: 1 h 0 min\n"));
    });
}

#[test]
fn a_line_has_the_share_and_the_remaining_time_once_it_is_steady() {
    let printed = Printed::in_lines();
    printed.run(|| {
        let progress = Progress::start("sorting edges", ProgressUnit::Edges, 1000);
        let mut lines = String::new();
        // The rate grows.
        for done_in_second in [1, 1, 2, 4, 8, 16, 32, 64, 128, 4] {
            lines += &printed.pass(1.0);
            progress.advance(done_in_second);
        }
        assert_eq!(lines, "sorting edges: 0 % of 1000 edges, 2 s\nsorting edges: 25 % of 1000 edges, 10 s\n");
        (0..20).for_each(|_| {
            lines += &printed.pass(1.0);
            progress.advance(25);
        });
        assert_eq!(lines.lines().last().unwrap(), "sorting edges: 73 % of 1000 edges, 30 s, about 10 s left");
        // More than the expected total is no more than 100 %.
        progress.advance(5_000);
        assert!(printed.pass(30.0).starts_with("sorting edges: 100 % of 1000 edges, 1 min 0 s"));
    });
}

#[test]
fn a_stage_of_unknown_length_prints_its_count() {
    let printed = Printed::in_lines();
    printed.run(|| {
        let progress = Progress::start("writing\u{1b}[2J set", ProgressUnit::Bytes, None);
        progress.advance(1000);
        assert_eq!(printed.pass(2.0), "writing\\u{1b}[2J set: 1000 bytes, 2 s\n");
        progress.advance(5 << 30);
        assert_eq!(printed.pass(8.0), "writing\\u{1b}[2J set: 5.0 GiB, 10 s\n");
    });
}

#[test]
fn a_terminal_has_one_line_that_is_overwritten_and_cleared() {
    let printed = Printed::on_terminal();
    printed.run(|| {
        let progress = Progress::start("hashing", ProgressUnit::Bytes, 4 << 20);
        assert_eq!(printed.pass(2.0), "\rhashing: 0 % of 4.0 MiB, 2 s");
        progress.advance(4 << 20);
        assert_eq!(printed.pass(0.5), "\rhashing: 100 % of 4.0 MiB, 2 s");
        // Another line of the program.
        let removed = format!("\r{}\r", " ".repeat(30));
        ProgressScope::current().suspend(|| {
            assert_eq!(printed.taken(), removed);
            ProgressScope::current().suspend(|| assert_eq!(printed.pass(2.0), ""));
            assert_eq!(printed.pass(2.0), "", "the outer suspension should last");
        });
        assert_eq!(printed.pass(0.5), "\rhashing: 100 % of 4.0 MiB, 7 s");
        drop(progress);
        assert_eq!(printed.taken(), removed);
        assert_eq!(printed.pass(5.0), "");
    });
}

#[test]
fn a_line_is_cut_before_the_last_column_of_the_terminal() {
    for (columns, width) in [(None, 79), (Some(60), 59), (Some(120), 119), (Some(1), 0), (Some(0), 0)] {
        let printed = Printed::on_terminal_of(columns);
        printed.run(|| {
            let _long = Progress::start("x".repeat(200), ProgressUnit::Bytes, 1);
            assert_eq!(printed.pass(2.0).matches('x').count(), width, "{columns:?}");
        });
    }
}

#[test]
fn the_end_of_a_short_stage_keeps_the_line_of_the_outer_one() {
    let printed = Printed::on_terminal();
    printed.run(|| {
        let outer = Progress::start("evaluating links", ProgressUnit::Links, None);
        assert_eq!(printed.pass(2.0), "\revaluating links: 2 s");
        for seconds in 3..6 {
            let short = Progress::start("scoring links", ProgressUnit::Links, None);
            let line = printed.pass(1.0);
            assert!(line.ends_with(&format!("\revaluating links: {seconds} s")), "{line:?}");
            drop(short);
            assert_eq!(printed.taken(), "");
        }
        let long = Progress::start("sorting", ProgressUnit::Links, None);
        assert!(printed.pass(2.0).ends_with(&format!("\rsorting: 2 s{}", " ".repeat(9))));
        drop(long);
        assert_eq!(printed.taken(), format!("\r{}\r", " ".repeat(12)));
        assert_eq!(printed.pass(0.5), "\revaluating links: 7 s");
        drop(outer);
        assert_eq!(printed.taken(), format!("\r{}\r", " ".repeat(21)));
    });
}

/// A terminal on which a write waits until the test allows it.
struct Stopped {
    screen: Screen,
    /// Receives a message when a write waits.
    waits: Sender<()>,
    allowed: Receiver<()>,
}

impl Write for Stopped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waits.send(()).unwrap();
        self.allowed.recv().unwrap();
        self.screen.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn work_does_not_wait_for_a_terminal_that_blocks() {
    let (waits, is_waiting) = channel();
    let (allow, allowed) = channel();
    let printed = Printed::new(|screen| ProgressOutput::Terminal {
        screen: Box::new(Stopped { screen, waits, allowed }),
        columns: Box::new(|| None),
    });
    std::thread::scope(|threads| {
        let first = printed.run(|| Progress::start("reading", ProgressUnit::Rows, None));
        printed.milliseconds.fetch_add(2_000, Ordering::Relaxed);
        threads.spawn(|| printed.printer.tick());
        is_waiting.recv().unwrap();
        // The line of `reading` is being written: its stage ends, and another one begins and ends.
        drop(first);
        printed.run(|| Progress::start("sorting", ProgressUnit::Rows, None).advance(1));
        assert_eq!(printed.taken(), "");
        allow.send(()).unwrap();
    });
    assert_eq!(printed.taken(), "\rreading: 2 s");
    allow.send(()).unwrap();
    printed.printer.tick();
    assert_eq!(printed.taken(), format!("\r{}\r", " ".repeat(12)), "the next tick should clear the line");
}

#[test]
fn the_inner_stage_is_shown_once_it_is_long_and_then_the_outer_one_again() {
    let printed = Printed::in_lines();
    printed.run(|| {
        let outer = Progress::start("importing", ProgressUnit::Rows, None);
        assert_eq!(printed.pass(1.0), "");
        let inner = Progress::start("reading", ProgressUnit::Rows, None);
        assert_eq!(printed.pass(1.5), "importing: 2 s\n");
        assert_eq!(printed.pass(3.0), "reading: 3 s\n");
        drop(inner);
        assert_eq!(printed.pass(5.0), "importing: 10 s\n");
        // Short stages leave the outer one on the screen.
        let lines: String = (0..20)
            .map(|_| {
                let _short = Progress::start("sorting", ProgressUnit::Rows, None);
                printed.pass(1.0)
            })
            .collect();
        assert_eq!(lines, "importing: 30 s\n");
        drop(outer);
        // Stages with the same name do not print a line each.
        let lines: String = (0..10)
            .map(|_| {
                let _repeated = Progress::start("writing", ProgressUnit::Rows, None);
                printed.pass(3.0)
            })
            .collect();
        assert_eq!(lines.lines().count(), 3, "{lines}");
    });
}

/// The thread of a printer prints without a call of the work.
#[test]
fn a_started_printer_prints_on_its_own_thread() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let print = move |line: &kiln_store::progress::ProgressLine| drop(sender.send(line.clone()));
    let milliseconds = AtomicU64::new(0);
    let clock = move || Duration::from_millis(milliseconds.fetch_add(2_000, Ordering::Relaxed));
    let printer = ProgressPrinter::start_with_clock(ProgressOutput::Lines(Box::new(print)), clock);
    ProgressScope::new(printer).run(|| {
        let _progress = Progress::start("waiting", ProgressUnit::Rows, 3);
        let line = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(
            (line.stage.as_str(), line.done, line.total, line.share()),
            ("waiting", 0, Some(3), Some(0.0))
        );
    });
}
