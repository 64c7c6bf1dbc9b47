//! Sweeps: many runs of one training, over a grid or random values of its flags and over seeds, several at a time, with the mean and the
//! deviation of each choice of settings.
//!
//! A [`Plan`] is read from a file, a [`Sweep`] has its runs in a folder, [`Sweep::execute`] trains those that have not finished, each in
//! a process of its own, and a [`SweepTable`] compares the results. A sweep that was killed continues: its runs start from their
//! last checkpoints, and the results are those of an uninterrupted sweep.
//!
//! The crate does not train, and knows no flag except those for folders, seeds, ranks and devices: a program passes the commands.
//!
//! ```
//! use kiln_sweep::Plan;
//! let text = "data = \"papers\"\n[sweep]\nhidden = [16, 64]\nlr = { min = 1e-4, max = 1e-1, scale = \"log\" }\n[random]\ntrials = 3";
//! let plan = Plan::parse(text, "sweep.toml".as_ref())?;
//! assert_eq!(plan.varied(), ["hidden", "lr"]);
//! assert_eq!(plan.settings(&plan.runs()[0]), "hidden=16, lr=0.0008445");
//! # Ok::<(), kiln_sweep::PlanError>(())
//! ```
//!
//! # Features
//! `tables`, off by default, writes the runs as a Parquet file (`SweepTable::write_rows`).

#![forbid(unsafe_code)]

mod command;
mod cores;
mod error;
mod memory;
mod plan;
mod range;
mod record;
#[cfg(feature = "tables")]
mod rows;
mod schedule;
mod search;
mod supervised;
mod sweep;
mod sweep_file;
mod table;

pub use command::RunCommand;
pub use cores::CoreShare;
pub use error::{Error, PlanError};
pub use memory::MemoryLimits;
pub use plan::{Flags, Plan};
pub use record::SweepRun;
pub use schedule::{SweepConfig, SweepOutcome};
pub use supervised::{SUPERVISED, stop_with_sweep};
pub use sweep::Sweep;
pub use table::{SweepCell, SweepRow, SweepTable};

/// The README, whose example is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
