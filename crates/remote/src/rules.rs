use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kiln_sample::{
    Frontier, FrontierSampler, Hop, NeighborSampler, Neighbors, NodeKey, PickRule, Picks, Scratch, Uniform,
    UniformWithLoop, UniformWithReplacement,
};

use crate::{Error, Result};

/// Rules by name: what an owner of nodes may be asked to pick by. Servers and clients know the built-in ones (`uniform`,
/// `uniform-with-loop`, `uniform-with-replacement`), and those that were registered on both sides under one name.
#[derive(Clone)]
pub struct Rules(BTreeMap<String, Rule>);

/// The name of the one that may pick an edge more than once.
pub(crate) const WITH_REPLACEMENT: &str = "uniform-with-replacement";

/// A rule whose type is known where it runs, or a user's.
#[derive(Clone)]
pub(crate) enum Rule {
    Uniform,
    UniformWithLoop,
    UniformWithReplacement,
    Users(UsersRule),
}

#[derive(Clone)]
pub(crate) struct UsersRule(pub(crate) Arc<dyn PickRule>);

impl PickRule for UsersRule {
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Picks) {
        self.0.pick(neighbors, key, fanout, picks);
    }

    fn keeps_self_loops(&self) -> bool {
        self.0.keeps_self_loops()
    }
}

impl Default for Rules {
    /// The built-in ones.
    fn default() -> Self {
        let built_in = [
            ("uniform", Rule::Uniform),
            ("uniform-with-loop", Rule::UniformWithLoop),
            (WITH_REPLACEMENT, Rule::UniformWithReplacement),
        ];
        Self(built_in.into_iter().map(|(name, rule)| (name.to_owned(), rule)).collect())
    }
}

impl Rules {
    /// These, and a rule of the user's. It must pick the same on all sides, of which nobody makes sure.
    ///
    /// # Errors
    /// [`Error::BadRule`] where the name is taken.
    pub fn register(mut self, name: &str, rule: impl PickRule + 'static) -> Result<Self> {
        if self.0.contains_key(name) {
            return Err(Error::BadRule {
                reason: format!("there is a rule `{name}` already: give yours another name"),
            });
        }
        self.0.insert(name.to_owned(), Rule::Users(UsersRule(Arc::new(rule))));
        Ok(self)
    }

    /// The rule of this name.
    ///
    /// # Errors
    /// [`Error::BadRule`].
    pub(crate) fn get(&self, name: &str) -> Result<&Rule> {
        self.0.get(name).ok_or_else(|| Error::BadRule {
            reason: format!(
                "no rule `{name}`, there are {}: register it with Rules::register",
                self.names().join(", ")
            ),
        })
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rules").field(&self.names()).finish()
    }
}

impl Rule {
    /// Fills `out` by the rule, of a sampler that has been made for one hop but for its rule.
    pub(crate) fn fill(
        &self,
        make: impl Make,
        hop: Hop,
        rows: &[kiln_graph::NodeId],
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> kiln_sample::Result<()> {
        match self {
            Self::Uniform => make.sampler(Uniform)?.sample_frontier(hop, rows, scratch, out),
            Self::UniformWithLoop => make.sampler(UniformWithLoop)?.sample_frontier(hop, rows, scratch, out),
            Self::UniformWithReplacement => {
                make.sampler(UniformWithReplacement)?.sample_frontier(hop, rows, scratch, out)
            }
            Self::Users(rule) => make.sampler(rule.clone())?.sample_frontier(hop, rows, scratch, out),
        }
    }
}

/// Makes a sampler of a rule, whatever its type.
pub(crate) trait Make {
    fn sampler<R: PickRule>(&self, rule: R) -> kiln_sample::Result<NeighborSampler<R>>;
}
