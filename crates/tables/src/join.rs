//! Finds the rows of keys within a memory limit: a hash join in partitions (Grace join; Kitsuregawa et al. 1983).
//!
//! The keys of a node type are in a file, in the order of its rows. If an index of them fits in memory, the tables of the
//! relations are read against it. Otherwise keys are divided into partitions by their hash: the keys of the type and those
//! of each relation go to one file per partition, and each partition is joined in memory. The partition of each row, one byte
//! per row on disk, then restores the order of the rows, so nothing is sorted by key. The edges of a relation are sorted once,
//! by the writer of `kiln-data`.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use kiln_store::progress::{Progress, ProgressUnit};

use crate::hash::{KeyHash, below, hash_bytes};
use crate::key::{RowKey, map_keys};
use crate::key_file::KeyFile;
use crate::key_index::KeyIndex;
use crate::row_ids::RowSet;
use crate::spec::KeyType;
use crate::spill::{KeyRecord, SPILL_BUFFER, SpillFile, SpillReader, SpillWriter};
use crate::table::Table;
use crate::{Error, Result};

/// Stands for a key that the node type does not have.
pub(crate) const DANGLING: u32 = u32::MAX;
/// Stands for a key of the wrong type.
pub(crate) const WRONG: u32 = u32::MAX - 1;
/// Stands for a missing key.
pub(crate) const MISSING: u32 = u32::MAX - 2;
/// The maximum number of rows of a node type.
pub(crate) const MAX_ROWS: u64 = MISSING as u64;

/// The maximum number of partitions.
const MAX_PARTITIONS: u64 = 250;
const MISSING_BYTE: u8 = u8::MAX;
const WRONG_BYTE: u8 = u8::MAX - 1;

/// The size of the buffer of a partition's file in bytes.
const PARTITION_BUFFER: usize = 1 << 13;

/// The row of the node type for each row of a relation's end, or [`DANGLING`], [`WRONG`] or [`MISSING`].
#[derive(Debug, Clone)]
pub(crate) struct EndRows {
    pub(crate) file: Arc<SpillFile>,
    /// The position of the first in the file.
    pub(crate) start: u64,
    pub(crate) n_rows: u64,
}

/// The column of keys of a relation's end.
#[derive(Debug)]
pub(crate) struct EndColumn {
    pub(crate) table: Table,
    pub(crate) key_type: KeyType,
    /// The name of temporary files.
    pub(crate) name: String,
}

/// A join of a node type.
pub(crate) struct Join<'a> {
    pub(crate) folder: &'a Path,
    /// The name of the node type, for errors.
    pub(crate) table: &'a str,
    pub(crate) keys: &'a KeyFile,
    /// The memory for an index in bytes, and the memory that is in use before.
    pub(crate) room_bytes: u64,
    pub(crate) used_bytes: u64,
    /// The rows without a key, to which those with the key of an earlier row are added.
    pub(crate) dropped: &'a mut RowSet,
    /// The positions of the first rows with the key of an earlier one, unless it is a known node.
    pub(crate) duplicates: Duplicated,
    pub(crate) hash: KeyHash,
}

/// The rows with the key of an earlier row.
#[derive(Debug, Default)]
pub(crate) struct Duplicated {
    pub(crate) n_rows: u64,
    /// The first rows, ascending.
    pub(crate) first: Vec<u32>,
}

impl Duplicated {
    fn add(&mut self, row: u32) {
        self.n_rows += 1;
        let position = self.first.partition_point(|other| *other < row);
        if position < crate::bad_rows::MAX_EXAMPLES {
            self.first.insert(position, row);
            self.first.truncate(crate::bad_rows::MAX_EXAMPLES);
        }
    }
}

