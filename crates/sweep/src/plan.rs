use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kiln_graph::NodeId;
use kiln_sample::RngKey;
use kiln_store::paths::io_reason;
use kiln_store::whole_file::read_text;
use kiln_train::canonical_setting;
use kiln_usage::{Description, UsageError, make_absolute};

use crate::error::PlanError;
use crate::range::Range;
use crate::search::SearchRecord;
use crate::sweep_file::{Choice, RandomSearch, SweepFile};

/// The maximum number of runs: more are a typing error.
const MAX_RUNS: usize = 10_000;

/// The maximum number of draws of a cell, which are repeated until it is a new one.
const MAX_DRAWS: usize = 1_000;

/// The flags that name files and folders. Runs have their absolute paths.
pub(crate) const PATHS: [&str; 2] = ["data", "parts"];

/// The flags of a run by their long names, with their values as on the command line.
pub type Flags = BTreeMap<String, String>;

/// The runs of a sweep, from a file in TOML, YAML or JSON: the flags of all runs, and the table `sweep` with the values of the others.
///
/// A cell is a choice of all settings except the seed. Without a table `random`, cells are all combinations. With it, each of the
/// `trials` cells is drawn from the lists and ranges; more trials keep the earlier cells. Each cell has a run for every seed.
///
/// ```
/// use kiln_sweep::Plan;
/// let text = "epochs = 5\n[sweep]\nlr = [0.01, 0.003]\nseed = [0, 1, 2]";
/// let plan = Plan::parse(text, "sweep.toml".as_ref())?;
/// assert_eq!((plan.runs().len(), plan.varied()), (6, &["lr".to_owned()][..]));
/// assert_eq!((plan.runs()[1]["lr"].as_str(), plan.runs()[1]["seed"].as_str()), ("0.01", "1"));
/// # Ok::<(), kiln_sweep::PlanError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Plan {
    /// The file, for errors.
    file: String,
    /// The flags that the sweep varies, except the seed.
    varied: Vec<String>,
    runs: Vec<Flags>,
    /// The search that drew the cells; `None` for a grid.
    search: Option<SearchRecord>,
}

impl Plan {
    /// Reads a file.
    ///
    /// # Errors
    /// Returns [`PlanError::File`] if it cannot be read, and other errors of this type if it is invalid.
    pub fn read(path: &Path) -> Result<Self, PlanError> {
        let text = read_text(path)
            .map_err(|error| UsageError(format!("{}: {}", path.display(), io_reason(path, &error))))?;
        Self::parse(&text, path)
    }

    /// Same as [`read`](Self::read), but the content is a text.
    ///
    /// # Errors
    /// Same as [`read`](Self::read).
    pub fn parse(text: &str, path: &Path) -> Result<Self, PlanError> {
        let file = SweepFile::parse(text, path)?;
        let seeds = file.seeds();
        let cells = match &file.random {
            Some(random) => draw_cells(&file, random)?,
            None => list_cells(&file, seeds.len())?,
        };
        let n_runs = cells.len().saturating_mul(seeds.len());
        check_number(&file, n_runs)?;
        let mut runs = Vec::new();
        for cell in cells {
            for seed in &seeds {
                let mut flags = file.common.values().clone();
                flags.extend(cell.clone());
                flags.insert("seed".to_owned(), seed.clone());
                make_absolute(&mut flags, &PATHS);
                runs.push(flags);
            }
        }
        let varied = file.choices.keys().filter(|flag| *flag != "seed").cloned().collect();
        let search = file.random.as_ref().map(|random| SearchRecord::new(random, &file.choices));
        Ok(Self { file: file.name, varied, runs, search })
    }

    /// Returns the name of the file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the flags that the sweep varies, except the seed, in the order of their names.
    pub fn varied(&self) -> &[String] {
        &self.varied
    }

    /// Returns the flags of each run, those of a cell beside each other.
    pub fn runs(&self) -> &[Flags] {
        &self.runs
    }

    /// Returns the search that drew the cells; `None` for a grid.
    pub(crate) fn search(&self) -> Option<&SearchRecord> {
        self.search.as_ref()
    }

    /// Describes the flags of a run, for its command line. Errors name the file.
    pub fn describe(&self, flags: &Flags) -> Description {
        Description::of(flags.clone()).with_file(&*self.file)
    }

