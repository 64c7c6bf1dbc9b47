//! The folders of ranks that each write their own files, and the totals of all ranks.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use kiln_comm::{BoxError, Communicator, RankInfo, TransientError};
use kiln_store::array_folder::{FolderWriter, check_free};
use kiln_store::io_error;
use kiln_store::whole_file::{read_whole, write_whole};
use serde_json::{Value, json};

use crate::{Error, PredictionTotals, Result};

/// The longest wait of the other ranks for the files of one. It may be long, because a lost rank is detected during the
/// wait.
pub const WRITING_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// The file in an unfinished folder by which the ranks that share it recognise it.
const MARK: &str = "ranks";

/// What a rank has written: the folder of complete files, which is not renamed yet, and their totals. A rank may write nothing.
pub type Written = (Option<FolderWriter>, Option<PredictionTotals>);

/// The folders of ranks, in one folder that is unfinished until all are complete. Ranks that share a file system share it: the
/// first of them owns it. With a lost rank, all folders are removed.
///
/// ```
/// use kiln_comm::SingleRank;
/// use kiln_predictions::{
///     LinkNodes, LinkPredictionFiles, PredictionFormat, RankFolders, Result, totals_of_ranks,
/// };
/// let out = std::env::temp_dir().join(format!("kiln-rank-folders-{}", std::process::id()));
/// let (folder, totals) = RankFolders::create(&mut SingleRank, &out)?.write(|own| -> Result<_> {
///     let nodes = LinkNodes { ids: [0..3, 3..5], names: [None, None] };
///     let files = LinkPredictionFiles::create(own, PredictionFormat::Csv, nodes)?;
///     let (folder, totals) = files.complete()?;
///     Ok((Some(folder), Some(totals)))
/// })?;
/// let of_ranks = totals_of_ranks(&mut SingleRank, &totals.unwrap_or_default())?;
/// if let Some(folder) = folder {
///     RankFolders::commit(folder, Some(&of_ranks))?;
/// }
/// assert!(out.join("part-00000-of-00001/links.csv").exists());
/// # std::fs::remove_dir_all(&out).ok();
/// # Ok::<(), kiln_predictions::Error>(())
/// ```
#[derive(Debug)]
pub struct RankFolders {
    /// The folder of this rank, within the unfinished one.
    own: PathBuf,
    /// The unfinished folder, on the rank that owns it.
    shared: Option<FolderWriter>,
}

impl RankFolders {
    /// Creates the unfinished folder on each file system of the ranks. Collective.
    ///
    /// # Errors
    /// Returns an error if the target is not new or empty, or if the folder cannot be created.
    pub fn create(comm: &mut dyn Communicator, out: &Path) -> Result<Self> {
        let RankInfo { rank, world_size, .. } = comm.rank_info();
        let mut shared = None;
        let mut folder = None;
        loop {
            let has_folder = comm.all_gather(&[u8::from(folder.is_some())])?;
            let Some(owner) = has_folder.iter().position(|has_folder| *has_folder == [0]) else { break };
            let is_owner = owner == rank;
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
        let own = folder.unwrap_or_default().join(part_name(rank, world_size));
        Ok(Self { own, shared })
    }

    /// Writes the folder of this rank, whose path `body` gets. Returns the folder of all ranks, on the rank that owns it, and the
    /// totals of this rank.
    ///
    /// # Errors
    /// Returns the error of `body`, or [`Error::OwnerLost`] if the folder of all ranks was removed meanwhile.
    pub fn write<E>(self, body: impl FnOnce(&Path) -> Result<Written, E>) -> Result<Written, E>
    where
        E: From<Error> + Into<BoxError>,
    {
        let Self { own, shared } = self;
        let written = body(&own).and_then(|(folder, totals)| {
            folder.map_or(Ok(()), FolderWriter::commit).map_err(Error::from)?;
            Ok(totals)
        });
        match written {
            Ok(totals) => Ok((shared, totals)),
            // Without the mark, the owner of the folder was lost: another attempt may succeed.
            Err(error) if own.parent().is_none_or(|folder| !folder.join(MARK).exists()) => {
                Err(Error::OwnerLost(TransientError(error.into())).into())
            }
            Err(error) => Err(error),
        }
    }

    /// Renames the folder of all ranks to the target, after all of them have ended. It gets `index.json` if there are totals of
    /// the ranks, on rank 0.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written or the folder cannot be renamed.
    pub fn commit(folder: FolderWriter, of_ranks: Option<&[PredictionTotals]>) -> Result<()> {
        let mark = folder.folder().join(MARK);
        fs::remove_file(&mark).map_err(io_error(&mark))?;
        match of_ranks {
            Some(of_ranks) => Ok(folder.commit_with("index.json", &index(of_ranks))?),
            None => Ok(folder.commit()?),
        }
    }
}

/// Returns what identifies an unfinished folder: the end of its name, and a text that no other folder has.
fn announcement(rank: usize, folder: &Path) -> Vec<u8> {
    let end = folder.extension().unwrap_or_default().to_string_lossy();
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{end} {rank} {}", since.as_nanos()).into_bytes()
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
    Ok(write_whole(&path, announced).map_err(io_error(&path))?)
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
///
/// # Errors
/// Returns an error if a rank is lost.
pub fn totals_of_ranks(comm: &mut dyn Communicator, own: &PredictionTotals) -> Result<Vec<PredictionTotals>> {
    comm.barrier(WRITING_TIMEOUT)?;
    Ok(comm.all_gather(&own.to_bytes())?.iter().map(|bytes| PredictionTotals::from_bytes(bytes)).collect())
}
