//! Sorts an edge list on disk into CSC arrays on disk, within a memory limit: a counting sort by destination whose
//! second pass is done in buckets of destinations that fit in memory.
//!
//! The first reading counts each node's in-edges. The nodes are divided into ranges, the buckets, whose edges fit in
//! the memory that the counts leave. The second reading appends each edge to the file of its bucket; then each bucket
//! in turn is read, sorted and appended to the arrays. If the number of buckets exceeds the number of files that may be
//! open, the buckets are divided into groups and the list is read once for each group. A group of one bucket needs no
//! file.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::ops::Range;
use std::path::PathBuf;

use half::{bf16, f16};
use kiln_feature::MAX_DIM;
use kiln_graph::{ColumnError, ColumnValues, EdgeColumn, EdgeColumns, SelfLoops};
use kiln_store::array_folder::{BUFFER_BYTES, ElementType, FolderWriter};
use kiln_store::io_error;
use kiln_store::progress::{Progress, ProgressUnit};

use super::csc_rows::CscRows;
use super::options::ConvertOptions;
use super::sorting::{Edge, Output, Sorter};
use crate::edges::{CHUNK_EDGES, ColumnFormat, EdgeChunk, EdgeSource};
use crate::graph_folder::column_file;
use crate::{Error, Result};

/// The memory of a conversion in addition to the counts and the buckets, in bytes: a chunk of edges (13 bytes each, with
/// weights and types) and the buffers of a compressed text file, of three arrays and of a bucket's file.
pub(super) const FIXED_BYTES: u64 = 13 * CHUNK_EDGES as u64 + 6 * BUFFER_BYTES as u64;

/// The maximum number of bucket files that are open at a time.
const MOST_OPEN_FILES: u64 = 256;

/// The minimum memory for buckets, in bytes.
pub(super) const LEAST_ROOM: u64 = 1 << 12;

/// The minimum size of the buffer of a bucket's file, in bytes.
const LEAST_FILE_BUFFER: u64 = 1 << 12;

/// The number of open files that the buckets leave for other purposes, such as the text file that each reading opens.
const SPARE_FILES: usize = 8;

/// The stage of a reading of the list after the first.
const READING: &str = "reading edges";

/// The path and the writer of the file that a bucket's edges are appended to.
type BucketFile = (PathBuf, BufWriter<File>);

/// The counts of a conversion, for [`ConvertReport`](super::ConvertReport).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) n_coo_edges: u64,
    pub(crate) n_edges: usize,
    pub(crate) n_duplicates: u64,
    pub(crate) n_buckets: usize,
    pub(crate) n_readings: usize,
}

/// Writes `indptr.npy`, `indices.npy` and a file for each column of the source, under the names and with the ids that `rows`
/// states. The graph is identical to the one that [`CscBuilder`](kiln_graph::CscBuilder) builds.
/// `held_bytes` of the memory limit are already in use.
pub(crate) fn write_csc(
    source: &dyn EdgeSource,
    held_bytes: u64,
    rows: CscRows,
    options: &ConvertOptions,
    set: &mut FolderWriter,
) -> Result<Written> {
    let n_nodes = rows.n_dsts;
    let mut conversion = Conversion::new(source, held_bytes, rows, options)?;
    conversion.count()?;
    let mut output = Output::create(set, rows, &conversion.columns)?;
    let mut written = Written { n_coo_edges: conversion.n_coo_edges, n_readings: 1, ..Written::default() };
    let n_sorted = conversion.counts.iter().sum::<u64>();
    let progress = Progress::start("sorting edges", ProgressUnit::Edges, n_sorted);
    let mut first_node = 0;
    while first_node < n_nodes {
        let mut buckets = conversion.next_buckets(first_node)?;
        let files = conversion.open_files(&mut buckets, set)?;
        first_node = buckets.last().map_or(n_nodes, |bucket| bucket.nodes.end);
        written.n_buckets += buckets.len();
        written.n_readings += usize::from(buckets.iter().any(|bucket| bucket.n_edges > 0));
        conversion.convert(&buckets, files, &mut output, &progress)?;
    }
    drop(progress);
    source.check_unchanged()?;
    written.n_duplicates = output.n_duplicates;
    written.n_edges = output.finish(&conversion.counts, set)?;
    Ok(written)
}

