//! What is special to the command line of `kiln`: the flags of its short help, and the errors that are those of a user.

use kiln_usage::UsageError;

/// The flags that `-h` shows of the commands with many flags: those that a first user needs. `--help` shows all.
pub(crate) const FIRST_FLAGS: [(&[&str], &str); 4] = [
    (
        &["train"],
        "task data model layers hidden dropout fanouts epochs out resume optimizer lr batch-size seed ranks device",
    ),
    (&["predict"], "run data nodes keys out embeddings format mode pairs top-k device"),
    (&["data", "import"], "out dry-run transforms-of append memory"),
    (&["data", "partition"], "out parts method standardize add-self-loops seed"),
];

/// Flags with a list in one value, which clap does not divide.
pub(crate) const LISTS: [&str; 2] = ["fanouts", "device"];

/// Returns true if an error is one of the command line, also if a rank returned it: a flag that does not apply, or a path that
/// cannot be what its flag needs.
pub(crate) fn is_usage(error: &anyhow::Error) -> bool {
    use kiln::comm::{Failure, RankError};
    error.chain().any(|cause| match cause.downcast_ref() {
        Some(kiln::Error::Rank(RankError::Rank { failure: Failure::Failed(inner), .. })) => {
            matches!(inner.downcast_ref(), Some(kiln::Error::Other(inner)) if inner.is::<UsageError>() || inner.downcast_ref().is_some_and(kiln::predictions::Error::is_usage))
        }
        Some(kiln::Error::Train(error)) => error.is_usage(),
        _ if cause.downcast_ref().is_some_and(kiln_sweep::Error::is_usage) => true,
        #[cfg(feature = "tables")]
        _ if cause.downcast_ref().is_some_and(kiln_tables::Error::is_usage) => true,
        _ => {
            cause.is::<UsageError>()
                || cause.downcast_ref().is_some_and(kiln::train::Error::is_usage)
                || cause.downcast_ref().is_some_and(kiln::predictions::Error::is_usage)
                || matches!(cause.downcast_ref(), Some(kiln::store::Error::NotEmpty { .. }))
        }
    })
}
