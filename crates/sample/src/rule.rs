use std::fmt;
use std::sync::Arc;

use crate::most_recent::MostRecent;
use crate::uniform::{Uniform, UniformKeepSelfLoops, UniformWithReplacement};
use crate::{Neighbors, NodeKey, SamplingRule, Selection};

/// The rule of a sampler: a built-in one, or a custom one. Every device and every owner of a partition supports those in
/// [`Rule::BUILT_IN`].
/// A [`SamplingRule`] converts to an unnamed custom rule.
#[derive(Clone, Default)]
pub enum Rule {
    /// Picks `min(fanout, degree)` distinct neighbours; all sets of this size are equally likely.
    #[default]
    Uniform,
    /// Picks `fanout` independent, equally likely neighbours; the same one may be picked more than once. A destination
    /// without neighbours has no picks.
    UniformWithReplacement,
    /// Picks the destination's self loops, plus the picks of [`Rule::Uniform`] among its other neighbours, for models
    /// that include a node in its own neighbourhood ([`kiln_graph::gcn_norm`]).
    ///
    /// Self loops do not count toward the fanout and need no draw; parallel ones are all kept. A node without a self
    /// loop gets exactly the picks of [`Rule::Uniform`]. Neighbours must ascend ([`Neighbors::self_loops`]).
    UniformKeepSelfLoops,
    /// Picks the `min(fanout, known)` edges with the latest times among those that a destination knows at its time; of equal
    /// times, the edges with the larger ids. Seeds need times ([`Seeds::with_times`](crate::Seeds::with_times)). Of edges without
    /// times, which have no order, it picks as [`Rule::Uniform`].
    MostRecent,
    /// A custom rule.
    Custom {
        /// The name under which the owners of other partitions have registered the rule; `None` for a rule that is not
        /// registered.
        name: Option<Arc<str>>,
        /// The implementation of the rule.
        rule: Arc<dyn SamplingRule>,
    },
}

impl Rule {
    /// The built-in rules for seeds with and without times.
    pub const BUILT_IN: [Self; 3] = [Self::Uniform, Self::UniformWithReplacement, Self::UniformKeepSelfLoops];

    /// Returns the built-in rule with a name; `None` if there is none.
    pub fn built_in(name: &str) -> Option<Self> {
        Self::BUILT_IN.into_iter().chain([Self::MostRecent]).find(|rule| rule.name() == Some(name))
    }

    /// Returns true if the rule is only for seeds with times ([`Seeds::with_times`](crate::Seeds::with_times)).
    pub fn needs_times(&self) -> bool {
        matches!(self, Self::MostRecent)
    }

    /// Creates a custom rule that the owners of other partitions have registered under the same name.
    pub fn named(name: &str, rule: impl SamplingRule + 'static) -> Self {
        Self::Custom { name: Some(name.into()), rule: Arc::new(rule) }
    }

    /// Returns the name under which the owners of partitions find the rule; `None` for a rule that only this process
    /// has.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Uniform => Some("uniform"),
            Self::UniformWithReplacement => Some("uniform-with-replacement"),
            Self::UniformKeepSelfLoops => Some("uniform-with-loop"),
            Self::MostRecent => Some("most-recent"),
            Self::Custom { name, .. } => name.as_deref(),
        }
    }

    /// Returns true if the rule always picks self loops; see [`SamplingRule::keeps_self_loops`].
    pub fn keeps_self_loops(&self) -> bool {
        match self {
            Self::Uniform | Self::UniformWithReplacement | Self::MostRecent => false,
            Self::UniformKeepSelfLoops => true,
            Self::Custom { rule, .. } => rule.keeps_self_loops(),
        }
    }

    /// Picks about `fanout` of `neighbors`, like [`SamplingRule::pick`]. Custom rules can use it to fall back to a
    /// built-in rule.
    pub fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Selection) {
        match self {
            Self::Uniform => Uniform.pick(neighbors, key, fanout, picks),
            Self::UniformWithReplacement => UniformWithReplacement.pick(neighbors, key, fanout, picks),
            Self::UniformKeepSelfLoops => UniformKeepSelfLoops.pick(neighbors, key, fanout, picks),
            Self::MostRecent => MostRecent.pick(neighbors, key, fanout, picks),
            Self::Custom { rule, .. } => rule.pick(neighbors, key, fanout, picks),
        }
    }
}

impl<R: SamplingRule + 'static> From<R> for Rule {
    fn from(rule: R) -> Self {
        Self::Custom { name: None, rule: Arc::new(rule) }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().unwrap_or("unnamed"))
    }
}
