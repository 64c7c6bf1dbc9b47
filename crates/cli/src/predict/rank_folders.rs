//! The folder of the result, those of ranks with `--per-rank`, and the totals of all ranks.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use kiln::prelude::RankHandle;
use kiln::store::whole_file::write_whole;
use kiln::{Error, PredictionTotals, Result};
use serde_json::{Value, json};

/// The longest wait of the other ranks for the files of one. It may be long, because a lost rank is detected during the
/// wait.
pub(super) const WRITING: Duration = Duration::from_secs(24 * 3600);

/// Returns the name of a rank's folder.
pub(super) fn part_name(rank: usize, n_ranks: usize) -> String {
    format!("part-{rank:05}-of-{n_ranks:05}")
}

/// Returns the totals of each rank, after each has written its files. Collective.
pub(super) fn totals_of_ranks(rank: &RankHandle, own: PredictionTotals) -> Result<Vec<PredictionTotals>> {
    let mut comm = rank.communicator("totals")?;
    comm.barrier(WRITING)?;
    Ok(comm.all_gather(&own.to_bytes())?.iter().map(|bytes| PredictionTotals::from_bytes(bytes)).collect())
}

/// Writes `index.json`: the folder of each rank, the position of its first item in the request, and its number of items.
pub(super) fn write_index(out: &Path, of_ranks: &[PredictionTotals]) -> Result<()> {
    let mut first_item = 0;
    let parts: Vec<Value> = of_ranks
        .iter()
        .enumerate()
        .map(|(rank, totals)| {
            let folder = part_name(rank, of_ranks.len());
            let part = json!({"folder": folder, "first_item": first_item, "n_items": totals.n_items});
            first_item += totals.n_items;
            part
        })
        .collect();
    let path = out.join("index.json");
    let text = serde_json::to_vec_pretty(&json!({"n_items": first_item, "parts": parts}));
    let written = text.map_err(Into::into).and_then(|text| write_whole(&path, &text));
    let written = written.with_context(|| format!("{} could not be written", path.display()));
    written.map_err(|error| Error::Other(error.into()))
}
