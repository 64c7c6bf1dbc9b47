use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use console::Term;

use super::{ProgressLine, ProgressReporter, ProgressStage};

/// The time within which a stage prints nothing.
const SILENT: Duration = Duration::from_secs(2);
/// The times of a stage's lines, unless they overwrite each other; after the last, the lines are as far apart as the last two.
const LINE_SECONDS: [u64; 4] = [2, 10, 30, 60];
const LAST_INTERVAL: Duration = Duration::from_secs(60);
/// The least time between the lines of stages with the same name.
const REPEATED: Duration = Duration::from_secs(10);
/// The time between two calls of [`ProgressPrinter::tick`] in the background.
const PERIOD: Duration = Duration::from_millis(500);

/// The time between two estimates of the time of a stage, and the share by which they may differ to be printed.
const ESTIMATE_EVERY: Duration = Duration::from_secs(2);
const STEADY_SHARE: f64 = 0.1;

/// The number of columns of a terminal that does not state it.
const COLUMNS: usize = 80;

/// The place of a [`ProgressPrinter`]'s lines.
pub enum ProgressOutput {
    /// A terminal: one line, which is overwritten, and cleared at the end of the stage.
    Terminal {
        /// The terminal.
        screen: Box<dyn Write + Send>,
        /// Returns the terminal's number of columns; `None` if it is unknown, which counts as 80. Longer lines are cut.
        columns: Box<dyn Fn() -> Option<usize> + Send>,
    },
    /// A function that prints a line, 2, 10, 30 and 60 seconds after the start of the stage and then once a minute. It must not
    /// begin a stage itself.
    Lines(Box<dyn FnMut(&ProgressLine) + Send>),
}

/// A reporter that prints lines for stages of more than two seconds. Of several such stages that run, it prints the one that
/// began last.
///
/// The work does not wait for an output that blocks, such as a stopped terminal: only the printer's thread writes lines, and
/// the end of a stage clears its line unless the thread writes, which clears it later.
pub struct ProgressPrinter {
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    /// True if the output is a terminal.
    is_terminal: bool,
    /// The output, locked before `state` and while it is written.
    screen: Mutex<Screen>,
    state: Mutex<State>,
    /// This printer, for the thread that prints; empty for a printer without a thread.
    this: Weak<Self>,
}

struct Screen {
    output: ProgressOutput,
    /// The stage of the terminal's line.
    shown: Option<Arc<ProgressStage>>,
    /// The number of characters on the terminal's line.
    width: usize,
    /// The number of suspensions that have not ended. Nothing is written meanwhile.
    n_suspended: usize,
}

struct State {
    running: Vec<Running>,
    /// The time of the last line, and the name of its stage.
    last: Option<(Duration, String)>,
    /// True while there is a thread that prints.
    has_thread: bool,
}

/// A stage that runs.
struct Running {
    stage: Arc<ProgressStage>,
    started: Duration,
    /// The earliest time of the next line.
    next_line: Duration,
    /// The time of the last estimate, and the estimated time of the whole stage in seconds.
    estimate: Option<(Duration, f64)>,
    remaining: Option<Duration>,
}

impl ProgressPrinter {
    /// Returns a printer on standard error, which prints on a thread of its own. On a terminal, a line overwrites the last one.
    ///
    /// ```
    /// use kiln_store::progress::{Progress, ProgressPrinter, ProgressScope, ProgressUnit};
    /// ProgressScope::new(ProgressPrinter::stderr()).run(|| {
    ///     let progress = Progress::start("reading", ProgressUnit::Bytes, 1 << 20);
    ///     progress.advance(1 << 20);
    /// });
    /// ```
    pub fn stderr() -> Arc<Self> {
        Self::start(match io::stderr().is_terminal() {
            true => ProgressOutput::Terminal {
                screen: Box::new(io::stderr()),
                columns: Box::new(|| Some(usize::from(Term::stderr().size_checked()?.1))),
            },
            // One write per line, so that lines of several processes do not mix. A closed standard error must not fail the work.
            false => ProgressOutput::Lines(Box::new(|line| {
                let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
            })),
        })
    }

