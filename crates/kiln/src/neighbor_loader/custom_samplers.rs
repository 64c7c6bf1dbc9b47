//! The samplers of a program's own that a loader has.

use std::fmt;
use std::sync::{Arc, Mutex};

use kiln_graph::Csc;
use kiln_loader::Phase;
use kiln_sample::{CustomSampler, FrontierSampler};

/// The samplers of a program's own in a loader.
#[derive(Clone, Default)]
pub(crate) struct CustomSamplers {
    /// The sampler of training, and of evaluations without their own.
    pub(super) of_all: Option<CustomSampler>,
    /// The sampler of the validation and the test, if they have their own; `None` within for neighbours by the rule of the loader.
    pub(super) of_evaluation: Option<Option<CustomSampler>>,
    /// The samplers on the graphs that were sampled, which clones of the loader in other ranks of the process share.
    pub(super) created: Arc<Mutex<Vec<CreatedSampler>>>,
}

/// A sampler on a graph.
pub(crate) struct CreatedSampler {
    pub(super) custom: CustomSampler,
    pub(super) graph: Arc<Csc>,
    pub(super) sampler: Arc<dyn FrontierSampler>,
}

impl CustomSamplers {
    /// Returns these samplers without those on graphs, which a changed configuration makes invalid.
    pub(crate) fn uncreated(&self) -> Self {
        Self { created: Arc::default(), ..self.clone() }
    }

    /// Returns the samplers of a phase, for all phases.
    pub(crate) fn phase_samplers(&self, phase: Phase) -> Self {
        let of_all = match (phase, &self.of_evaluation) {
            (Phase::Validation | Phase::Test, Some(of_evaluation)) => of_evaluation.clone(),
            _ => self.of_all.clone(),
        };
        Self { of_all, of_evaluation: None, created: Arc::clone(&self.created) }
    }

    /// Returns the sampler of evaluations; `None` for neighbours by a rule.
    pub(crate) fn evaluation_sampler(&self) -> Option<CustomSampler> {
        self.phase_samplers(Phase::Test).of_all
    }

    /// Returns the settings by which a run's sampler is identified; none for a loader without one.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        let text = |sampler: &Option<CustomSampler>| {
            sampler.as_ref().map_or_else(|| "by rule".to_owned(), ToString::to_string)
        };
        let of_all = self.of_all.is_some().then(|| ("sampler", text(&self.of_all)));
        let of_evaluation =
            self.of_evaluation.as_ref().map(text).filter(|other| *other != text(&self.of_all));
        let of_evaluation = of_evaluation.map(|text| ("evaluation sampler", text));
        of_all.into_iter().chain(of_evaluation).collect()
    }

    /// Returns each sampler of a program's own.
    pub(super) fn iter(&self) -> impl Iterator<Item = &CustomSampler> {
        self.of_all.iter().chain(self.of_evaluation.iter().flatten())
    }
}

impl fmt::Debug for CustomSamplers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.settings()).finish()
    }
}
