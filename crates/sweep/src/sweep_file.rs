use std::collections::BTreeMap;
use std::path::Path;

use kiln_graph::{did_you_mean, similar_name};
use kiln_train::are_equal_settings;
use kiln_usage::{Description, value_text};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::PlanError;
use crate::range::{Range, RangeSpec};

/// The tables of the file that are no flags.
const TABLES: [&str; 2] = ["sweep", "random"];

/// Flags that no run of a sweep can have, separated by spaces, with the reason.
const UNSUPPORTED: [(&str, &str); 3] = [
    ("out resume continue like", "the sweep names the folders of its runs"),
    (
        "rank world-size local-rank master",
        "its runs are single processes; train several processes or machines with `kiln train`",
    ),
    ("folds", "its runs write folders, and a cross-validation writes none"),
];

/// The content of a file: the flags of all runs, and those that the sweep varies.
#[derive(Debug)]
pub(crate) struct SweepFile {
    /// The file, for errors.
    pub(crate) name: String,
    /// The flags of all runs.
    pub(crate) common: Description,
    /// The values of each flag that the sweep varies.
    pub(crate) choices: BTreeMap<String, Choice>,
    /// The random search; `None` for a grid.
    pub(crate) random: Option<RandomSearch>,
}

/// The values of a flag.
#[derive(Debug, Clone)]
pub(crate) enum Choice {
    /// Distinct values as on the command line, at least one.
    List(Vec<String>),
    /// Values to draw from.
    Range(Range),
}

/// The table `random`: cells are drawn instead of enumerated.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RandomSearch {
    /// The number of cells.
    pub(crate) trials: usize,
    /// The seed of the draws.
    #[serde(default)]
    pub(crate) seed: u64,
}

impl Choice {
    /// Returns the values as texts, or the limits of a range as one.
    pub(crate) fn describe(&self) -> Vec<String> {
        match self {
            Self::List(values) => values.clone(),
            Self::Range(range) => vec![range.to_string()],
        }
    }
}

impl SweepFile {
    /// Parses the content of a file.
    pub(crate) fn parse(text: &str, path: &Path) -> Result<Self, PlanError> {
        let name = path.display().to_string();
        let (common, mut tables) = Description::parse_with_tables(text, path, &TABLES)?;
        let random = tables.remove("random").map(|table| read_random(&name, table)).transpose()?;
        let Some(Value::Object(settings)) = tables.remove("sweep") else {
            return Err(PlanError::NothingVaries { file: name });
        };
        if settings.is_empty() {
            return Err(PlanError::NothingVaries { file: name });
        }
        let choices = read_choices(&name, settings, random.is_some())?;
        let file = Self { name, common, choices, random };
        file.check_flags()?;
        Ok(file)
    }

    fn check_flags(&self) -> Result<(), PlanError> {
        let Self { name: file, common, choices, .. } = self;
        for flag in common.values().keys().chain(choices.keys()) {
            let unsupported =
                UNSUPPORTED.iter().find(|(flags, _)| flags.split(' ').any(|other| other == flag));
            if let Some((_, reason)) = unsupported {
                return Err(PlanError::Unsupported { file: file.clone(), flag: flag.clone(), reason });
            }
        }
        if let Some(flag) = choices.keys().find(|flag| common.get(flag).is_some()) {
            let reason = "is a flag of all runs, too: remove one of them";
            return Err(self.bad_choice(flag, reason));
        }
        self.check_seeds()
    }

    fn check_seeds(&self) -> Result<(), PlanError> {
        if let Some(Choice::Range(_)) = self.choices.get("seed") {
            return Err(self.bad_choice("seed", "is a range, expected a list of seeds, such as [0, 1, 2]"));
        }
        let Some(seed) = self.seeds().into_iter().find(|seed| seed.parse::<u64>().is_err()) else {
            return Ok(());
        };
        if self.choices.contains_key("seed") {
            let reason = format!("has the value {seed}, expected whole numbers from 0, such as [0, 1, 2]");
            return Err(self.bad_choice("seed", reason));
        }
        let file = self.name.clone();
        let reason = format!("is {seed}, expected a whole number from 0");
        Err(PlanError::BadChoice { file, key: "seed".to_owned(), reason })
    }