/// A range of destinations whose edges are sorted together.
#[derive(Debug, Clone, PartialEq)]
struct Bucket {
    nodes: Range<usize>,
    /// The number of edges before duplicates are removed and self loops are added.
    n_edges: usize,
}

struct Conversion<'a> {
    source: &'a dyn EdgeSource,
    rows: CscRows,
    options: &'a ConvertOptions,
    columns: Vec<ColumnFormat>,
    /// The number of bytes per edge in all columns.
    row_bytes: usize,
    /// One number per node. Until the node's bucket is sorted, this is the number of its in-edges before duplicates are
    /// removed and self loops are added; then it is the end of its edges in the arrays.
    counts: Vec<u64>,
    n_coo_edges: u64,
    /// The memory that is left for buckets, in bytes.
    room_bytes: u64,
}

impl<'a> Conversion<'a> {
    fn new(
        source: &'a dyn EdgeSource,
        held_bytes: u64,
        rows: CscRows,
        options: &'a ConvertOptions,
    ) -> Result<Self> {
        let budget_bytes = options.memory_bytes;
        let n_nodes = rows.n_dsts;
        let columns = source.columns();
        let row_bytes = columns.iter().map(ColumnFormat::row_bytes).sum();
        check_columns(options, &columns)?;
        let before_room = held_bytes + fixed_bytes(&columns) + 8 * n_nodes as u64;
        let needed_bytes = before_room + LEAST_ROOM;
        if budget_bytes < needed_bytes {
            let what = format!("the array of edge offsets of {n_nodes} nodes");
            return Err(Error::Memory { what, needed_bytes, budget_bytes });
        }
        Ok(Self {
            source,
            rows,
            options,
            columns,
            row_bytes,
            counts: vec![0; n_nodes],
            n_coo_edges: 0,
            room_bytes: budget_bytes - before_room,
        })
    }

    /// Counts the in-edges of each node, and checks that each node's edges fit in memory.
    fn count(&mut self) -> Result<()> {
        let (mut counts, mut n_coo_edges) = (std::mem::take(&mut self.counts), 0);
        self.for_each_chunk("counting edges", |chunk, n_before| {
            n_coo_edges = n_before + chunk.len() as u64;
            self.for_each_edge(chunk, |edge| {
                counts[edge.dst as usize] += 1;
                Ok(())
            })
        })?;
        (self.counts, self.n_coo_edges) = (counts, n_coo_edges);
        let hub = self.counts.iter().enumerate().max_by_key(|(_, n_edges)| **n_edges);
        let Some((node, &n_edges)) = hub.filter(|(_, n_edges)| self.most_edges() < **n_edges) else {
            return Ok(());
        };
        if u64::from(u32::MAX) < n_edges && self.row_bytes != 0 {
            let (what, max) = ("edges with columns into one node", u32::MAX.into());
            return Err(kiln_graph::Error::TooMany { what, n: n_edges, max }.into());
        }
        Err(Error::Memory {
            what: format!("sorting the {n_edges} edges into node {node}"),
            needed_bytes: self.options.memory_bytes - self.room_bytes + n_edges * self.edge_bytes(),
            budget_bytes: self.options.memory_bytes,
        })
    }

    /// Returns the number of bytes of memory that an edge takes while its bucket is sorted.
    fn edge_bytes(&self) -> u64 {
        Sorter::edge_bytes(self.row_bytes)
    }

    /// Returns the maximum number of edges of a bucket. With columns it is below 2^32, because a 32-bit number
    /// identifies the row of an edge.
    fn most_edges(&self) -> u64 {
        let fitting = self.room_bytes / self.edge_bytes();
        if self.row_bytes == 0 { fitting } else { fitting.min(u32::MAX.into()) }
    }

