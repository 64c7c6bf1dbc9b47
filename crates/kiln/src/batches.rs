use kiln_data::Split;
use kiln_feature::Targets;
use kiln_graph::{ItemId, SharedArray};
use kiln_loader::{ItemSampler, ItemSamplerConfig, Phase, Shard, UnevenShards};
use kiln_train::{BatchConfig, Objective};

/// Returns `workers`, the number that the user set, or the default: 1 if the rank is alone or has several threads,
/// otherwise 0.
pub(crate) fn n_workers<I: ItemId>(workers: Option<usize>, items: &ItemSampler<I>) -> usize {
    let has_second_thread = items.config().shard.world_size == 1 || 1 < rayon::current_num_threads();
    workers.unwrap_or(usize::from(has_second_thread))
}

/// Returns the configuration by which a single rank takes the items of all ranks, with the global batch size.
pub(crate) fn items_of_all_ranks(config: &ItemSamplerConfig) -> ItemSamplerConfig {
    let batch_size = config.batch_size * config.shard.world_size;
    ItemSamplerConfig { batch_size, shard: Shard::default(), ..*config }
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

/// Returns the items of a phase.
pub(crate) fn items_of<I: ItemId>(split: &Split<I>, phase: Phase) -> &SharedArray<I> {
    match phase {
        Phase::Train { .. } => &split.train,
        Phase::Validation => &split.val,
        Phase::Test => &split.test,
    }
}

/// Returns the name of the split of a phase, for messages.
pub(crate) fn name_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Train { .. } => "training",
        Phase::Validation => "validation",
        Phase::Test => "test",
    }
}

/// Returns the objective that the user set, or the default for the targets.
pub(crate) fn objective_of<I: ItemId>(set: Option<&Objective>, targets: &Targets<I>) -> Objective {
    set.cloned().unwrap_or_else(|| Objective::default_of(targets.kind()))
}

/// Returns the setting that identifies an objective in a run's fingerprint; `None` for the default of class labels,
/// which earlier runs did not name.
pub(crate) fn objective_setting(objective: &Objective) -> Option<(&'static str, String)> {
    (*objective != Objective::default()).then(|| ("objective", format!("{objective:?}")))
}
