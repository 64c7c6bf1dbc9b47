//! Printing to standard output, as text or as JSON.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use indicatif::ProgressBar;
use kiln::LogLine;
use kiln::comm::{printable, printable_json};
use kiln::data::Note;
use kiln::store::progress::{ProgressLine, ProgressOutput, ProgressPrinter, ProgressScope};
use serde_json::{Value, json};

/// True if this process prints nothing, because the process of rank 0 prints for all.
static IS_QUIET: AtomicBool = AtomicBool::new(false);
/// True if each line is a JSON object.
static IS_JSON: AtomicBool = AtomicBool::new(false);
/// The bar on the terminal, which lines of the log must not cut.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// The format of the lines on standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Text, with a progress bar on a terminal.
    Text,
    /// A JSON object per line, with the kind of event in `event`.
    Json,
}

/// Silences this process, because the process of rank 0 prints for all.
pub(crate) fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
    ProgressScope::leave();
}

/// Returns true if this process was silenced.
pub(crate) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Sets the format of the lines.
pub(crate) fn set_format(format: LogFormat) {
    IS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

/// Returns true if each line is a JSON object.
pub(crate) fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// Sets the bar on the terminal.
pub(crate) fn set_bar(bar: Option<ProgressBar>) {
    *BAR.lock().unwrap_or_else(PoisonError::into_inner) = bar;
}

/// Prints a line of the libraries' log. Notes on a run are lines of this program's output, and everything else goes to standard error:
/// standard output may be a file on a full disk.
pub(crate) fn print_log_line(line: &LogLine) {
    let print = || match line.is_note_on_run() {
        true => print_rank_zero(line),
        false => log(&line.to_string()),
    };
    // Only lines of the thread that draws the bar wait for it: a bar that cannot be written must not hold back signals and the reasons
    // why a job ended.
    let is_of_run = line.target == "kiln_train::run";
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar.filter(|_| is_of_run) {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

/// Prints a line on standard error with a single write, so that lines of several processes do not mix. The text is made printable.
pub(crate) fn log(line: &str) {
    // A closed standard error must not fail the program.
    let _ = io::stderr().write_all(format!("{}\n", printable(line)).as_bytes());
}

/// Runs a command, whose stages of more than two seconds are shown on standard error; in JSON, they are events `progress`.
pub(crate) fn show_progress<T>(command: impl FnOnce() -> T) -> T {
    let printer = match is_json() {
        true => ProgressPrinter::start(ProgressOutput::Lines(Box::new(print_progress))),
        false => ProgressPrinter::stderr(),
    };
    ProgressScope::new(printer).run(command)
}

fn print_progress(line: &ProgressLine) {
    let ProgressLine { stage, unit, done, total, elapsed, remaining } = line;
    print_event(
        "progress",
        json!({
            "stage": stage, "unit": unit.name(), "done": done, "total": total, "seconds": elapsed.as_secs_f64(),
            "seconds_left": remaining.map(|remaining| remaining.as_secs_f64()),
        }),
    );
}

/// Prints a line, unless this process was silenced. In JSON, it is an event `message` with the line as its `text`.
/// Errors are ignored: a closed pipe (`| head`) must not stop a run that writes files.
pub(crate) fn print_rank_zero(line: impl fmt::Display) {
    match is_json() {
        true => print_event("message", json!({ "text": line.to_string() })),
        false => print(line),
    }
}

/// Prints a line that is the result of a command which writes no file.
///
/// # Errors
/// Returns an error if it cannot be written, except to a closed pipe (`| head`), whose reader has what it wants.
pub(crate) fn print_result(line: impl fmt::Display) -> anyhow::Result<()> {
    write_result(&format!("{}\n", printable(&line.to_string())))
}

/// Prints the text of a program, such as a script, as [`print_result`] does, but unchanged.
pub(crate) fn write_result(text: &str) -> anyhow::Result<()> {
    match write_stdout(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("the standard output could not be written")
        }
        _ => Ok(()),
    }
}

/// Prints a line for each note on data.
pub(crate) fn print_notes(notes: &[Note]) {
    // A note on a name is printed where the path is opened.
    print_note_lines(notes.iter().filter(|note| !matches!(note, Note::HasNameOfDataset { .. })));
}

/// Prints a line for each note.
pub(crate) fn print_note_lines(notes: impl IntoIterator<Item = impl fmt::Display>) {
    for note in notes {
        print_rank_zero(format_args!("note: {note}"));
    }
}

/// Prints an event with its fields, which are an object, as a line of JSON.
pub(crate) fn print_event(event: &str, mut fields: Value) {
    fields["event"] = event.into();
    write_line(&printable_json(&fields.to_string()));
}

fn print(line: impl fmt::Display) {
    write_line(&printable(&line.to_string()));
}

fn write_line(line: &str) {
    if !IS_QUIET.load(Ordering::Relaxed) {
        let _ = write_stdout(&format!("{line}\n"));
    }
}

/// Writes text. On a terminal, no line of progress is written meanwhile.
fn write_stdout(text: &str) -> io::Result<()> {
    let scope = if io::stdout().is_terminal() { ProgressScope::current() } else { ProgressScope::default() };
    scope.suspend(|| {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
    })
}