    /// Returns the next group of buckets, whose nodes start at `first_node`. The group has at most [`MOST_OPEN_FILES`]
    /// buckets, and fewer if the memory is too small for the buffers of so many files.
    fn next_buckets(&self, first_node: usize) -> Result<Vec<Bucket>> {
        let n_files = (self.room_bytes / LEAST_FILE_BUFFER).clamp(1, MOST_OPEN_FILES) as usize;
        let most_edges = self.most_edges();
        let mut buckets = Vec::with_capacity(n_files);
        let mut bucket = Bucket { nodes: first_node..first_node, n_edges: 0 };
        for (node, &n_edges) in self.counts.iter().enumerate().skip(first_node) {
            if most_edges < bucket.n_edges as u64 + n_edges {
                let next = Bucket { nodes: node..node, n_edges: 0 };
                buckets.push(std::mem::replace(&mut bucket, next));
                if buckets.len() == n_files {
                    return Ok(buckets);
                }
            }
            bucket.nodes.end = node + 1;
            bucket.n_edges += n_edges as usize;
        }
        buckets.push(bucket);
        Ok(buckets)
    }

    /// Reads the list once and appends the edges of these buckets to the arrays.
    fn convert(
        &mut self,
        buckets: &[Bucket],
        files: Vec<BucketFile>,
        output: &mut Output,
        progress: &Progress,
    ) -> Result<()> {
        let largest = buckets.iter().map(|bucket| bucket.n_edges).max().unwrap_or(0);
        if let [bucket] = buckets {
            let mut sorter = Sorter::new(self.row_bytes, largest);
            let mut counts = std::mem::take(&mut self.counts);
            sorter.start(&mut counts[bucket.nodes.clone()], bucket.nodes.start);
            if bucket.n_edges > 0 {
                self.for_each_chunk(READING, |chunk, _| {
                    self.for_each_edge(chunk, |edge| match bucket.nodes.contains(&(edge.dst as usize)) {
                        true => sorter.put(&mut counts[bucket.nodes.clone()], edge),
                        false => Ok(()),
                    })
                })?;
            }
            sorter.finish(&mut counts[bucket.nodes.clone()], self.options, output, progress)?;
            self.counts = counts;
            return Ok(());
        }
        let paths = self.spill(buckets, files)?;
        let mut sorter = Sorter::new(self.row_bytes, largest);
        for (bucket, path) in buckets.iter().zip(paths) {
            let counts = &mut self.counts[bucket.nodes.clone()];
            sorter.start(counts, bucket.nodes.start);
            read_edges(&path, self.row_bytes, |edge| sorter.put(counts, edge))?;
            sorter.finish(counts, self.options, output, progress)?;
            fs::remove_file(&path).map_err(io_error(&path))?;
        }
        Ok(())
    }

    /// Creates a file for each bucket; a single bucket needs none. If the operating system refuses to open more files,
    /// at least the last [`SPARE_FILES`] files are removed again. The buckets without a file are then removed from
    /// `buckets` and become part of the next group.
    fn open_files(&self, buckets: &mut Vec<Bucket>, set: &FolderWriter) -> Result<Vec<BucketFile>> {
        let mut files: Vec<BucketFile> = Vec::with_capacity(buckets.len());
        let buffer_bytes = (self.room_bytes as usize / buckets.len()).min(BUFFER_BYTES);
        let n_files = if buckets.len() > 1 { buckets.len() } else { 0 };
        while files.len() < n_files {
            let path = set.folder().join(format!("bucket-{}", files.len()));
            match File::create_new(&path) {
                Ok(file) => files.push((path, BufWriter::with_capacity(buffer_bytes, file))),
                Err(error) if has_too_many_files(&error) => {
                    let n_kept =
                        Some(files.len().saturating_sub(SPARE_FILES)).filter(|&n| n > 1).unwrap_or(0);
                    for (path, file) in files.drain(n_kept..) {
                        drop(file);
                        fs::remove_file(&path).map_err(io_error(&path))?;
                    }
                    buckets.truncate(n_kept.max(1));
                    break;
                }
                Err(error) => return Err(io_error(&path)(error).into()),
            }
        }
        Ok(files)
    }

