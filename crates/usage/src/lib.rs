//! Command lines of programs: parsers of values that suggest similar names, short help, and errors with advice.
//!
//! The crate knows no command of kiln and no flag: programs pass them. Names are compared by [`kiln_graph::similar_alias`].
//!
//! ```
//! use clap::{Arg, Command};
//! let models = kiln_usage::choice([("sage", "", 0), ("gat", "", 1)]).aliases([("graphsage", "sage")]);
//! let command = Command::new("train").arg(Arg::new("model").long("model").value_parser(models));
//! let error = command.try_get_matches_from(["train", "--model", "graphsage"]).unwrap_err();
//! assert!(error.to_string().contains("a similar value exists: 'sage'"));
//! ```

#![forbid(unsafe_code)]

mod advice;
mod choice;
mod description;
mod error;
mod flag_groups;
mod given;
mod help;
mod number;
mod run_files;
mod words;

pub use advice::{advise, error_message};
pub use choice::{Choices, RelationChoices, choice, name_of};
pub use description::{Description, value_text};
pub use error::{EXIT_USAGE, UsageError};
pub use flag_groups::FlagGroups;
pub use given::{GivenFlags, list_names, make_absolute, read_given};
pub use help::shorten_help;
pub use number::{describe_range, host, learning_rate, non_negative, positive, rate, share, size, whole};
pub use run_files::{RunFiles, description_file};
pub use words::join_words;

/// The README, whose example is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