    /// Returns a printer of the time since its start, which prints on a thread of its own. The thread starts with a stage, and
    /// ends within a second after the last stage, or after the printer was dropped.
    pub fn start(output: ProgressOutput) -> Arc<Self> {
        let start = Instant::now();
        Self::start_with_clock(output, move || start.elapsed())
    }

    /// Returns a printer as [`ProgressPrinter::start`] does, of the time of `clock`.
    pub fn start_with_clock(
        output: ProgressOutput,
        clock: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { this: this.clone(), ..Self::with_clock(output, clock) })
    }

    /// Returns a printer of the time of `clock`, which prints only within [`ProgressPrinter::tick`].
    pub fn with_clock(output: ProgressOutput, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self {
            clock: Box::new(clock),
            is_terminal: matches!(output, ProgressOutput::Terminal { .. }),
            screen: Mutex::new(Screen { output, shown: None, width: 0, n_suspended: 0 }),
            state: Mutex::new(State { running: Vec::new(), last: None, has_thread: false }),
            this: Weak::new(),
        }
    }

    /// Prints a line if it is time for one.
    pub fn tick(&self) {
        let mut screen = locked(&self.screen);
        if screen.n_suspended != 0 {
            return;
        }
        let line = self.update(|state, now| match self.is_terminal {
            true => state.line(now),
            false => state.due_line(now),
        });
        match line {
            Some((stage, line)) => screen.print(&stage, &line),
            None => screen.clear(),
        }
    }

    fn update<T>(&self, change: impl FnOnce(&mut State, Duration) -> T) -> T {
        let mut state = locked(&self.state);
        // The clock is read after the lock: times ascend.
        change(&mut state, (self.clock)())
    }

    /// Starts the thread that prints, if there is none.
    fn ensure_thread(&self, state: &mut State) {
        if state.has_thread || self.this.strong_count() == 0 {
            return;
        }
        let printer = self.this.clone();
        let thread = thread::Builder::new().name("kiln-progress".to_owned());
        // Where the thread cannot start, the work goes on without lines.
        state.has_thread = thread.spawn(move || tick_while_running(&printer)).is_ok();
    }
}