    /// Appends each edge of these buckets to the file of its bucket.
    fn spill(&self, buckets: &[Bucket], mut files: Vec<BucketFile>) -> Result<Vec<PathBuf>> {
        let nodes = buckets[0].nodes.start..buckets[buckets.len() - 1].nodes.end;
        self.for_each_chunk(READING, |chunk, _| {
            self.for_each_edge(chunk, |edge| {
                let dst = edge.dst as usize;
                if !nodes.contains(&dst) {
                    return Ok(());
                }
                let bucket = buckets.partition_point(|bucket| bucket.nodes.end <= dst);
                let (path, file) = &mut files[bucket];
                Ok(write_edge(file, edge).map_err(io_error(path))?)
            })
        })?;
        let finish = |(path, mut file): BucketFile| -> Result<PathBuf> {
            file.flush().map_err(io_error(&path))?;
            Ok(path)
        };
        files.into_iter().map(finish).collect()
    }

    /// Checks each chunk of the list and calls `visit` with the chunk and the number of edges before it, as a stage of
    /// progress.
    fn for_each_chunk(
        &self,
        stage: &str,
        mut visit: impl FnMut(&EdgeChunk, u64) -> Result<()>,
    ) -> Result<()> {
        // The first reading counts the edges.
        let n_edges = Some(self.n_coo_edges).filter(|n_edges| *n_edges != 0);
        let progress = Progress::start(stage, ProgressUnit::Edges, n_edges);
        let (mut n_before, n_nodes) = (0, self.rows.n_srcs.max(self.rows.n_dsts));
        self.source.for_each_chunk(n_nodes, &mut |chunk| {
            check_chunk(chunk, n_before, self.rows, &self.columns)?;
            visit(chunk, n_before)?;
            n_before += chunk.len() as u64;
            progress.advance(chunk.len() as u64);
            Ok(())
        })
    }

