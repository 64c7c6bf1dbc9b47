use crate::run::callback::TrainCallback;

/// A callback that emits the notes and warnings of a run as events of `tracing`, with the target `kiln_train::run` and the levels INFO
/// and WARN. [`RunConfig::fit`](crate::RunConfig::fit) has one on rank 0.
///
/// ```
/// use kiln_train::{LogCallback, TrainCallback};
/// // The subscriber of the program receives the event.
/// LogCallback.warning("the test split has no items");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogCallback;

impl TrainCallback for LogCallback {
    fn note(&mut self, text: &str) {
        tracing::info!(name: "run-note", target: "kiln_train::run", "{text}");
    }

    fn warning(&mut self, text: &str) {
        tracing::warn!(name: "run-warning", target: "kiln_train::run", "{text}");
    }
}
