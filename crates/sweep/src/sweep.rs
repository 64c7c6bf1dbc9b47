use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use kiln_store::folder_lock::lock_folder;
use kiln_store::whole_file::sync_parents;
use kiln_train::{Error as TrainError, RunError, RunRecord};

use crate::error::{Error, io_error};
use crate::plan::Plan;
use crate::record::{SweepRecord, SweepRun, name_runs, read_record, write_record};
use crate::table::{SweepRow, SweepTable};

/// The folder with the logs of the runs.
const LOGS: &str = "logs";

/// A sweep in a folder: the runs of a plan, each with its folder.
///
/// | file | content |
/// |---|---|
/// | `sweep.json` | the names and the flags of the runs |
/// | `cell-001-seed-0/` … | the folder of a run |
/// | `logs/cell-001-seed-0.log` … | what the processes of a run printed |
/// | `sweep.parquet` | a row for each run (feature `tables`) |
/// | `sweep.html` | the cells, the runs and their curves |
///
/// The folder is locked while the value exists, if the file system supports locks.
#[derive(Debug)]
pub struct Sweep {
    folder: PathBuf,
    plan: Plan,
    runs: Vec<SweepRun>,
    /// The open lock file; `None` for a preview. Dropping it releases the lock.
    _lock: Option<File>,
}

impl Sweep {
    /// Creates the folder of a sweep, or opens it to continue. The plan may have more runs than the folder: the
    /// recorded ones keep their names.
    ///
    /// ```
    /// use kiln_sweep::{Plan, Sweep};
    /// let root = tempfile::tempdir()?;
    /// let folder = root.path().join("sweep");
    /// let plan = |seeds| Plan::parse(&format!("[sweep]\nlr = [0.1, 0.2]\nseed = {seeds}"), "sweep.toml".as_ref());
    /// drop(Sweep::open(plan("[0]")?, &folder)?);
    /// let sweep = Sweep::open(plan("[0, 1]")?, &folder)?;
    /// let names: Vec<_> = sweep.runs().iter().map(|run| run.name.as_str()).collect();
    /// assert_eq!(names, ["cell-001-seed-0", "cell-001-seed-1", "cell-002-seed-0", "cell-002-seed-1"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InUse`] if another process has the folder, [`Error::OtherSweep`] if the plan lacks a run of the folder,
    /// [`Error::NotEmpty`] if it has other files, [`Error::BadRecord`] if `sweep.json` is damaged, and [`Error::Io`].
    pub fn open(plan: Plan, folder: &Path) -> Result<Self, Error> {
        // Before the folder is created, so that an error leaves nothing behind.
        read_record(folder)?;
        let logs = folder.join(LOGS);
        fs::create_dir_all(folder).and_then(|()| sync_parents(folder)).map_err(io_error(folder))?;
        let lock = lock_folder(folder).map_err(io_error(folder))?;
        let Some(lock) = lock else { return Err(Error::InUse { folder: folder.to_owned() }) };
        let recorded = read_record(folder)?;
        let runs = name_runs(&plan, &recorded, folder)?;
        let record = SweepRecord::new(&plan, &runs);
        if record != recorded {
            write_record(folder, &record)?;
        }
        fs::create_dir_all(&logs).map_err(io_error(logs))?;
        Ok(Self { folder: folder.to_owned(), plan, runs, _lock: Some(lock) })
    }

    /// Returns the sweep that [`open`](Self::open) would return, but writes and locks nothing: to list its runs.
    ///
    /// # Errors
    /// Same as [`open`](Self::open).
    pub fn preview(plan: Plan, folder: &Path) -> Result<Self, Error> {
        let runs = name_runs(&plan, &read_record(folder)?, folder)?;
        Ok(Self { folder: folder.to_owned(), plan, runs, _lock: None })
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the runs in the order of the plan.
    pub fn runs(&self) -> &[SweepRun] {
        &self.runs
    }

    /// Returns the folder of a run.
    pub fn run_folder(&self, run: &SweepRun) -> PathBuf {
        self.folder.join(&run.name)
    }

    /// Returns the file with what the processes of a run printed.
    pub fn run_log(&self, run: &SweepRun) -> PathBuf {
        self.folder.join(LOGS).join(format!("{}.log", run.name))
    }

    /// Reads the folder of a run; `None` before its first checkpoint.
    ///
    /// # Errors
    /// Returns the errors of [`RunRecord::read`] except for a folder without a run.
    pub(crate) fn read_run(&self, run: &SweepRun) -> Result<Option<RunRecord>, TrainError> {
        match RunRecord::read(self.run_folder(run)) {
            Err(TrainError::Run(RunError::NoRun { .. })) => Ok(None),
            read => read.map(Some),
        }
    }

    /// Reads the results so far. `failures` has the reason for each run of this process that failed, by its name.
    ///
    /// ```
    /// use kiln_sweep::{Plan, Sweep};
    /// let plan = Plan::parse("[sweep]\nlr = [0.1, 0.2]", "sweep.toml".as_ref())?;
    /// let table = Sweep::preview(plan, "runs/none".as_ref())?.table(&Default::default());
    /// assert_eq!(table.to_string(), "\
    /// cell  lr   runs    validation  test  time
    /// 1     0.1  0 of 1
    /// 2     0.2  0 of 1");
    /// # Ok::<(), kiln_sweep::Error>(())
    /// ```
    pub fn table(&self, failures: &BTreeMap<String, String>) -> SweepTable {
        let mut rows = Vec::new();
        for run in &self.runs {
            let (record, damage) = match self.read_run(run) {
                Ok(record) => (record, None),
                Err(error) => (None, Some(error.to_string())),
            };
            let failure = failures.get(&run.name).cloned().or(damage);
            rows.push(SweepRow { run: run.clone(), record, failure });
        }
        SweepTable::new(self.plan.varied().to_vec(), rows)
    }
}