    /// Calls `visit` with each edge of a chunk that becomes an edge of the graph: self loops are removed and reverse
    /// edges are added as the options require. The order is that of [`CscBuilder`](kiln_graph::CscBuilder): a reverse
    /// edge follows its edge.
    fn for_each_edge(&self, chunk: &EdgeChunk, mut visit: impl FnMut(Edge<'_>) -> Result<()>) -> Result<()> {
        let mut row = Vec::with_capacity(self.row_bytes);
        for position in 0..chunk.len() {
            let (src, dst) = (chunk.srcs[position], chunk.dsts[position]);
            row.clear();
            for (format, rows) in self.columns.iter().zip(&chunk.columns) {
                let row_bytes = format.row_bytes();
                row.extend_from_slice(&rows[position * row_bytes..][..row_bytes]);
            }
            let row = row.as_slice();
            if src != dst {
                visit(Edge { src, dst, row })?;
                if self.options.symmetrize {
                    visit(Edge { src: dst, dst: src, row })?;
                }
            } else if self.options.self_loops != SelfLoops::Remove {
                visit(Edge { src, dst, row })?;
            }
        }
        Ok(())
    }
}

/// Returns true if a file could not be opened because the process, or the whole system, has too many open files.
fn has_too_many_files(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    cfg!(unix) && matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

/// Checks the lengths and ids of a chunk: a program's own [`EdgeSource`] may be incorrect.
fn check_chunk(chunk: &EdgeChunk, n_before: u64, rows: CscRows, columns: &[ColumnFormat]) -> Result<()> {
    let n = chunk.len();
    let mut lengths = vec![("dsts", n, chunk.dsts.len()), ("columns", columns.len(), chunk.columns.len())];
    for (format, rows) in columns.iter().zip(&chunk.columns) {
        lengths.push(("the bytes of a column", n * format.row_bytes(), rows.len()));
    }
    for (what, expected, got) in lengths {
        if expected != got {
            let expected = expected as u64;
            let got = got as u64;
            return Err(kiln_graph::Error::LengthMismatch { what, expected, got }.into());
        }
    }
    for (edge, (&src, &dst)) in (n_before..).zip(chunk.srcs.iter().zip(&chunk.dsts)) {
        let out_of_range = match (rows.n_srcs <= src as usize, rows.n_dsts <= dst as usize) {
            (true, true) => Some((src.max(dst), rows.n_srcs.max(rows.n_dsts))),
            (true, false) => Some((src, rows.n_srcs)),
            (false, true) => Some((dst, rows.n_dsts)),
            (false, false) => None,
        };
        if let Some((node, n_nodes)) = out_of_range {
            return Err(kiln_graph::Error::NodeOutOfRange { edge, node, n_nodes }.into());
        }
    }
    Ok(())
}

fn write_edge(file: &mut BufWriter<File>, edge: Edge<'_>) -> io::Result<()> {
    file.write_all(&edge.dst.to_le_bytes())?;
    file.write_all(&edge.src.to_le_bytes())?;
    file.write_all(edge.row)
}

/// Calls `visit` with the edges of a bucket's file, in the order in which they were written.
fn read_edges(path: &PathBuf, row_bytes: usize, mut visit: impl FnMut(Edge<'_>) -> Result<()>) -> Result<()> {
    let file = File::open(path).map_err(io_error(path))?;
    let n_bytes = file.metadata().map_err(io_error(path))?.len();
    let mut bytes = vec![0; 8 + row_bytes];
    let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
    for _ in 0..n_bytes / bytes.len() as u64 {
        file.read_exact(&mut bytes).map_err(io_error(path))?;
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let dst = u32::from_le_bytes(word(0));
        let src = u32::from_le_bytes(word(4));
        visit(Edge { src, dst, row: &bytes[8..] })?;
    }
    Ok(())
}

/// Returns the memory of a conversion in addition to the counts and the buckets, in bytes. Rows of many values make chunks
/// larger than [`FIXED_BYTES`] contains.
fn fixed_bytes(columns: &[ColumnFormat]) -> u64 {
    const WEIGHT_AND_TYPE: usize = 5;
    let row_bytes: usize = columns.iter().map(ColumnFormat::row_bytes).sum();
    let more_arrays = columns.len().saturating_sub(2) * BUFFER_BYTES;
    FIXED_BYTES + (row_bytes.saturating_sub(WEIGHT_AND_TYPE) * CHUNK_EDGES + more_arrays) as u64
}

/// Checks the names, element types and widths of columns, and that no self loop is added to edges with a column in which it has no row.
fn check_columns(options: &ConvertOptions, columns: &[ColumnFormat]) -> Result<()> {
    let mut checked = EdgeColumns::default();
    for ColumnFormat { name, element, width } in columns {
        if checked.get(name).is_some() {
            return Err(kiln_graph::Error::from(ColumnError::Repeated { name: name.clone() }).into());
        }
        // A column without rows is checked as one with rows.
        let values: ColumnValues = match element {
            ElementType::U8 => Vec::<u8>::new().into(),
            ElementType::I64 => Vec::<i64>::new().into(),
            ElementType::F16 => Vec::<f16>::new().into(),
            ElementType::BF16 => Vec::<bf16>::new().into(),
            _ => Vec::<f32>::new().into(),
        };
        checked = checked.with(name, EdgeColumn::new(values, *width)?)?;
        if MAX_DIM < *width {
            return Err(kiln_feature::Error::TooManyColumns { dim: *width, max: MAX_DIM }.into());
        }
    }
    if options.self_loops != SelfLoops::Add {
        return Ok(());
    }
    match columns.iter().find(|format| format.row_of_added_loop().is_none()) {
        None => Ok(()),
        Some(format) => Err(Error::BadParameter {
            what: "the treatment of self loops",
            expected: "keep or remove, because an added loop would have no row in a column of the edges",
            got: format!("add, to edges with {}", column_file(&format.name)),
        }),
    }
}
