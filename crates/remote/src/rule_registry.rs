use std::collections::BTreeMap;
use std::fmt;

use kiln_sample::{Rule, SamplingRule};

use crate::{Error, Result};

/// A registry of sampling rules by name. Clients send the name of a rule, and servers look it up. The built-in rules
/// (`uniform`, `uniform-with-loop`, `uniform-with-replacement`, `most-recent`) are always registered; others must be registered on
/// both sides under one name.
#[derive(Clone)]
pub struct RuleRegistry(BTreeMap<String, Rule>);

impl Default for RuleRegistry {
    /// Returns a registry of the built-in rules.
    fn default() -> Self {
        let named = |rule: Rule| rule.name().map(str::to_owned).map(|name| (name, rule));
        Self(Rule::BUILT_IN.into_iter().chain([Rule::MostRecent]).filter_map(named).collect())
    }
}

impl RuleRegistry {
    /// Registers a custom rule under a name. The rule must be identical on all sides; this is not checked.
    ///
    /// # Errors
    /// Returns [`Error::BadRule`] if the name is registered already.
    pub fn register(mut self, name: &str, rule: impl SamplingRule + 'static) -> Result<Self> {
        if self.0.contains_key(name) {
            return Err(Error::BadRule {
                reason: format!("a rule `{name}` is registered already: choose another name"),
            });
        }
        self.0.insert(name.to_owned(), Rule::named(name, rule));
        Ok(self)
    }

    /// Returns the rule with a name.
    ///
    /// # Errors
    /// Returns [`Error::BadRule`] if no rule has this name.
    pub(crate) fn get(&self, name: &str) -> Result<&Rule> {
        self.0.get(name).ok_or_else(|| Error::BadRule {
            reason: format!(
                "unknown sampling rule `{name}`, expected one of {}: register it with RuleRegistry::register",
                self.names().join(", ")
            ),
        })
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }
}

impl fmt::Debug for RuleRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RuleRegistry").field(&self.names()).finish()
    }
}
