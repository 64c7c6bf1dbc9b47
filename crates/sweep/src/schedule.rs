use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kiln_comm::EXIT_RETRY;
use kiln_store::counted;
use kiln_store::folder_lock::is_locked;
use kiln_train::{RunRecord, RunState};
use kiln_usage::UsageError;

use crate::error::{Error, io_error};
use crate::memory::{MemoryBudget, MemoryLimits, RunMemory, peak_memory};
use crate::record::SweepRun;
use crate::supervised::SupervisedChild;
use crate::sweep::Sweep;

/// The pause between two looks at the processes.
const PAUSE: Duration = Duration::from_millis(50);

/// The time for which the process of a killed sweep may keep the folder of a run: its device may take some time to be released.
const ORPHAN_WAIT: Duration = Duration::from_secs(60);

/// The number of bytes at the end of a log in which its last line is.
const TAIL_BYTES: u64 = 1 << 12;

/// The number of runs at a time, their memory, and a flag that stops a sweep.
#[derive(Debug, Clone)]
pub struct SweepConfig {
    /// The maximum number of runs at a time.
    pub parallel: usize,
    /// The limits of their memory.
    pub memory: MemoryLimits,
    /// Stops the sweep once it is true: its runs write checkpoints and end.
    pub stop: Arc<AtomicBool>,
}

/// The outcome of a sweep: the runs that have no result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepOutcome {
    /// The reason for each run that failed, by its name.
    pub failures: BTreeMap<String, String>,
    /// The number of runs that have not finished and have not failed: the sweep was asked to stop, or a run was.
    pub n_interrupted: usize,
}

/// A process that trains a run.
struct RunningRun<'a> {
    run: &'a SweepRun,
    child: SupervisedChild,
    memory: RunMemory,
    /// The length of the metrics file at the start.
    n_metrics_bytes: u64,
    /// The length of the log at the start.
    n_log_bytes: u64,
}

impl Sweep {
    /// Trains the runs that have not finished, several at a time, and waits for their end. `command` returns the command of a run, which
    /// starts or continues it in its folder and calls [`stop_with_sweep`](crate::stop_with_sweep). `notify` gets a line for each start and end.
    ///
    /// The processes end with this one, however it ends. A run that fails does not end the sweep. Starting the sweep again continues with
    /// the runs that have not finished.
    ///
    /// ```no_run
    /// use kiln_sweep::{Plan, Sweep, SweepConfig};
    /// let plan = Plan::parse("[sweep]\nlr = [0.1, 0.01]", "sweep.toml".as_ref())?;
    /// let sweep = Sweep::open(plan, "runs/sweep".as_ref())?;
    /// let config = SweepConfig { parallel: 2, memory: Default::default(), stop: Default::default() };
    /// let train = |run: &kiln_sweep::SweepRun| {
    ///     let mut command = std::process::Command::new("my-training");
    ///     command.arg(&run.flags["lr"]).arg(sweep.run_folder(run));
    ///     Ok(command)
    /// };
    /// let outcome = sweep.execute(&config, train, |line| println!("{line}"))?;
    /// println!("{}", sweep.table(&outcome.failures));
    /// # Ok::<(), kiln_sweep::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`MemoryLimits::check`], and [`Error::Io`] if the state
    /// of a process is unknown. All processes have ended then.
    pub fn execute(
        &self,
        config: &SweepConfig,
        command: impl Fn(&SweepRun) -> Result<Command, UsageError>,
        notify: impl FnMut(&str),
    ) -> Result<SweepOutcome, Error> {
        let mut schedule = Schedule {
            sweep: self,
            config,
            budget: config.memory.budget()?,
            waiting: VecDeque::new(),
            running: Vec::new(),
            outcome: SweepOutcome::default(),
            n_finished: 0,
            notify,
        };
        schedule.prepare();
        schedule.work(command)?;
        Ok(schedule.outcome)
    }
}

/// The state of a sweep while it runs. A single thread looks at the processes in turn.
struct Schedule<'a, N> {
    sweep: &'a Sweep,
    config: &'a SweepConfig,
    budget: MemoryBudget,
    /// The runs that have not started, in their order.
    waiting: VecDeque<&'a SweepRun>,
    running: Vec<RunningRun<'a>>,
    outcome: SweepOutcome,
    n_finished: usize,
    notify: N,
}

