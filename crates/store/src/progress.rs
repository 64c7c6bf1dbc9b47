//! The progress of long work: what a function of kiln does at the moment, and how much of it is done.
//!
//! Functions that may take seconds (conversions, imports, partitioning, hashes, exact evaluation, predictions) divide their
//! work into stages. A [`ProgressReporter`] learns of the stages that begin within a [`ProgressScope`]. Without a scope,
//! nothing is reported, and a stage costs a check of a pointer for each chunk of its work. [`ProgressPrinter`] is a reporter
//! that prints lines for stages of more than two seconds.
//!
//! ```
//! use kiln_store::array_folder::{ElementType, FolderWriter};
//! use kiln_store::progress::{ProgressPrinter, ProgressScope};
//! let root = tempfile::tempdir()?;
//! let scope = ProgressScope::new(ProgressPrinter::stderr());
//! scope.run(|| {
//!     // Work of more than two seconds prints lines on standard error.
//!     let mut folder = FolderWriter::create(root.path().join("primes"))?;
//!     folder.put("primes.npy", ElementType::U32, &[2_u32, 3, 5])?;
//!     folder.commit()
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A scope belongs to a thread, so several jobs of one process report to different reporters. Functions of kiln that go on in
//! a pool of threads take the scope with them, and so does the rank 0 of `kiln::launch`; other ranks report nothing.

mod line;
mod printer;

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::line::ProgressLine;
pub use self::printer::{ProgressOutput, ProgressPrinter};

/// The number of units that a [`ProgressCounter`] adds to its stage at once.
const UNITS_AT_ONCE: u64 = 1 << 16;

thread_local! {
    static CURRENT: RefCell<ProgressScope> = const { RefCell::new(ProgressScope(None)) };
}

/// The unit in which a stage is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
#[non_exhaustive]
pub enum ProgressUnit {
    Bytes,
    Rows,
    Nodes,
    Edges,
    Links,
    Graphs,
    Batches,
    Values,
}

impl ProgressUnit {
    /// Returns the unit's name in the plural, such as `edges`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Rows => "rows",
            Self::Nodes => "nodes",
            Self::Edges => "edges",
            Self::Links => "links",
            Self::Graphs => "graphs",
            Self::Batches => "batches",
            Self::Values => "values",
        }
    }
}

/// A stage of work, which the reporter may read at any time, on any thread.
#[derive(Debug)]
pub struct ProgressStage {
    name: String,
    unit: ProgressUnit,
    total: Option<u64>,
    done: AtomicU64,
}

impl ProgressStage {
    /// Returns what the stage does, such as `sorting edges`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the unit of the counts.
    pub fn unit(&self) -> ProgressUnit {
        self.unit
    }

    /// Returns the number of units of the whole stage; `None` if it is unknown.
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// Returns the number of units that are done.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

/// A receiver of stages. Its methods are called on the thread that does the work, so they should return at once.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use kiln_store::progress::{Progress, ProgressReporter, ProgressScope, ProgressStage, ProgressUnit};
/// #[derive(Default)]
/// struct Finished(Mutex<Vec<String>>);
/// impl ProgressReporter for Finished {
///     fn started(&self, _: &Arc<ProgressStage>) {}
///     fn finished(&self, stage: &Arc<ProgressStage>) {
///         self.0.lock().unwrap().push(format!("{}: {} {}", stage.name(), stage.done(), stage.unit().name()));
///     }
/// }
/// let finished = Arc::new(Finished::default());
/// ProgressScope::new(finished.clone()).run(|| {
///     let progress = Progress::start("sorting", ProgressUnit::Rows, 5);
///     progress.advance(2);
///     progress.advance(3);
/// });
/// assert_eq!(*finished.0.lock().unwrap(), ["sorting: 5 rows"]);
/// ```
pub trait ProgressReporter: Send + Sync {
    /// A stage has begun. Stages may be nested: one that begins before others have ended is a part of these.
    fn started(&self, stage: &Arc<ProgressStage>);

    /// A stage has ended. If an error ended it, fewer units are done than its total.
    fn finished(&self, stage: &Arc<ProgressStage>);

    /// The program is about to print to the terminal: a line that shows the progress there should be removed, and none
    /// should be written until [`ProgressReporter::resume`]. Several threads may suspend the reporter at once.
    fn suspend(&self) {}

    /// The program has printed what the last [`ProgressReporter::suspend`] was for.
    fn resume(&self) {}
}

/// The reporter of a thread, or none. Clones share the reporter.
#[derive(Clone, Default)]
pub struct ProgressScope(Option<Arc<dyn ProgressReporter>>);

impl ProgressScope {
    /// Returns a scope that reports to `reporter`. [`ProgressScope::default`] reports nothing.
    pub fn new(reporter: Arc<dyn ProgressReporter>) -> Self {
        Self(Some(reporter))
    }