impl Join<'_> {
    /// Finds the rows of each end's keys.
    pub(crate) fn find_rows(&mut self, ends: &[EndColumn]) -> Result<Vec<EndRows>> {
        match self.n_partitions(false)? {
            1 => {
                let index = self.index_all(None)?;
                ends.iter().map(|end| self.look_up(&index, end)).collect()
            }
            n_partitions => {
                let build = self.spill_keys(n_partitions, false)?;
                let spilled = ends.iter().map(|end| self.spill_end(end, n_partitions));
                let spilled = spilled.collect::<Result<Vec<_>>>()?;
                let mut found: Vec<Vec<SpillFile>> = ends.iter().map(|_| Vec::new()).collect();
                let progress = self.start("joining keys", self.keys.n_keys);
                for (partition, build) in build.files.into_iter().enumerate() {
                    let n_keys = build.1;
                    let index = self.index_partition(build, None)?;
                    for (end, (spilled, found)) in ends.iter().zip(spilled.iter().zip(&mut found)) {
                        let name = format!("{}-rows-{partition}", end.name);
                        found.push(self.look_up_partition(&index, &spilled.files[partition], &name)?);
                    }
                    progress.advance(n_keys);
                }
                drop(progress);
                let ends = ends.iter().zip(spilled).zip(found);
                ends.map(|((end, spilled), found)| self.merge(&spilled, &found, &end.name)).collect()
            }
        }
    }

    /// Finds the first row with the key of each row.
    pub(crate) fn find_first_rows(&mut self) -> Result<EndRows> {
        // The file outlives the join, so its name must differ from those of other node types.
        let name = &format!("first-of-{:016x}", hash_bytes(self.table.as_bytes()));
        match self.n_partitions(true)? {
            1 => {
                let mut rows = SpillFile::create(self.folder, name, SPILL_BUFFER)?;
                self.index_all(Some(&mut rows))?;
                let n_rows = self.keys.n_rows.into();
                Ok(EndRows { file: Arc::new(rows.finish()?), start: 0, n_rows })
            }
            n_partitions => {
                let mut spilled = self.spill_keys(n_partitions, true)?;
                let mut found = Vec::new();
                let progress = self.start("joining keys", self.keys.n_keys);
                for (partition, build) in std::mem::take(&mut spilled.files).into_iter().enumerate() {
                    let name = format!("{name}-{partition}");
                    let mut rows = SpillFile::create(self.folder, &name, SPILL_BUFFER)?;
                    let n_keys = build.1;
                    self.index_partition(build, Some(&mut rows))?;
                    progress.advance(n_keys);
                    found.push(rows.finish()?);
                }
                drop(progress);
                self.merge(&spilled, &found, name)
            }
        }
    }

    /// Returns the number of partitions whose indices fit in memory. If the keys may repeat, this is not an error before
    /// the number of different keys is known.
    fn n_partitions(&self, may_repeat: bool) -> Result<u64> {
        let KeyFile { n_keys, text_bytes, .. } = *self.keys;
        let bytes = KeyIndex::bytes(n_keys, text_bytes);
        if bytes <= self.room_bytes && text_bytes <= u32::MAX.into() {
            return Ok(1);
        }
        // Partitions differ in size: a margin of a quarter, and the buffers of their files.
        let room = self.room_bytes.saturating_sub(MAX_PARTITIONS * PARTITION_BUFFER as u64).max(1);
        let n_partitions = (bytes + bytes / 4).div_ceil(room).max(text_bytes >> 31) + 1;
        let has_buffers = MAX_PARTITIONS * PARTITION_BUFFER as u64 <= self.room_bytes;
        if MAX_PARTITIONS < n_partitions && !(may_repeat && has_buffers) {
            return Err(self.too_small(0));
        }
        Ok(n_partitions.min(MAX_PARTITIONS))
    }

    /// Returns an error for a partition that needs this much memory. The stated limit is sufficient if no key repeats, too.
    fn too_small(&self, needed: u64) -> Error {
        let bytes = KeyIndex::bytes(self.keys.n_keys, self.keys.text_bytes);
        let of_all =
            (bytes + bytes / 4) / (MAX_PARTITIONS - 1) + MAX_PARTITIONS * PARTITION_BUFFER as u64 + 1;
        let needed = needed.max(of_all);
        Error::Memory {
            what: format!("{}: a partition of its keys", self.table),
            needed_bytes: self.used_bytes + needed,
            budget_bytes: self.used_bytes + self.room_bytes,
        }
    }

    /// Adds a key to an index, and writes its first row to `first`. `index_bytes` is the size that is always sufficient.
    fn insert(
        &mut self,
        index: &mut KeyIndex,
        key: &[u8],
        row: u32,
        first: Option<&mut SpillWriter>,
        index_bytes: u64,
    ) -> Result<()> {
        let Some(found) = index.insert(key, row) else {
            return Err(self.too_small(index_bytes));
        };
        if found != row {
            self.dropped.insert(row);
            // The row of a known node is compared with it.
            if self.keys.n_known <= found {
                self.duplicates.add(row);
            }
        }
        first.map_or(Ok(()), |first| first.write_u32(found))
    }

    /// Begins a stage of progress over rows.
    fn start(&self, stage: &str, n_rows: impl Into<u64>) -> Progress {
        Progress::start(format_args!("{}: {stage}", self.table), ProgressUnit::Rows, n_rows.into())
    }

    fn index_all(&mut self, mut first: Option<&mut SpillWriter>) -> Result<KeyIndex> {
        let KeyFile { n_keys, text_bytes, .. } = *self.keys;
        let mut index = KeyIndex::with_capacity(&self.hash, n_keys, text_bytes);
        let bytes = KeyIndex::bytes(n_keys, text_bytes);
        let mut keys = self.keys.file.read(SPILL_BUFFER)?;
        let progress = self.start("indexing keys", self.keys.n_rows);
        let mut counter = progress.counter();
        for row in 0..self.keys.n_rows {
            counter.add(1);
            let first = first.as_deref_mut();
            match (keys.read_key()?, first) {
                (KeyRecord::Key(key), first) => self.insert(&mut index, key, row, first, bytes)?,
                (KeyRecord::Missing, Some(first)) => first.write_u32(MISSING)?,
                (KeyRecord::Wrong, Some(first)) => first.write_u32(WRONG)?,
                (_, None) => {}
            }
        }
        Ok(index)
    }

    /// Writes the row and the key of each record to the file of its partition.
    fn spill_keys(&self, n_partitions: u64, with_order: bool) -> Result<Spilled> {
        let mut writers = Partitions::create(self.folder, "keys", n_partitions)?;
        let mut keys = self.keys.file.read(SPILL_BUFFER)?;
        let progress = self.start("dividing keys", self.keys.n_rows);
        let mut counter = progress.counter();
        for row in 0..self.keys.n_rows {
            counter.add(1);
            match keys.read_key()? {
                KeyRecord::Key(key) => {
                    let partition = below(self.hash.of(key), n_partitions as usize);
                    writers.files[partition].write_u32(row)?;
                    writers.put(partition, key, with_order)?;
                }
                KeyRecord::Missing if with_order => writers.order.write(&[MISSING_BYTE])?,
                KeyRecord::Wrong if with_order => writers.order.write(&[WRONG_BYTE])?,
                KeyRecord::Missing | KeyRecord::Wrong => {}
            }
        }
        writers.finish(self.keys.n_rows.into())
    }

    fn index_partition(
        &mut self,
        spilled: (SpillFile, u64, u64),
        mut first: Option<&mut SpillWriter>,
    ) -> Result<KeyIndex> {
        let (file, n_keys, text_bytes) = spilled;
        let bytes = KeyIndex::bytes(n_keys, text_bytes);
        // All rows of a key are in the same partition, so an index of its different keys may fit although its rows do not.
        let mut index = KeyIndex::within(&self.hash, self.room_bytes, n_keys, text_bytes);
        let mut keys = file.read(SPILL_BUFFER)?;
        for _ in 0..n_keys {
            let row = keys.read_u32()?;
            if let KeyRecord::Key(key) = keys.read_key()? {
                self.insert(&mut index, key, row, first.as_deref_mut(), bytes)?;
            }
        }
        Ok(index)
    }

    fn look_up(&self, index: &KeyIndex, end: &EndColumn) -> Result<EndRows> {
        let mut rows = SpillFile::create(self.folder, &end.name, SPILL_BUFFER)?;
        let mut n_rows = 0;
        end.table.for_each_batch("finding its nodes", &mut |batch| {
            let found = map_keys(batch, 0, end.key_type, |key| match key {
                RowKey::Key(key) => index.get(key).unwrap_or(DANGLING),
                RowKey::Missing => MISSING,
                RowKey::Wrong => WRONG,
            });
            n_rows += found.len() as u64;
            found.into_iter().try_for_each(|row| rows.write_u32(row))?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(EndRows { file: Arc::new(rows.finish()?), start: 0, n_rows })
    }

    fn spill_end(&self, end: &EndColumn, n_partitions: u64) -> Result<Spilled> {
        let mut writers = Partitions::create(self.folder, &end.name, n_partitions)?;
        let mut n_rows = 0;
        end.table.for_each_batch("reading keys", &mut |batch| {
            let keys = map_keys(batch, 0, end.key_type, |key| match key {
                RowKey::Key(key) => Ok((below(self.hash.of(key), n_partitions as usize), key.to_vec())),
                RowKey::Missing => Err(MISSING_BYTE),
                RowKey::Wrong => Err(WRONG_BYTE),
            });
            n_rows += keys.len() as u64;
            for key in keys {
                match key {
                    Ok((partition, key)) => writers.put(partition, &key, true)?,
                    Err(byte) => writers.order.write(&[byte])?,
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        writers.finish(n_rows)
    }

    fn look_up_partition(
        &self,
        index: &KeyIndex,
        spilled: &(SpillFile, u64, u64),
        name: &str,
    ) -> Result<SpillFile> {
        let mut rows = SpillFile::create(self.folder, name, SPILL_BUFFER)?;
        let mut keys = spilled.0.read(SPILL_BUFFER)?;
        for _ in 0..spilled.1 {
            if let KeyRecord::Key(key) = keys.read_key()? {
                rows.write_u32(index.get(key).unwrap_or(DANGLING))?;
            }
        }
        rows.finish()
    }

    /// Restores the order of the rows from the partition of each.
    fn merge(&self, spilled: &Spilled, found: &[SpillFile], name: &str) -> Result<EndRows> {
        let readers = found.iter().map(|file| file.read(PARTITION_BUFFER));
        let mut readers: Vec<SpillReader> = readers.collect::<Result<_>>()?;
        let mut order = spilled.order.read(SPILL_BUFFER)?;
        let mut rows = SpillFile::create(self.folder, &format!("{name}-all"), SPILL_BUFFER)?;
        let progress = self.start("ordering rows", spilled.n_rows);
        let mut counter = progress.counter();
        for _ in 0..spilled.n_rows {
            counter.add(1);
            rows.write_u32(match order.read_u8()? {
                MISSING_BYTE => MISSING,
                WRONG_BYTE => WRONG,
                partition => readers[usize::from(partition)].read_u32()?,
            })?;
        }
        Ok(EndRows { file: Arc::new(rows.finish()?), start: 0, n_rows: spilled.n_rows })
    }
}

/// Keys in partitions.
struct Spilled {
    /// The file of each partition, its number of keys and the bytes of their text.
    files: Vec<(SpillFile, u64, u64)>,
    /// The partition of each row: a byte.
    order: SpillFile,
    n_rows: u64,
}

/// The writers of [`Spilled`].
struct Partitions {
    files: Vec<SpillWriter>,
    sizes: Vec<[u64; 2]>,
    order: SpillWriter,
}

impl Partitions {
    fn create(folder: &Path, name: &str, n_partitions: u64) -> Result<Self> {
        Ok(Self {
            files: (0..n_partitions)
                .map(|number| SpillFile::create(folder, &format!("{name}-part-{number}"), PARTITION_BUFFER))
                .collect::<Result<_>>()?,
            sizes: vec![[0; 2]; n_partitions as usize],
            order: SpillFile::create(folder, &format!("{name}-order"), SPILL_BUFFER)?,
        })
    }

    fn put(&mut self, partition: usize, key: &[u8], with_order: bool) -> Result<()> {
        self.files[partition].write_key(KeyRecord::Key(key))?;
        let [n_keys, text_bytes] = &mut self.sizes[partition];
        *n_keys += 1;
        *text_bytes += key.len() as u64;
        if with_order { self.order.write(&[partition as u8]) } else { Ok(()) }
    }

    fn finish(self, n_rows: u64) -> Result<Spilled> {
        let files = self.files.into_iter().zip(self.sizes);
        let files = files.map(|(file, [n_keys, text_bytes])| Ok((file.finish()?, n_keys, text_bytes)));
        Ok(Spilled { files: files.collect::<Result<_>>()?, order: self.order.finish()?, n_rows })
    }
}
