use kiln_loader::{ItemSamplerConfig, Phase};
use kiln_store::counted;

/// The number of steps of an epoch below which a run has a note.
const FEW_STEPS: usize = 10;

/// The number of steps of an epoch that the suggested batch size makes, at least.
const ENOUGH_STEPS: usize = 32;

/// The smallest suggested batch size.
const MIN_BATCH_SIZE: usize = 8;

/// Returns a note if an epoch of `n_items` training items has few steps: the number of steps, and a batch size that makes
/// more, or the advice to train for more epochs if there are few items.
pub(crate) fn note_on_steps(
    items: &ItemSamplerConfig,
    phase: Phase,
    n_items: usize,
    n_steps: usize,
) -> Option<String> {
    if FEW_STEPS <= n_steps {
        return None;
    }
    let per_step = items.items_per_step(phase);
    let of_one = per_step / items.batch_size.max(1);
    let largest = (n_items / (ENOUGH_STEPS * of_one.max(1))).max(MIN_BATCH_SIZE);
    let suggested = 1 << largest.ilog2();
    let steps = counted(n_steps as u64, "step");
    let advice = match suggested < items.batch_size {
        true => {
            let more = n_items.div_ceil(suggested * of_one.max(1));
            format!("a batch size of {suggested} instead of {} makes {more} steps", items.batch_size)
        }
        false => "train for more epochs".to_owned(),
    };
    Some(format!(
        "an epoch has {steps}, because a step takes {} of the {n_items} training items: the model may learn little in few \
         epochs; {advice}",
        per_step.min(n_items)
    ))
}

#[cfg(test)]
mod tests {
    use kiln_loader::Shard;

    use super::*;

    const TRAIN: Phase = Phase::Train { epoch: 0 };

    fn note(batch_size: usize, world_size: usize, n_items: usize) -> Option<String> {
        let items =
            ItemSamplerConfig { batch_size, shard: Shard { rank: 0, world_size }, ..Default::default() };
        note_on_steps(&items, TRAIN, n_items, n_items.div_ceil(items.items_per_step(TRAIN)))
    }

    #[test]
    fn few_steps_have_a_note_with_a_batch_size() {
        let text = note(1024, 1, 2102).expect("3 steps should have a note");
        assert!(
            text.starts_with("an epoch has 3 steps, because a step takes 1024 of the 2102 training items")
        );
        assert!(text.ends_with("a batch size of 64 instead of 1024 makes 33 steps"), "{text}");
        let of_ranks = note(512, 2, 2102).expect("3 steps should have a note");
        assert!(of_ranks.ends_with("a batch size of 32 instead of 512 makes 33 steps"), "{of_ranks}");
        assert!(note(1024, 1, 100).is_some_and(|text| text.contains("an epoch has 1 step, ")));
        assert!(note(8, 1, 40).is_some_and(|text| text.ends_with("train for more epochs")));
    }

    #[test]
    fn enough_steps_have_no_note() {
        assert_eq!(note(64, 1, 2102), None);
        assert_eq!(note(1, 1, 10), None);
        assert!(note(1, 1, 9).is_some());
    }
}
