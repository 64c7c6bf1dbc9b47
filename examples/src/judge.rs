//! How a node classifier is judged: by sampled neighbours, or exactly.

use kiln_comm::{Ranks, Topology};
use kiln_data::Dataset;
use kiln_feature::Dense;
use kiln_graph::NodeId;
use kiln_loader::{Fetch, Loader, Pass};
use kiln_nn::LayerWise;
use kiln_train::{
    Counts, Evaluation, Forward, LayerWiseInference, MemoryUse, NodeClassification, NodeInput, Result,
    Trainer, Upload,
};
use rayon::ThreadPool;

/// Judges models on nodes of a data set.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a program has one")]
pub enum Judge {
    /// Each rank takes its share of the nodes, with neighbours as its loader samples them.
    Sampled,
    /// The first rank takes so many of its loader's batches at most, to choose by, and all of them to test, while the
    /// others wait.
    First {
        /// Batches to choose by.
        n_batches: usize,
    },
    /// The first rank takes all nodes with all neighbours, layer by layer, on the threads of all ranks, while
    /// the others wait: so that nothing is computed twice.
    Exact {
        /// Computes the outputs.
        inference: LayerWiseInference,
        /// The threads of all ranks.
        threads: ThreadPool,
    },
}

impl Judge {
    /// An exact judge.
    ///
    /// # Errors
    /// When the threads cannot be started.
    pub fn exact(inference: LayerWiseInference, ranks: &Ranks) -> anyhow::Result<Self> {
        Ok(Self::Exact { inference, threads: ranks.machine_pool()? })
    }

    /// The rank that a rank's loaders for evaluation are for.
    pub fn topology(&self, of_rank: Topology) -> Topology {
        match self {
            Self::Sampled => of_rank,
            Self::First { .. } | Self::Exact { .. } => Topology { rank: 0, world_size: 1, local_rank: 0 },
        }
    }

    /// Counts over all ranks, of the loader's batches or of these nodes, which are the same. A meeting.
    ///
    /// # Errors
    /// What evaluation says.
    pub fn count<M: LayerWise + Sync, F: Fetch<Batch: Upload<Input = NodeInput>>>(
        &self,
        trainer: &mut Trainer<NodeClassification<M, F::Batch>>,
        loader: &Loader<F>,
        pass: Pass,
        data: &Dataset,
        nodes: &[NodeId],
    ) -> Result<Counts> {
        match self {
            Self::Sampled => trainer.evaluate(loader.epoch(pass), |_, _| ()),
            Self::First { n_batches } => {
                let batches = || loader.epoch(pass).take(*n_batches);
                let counts = trainer.on_first(|trainer| trainer.evaluate_own(batches(), |_, _| ()))?;
                trainer.sum(counts)
            }
            Self::Exact { inference, threads } => {
                let counts = trainer.on_first(|trainer| {
                    let outputs = outputs(inference, threads, trainer, data)?;
                    Evaluation::count(&outputs, nodes, &data.labels)
                })?;
                trainer.sum(counts)
            }
        }
    }

    /// What this rank has to say of the same nodes. A meeting.
    ///
    /// # Errors
    /// What evaluation says.
    pub fn evaluate<M: LayerWise + Sync, F: Fetch<Batch: Upload<Input = NodeInput>>>(
        &self,
        trainer: &mut Trainer<NodeClassification<M, F::Batch>>,
        loader: &Loader<F>,
        pass: Pass,
        data: &Dataset,
        nodes: &[NodeId],
    ) -> Result<Evaluation> {
        let mut said = Evaluation::default();
        let add = |input: &NodeInput, forward: &Forward| said.add(&input.seeds, &input.labels, forward);
        match self {
            Self::Sampled => {
                trainer.evaluate(loader.epoch(pass), add)?;
                Ok(said)
            }
            Self::First { .. } => {
                trainer.on_first(|trainer| trainer.evaluate_own(loader.epoch(pass), add))?;
                Ok(said)
            }
            Self::Exact { inference, threads } => trainer.on_first(|trainer| {
                let outputs = outputs(inference, threads, trainer, data)?;
                Evaluation::of(&outputs, nodes, &data.labels)
            }),
        }
    }

    /// The most memory that exact evaluation saw.
    pub fn peak_memory(&self) -> MemoryUse {
        match self {
            Self::Sampled | Self::First { .. } => MemoryUse::default(),
            Self::Exact { inference, .. } => inference.peak_memory(),
        }
    }
}

fn outputs<M: LayerWise + Sync, B: Upload<Input = NodeInput>>(
    inference: &LayerWiseInference,
    threads: &ThreadPool,
    trainer: &Trainer<NodeClassification<M, B>>,
    data: &Dataset,
) -> Result<Dense> {
    let (model, device) = (trainer.model(), trainer.device());
    threads.install(|| inference.outputs(model, &*data.features, device))
}
