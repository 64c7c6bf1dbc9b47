use kiln_feature::Targets;
use kiln_graph::LinkId;
use kiln_train::{Objective, TargetScale};

use crate::batches::objective_of;

/// The settings of a loader of edges with targets.
#[derive(Debug, Clone, Default)]
pub(super) struct EdgeSettings {
    pub(super) objective: Option<Objective>,
    pub(super) target_scale: Option<TargetScale>,
}

impl EdgeSettings {
    /// Returns the objective for the targets of the edges.
    pub(super) fn objective(&self, targets: &Targets<LinkId>) -> Objective {
        objective_of(self.objective.as_ref(), targets)
    }

    pub(super) fn target_scale(&self) -> Option<TargetScale> {
        self.target_scale
    }
}
