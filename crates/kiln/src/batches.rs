use kiln_data::Split;
use kiln_graph::ItemId;
use kiln_loader::{ItemSampler, ItemSamplerConfig, Shard, UnevenShards};
use kiln_train::BatchConfig;

/// The workers that were set, or one where the rank has a second thread.
pub(crate) fn n_workers<I: ItemId>(workers: Option<usize>, items: &ItemSampler<I>) -> usize {
    let has_second_thread = items.config().shard.world_size == 1 || 1 < rayon::current_num_threads();
    workers.unwrap_or(usize::from(has_second_thread))
}

/// The same items, as one rank would take those of all.
pub(crate) fn items_of_all_ranks(config: &ItemSamplerConfig) -> ItemSamplerConfig {
    let batch_size = config.batch_size * config.shard.world_size;
    ItemSamplerConfig { batch_size, shard: Shard::default(), ..*config }
}

/// The settings of batches that a run's result depends on: of ranks only the batch of all, unless the items of an uneven
/// step depend on their number.
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
