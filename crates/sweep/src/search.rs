use std::collections::{BTreeMap, BTreeSet};

use kiln_train::canonical_setting;
use serde::{Deserialize, Serialize};

use crate::sweep_file::{Choice, RandomSearch};

/// The maximum number of values that an error lists.
const MAX_LISTED: usize = 5;

/// A random search as the folder of a sweep records it. More trials keep the earlier cells; any other change draws different ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchRecord {
    /// The number of cells.
    pub(crate) trials: usize,
    /// The seed of the draws.
    pub(crate) seed: u64,
    /// The values of each setting except the seed, or the limits of its range as one text.
    pub(crate) settings: BTreeMap<String, Vec<String>>,
}

impl SearchRecord {
    pub(crate) fn new(random: &RandomSearch, choices: &BTreeMap<String, Choice>) -> Self {
        let drawn = choices.iter().filter(|(flag, _)| *flag != "seed");
        let settings = drawn.map(|(flag, choice)| (flag.clone(), choice.describe())).collect();
        Self { trials: random.trials, seed: random.seed, settings }
    }

    /// Names what differs in a later search, so that it does not draw the same cells.
    fn differences(&self, later: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if self.seed != later.seed {
            found.push(describe_change("random.seed", &self.seed.to_string(), &later.seed.to_string()));
        }
        if later.trials < self.trials {
            found.push(describe_change("random.trials", &self.trials.to_string(), &later.trials.to_string()));
        }
        let names: BTreeSet<&String> = self.settings.keys().chain(later.settings.keys()).collect();
        for name in names {
            let [then, now] =
                [self, later].map(|search| search.settings.get(name).map_or(&[][..], Vec::as_slice));
            let [canonical_then, canonical_now] = [then, now]
                .map(|values| values.iter().map(|value| canonical_setting(value)).collect::<Vec<_>>());
            // The order of the values decides which ones are drawn.
            if canonical_then != canonical_now {
                found.push(describe_change(&format!("sweep.{name}"), &list_values(then), &list_values(now)));
            }
        }
        found
    }
}

/// Names what differs in the search of a sweep: nothing for two grids.
pub(crate) fn compare_searches(then: Option<&SearchRecord>, now: Option<&SearchRecord>) -> Vec<String> {
    match (then, now) {
        (Some(then), Some(now)) => then.differences(now),
        (Some(_), None) => vec!["the cells were drawn and are a grid now".to_owned()],
        (None, Some(_)) => vec!["the cells were a grid and are drawn now".to_owned()],
        (None, None) => Vec::new(),
    }
}

/// Describes the change of a value.
pub(crate) fn describe_change(name: &str, then: &str, now: &str) -> String {
    format!("{name} was {then} and is {now} now")
}

/// Lists values, at most the first [`MAX_LISTED`].
pub(crate) fn list_values<S: AsRef<str>>(values: &[S]) -> String {
    let listed = values.iter().take(MAX_LISTED).map(AsRef::as_ref).collect::<Vec<&str>>().join(" or ");
    match values.len() {
        0 => "not set".to_owned(),
        n_values if n_values <= MAX_LISTED => listed,
        n_values => format!("{listed} or {} more", n_values - MAX_LISTED),
    }
}
