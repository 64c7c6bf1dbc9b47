//! The folders of ranks with `--per-rank`, and the totals of all ranks.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use kiln::comm::TransientError;
use kiln::prelude::RankHandle;
use kiln::store::array_folder::{FolderWriter, check_free};
use kiln::store::whole_file::{read_whole, write_whole};
use kiln::{Error, PredictionTotals, Result};
use serde_json::{Value, json};

/// The longest wait of the other ranks for the files of one. It may be long, because a lost rank is detected during the
/// wait.
pub(super) const WRITING: Duration = Duration::from_secs(24 * 3600);

/// The file in an unfinished folder by which the ranks that share it recognise it.
const MARK: &str = "ranks";

/// What a rank has written: the folder of complete files, which is not renamed yet, and their totals. A rank may write nothing.
pub(super) type Written = (Option<FolderWriter>, Option<PredictionTotals>);

/// The folders of ranks, in one folder that is unfinished until all are complete. Ranks that share a file system share it: the
/// first of them owns it. With a lost rank, all folders are removed.
#[derive(Debug)]
pub(super) struct RankFolders {
    /// The folder of this rank, within the unfinished one.
    own: PathBuf,
    /// The unfinished folder, on the rank that owns it.
    shared: Option<FolderWriter>,
}

impl RankFolders {
    /// Creates the unfinished folder on each file system of the ranks. Collective.
    pub(super) fn create(rank: &RankHandle, out: &Path) -> Result<Self> {
        let mut comm = rank.communicator("folders of ranks")?;
        let mut shared = None;
        let mut folder = None;
        loop {
            let has_folder = comm.all_gather(&[u8::from(folder.is_some())])?;
            let Some(owner) = has_folder.iter().position(|has_folder| *has_folder == [0]) else { break };
            let is_owner = owner == rank.index();
            let mut announced = Vec::new();
            if is_owner {
                let writer = FolderWriter::create(out)?;
                announced = announcement(rank, writer.folder());
                write_mark(writer.folder(), &announced)?;
                folder = Some(writer.folder().to_owned());
                shared = Some(writer);
            }
            let announced = comm.all_gather(&announced)?.swap_remove(owner);
            if folder.is_none() {
                folder = announced_folder(out, &announced)?;
            }
        }
        // The loop ends when each rank has a folder.
        let own = folder.unwrap_or_default().join(part_name(rank.index(), rank.world_size()));
        Ok(Self { own, shared })
    }

    /// Writes the folder of this rank, whose path `body` gets. Returns the folder of all ranks, on the rank that owns it, and the
    /// totals of this rank.
    pub(super) fn write(self, body: impl FnOnce(&Path) -> Result<Written>) -> Result<Written> {
        let Self { own, shared } = self;
        let written = body(&own).and_then(|(folder, totals)| {
            folder.map_or(Ok(()), FolderWriter::commit)?;
            Ok(totals)
        });
        match written {
            Ok(totals) => Ok((shared, totals)),
            // Without the mark, the owner of the folder was lost: another attempt may succeed.
            Err(error) if own.parent().is_none_or(|folder| !folder.join(MARK).exists()) => {
                Err(Error::Other(TransientError(error.into()).into()))
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns what identifies an unfinished folder: the end of its name, and a text that no other folder has.
fn announcement(rank: &RankHandle, folder: &Path) -> Vec<u8> {
    let end = folder.extension().unwrap_or_default().to_string_lossy();
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{end} {} {}", rank.index(), since.as_nanos()).into_bytes()
}

/// Returns the unfinished folder that another rank has announced; `None` if it is on another file system.
fn announced_folder(out: &Path, announced: &[u8]) -> Result<Option<PathBuf>> {
    let mut folder = check_free(out)?.into_os_string();
    let text = String::from_utf8_lossy(announced);
    folder.push(".");
    folder.push(text.split(' ').next().unwrap_or_default());
    let folder = PathBuf::from(folder);
    let is_announced =
        read_whole(folder.join(MARK), announced.len() as u64).is_ok_and(|found| found == announced);
    Ok(is_announced.then_some(folder))
}

/// Writes the file by which other ranks recognise a folder.
fn write_mark(folder: &Path, announced: &[u8]) -> Result<()> {
    let path = folder.join(MARK);
    let written = write_whole(&path, announced).with_context(|| path.display().to_string());
    written.map_err(|error| Error::Other(error.into()))
}

/// Renames the folder of all ranks to the target. It gets `index.json` if there are totals of the ranks, on rank 0.
pub(super) fn commit(writer: FolderWriter, of_ranks: Option<&[PredictionTotals]>) -> Result<()> {
    let mark = writer.folder().join(MARK);
    let removed = fs::remove_file(&mark).with_context(|| mark.display().to_string());
    removed.map_err(|error| Error::Other(error.into()))?;
    match of_ranks {
        Some(of_ranks) => Ok(writer.commit_with("index.json", &index(of_ranks))?),
        None => Ok(writer.commit()?),
    }
}

/// Returns the contents of `index.json`: the folder of each rank, the position of its first item in the request, and its number of
/// items.
fn index(of_ranks: &[PredictionTotals]) -> Value {
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
    json!({"n_items": first_item, "parts": parts})
}

/// Returns the name of a rank's folder.
fn part_name(rank: usize, n_ranks: usize) -> String {
    format!("part-{rank:05}-of-{n_ranks:05}")
}

/// Returns the totals of each rank, after each has written its files. Collective.
pub(super) fn totals_of_ranks(rank: &RankHandle, own: PredictionTotals) -> Result<Vec<PredictionTotals>> {
    let mut comm = rank.communicator("totals")?;
    comm.barrier(WRITING)?;
    Ok(comm.all_gather(&own.to_bytes())?.iter().map(|bytes| PredictionTotals::from_bytes(bytes)).collect())
}
