//! `kiln train --task graph --folds`.

use kiln::data::Split;
use kiln::feature::TargetKind;
use kiln::loader::Phase;
use kiln::train::{CrossValidation, FoldResult};
use kiln::{Error, Trainer, launch};
use kiln_usage::ensure;

use super::run::{Outcome, TrainArgs, TrainRun};
use crate::output::print_rank_zero;

impl TrainRun<'_> {
    /// Cross-validates on the folds of a set of graphs.
    pub(super) fn cross_validate(&self, n_folds: usize) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { data, model, ranks, .. } = self.args;
        ensure!(self.launch.is_none(), "--folds needs a single process: start one, with --ranks for threads");
        let (graphs, _) = data.data.load_graphs()?;
        let features = graphs.node_features(data.node_features)?;
        let model = model.build_graph_model((features.dim(), graphs.labels().n_classes()))?;
        ensure!(
            graphs.targets().kind() == TargetKind::Classes,
            "--folds needs class labels: remove it to train on {}",
            graphs.targets().kind()
        );
        let folds = Split::folds(graphs.labels(), n_folds, ranks.seed)?;
        let results = launch(ranks.job.config(None)?, |rank| {
            let own = (0..n_folds).filter(|fold| fold % rank.world_size() == rank.index());
            let judge = |fold| {
                let trainer = Trainer::new(model.clone(), self.optimizer)
                    .seed(ranks.seed)
                    .accumulate(self.args.optimizer.accumulate)
                    .device_of(&rank, &ranks.job.device);
                let result = FoldResult::of(fold, n_folds, |left_out| {
                    let split = Split::leave_out(&folds, left_out);
                    let loader = self
                        .graph_loader(&graphs, features.clone(), &split)
                        .map_err(|error| Error::Other(error.into()))?;
                    let phases = &[Phase::Test, Phase::Validation][..left_out.len()];
                    trainer.learning_curves(&loader, self.args.fit.epochs, phases)
                })?;
                let (best, inner) = (result.best_accuracy(), result.by_inner_validation);
                let fold = fold + 1;
                print_rank_zero(format_args!(
                    "fold {fold:2}  best epoch {best:.4}  by inner validation {inner:.4}"
                ));
                Ok(result)
            };
            own.map(judge).collect::<kiln::Result<Vec<_>>>()
        })?;
        let mut results: Vec<FoldResult> = results.into_iter().flatten().collect();
        results.sort_by_key(|result| result.fold);
        print_rank_zero(CrossValidation::new(&results));
        Ok(Vec::new())
    }
}
