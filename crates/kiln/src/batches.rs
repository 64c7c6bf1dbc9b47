use std::sync::Arc;

use kiln_data::{Note, Split};
use kiln_feature::{TargetKind, Targets};
use kiln_graph::{ItemId, NodeId, SharedArray};
use kiln_loader::{ItemSampler, Phase, UnevenShards};
use kiln_nn::{BlockModel, InputAggregation};
use kiln_train::{BatchConfig, InputError, Objective, TargetScale};

use crate::Result;
use crate::source::Owner;

/// Returns `workers`, the number that the user set, or the default: 1 if the rank is alone or has several threads,
/// otherwise 0.
pub(crate) fn n_workers<I: ItemId>(workers: Option<usize>, items: &ItemSampler<I>) -> usize {
    let has_second_thread = items.config().shard.world_size == 1 || 1 < rayon::current_num_threads();
    workers.unwrap_or(usize::from(has_second_thread))
}

/// The maximum number of threads of a rank for each of its workers if the workers aggregate input rows.
const MAX_THREADS_PER_WORKER: usize = 4;

/// Returns true if a rank's workers may aggregate the input rows of its batches while they read them. This takes less time
/// in all threads together than gathering the rows and aggregating them in the step, but more in the worker. With many
/// threads, steps are short and wait for the worker. Without workers, the step's threads would wait.
fn workers_aggregate(workers: usize, n_threads: usize) -> bool {
    n_threads <= (MAX_THREADS_PER_WORKER * workers).max(1)
}

/// Returns the aggregation by which a model reads its input rows, if this number of workers may compute it.
pub(crate) fn aggregation_of_workers(model: &impl BlockModel, workers: usize) -> Option<InputAggregation> {
    model.input_aggregation().filter(|_| workers_aggregate(workers, rayon::current_num_threads()))
}

/// Gives each rank the items whose node it owns, on a partitioned graph in worker mode. In server mode, and on a whole graph, no
/// rank owns nodes, and the ranks keep their equal shares.
pub(crate) fn shard_by_owner<I: ItemId>(
    items: ItemSampler<I>,
    owner: Option<Arc<Owner>>,
    node_of: impl Fn(I) -> NodeId + Send + Sync + 'static,
) -> Result<ItemSampler<I>> {
    match owner {
        Some(owner) => {
            let items = items.shard_by_owner(move |item| owner(node_of(item)));
            Ok(items.map_err(kiln_train::Error::from)?)
        }
        None => Ok(items),
    }
}

/// Returns the batch settings that a run's result depends on. They include the number of ranks only if the policy for
/// uneven steps depends on it; otherwise only the global batch size counts.
pub(crate) fn batch_settings<I: ItemId>(
    batches: BatchConfig,
    split: &Split<I>,
    n_ranks: usize,
) -> Vec<(&'static str, String)> {
    let BatchConfig { batch_size, shuffle, drop_last, uneven } = batches;
    let [train, val, test] = [&split.train, &split.val, &split.test].map(|items| items.len());
    let mut settings = vec![
        ("items", format!("{train} / {val} / {test}")),
        ("batch size x ranks", batch_size.saturating_mul(n_ranks).to_string()),
        ("shuffle", shuffle.to_string()),
        ("drop last", drop_last.to_string()),
    ];
    if uneven != UnevenShards::Join {
        settings.extend([("uneven", format!("{uneven:?}")), ("ranks", n_ranks.to_string())]);
    }
    settings
}

/// Returns the texts of the notes on a split that are not among those of its set, which were printed when the set was opened.
pub(crate) fn texts_of_new_notes(of_split: Vec<Note>, of_set: &[Note]) -> Vec<String> {
    of_split.iter().filter(|note| !of_set.contains(note)).map(Note::to_string).collect()
}

/// Returns the items of a phase.
pub(crate) fn items_of<I: ItemId>(split: &Split<I>, phase: Phase) -> &SharedArray<I> {
    match phase {
        Phase::Train { .. } => &split.train,
        Phase::Validation => &split.val,
        Phase::Test => &split.test,
    }
}

/// Returns the items of a phase in the first `n_batches` batches of one rank.
pub(crate) fn first_items<I: ItemId>(
    split: &Split<I>,
    phase: Phase,
    n_batches: usize,
    batch_size: usize,
) -> &[I] {
    let items = items_of(split, phase);
    &items[..items.len().min(n_batches.saturating_mul(batch_size))]
}

/// Returns the objective that the user set, or the default for the targets.
pub(crate) fn objective_of<I: ItemId>(set: Option<&Objective>, targets: &Targets<I>) -> Objective {
    set.cloned().unwrap_or_else(|| Objective::default_of(targets.kind()))
}

/// Checks that a scale of targets is set for regression targets only.
pub(crate) fn check_target_scale(set: Option<TargetScale>, got: TargetKind) -> Result<()> {
    match set.is_some() && got != TargetKind::Regression {
        true => Err(kiln_train::Error::Input(InputError::ScaleOfOtherTargets { got }).into()),
        false => Ok(()),
    }
}

/// Returns the setting that identifies the scale of regression targets in a run's fingerprint; `None` for targets that are
/// learned as they are, as in all earlier runs.
pub(crate) fn target_scale_setting(
    set: Option<TargetScale>,
    kind: TargetKind,
) -> Option<(&'static str, String)> {
    let scale = set.unwrap_or_default();
    (kind == TargetKind::Regression && scale != TargetScale::None)
        .then(|| ("target scale", scale.to_string()))
}

/// Returns the setting that identifies an objective in a run's fingerprint; `None` for the default of class labels,
/// which earlier runs did not name.
pub(crate) fn objective_setting(objective: &Objective) -> Option<(&'static str, String)> {
    (*objective != Objective::default()).then(|| ("objective", format!("{objective:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_aggregate_if_few_threads_wait_for_them() {
        let allowed = [(0, 1), (1, 1), (1, 4), (2, 8)];
        assert!(allowed.iter().all(|&(workers, n_threads)| workers_aggregate(workers, n_threads)));
        let rejected = [(0, 2), (1, 5), (2, 9)];
        assert!(!rejected.iter().any(|&(workers, n_threads)| workers_aggregate(workers, n_threads)));
    }
}
