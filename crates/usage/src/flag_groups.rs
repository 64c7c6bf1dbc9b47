use std::collections::{BTreeMap, BTreeSet};

/// Groups of flags: each has the scope to which its flags apply, and states whether a result depends on them. A result depends on
/// flags of no group, which apply everywhere.
///
/// ```
/// use kiln_usage::FlagGroups;
/// #[derive(Clone, Copy, PartialEq)]
/// enum Scope { All, Graphs }
/// let groups = FlagGroups::new([("out workers", Scope::All, false), ("folds", Scope::Graphs, true)]);
/// let given = ["lr", "folds"].map(str::to_owned).into();
/// assert_eq!(groups.find_outside(&given, |scope| scope == Scope::All), Some("folds"));
/// let flags = |lr: &str, out: &str| [("lr", lr), ("out", out)].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
/// let differences = groups.compare(&flags("0.1", "a"), &flags("0.2", "b"), |a, b| a == b);
/// assert_eq!(differences, ["--lr was 0.1 and is 0.2 now"]);
/// ```
#[derive(Debug, Clone)]
pub struct FlagGroups<S> {
    groups: Vec<(Vec<String>, S, bool)>,
}

impl<S: Copy> FlagGroups<S> {
    /// Returns groups of flags without dashes, separated by spaces, with their scope, and true if a result depends on them.
    pub fn new<'a>(groups: impl IntoIterator<Item = (&'a str, S, bool)>) -> Self {
        let groups = groups.into_iter().map(|(names, scope, is_of_result)| {
            (names.split_whitespace().map(str::to_owned).collect(), scope, is_of_result)
        });
        Self { groups: groups.collect() }
    }

    /// Adds a group of flags before the others, such as the names of [`list_names`](crate::list_names).
    #[must_use]
    pub fn with_group(mut self, names: Vec<String>, scope: S, is_of_result: bool) -> Self {
        self.groups.insert(0, (names, scope, is_of_result));
        self
    }

    /// Returns the flags of all groups.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().flat_map(|(names, ..)| names.iter().map(String::as_str))
    }

    /// Returns the first of the given flags that is in a group of another scope; `None` if all apply.
    pub fn find_outside(&self, given: &BTreeSet<String>, is_within: impl Fn(S) -> bool) -> Option<&str> {
        let others = self.groups.iter().filter(|(_, scope, _)| !is_within(*scope));
        others.flat_map(|(names, ..)| names).find(|name| given.contains(*name)).map(String::as_str)
    }

    /// Returns a sentence for each flag whose values differ, of the flags that a result depends on.
    pub fn compare(
        &self,
        then: &BTreeMap<String, String>,
        now: &BTreeMap<String, String>,
        are_equal: impl Fn(&str, &str) -> bool,
    ) -> Vec<String> {
        let of_computation = self.groups.iter().filter(|(_, _, is_of_result)| !is_of_result);
        let ignored: BTreeSet<&String> = of_computation.flat_map(|(names, ..)| names).collect();
        let names: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
        let mut differences = Vec::new();
        for name in names.difference(&ignored) {
            let [then, now] = [then, now].map(|flags| flags.get(*name).map_or("not set", String::as_str));
            // A run of an older version does not have a switch that is off.
            let is_off = |value: &str| ["not set", "false"].contains(&value);
            if !(are_equal(then, now) || is_off(then) && is_off(now)) {
                differences.push(format!("--{name} was {then} and is {now} now"));
            }
        }
        differences
    }
}
