use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, Once, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// An event that a crate of kiln has emitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEvent {
    /// The event's name in docs/log.md.
    pub name: &'static str,
    /// The level and the target, such as `WARN kiln_comm::rpc`.
    pub place: String,
    /// The message.
    pub text: String,
}

static RECORDED: Mutex<Vec<LogEvent>> = Mutex::new(Vec::new());

/// Runs `work`, and returns its result with the events that it emits on this thread.
///
/// ```
/// let (sum, events) = kiln_testkit::record_log(|| {
///     tracing::warn!(name: "odd", target: "kiln_testkit", "an odd number");
///     1 + 2
/// });
/// assert_eq!((sum, events[0].name, &*events[0].place), (3, "odd", "WARN kiln_testkit"));
/// ```
pub fn record_log<T>(work: impl FnOnce() -> T) -> (T, Vec<LogEvent>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&events);
    let subscriber = Events(move |event| kept.lock().unwrap_or_else(PoisonError::into_inner).push(event));
    let result = tracing::subscriber::with_default(subscriber, work);
    let events = events.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (result, events)
}

/// Returns the events of all threads of this process since the first call, which begins to record them.
pub fn recorded_log() -> Vec<LogEvent> {
    install(|event| RECORDED.lock().unwrap_or_else(PoisonError::into_inner).push(event));
    RECORDED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Prints the events of this process from now on to standard error.
pub fn print_log() {
    install(|event| {
        let _ = io::stderr().write_all(format!("{}\n", event.text).as_bytes());
    });
}

fn install(take: impl Fn(LogEvent) + Send + Sync + 'static) {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        tracing::subscriber::set_global_default(Events(take)).expect("no other subscriber should be there");
    });
}

/// A subscriber that takes the events of kiln's crates, and no spans.
struct Events<F>(F);

impl<F: Fn(LogEvent) + Send + Sync + 'static> Subscriber for Events<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("kiln")
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut text = Text(String::new());
        event.record(&mut text);
        let place = format!("{} {}", metadata.level(), metadata.target());
        self.0(LogEvent { name: metadata.name(), place, text: text.0 });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
