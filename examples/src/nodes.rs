//! Training a node classifier on all ranks.

use std::sync::Arc;

use burn::tensor::Device;
use kiln_data::{Dataset, Split};
use kiln_dist::Communicator;
use kiln_graph::NodeId;
use kiln_loader::{ItemSampler, Loader, NodeFetch, Pass};
use kiln_nn::LayerWise;
use kiln_sample::BlockSampler;
use kiln_train::{About, NodeClassification, TEST, Trainer, VALIDATION, fit, test_best};

use crate::args::{FitArgs, Settings};
use crate::keep::KeepArgs;
use crate::run::RunArgs;
use crate::{Judge, Progress, say};

/// What the ranks share of a program that trains a node classifier: one graph, one table of features.
#[allow(missing_debug_implementations, reason = "a sampler is anybody's")]
pub struct NodeProgram<'a> {
    /// What it was asked for.
    pub settings: &'a Settings,
    /// Where and how it runs.
    pub run: &'a RunArgs,
    /// How the model learns.
    pub fit: &'a FitArgs,
    /// When it stops, and what is kept.
    pub keep: &'a KeepArgs,
    /// What it learns from.
    pub data: &'a Dataset,
    /// Makes the blocks.
    pub sampler: Arc<dyn BlockSampler>,
    /// Judges the model.
    pub judge: Judge<'a>,
    /// Prints the loss after so many steps.
    pub loss_every: Option<usize>,
}

impl NodeProgram<'_> {
    /// Trains the models that `init` makes, one a rank, to be one model; keeps the best epoch's and tests it.
    ///
    /// # Errors
    /// The first rank's to fail.
    pub fn train<M: LayerWise + Sync>(
        &self,
        init: impl Fn(&Device) -> kiln_nn::Result<M> + Sync,
    ) -> anyhow::Result<()> {
        let hash = self.data.hash()?;
        self.run
            .ranks()
            .run(|comm| Ok(self.rank(&hash, init(&self.run.device.clone().autodiff())?, comm)?))?;
        Ok(())
    }

    fn rank<M: LayerWise + Sync>(
        &self,
        hash: &str,
        model: M,
        comm: Box<dyn Communicator>,
    ) -> anyhow::Result<()> {
        let items = self.run.items(comm.topology());
        let loader = |nodes: &[NodeId]| {
            let (features, labels) = (self.data.features.clone(), self.data.labels.clone());
            let fetch = NodeFetch::new(self.sampler.clone(), features, labels);
            Loader::new(ItemSampler::new(nodes, items)?, fetch, self.run.loader())
        };
        let Split { train, val, test } = &self.data.split;
        let (train, val_batches, test_batches) = (loader(train)?, loader(val)?, loader(test)?);
        let (task, optimizer, device) = (NodeClassification::new(), self.fit.optimizer()?, &self.run.device);
        let mut trainer = Trainer::new(task, model, &optimizer, comm, device.clone())?;

        let mut run = self.keep.start(self.settings, self.run, hash, &mut trainer)?;
        let n_steps = train.n_steps(Pass::Train { epoch: 0 });
        let progress = || Progress::new(self.fit.epochs, n_steps, self.loss_every);
        let mut progress = trainer.is_first().then(progress);
        let validate = |trainer: &mut Trainer<_>| self.judge.count(trainer, &val_batches, VALIDATION, val);
        let mut report =
            fit(&mut trainer, &train, self.keep.config(self.fit.epochs), validate, &mut run, &mut progress)?;
        let judge = |trainer: &mut Trainer<_>| self.judge.evaluate(trainer, &test_batches, TEST, test);
        let said = test_best(trainer, &run, judge)?;
        report.peak_memory = report.peak_memory.max(self.judge.peak_memory());
        let title = format!("{} on {}", self.settings.program, self.data.name);
        let (class_names, elapsed) = (&self.data.class_names, self.settings.started.elapsed());
        let summary = run.finish(&said, &report, &About { title: &title, class_names, elapsed })?;
        if let (Some(summary), Some(folder), Some(progress)) = (summary, run.folder(), progress) {
            progress.finish();
            say(format_args!("{summary}\nfiles           {}", folder.path().display()));
        }
        Ok(())
    }
}
