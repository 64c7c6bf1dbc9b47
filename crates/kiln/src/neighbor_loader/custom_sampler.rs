//! Whole samplers of a program's own.

use std::sync::{Arc, PoisonError};

use kiln_kernels::GraphMode;
use kiln_loader::Phase;
use kiln_sample::{CustomSampler, FrontierSampler, SamplerConfig, SamplerError};

use crate::neighbor_loader::custom_samplers::{CreatedSampler, CustomSamplers};
use crate::source::WholeGraph;
use crate::{Error, EvalMode, NeighborLoader, Result};

impl NeighborLoader {
    /// Sets a whole sampler of your own, on a graph of one type of nodes in this process: a [`FrontierSampler`], which may draw
    /// the nodes of a layer for the whole batch. It receives the fanouts, the rule and the edge weights of this loader, and decides
    /// what they mean, one per layer; the weights and types of its blocks are of the kinds that the loader is configured for. It samples on the host, in the
    /// workers of the loader, in training and in sampled evaluations. Exact evaluation reads all neighbours, as without it.
    ///
    /// A run records the name and the settings of the sampler, and resumes with the same ones only. A saved model predicts with the
    /// program that has the sampler ([`NodePredictor::sampler`](kiln_train::NodePredictor::sampler)), or with all neighbours.
    /// Training is an error with [`GraphMode::Device`](crate::GraphMode::Device), on a partitioned or a heterogeneous graph, and
    /// for items at their own times unless [`FrontierSampler::takes_times`] returns true.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// use kiln::sample::{CustomSampler, NeighborSampler};
    /// let sampler = CustomSampler::try_new("neighbors", NeighborSampler::with_config);
    /// let loader = NeighborLoader::new(&data, [2, 2]).batch_size(16).sampler(sampler);
    /// # let folder = tempfile::tempdir()?;
    /// # let out = folder.path().join("run");
    /// let model = SageConfig::for_data(&data).layers(2).hidden(8);
    /// let best = Trainer::new(model, AdamConfig::new(1e-2)).fit(&loader, FitConfig::epochs(2).out(out))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sampler(self, sampler: CustomSampler) -> Self {
        let samplers = CustomSamplers { of_all: Some(sampler), ..self.samplers.clone() };
        Self { samplers, ..self }.unshared()
    }

    /// Sets another sampler for the validation and the test than [`NeighborLoader::sampler`]; `None` samples neighbours by the
    /// fanouts and the rule of this loader. Exact evaluation has no sampler.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// use kiln::sample::{CustomSampler, NeighborSampler};
    /// let whole = CustomSampler::new("whole", |graph, _| NeighborSampler::full(graph, 2));
    /// // Trains on two neighbours of each node, and evaluates on all.
    /// let loader = NeighborLoader::new(&data, [2, 2]).eval_sampler(Some(whole));
    /// # let _ = loader;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn eval_sampler(self, sampler: Option<CustomSampler>) -> Self {
        let samplers = CustomSamplers { of_evaluation: Some(sampler), ..self.samplers.clone() };
        Self { samplers, ..self }.unshared()
    }

    /// Returns the program's own sampler on the graph of this loader; `None` if there is none.
    ///
    /// # Errors
    /// Returns an error for a partitioned or a heterogeneous graph, and the errors of the constructor.
    pub(crate) fn custom_sampler(&self, config: &SamplerConfig) -> Result<Option<Arc<dyn FrontierSampler>>> {
        let Some(custom) = &self.samplers.of_all else { return Ok(None) };
        let Some(WholeGraph::One(graph)) = self.source.whole() else {
            return self.check_one_graph().map(|()| None);
        };
        // The lock is held during the construction, so that other ranks wait and share the sampler.
        let mut created = self.samplers.created.lock().unwrap_or_else(PoisonError::into_inner);
        for other in created.iter() {
            if Arc::ptr_eq(&other.graph, graph) && other.custom.has_constructor_of(custom) {
                return Ok(Some(Arc::clone(&other.sampler)));
            }
        }
        let sampler = custom.create(graph, config.clone())?;
        let graph = Arc::clone(graph);
        created.push(CreatedSampler { custom: custom.clone(), graph, sampler: Arc::clone(&sampler) });
        Ok(Some(sampler))
    }

    /// Checks that a program's own samplers can sample the graphs of this loader, and have the layers of the model and the weights and
    /// types of this loader.
    pub(crate) fn check_custom_samplers(&self, n_layers: usize) -> Result<()> {
        for custom in self.samplers.iter() {
            self.check_one_graph()?;
            let name = custom.name().to_owned();
            if self.graph_mode != GraphMode::Host {
                return Err(kiln_sample::Error::from(SamplerError::OnDevice { name }).into());
            }
        }
        let is_sampled = !matches!(self.evaluation, EvalMode::Exact { .. });
        let evaluations = [Phase::Validation, Phase::Test].into_iter().filter(|_| is_sampled);
        for phase in [Phase::Train { epoch: 0 }].into_iter().chain(evaluations) {
            if self.samplers.phase_samplers(phase).of_all.is_none() {
                continue;
            }
            let of_phase = self.phase_loader(phase)?;
            let config = of_phase.sampling_from(None).config;
            let (Some(custom), Some(sampler)) =
                (&of_phase.samplers.of_all, of_phase.custom_sampler(&config)?)
            else {
                continue;
            };
            let name = custom.name().to_owned();
            let expected = n_layers;
            let got = sampler.n_layers();
            if expected != got {
                return Err(kiln_sample::Error::from(SamplerError::Layers { name, expected, got }).into());
            }
            if self.item_time_limits().is_some() && !sampler.takes_times() {
                return Err(kiln_sample::Error::from(SamplerError::Times { name }).into());
            }
        }
        Ok(())
    }

    fn check_one_graph(&self) -> Result<()> {
        let what = "a sampler of one's own";
        match self.source.whole() {
            _ if self.source.is_heterogeneous() => {
                let reason = "it samples one relation";
                Err(Error::NeedsOneType { what, reason })
            }
            None => Err(Error::NeedsWholeGraph { what }),
            Some(_) => Ok(()),
        }
    }
}