impl<'a, N: FnMut(&str)> Schedule<'a, N> {
    /// Finds the runs that have not finished. The peak memory of the others is an estimate for them.
    fn prepare(&mut self) {
        for run in self.sweep.runs() {
            match self.sweep.read_run(run) {
                Ok(Some(record)) if record.state == RunState::Finished => {
                    self.n_finished += 1;
                    self.budget.add_finished(recorded_peak(&record));
                }
                // The process of the run reports a damaged file.
                _ => self.waiting.push_back(run),
            }
        }
        if 0 < self.n_finished {
            let n_runs = self.sweep.runs().len() as u64;
            (self.notify)(&format!("{} of {} finished before", self.n_finished, counted(n_runs, "run")));
        }
    }

    fn work(&mut self, command: impl Fn(&SweepRun) -> Result<Command, UsageError>) -> Result<(), Error> {
        let mut is_stopping = false;
        let mut has_warned = false;
        let mut last_change = Instant::now();
        while !(self.waiting.is_empty() && self.running.is_empty()) {
            if !is_stopping && self.config.stop.load(Ordering::SeqCst) {
                is_stopping = true;
                self.outcome.n_interrupted += self.waiting.len();
                self.waiting.clear();
                self.running.iter_mut().for_each(|running| running.child.request_stop());
            }
            let has_ended = self.collect_ended(is_stopping)?;
            if let (Some((total, peak)), false) = (self.budget.excess(), has_warned) {
                has_warned = true;
                (self.notify)(&format!(
                    "warning: a run took {peak} bytes of memory, above the limit of {total} bytes: runs start one at a time"
                ));
            }
            let has_started = self.start_next(&command);
            if has_ended || has_started || !self.running.is_empty() {
                last_change = Instant::now();
            }
            if ORPHAN_WAIT < last_change.elapsed() {
                self.fail_locked();
            }
            if !has_started {
                thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// Starts the next run if it may start. Returns true if there was one.
    fn start_next(&mut self, command: &impl Fn(&SweepRun) -> Result<Command, UsageError>) -> bool {
        let memory: Vec<RunMemory> = self.running.iter().map(|running| running.memory).collect();
        if self.config.parallel.max(1) <= self.running.len() || !self.budget.fits_another(&memory) {
            return false;
        }
        // The process of a killed sweep may still end.
        let next = self.waiting.iter().position(|run| !is_locked(&self.sweep.run_folder(run)));
        let Some(position) = next else { return false };
        let Some(run) = self.waiting.remove(position) else { return false };
        match self.start(run, command) {
            Ok(running) => {
                self.running.push(running);
                let settings = self.sweep.plan().settings(&run.flags);
                let settings = if settings.is_empty() { settings } else { format!(": {settings}") };
                (self.notify)(&format!("{} starts{settings}", run.name));
            }
            Err(reason) => self.fail(run, format!("it could not be started: {reason}")),
        }
        true
    }

    fn start(
        &self,
        run: &'a SweepRun,
        command: &impl Fn(&SweepRun) -> Result<Command, UsageError>,
    ) -> Result<RunningRun<'a>, Box<dyn std::error::Error>> {
        let mut command = command(run)?;
        let path = self.sweep.run_log(run);
        let mut log = OpenOptions::new().create(true).append(true).open(&path).map_err(io_error(&path))?;
        writeln!(log, "$ {command:?}").map_err(io_error(&path))?;
        let n_log_bytes = log.metadata().map_err(io_error(&path))?.len();
        let n_metrics_bytes = self.metrics_bytes(run);
        let errors = log.try_clone().map_err(io_error(&path))?;
        command.stdout(log).stderr(errors);
        let child = SupervisedChild::start(command)?;
        let memory = RunMemory { peak_bytes: 0, has_epoch: false };
        Ok(RunningRun { run, child, memory, n_metrics_bytes, n_log_bytes })
    }

    /// Removes the processes that have ended, and measures the others. Returns true if one has ended.
    fn collect_ended(&mut self, is_stopping: bool) -> Result<bool, Error> {
        let mut ended = Vec::new();
        let mut position = 0;
        while position < self.running.len() {
            let n_metrics_bytes = self.metrics_bytes(self.running[position].run);
            let running = &mut self.running[position];
            if let Some(peak_bytes) = peak_memory(running.child.id()) {
                running.memory.peak_bytes = running.memory.peak_bytes.max(peak_bytes);
            }
            running.memory.has_epoch |= running.n_metrics_bytes < n_metrics_bytes;
            let status = running.child.try_wait().map_err(io_error(self.sweep.run_folder(running.run)))?;
            match status {
                Some(status) => ended.push((self.running.remove(position), status)),
                None => position += 1,
            }
        }
        let has_ended = !ended.is_empty();
        for (running, status) in ended {
            self.conclude(&running, status, is_stopping);
        }
        Ok(has_ended)
    }

    fn conclude(&mut self, running: &RunningRun<'a>, status: ExitStatus, is_stopping: bool) {
        let run = running.run;
        let record = self.sweep.read_run(run).ok().flatten();
        let finished = record.filter(|record| record.state == RunState::Finished);
        let reason = || {
            let line = last_line(File::open(self.sweep.run_log(run)), running.n_log_bytes);
            format!("{status}{line}")
        };
        match finished {
            Some(record) => {
                // Its result counts at the next start of the sweep, therefore also here.
                let warning = (!status.success()).then(reason);
                self.finish(running, &record, warning);
            }
            None if is_interruption(status, is_stopping) => {
                self.outcome.n_interrupted += 1;
                (self.notify)(&format!("{} was interrupted", run.name));
            }
            None => {
                let reason = reason();
                self.fail(run, reason);
            }
        }
    }

    /// Counts a run that has finished. `warning` is the reason if its process has failed nevertheless.
    fn finish(&mut self, running: &RunningRun<'a>, record: &RunRecord, warning: Option<String>) {
        let name = &running.run.name;
        self.budget.add_finished(running.memory.peak_bytes.max(recorded_peak(record)));
        self.n_finished += 1;
        let n_runs = self.sweep.runs().len();
        let value = record
            .best_value()
            .map_or_else(String::new, |value| format!(", validation {} {value:.4}", record.metric()));
        (self.notify)(&format!("{name} has finished ({} of {n_runs}){value}", self.n_finished));
        if let Some(reason) = warning {
            (self.notify)(&format!("warning: {name} has finished, but its process has failed: {reason}"));
        }
    }

    fn fail(&mut self, run: &SweepRun, reason: String) {
        (self.notify)(&format!("{} has failed: {reason}", run.name));
        self.outcome.failures.insert(run.name.clone(), reason);
    }

    /// Fails the waiting runs, whose folders are all locked.
    fn fail_locked(&mut self) {
        for run in std::mem::take(&mut self.waiting) {
            self.fail(run, "another process uses its folder: stop that process".to_owned());
        }
    }

    fn metrics_bytes(&self, run: &SweepRun) -> u64 {
        let file = self.sweep.run_folder(run).join("metrics.jsonl");
        file.metadata().map_or(0, |metadata| metadata.len())
    }
}

/// Returns true if a process that has not finished its run was asked to end. The folder may have the summary of an earlier interruption.
fn is_interruption(status: ExitStatus, is_stopping: bool) -> bool {
    match status.code() {
        Some(code) => code == i32::from(EXIT_RETRY),
        // A signal ended it.
        None => is_stopping,
    }
}

/// Returns the peak memory of a run as its summary has it, in bytes; 0 if the summary has none.
fn recorded_peak(record: &RunRecord) -> u64 {
    record.summary.as_ref().map_or(0, |summary| summary.peak_rss_anon_bytes + summary.peak_rss_mapped_bytes)
}

/// Returns the last line behind a position of a log, to follow on a status; empty if there is none, or if it cannot be read.
fn last_line(log: io::Result<File>, start: u64) -> String {
    let text = log.and_then(|log| read_tail(log, start)).unwrap_or_default();
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.map_or_else(String::new, |line| format!(": {line}"))
}

/// Reads the end of a log, at most [`TAIL_BYTES`] behind a position.
fn read_tail(mut log: File, start: u64) -> io::Result<String> {
    let n_bytes = log.metadata()?.len();
    log.seek(SeekFrom::Start(start.max(n_bytes.saturating_sub(TAIL_BYTES))))?;
    let mut bytes = Vec::new();
    log.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
