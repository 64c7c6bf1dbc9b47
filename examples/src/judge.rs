//! How a node classifier is judged: by sampled neighbours, or exactly.

use kiln_data::Dataset;
use kiln_dist::Ranks;
use kiln_feature::Dense;
use kiln_graph::NodeId;
use kiln_loader::{Fetch, Loader, MiniBatch, Pass};
use kiln_nn::LayerWise;
use kiln_train::{Counts, Evaluation, LayerWiseInference, MemoryUse, NodeClassification, Result, Trainer};
use rayon::ThreadPool;

use crate::args::Eval;

/// Judges models on nodes of a data set.
///
/// Sampled, each rank takes its share of the nodes. Exactly, the first rank takes all nodes layer by layer, on
/// the threads of all ranks, while the others wait: so nothing is computed twice.
#[derive(Debug)]
pub struct Judge<'a> {
    kind: Eval,
    exact: LayerWiseInference,
    threads: ThreadPool,
    data: &'a Dataset,
}

impl<'a> Judge<'a> {
    /// A judge of this kind.
    ///
    /// # Errors
    /// When the threads cannot be started.
    pub fn new(
        kind: Eval,
        exact: LayerWiseInference,
        ranks: &Ranks,
        data: &'a Dataset,
    ) -> anyhow::Result<Self> {
        Ok(Self { kind, exact, threads: ranks.machine_pool()?, data })
    }

    /// Counts over all ranks, of the loader's batches or of these nodes, which are the same. A meeting.
    ///
    /// # Errors
    /// What evaluation says.
    pub fn count<M: LayerWise + Sync, F: Fetch<Batch = MiniBatch>>(
        &self,
        trainer: &mut Trainer<NodeClassification<M>>,
        loader: &Loader<F>,
        pass: Pass,
        nodes: &[NodeId],
    ) -> Result<Counts> {
        match self.kind {
            Eval::Sampled => trainer.evaluate(loader.epoch(pass), |_, _| ()),
            Eval::Exact => {
                let count = |outputs| Evaluation::count(&outputs, nodes, &self.data.labels);
                let counts = trainer.on_first(|trainer| self.outputs(trainer).and_then(count))?;
                trainer.sum(counts)
            }
        }
    }

    /// What this rank has to say of the same nodes. A meeting.
    ///
    /// # Errors
    /// What evaluation says.
    pub fn evaluate<M: LayerWise + Sync, F: Fetch<Batch = MiniBatch>>(
        &self,
        trainer: &mut Trainer<NodeClassification<M>>,
        loader: &Loader<F>,
        pass: Pass,
        nodes: &[NodeId],
    ) -> Result<Evaluation> {
        match self.kind {
            Eval::Sampled => {
                let mut said = Evaluation::default();
                trainer.evaluate(loader.epoch(pass), |input, forward| {
                    said.add(&input.seeds, &input.labels, forward)
                })?;
                Ok(said)
            }
            Eval::Exact => {
                let of = |outputs| Evaluation::of(&outputs, nodes, &self.data.labels);
                trainer.on_first(|trainer| self.outputs(trainer).and_then(of))
            }
        }
    }

    /// The most memory that exact evaluation saw.
    pub fn peak_memory(&self) -> MemoryUse {
        self.exact.peak_memory()
    }

    fn outputs<M: LayerWise + Sync>(&self, trainer: &Trainer<NodeClassification<M>>) -> Result<Dense> {
        let (model, device) = (trainer.model(), trainer.device());
        self.threads.install(|| self.exact.outputs(model, &*self.data.features, device))
    }
}