fn tick_while_running(printer: &Weak<ProgressPrinter>) {
    loop {
        thread::sleep(PERIOD);
        let Some(printer) = printer.upgrade() else { return };
        printer.tick();
        let has_line = locked(&printer.screen).shown.is_some();
        let is_running = printer.update(|state, _| {
            state.has_thread = has_line || !state.running.is_empty();
            state.has_thread
        });
        if !is_running {
            return;
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProgressReporter for ProgressPrinter {
    fn started(&self, stage: &Arc<ProgressStage>) {
        self.update(|state, now| {
            state.add(stage, now);
            self.ensure_thread(state);
        });
    }

    fn finished(&self, stage: &Arc<ProgressStage>) {
        self.update(|state, _| state.remove(stage));
        let mut screen = match self.screen.try_lock() {
            Ok(screen) => screen,
            Err(TryLockError::Poisoned(screen)) => screen.into_inner(),
            // The thread writes, perhaps to a terminal that blocks. Its next tick clears the line.
            Err(TryLockError::WouldBlock) => return,
        };
        if screen.shown.as_ref().is_some_and(|shown| Arc::ptr_eq(shown, stage)) {
            screen.clear();
        }
    }

    fn suspend(&self) {
        // Lines of a file or a pipe need no room.
        if self.is_terminal {
            let mut screen = locked(&self.screen);
            screen.clear();
            screen.n_suspended += 1;
        }
    }

    fn resume(&self) {
        if self.is_terminal {
            locked(&self.screen).n_suspended -= 1;
        }
    }
}

impl State {
    fn add(&mut self, stage: &Arc<ProgressStage>, now: Duration) {
        let repeated = self.last.as_ref().filter(|(_, name)| name == stage.name());
        let next_line = repeated.map_or(Duration::ZERO, |(time, _)| *time + REPEATED);
        self.running.push(Running {
            stage: Arc::clone(stage),
            started: now,
            next_line: next_line.max(now + SILENT),
            estimate: None,
            remaining: None,
        });
    }

    fn remove(&mut self, stage: &Arc<ProgressStage>) {
        self.running.retain(|running| !Arc::ptr_eq(&running.stage, stage));
    }

    /// Updates the estimates, and returns the newest long stage.
    fn newest(&mut self, now: Duration) -> Option<&mut Running> {
        self.running.iter_mut().for_each(|running| running.estimate(now));
        self.running.iter_mut().rev().find(|running| SILENT <= now - running.started)
    }

    /// Returns the line of the newest long stage.
    fn line(&mut self, now: Duration) -> Option<(Arc<ProgressStage>, ProgressLine)> {
        self.newest(now).map(|running| running.line(now))
    }

    /// Returns the line of the newest long stage if it is time for one.
    fn due_line(&mut self, now: Duration) -> Option<(Arc<ProgressStage>, ProgressLine)> {
        let is_due = self.last.as_ref().is_none_or(|(time, _)| SILENT <= now - *time);
        let running = self.newest(now).filter(|running| is_due && running.next_line <= now)?;
        running.plan_next_line(now);
        let (stage, line) = running.line(now);
        self.last = Some((now, line.stage.clone()));
        Some((stage, line))
    }
}

impl Screen {
    /// Prints a line, which replaces that of a terminal.
    fn print(&mut self, stage: &Arc<ProgressStage>, line: &ProgressLine) {
        match &mut self.output {
            ProgressOutput::Lines(print) => print(line),
            ProgressOutput::Terminal { columns, .. } => {
                // A line that reaches the last column may wrap, and could not be overwritten.
                let max_width = columns().unwrap_or(COLUMNS).saturating_sub(1);
                let text: String = line.to_string().chars().take(max_width).collect();
                // The terminal may be narrower than it was.
                self.width = self.width.min(max_width);
                self.replace(&text);
                self.shown = Some(Arc::clone(stage));
            }
        }
    }

    /// Removes the line of a terminal.
    fn clear(&mut self) {
        if self.shown.take().is_some() {
            self.replace("");
        }
    }

    fn replace(&mut self, text: &str) {
        let ProgressOutput::Terminal { screen, .. } = &mut self.output else { return };
        let width = text.chars().count();
        // Spaces cover the rest of the line before, on terminals of any kind.
        let rest = " ".repeat(self.width.saturating_sub(width));
        let end = if width == 0 { "\r" } else { "" };
        // One write, so that other output does not come between its parts. A closed terminal must not fail the work.
        let _ = screen.write_all(format!("\r{text}{rest}{end}").as_bytes()).and_then(|()| screen.flush());
        self.width = width;
    }
}

impl Running {
    fn line(&self, now: Duration) -> (Arc<ProgressStage>, ProgressLine) {
        let line = ProgressLine::new(&self.stage, now - self.started, self.remaining);
        (Arc::clone(&self.stage), line)
    }

    /// Updates the estimate of the remaining time. It is known if two estimates, some seconds apart, hardly differ.
    fn estimate(&mut self, now: Duration) {
        let done = self.stage.done();
        let elapsed = now - self.started;
        let Some(total) = self.stage.total().filter(|_| done != 0) else { return };
        let seconds = elapsed.as_secs_f64() * total as f64 / done as f64;
        match self.estimate {
            Some((time, _)) if now - time < ESTIMATE_EVERY => {}
            None => self.estimate = Some((now, seconds)),
            Some((_, before)) => {
                let is_steady = (seconds - before).abs() <= STEADY_SHARE * before;
                let left = (seconds - elapsed.as_secs_f64()).max(0.0);
                self.remaining = is_steady.then(|| Duration::try_from_secs_f64(left).ok()).flatten();
                self.estimate = Some((now, seconds));
            }
        }
    }

    fn plan_next_line(&mut self, now: Duration) {
        let mut times = LINE_SECONDS.iter().map(|seconds| self.started + Duration::from_secs(*seconds));
        self.next_line = times.find(|time| now < *time).unwrap_or(now + LAST_INTERVAL);
    }
}

impl fmt::Debug for ProgressPrinter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressPrinter").finish_non_exhaustive()
    }
}

impl fmt::Debug for ProgressOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::Terminal { .. }) { "Terminal" } else { "Lines" })
    }
}
