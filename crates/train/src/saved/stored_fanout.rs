//! Fanouts as `model.json` has them: a limit, or none.

use kiln_sample::Fanout;

/// Returns a fanout as it is stored.
pub(super) fn limit_of(fanout: &Fanout) -> Option<u32> {
    match fanout {
        Fanout::All => None,
        Fanout::UpTo(limit) => Some(*limit),
    }
}

/// Returns a stored fanout.
pub(super) fn fanout_of(limit: &Option<u32>) -> Fanout {
    limit.map_or(Fanout::All, Fanout::UpTo)
}