    /// Checks a command line of each cell by a function that returns the error as a text.
    ///
    /// ```
    /// # let text = "[sweep]\nlr = [0.01, 100]";
    /// # let plan = kiln_sweep::Plan::parse(text, "sweep.toml".as_ref())?;
    /// let check = |flags: &kiln_usage::Description| match flags.get("lr") {
    ///     Some("100") => Err("expected at most 10".to_owned()),
    ///     _ => Ok(()),
    /// };
    /// let error = plan.check(check).unwrap_err();
    /// assert_eq!(error.to_string(), "sweep.toml: runs with lr=100: expected at most 10");
    /// # Ok::<(), kiln_sweep::PlanError>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`PlanError::BadRun`] with the cell and the first error.
    pub fn check(&self, check: impl Fn(&Description) -> Result<(), String>) -> Result<(), PlanError> {
        let mut checked = BTreeSet::new();
        for flags in self.runs.iter().filter(|flags| checked.insert(cell_of(flags))) {
            let checked = check(&self.describe(flags));
            checked.map_err(|reason| {
                let settings = self.settings(flags);
                let runs =
                    if settings.is_empty() { "all runs".to_owned() } else { format!("runs with {settings}") };
                PlanError::BadRun { file: self.file.clone(), runs, reason }
            })?;
        }
        Ok(())
    }

    /// Returns the settings of a run that the sweep varies as a text, such as `hidden=16, lr=0.01`; empty if the seed alone varies.
    pub fn settings(&self, flags: &Flags) -> String {
        let shown = self.varied.iter().filter_map(|flag| Some(format!("{flag}={}", flags.get(flag)?)));
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// Returns the flags of a run without the seed.
pub(crate) fn cell_of(flags: &Flags) -> Flags {
    flags
        .iter()
        .filter(|(flag, _)| *flag != "seed")
        .map(|(flag, value)| (flag.clone(), value.clone()))
        .collect()
}

/// Returns flags in a form in which equal ones are identical.
pub(crate) fn canonical_flags(flags: &Flags) -> Flags {
    flags.iter().map(|(flag, value)| (flag.clone(), canonical_setting(value))).collect()
}

fn check_number(file: &SweepFile, n_runs: usize) -> Result<(), PlanError> {
    if n_runs <= MAX_RUNS {
        return Ok(());
    }
    Err(PlanError::TooManyRuns { file: file.name.clone(), n_runs, max: MAX_RUNS })
}

/// Returns all combinations; the values of the last flag change fastest.
fn list_cells(file: &SweepFile, n_seeds: usize) -> Result<Vec<Flags>, PlanError> {
    let mut cells = vec![Flags::new()];
    for (flag, choice) in file.choices.iter().filter(|(flag, _)| *flag != "seed") {
        // A file without a random search has no range.
        let Choice::List(values) = choice else { continue };
        check_number(file, cells.len().saturating_mul(values.len()).saturating_mul(n_seeds))?;
        let extended = cells.iter().flat_map(|cell| values.iter().map(move |value| (cell, value)));
        cells = extended
            .map(|(cell, value)| {
                let mut cell = cell.clone();
                cell.insert(flag.clone(), value.clone());
                cell
            })
            .collect();
    }
    Ok(cells)
}

/// Draws distinct cells. Cell `i` has the draws of node `i` under the key of the seed: two for each flag, in the order of the names.
fn draw_cells(file: &SweepFile, random: &RandomSearch) -> Result<Vec<Flags>, PlanError> {
    check_number(file, random.trials)?;
    let mut cells: Vec<Flags> = Vec::new();
    let mut drawn = BTreeSet::new();
    for trial in 0..random.trials {
        let mut draws = RngKey::new(random.seed).node(NodeId(trial as u32)).rng();
        let mut position = || {
            let [high, low] = [draws.next_u32(), draws.next_u32()].map(u64::from);
            // The upper 53 bits, as many as a number of double precision has.
            ((high << 32 | low) >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut cell = draw_cell(file, &mut position);
        let mut n_draws = 1;
        while !drawn.insert(canonical_flags(&cell)) {
            if n_draws == MAX_DRAWS {
                let n_cells = cells.len();
                let reason = format!(
                    "`trials` is {}, and only {n_cells} different cells were found: use fewer trials, or remove `random` for \
                     all combinations of the lists",
                    random.trials
                );
                return Err(PlanError::BadRandom { file: file.name.clone(), reason });
            }
            cell = draw_cell(file, &mut position);
            n_draws += 1;
        }
        cells.push(cell);
    }
    Ok(cells)
}

fn draw_cell(file: &SweepFile, position: &mut impl FnMut() -> f64) -> Flags {
    let mut cell = Flags::new();
    for (flag, choice) in file.choices.iter().filter(|(flag, _)| *flag != "seed") {
        let position = position();
        let value = match choice {
            Choice::List(values) => values[(position * values.len() as f64) as usize].clone(),
            Choice::Range(range) => Range::value_at(range, position),
        };
        cell.insert(flag.clone(), value);
    }
    cell
}