    /// Returns the scope of this thread, to be used on a thread that continues the work of this one.
    ///
    /// ```
    /// use kiln_store::progress::ProgressScope;
    /// let scope = ProgressScope::current();
    /// std::thread::scope(|threads| threads.spawn(|| scope.run(|| "work")).join()).unwrap();
    /// ```
    pub fn current() -> Self {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Leaves the scope of this thread until the end of its [`ProgressScope::run`]: later stages are not reported. A process
    /// that finds that another one reports for it calls this.
    pub fn leave() {
        CURRENT.set(Self::default());
    }

    /// Runs `print`, which prints to the terminal, without a line of the reporter there: a line is removed before and written
    /// again after it.
    ///
    /// ```
    /// use kiln_store::progress::ProgressScope;
    /// ProgressScope::current().suspend(|| println!("epoch 1: loss 0.25"));
    /// ```
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        let _suspended = self.0.as_deref().map(Suspended::new);
        print()
    }

    /// Runs `work` on this thread. The stages that it begins on this thread are those of this scope.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let _restored = Restored(CURRENT.replace(self.clone()));
        work()
    }
}

impl fmt::Debug for ProgressScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProgressScope").field(&self.0.is_some()).finish()
    }
}

/// Restores the scope of a thread, also after a panic.
struct Restored(ProgressScope);

impl Drop for Restored {
    fn drop(&mut self) {
        CURRENT.set(std::mem::take(&mut self.0));
    }
}

/// A reporter that is suspended until this is dropped, also by a panic.
struct Suspended<'a>(&'a dyn ProgressReporter);

impl<'a> Suspended<'a> {
    fn new(reporter: &'a dyn ProgressReporter) -> Self {
        reporter.suspend();
        Self(reporter)
    }
}

impl Drop for Suspended<'_> {
    fn drop(&mut self) {
        self.0.resume();
    }
}

/// The progress of one stage. The stage ends when it is dropped.
#[must_use = "the stage ends when it is dropped"]
pub struct Progress(Option<Active>);

/// A stage that is reported.
struct Active {
    stage: Arc<ProgressStage>,
    reporter: Arc<dyn ProgressReporter>,
}

impl Progress {
    /// Begins a stage of `total` units; `None` if their number is unknown. It is reported to the scope of this thread. The
    /// result may be advanced on any thread.
    ///
    /// ```
    /// use kiln_store::progress::{Progress, ProgressUnit};
    /// let values: Vec<u64> = (0..1000).collect();
    /// let progress = Progress::start("adding", ProgressUnit::Rows, values.len() as u64);
    /// let mut sum = 0;
    /// for chunk in values.chunks(256) {
    ///     sum += chunk.iter().sum::<u64>();
    ///     progress.advance(chunk.len() as u64);
    /// }
    /// # assert_eq!(sum, 499_500);
    /// ```
    pub fn start(name: impl fmt::Display, unit: ProgressUnit, total: impl Into<Option<u64>>) -> Self {
        let Some(reporter) = ProgressScope::current().0 else { return Self(None) };
        let total = total.into();
        let stage =
            Arc::new(ProgressStage { name: name.to_string(), unit, total, done: AtomicU64::default() });
        reporter.started(&stage);
        Self(Some(Active { stage, reporter }))
    }

    /// Adds finished units. Call it once per chunk, not for each of many rows.
    pub fn advance(&self, n_units: u64) {
        if let Some(active) = &self.0 {
            active.stage.done.fetch_add(n_units, Ordering::Relaxed);
        }
    }

    /// Sets the number of finished units.
    pub fn set_done(&self, n_units: u64) {
        if let Some(active) = &self.0 {
            active.stage.done.store(n_units, Ordering::Relaxed);
        }
    }

    /// Returns a counter for a loop over many rows, which advances the stage once per 65,536 units and when it is dropped.
    ///
    /// ```
    /// use kiln_store::progress::{Progress, ProgressUnit};
    /// let progress = Progress::start("adding", ProgressUnit::Rows, 1_000_000);
    /// let mut counter = progress.counter();
    /// let mut sum = 0_u64;
    /// for row in 0..1_000_000 {
    ///     sum += row;
    ///     counter.add(1);
    /// }
    /// # assert_eq!(sum, 499_999_500_000);
    /// ```
    pub fn counter(&self) -> ProgressCounter<'_> {
        ProgressCounter { progress: self, n_units: 0 }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(active) = &self.0 {
            active.reporter.finished(&active.stage);
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Progress").field(&self.0.as_ref().map(|active| &active.stage)).finish()
    }
}

/// A counter of the units of a stage; see [`Progress::counter`].
#[derive(Debug)]
pub struct ProgressCounter<'a> {
    progress: &'a Progress,
    /// The number of units that the stage does not count yet.
    n_units: u64,
}

impl ProgressCounter<'_> {
    /// Adds finished units.
    #[inline]
    pub fn add(&mut self, n_units: u64) {
        self.n_units += n_units;
        if UNITS_AT_ONCE <= self.n_units {
            self.progress.advance(std::mem::take(&mut self.n_units));
        }
    }
}

impl Drop for ProgressCounter<'_> {
    fn drop(&mut self) {
        self.progress.advance(self.n_units);
    }
}
