//! The log of kiln's libraries: events of `tracing`, printed as lines.

use std::fmt;
use std::io::{self, Write};

use kiln_comm::printable;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

/// Prints the log of kiln's libraries: notes on a run to standard output, as its lines per epoch, and everything else to standard
/// error. Call it once, at the start of `main`. It installs a global subscriber of `tracing`; if the program has one already, this
/// call has no effect.
///
/// ```
/// kiln::print_log();
/// let data = kiln::data::synthetic::ring(100)?;
/// # assert_eq!(data.graph.n_nodes(), 100);
/// # Ok::<(), kiln::Error>(())
/// ```
///
/// Without a subscriber, the libraries print nothing, except for the lines per epoch ([`FitConfig::quiet`](crate::FitConfig::quiet)
/// disables them) and the reason why they end a process.
pub fn print_log() {
    print_log_with(|line| {
        let text = format!("{}\n", printable(&line.to_string()));
        // One write per line, so that lines of several processes do not mix. A closed stream must not fail the program.
        let _ = match line.is_note_on_run() {
            true => io::stdout().write_all(text.as_bytes()),
            false => io::stderr().write_all(text.as_bytes()),
        };
    });
}

/// Calls `print` with each line of the log of kiln's libraries, on the thread that emits it, for a program that prints it in its own
/// way. As [`print_log`], it has no effect if the program has a global subscriber of `tracing`.
///
/// ```
/// kiln::print_log_with(|line| eprintln!("[{}] {}", line.level, line.text));
/// ```
pub fn print_log_with(print: impl Fn(&LogLine) + Send + Sync + 'static) {
    // The subscriber of the program takes precedence.
    let _ = tracing::subscriber::set_global_default(LogPrinter { print });
}

/// A line of the log of kiln's libraries. It formats with a prefix: `note: `, `warning: `, or none for what jobs and servers report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The level: INFO, WARN or ERROR.
    pub level: Level,
    /// The crate and the part of it that emitted the line, such as `kiln_comm::job`.
    pub target: &'static str,
    /// The text. It may contain names of files and messages of other processes: make it [`printable`] for a terminal.
    pub text: String,
}

impl LogLine {
    /// Returns true for a note on a run, which its results should be read with.
    pub fn is_note_on_run(&self) -> bool {
        self.level == Level::INFO && self.target == "kiln_train::run"
    }

    fn prefix(&self) -> &'static str {
        match (self.target, self.level) {
            ("kiln_comm::job" | "kiln_comm::rpc", _) => "",
            (_, Level::WARN) => "warning: ",
            (_, Level::INFO) => "note: ",
            _ => "",
        }
    }
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.prefix(), self.text)
    }
}

/// A subscriber that takes the events of kiln's crates from INFO on, and no spans.
struct LogPrinter<P> {
    print: P,
}

impl<P: Fn(&LogLine) + Send + Sync + 'static> Subscriber for LogPrinter<P> {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        let is_ours = target.starts_with("kiln_") || target.starts_with("kiln::");
        metadata.is_event() && is_ours && *metadata.level() <= Level::INFO
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut text = EventText(String::new());
        event.record(&mut text);
        (self.print)(&LogLine { level: *metadata.level(), target: metadata.target(), text: text.0 });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message of an event, without its other fields.
struct EventText(String);

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_jobs_and_servers_have_no_prefix() {
        for (target, level, expected) in [
            ("kiln_comm::job", Level::ERROR, "text"),
            ("kiln_comm::rpc", Level::WARN, "text"),
            ("kiln_comm::tls", Level::WARN, "warning: text"),
            ("kiln_train::run", Level::WARN, "warning: text"),
            ("kiln_train::run", Level::INFO, "note: text"),
            ("kiln::signals", Level::INFO, "note: text"),
        ] {
            let line = LogLine { level, target, text: "text".into() };
            assert_eq!(line.to_string(), expected, "{target} {level}");
            assert_eq!(line.is_note_on_run(), (target, level) == ("kiln_train::run", Level::INFO));
        }
    }
}