    /// Returns the seeds of each cell.
    pub(crate) fn seeds(&self) -> Vec<String> {
        match self.choices.get("seed") {
            Some(Choice::List(seeds)) => seeds.clone(),
            _ => vec![self.common.get("seed").unwrap_or("0").to_owned()],
        }
    }

    fn bad_choice(&self, flag: &str, reason: impl Into<String>) -> PlanError {
        PlanError::BadChoice { file: self.name.clone(), key: format!("sweep.{flag}"), reason: reason.into() }
    }
}

fn read_random(file: &str, table: Value) -> Result<RandomSearch, PlanError> {
    let bad = |reason: String| PlanError::BadRandom { file: file.to_owned(), reason };
    check_random(&table).map_err(bad)?;
    serde_json::from_value(table).map_err(|error| bad(error.to_string()))
}

/// Checks the table of a random search. The errors of its parser have the words of another file format.
fn check_random(table: &Value) -> Result<(), String> {
    let Value::Object(table) = table else {
        return Err(format!(
            "it is {table}, expected a table with the number of cells, such as `trials = 20`"
        ));
    };
    let keys = ["trials", "seed"];
    if let Some(key) = table.keys().find(|key| !keys.contains(&key.as_str())) {
        let advice = did_you_mean(similar_name(key, keys));
        return Err(format!("it has the key `{key}`, expected trials and seed{advice}"));
    }
    match table.get("trials").map(|trials| (trials, trials.as_u64())) {
        None => return Err("it has no `trials`, expected the number of cells".to_owned()),
        Some((trials, None | Some(0))) => {
            return Err(format!("`trials` is {trials}, expected a whole number from 1"));
        }
        Some(_) => {}
    }
    match table.get("seed") {
        Some(seed) if seed.as_u64().is_none() => {
            Err(format!("`seed` is {seed}, expected a whole number from 0"))
        }
        _ => Ok(()),
    }
}

fn read_choices(
    file: &str,
    settings: Map<String, Value>,
    is_random: bool,
) -> Result<BTreeMap<String, Choice>, PlanError> {
    let mut choices = BTreeMap::new();
    for (flag, value) in settings {
        let choice = match value {
            Value::Array(values) => read_list(&values),
            Value::Object(range) if is_random => read_range(range),
            Value::Object(_) => Err(
                "is a range, which a grid cannot have: write a list of values, or add a table `random` with the number \
                 of `trials`"
                    .to_owned(),
            ),
            value => Err(format!(
                "is {value}, expected a list of values, such as [0.01, 0.003]; a flag of all runs is above the table"
            )),
        };
        let choice = choice.map_err(|reason| PlanError::BadChoice {
            file: file.to_owned(),
            key: format!("sweep.{flag}"),
            reason,
        })?;
        choices.insert(flag, choice);
    }
    Ok(choices)
}

fn read_list(values: &[Value]) -> Result<Choice, String> {
    let mut texts: Vec<String> = Vec::new();
    for value in values {
        let Some(text) = value_text(value) else {
            return Err(format!("has the value {value}, expected values or lists of values"));
        };
        if texts.iter().any(|other| are_equal_settings(other, &text)) {
            return Err(format!("has the value {text} twice: remove one"));
        }
        texts.push(text);
    }
    if texts.is_empty() {
        return Err("is an empty list, expected at least one value".to_owned());
    }
    Ok(Choice::List(texts))
}

fn read_range(range: Map<String, Value>) -> Result<Choice, String> {
    let keys = ["min", "max", "scale"];
    if let Some(key) = range.keys().find(|key| !keys.contains(&key.as_str())) {
        let advice = did_you_mean(similar_name(key, keys));
        return Err(format!("has the key `{key}`, expected min, max and scale{advice}"));
    }
    let spec: RangeSpec = serde_json::from_value(Value::Object(range)).map_err(|error| {
        format!("is no range such as {{ min = 0.001, max = 0.1, scale = \"log\" }}: {error}")
    })?;
    Range::new(&spec).map(Choice::Range)
}
