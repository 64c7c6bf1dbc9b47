use std::collections::BTreeMap;
use std::fmt;

use kiln_sample::{Rule, SamplingRule};

use crate::{Error, Result};

/// A registry of the sampling rules that an owner of nodes knows by name. Servers and clients know the built-in ones
/// (`uniform`, `uniform-with-loop`, `uniform-with-replacement`), and those that were registered on both sides under one
/// name.
#[derive(Clone)]
pub struct RuleRegistry(BTreeMap<String, Rule>);

impl Default for RuleRegistry {
    /// The built-in rules.
    fn default() -> Self {
        let named = |rule: Rule| rule.name().map(str::to_owned).map(|name| (name, rule));
        Self(Rule::BUILT_IN.into_iter().filter_map(named).collect())
    }
}

impl RuleRegistry {
    /// These rules and one of the user's. The rule must be identical on all sides; this is not checked.
    ///
    /// # Errors
    /// [`Error::BadRule`] where the name is taken.
    pub fn register(mut self, name: &str, rule: impl SamplingRule + 'static) -> Result<Self> {
        if self.0.contains_key(name) {
            return Err(Error::BadRule {
                reason: format!("there is a rule `{name}` already: give yours another name"),
            });
        }
        self.0.insert(name.to_owned(), Rule::named(name, rule));
        Ok(self)
    }

    /// The rule of this name.
    ///
    /// # Errors
    /// [`Error::BadRule`].
    pub(crate) fn get(&self, name: &str) -> Result<&Rule> {
        self.0.get(name).ok_or_else(|| Error::BadRule {
            reason: format!(
                "no rule `{name}`, there are {}: register it with RuleRegistry::register",
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
