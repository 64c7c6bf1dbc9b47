use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, make_array};
use arrow_schema::DataType;
use kiln_store::SourceReader;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::{ProjectionMask, parquet_to_arrow_field_levels, parquet_to_arrow_schema};
use parquet::basic::Compression;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};

use super::batch::{BATCH_BYTES, BATCH_ROWS, TableBatch};
use super::cell::BatchColumn;
use super::files::TablePath;
use super::limit::{MAX_RECORD_BYTES, ReadLimit};
use super::missing::MissingTexts;
use super::parquet_footer::check_depth;
use super::parquet_pages::{self, ChunkSizes};
use super::parquet_zstd::{ZstdRowGroups, pages_of};
use super::sizes::TableSizes;
use super::source::{ParquetSource, SourceFiles};
use super::table_source::{ColumnPlace, TableSource};
use crate::{Error, Result, TableFileError};

/// The number of bytes of a batch whose rows have the longest texts of the file.
const WORST_BATCH_BYTES: u64 = 4 << 20;

/// The number of bytes per value besides those of the file: an offset, a bit that marks missing ones, and wider numbers.
const VALUE_BYTES: u64 = 16;

/// Columns of a Parquet file.
pub(super) struct ParquetFile {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
    places: Vec<ColumnPlace>,
    /// The position of each wanted column of the file in the batches of the reader.
    order: Vec<usize>,
    /// The type of each wanted column whose values are integers for Parquet and something else for Arrow.
    meanings: Vec<Option<DataType>>,
    missing: Arc<MissingTexts>,
    /// The number of rows that the file states.
    stated_rows: i64,
    sizes: TableSizes,
}

impl ParquetFile {
    /// Returns the names of the columns of a file.
    pub(super) fn names(path: &Path, sources: &SourceFiles) -> Result<Vec<String>> {
        let source = sources.open(path)?;
        check_depth(&source).map_err(|message| bad_file(path, message))?;
        guarded(path, || Ok(names_of(&builder_of(path, &source)?)))?
    }

    /// Returns the entries of the metadata of a file: names and texts.
    pub(super) fn entries(path: &Path, sources: &SourceFiles) -> Result<Vec<(String, String)>> {
        let source = sources.open(path)?;
        check_depth(&source).map_err(|message| bad_file(path, message))?;
        guarded(path, || {
            let builder = builder_of(path, &source)?;
            let entries = builder.metadata().file_metadata().key_value_metadata();
            let entries = entries.into_iter().flatten();
            Ok(entries.filter_map(|entry| Some((entry.key.clone(), entry.value.clone()?))).collect())
        })?
    }

    pub(super) fn open(table: &TableSource, file: &TablePath, columns: &[String]) -> Result<Self> {
        let path = &file.path;
        let source = table.sources.open(path)?;
        check_depth(&source).map_err(|message| bad_file(path, message))?;
        guarded(path, || Self::open_source(table, file, source, columns))?
    }

    fn open_source(
        table: &TableSource,
        file: &TablePath,
        source: SourceReader,
        columns: &[String],
    ) -> Result<Self> {
        let TableSource { sources, missing, .. } = table;
        let path = &file.path;
        let builder = builder_of(path, &source)?;
        let places = table.places(file, columns, &names_of(&builder))?;
        let columns: Vec<String> = columns
            .iter()
            .zip(&places)
            .filter(|(_, place)| place.position().is_some())
            .map(|(column, _)| column.clone())
            .collect();
        let columns = &columns[..];
        let positions: Vec<usize> = places.iter().filter_map(ColumnPlace::position).collect();
        check_codecs(path, &builder, &positions, columns)?;
        let meanings = meanings(path, &builder, &positions)?;
        let stated_rows = builder.metadata().file_metadata().num_rows();
        let mask = ProjectionMask::roots(builder.parquet_schema(), positions.iter().copied());
        let mut sorted = positions.clone();
        sorted.sort_unstable();
        let order =
            positions.iter().map(|position| sorted.partition_point(|other| other < position)).collect();
        let sizes = sizes_of(path, sources, &source, &builder, &sorted)?;
        let n_batch_rows =
            batch_rows(path, &builder, &sorted)?.min(WORST_BATCH_BYTES / sizes.text_bytes.max(1));
        let reader = reader_of(builder, source, mask, n_batch_rows.max(1) as usize)
            .map_err(|error| bad_file(path, error))?;
        let path = path.to_owned();
        Ok(Self { path, reader, places, order, meanings, missing: missing.clone(), stated_rows, sizes })
    }

    /// Returns where the wanted columns are.
    pub(super) fn places(&self) -> &[ColumnPlace] {
        &self.places
    }

    /// Returns the memory for the largest pages of the file in bytes.
    pub(super) fn reading_bytes(&self) -> u64 {
        self.sizes.reading_bytes
    }

    /// Returns the number of rows that the file states; `None` if that is no number of rows.
    pub(super) fn n_rows(&self) -> Option<u64> {
        u64::try_from(self.stated_rows).ok()
    }

    /// Checks that the file had as many rows as it states.
    pub(super) fn check_end(&self, n_rows: u64) -> Result<()> {
        match self.n_rows() == Some(n_rows) {
            true => Ok(()),
            false => {
                let message =
                    format!("it states {} rows, and has {n_rows}: write it again", self.stated_rows);
                Err(bad_file(&self.path, message))
            }
        }
    }

    pub(super) fn next_batch(&mut self, first_row: u64) -> Result<Option<TableBatch>> {
        let Some(batch) = guarded(&self.path, || self.reader.next())? else { return Ok(None) };
        let batch: RecordBatch = batch.map_err(|error| bad_file(&self.path, error))?;
        let mut of_file = self.order.iter().zip(&self.meanings);
        let mut columns = Vec::with_capacity(self.places.len());
        for place in &self.places {
            columns.push(match place.same() {
                Some(same) => same,
                None => {
                    let (position, meaning) =
                        of_file.next().expect("a column of the file should have a position");
                    let array = batch.column(*position).clone();
                    let array = match meaning {
                        Some(meaning) => with_type(&array, meaning.clone()),
                        None => Ok(array),
                    };
                    BatchColumn::Arrow(array.map_err(|error| bad_file(&self.path, error))?)
                }
            });
        }
        Ok(Some(TableBatch::new(&self.path, first_row, batch.num_rows(), columns, &self.missing)))
    }
}

/// Returns the builder of a reader. The schema of Arrow in the metadata is ignored: it adds types that mean the same.
fn builder_of(path: &Path, source: &SourceReader) -> Result<ParquetRecordBatchReaderBuilder<ParquetSource>> {
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let source = ParquetSource(source.clone());
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(source, options);
    builder.map_err(|error| bad_file(path, error))
}

/// Returns the reader of some columns. Only files with columns in zstd take the way of their decoder.
fn reader_of(
    builder: ParquetRecordBatchReaderBuilder<ParquetSource>,
    source: SourceReader,
    mask: ProjectionMask,
    n_batch_rows: usize,
) -> Result<ParquetRecordBatchReader, parquet::errors::ParquetError> {
    let metadata = builder.metadata().clone();
    let mut chunks = metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
    if !chunks.any(|chunk| matches!(chunk.compression(), Compression::ZSTD(_))) {
        return builder.with_projection(mask).with_batch_size(n_batch_rows).build();
    }
    let levels = parquet_to_arrow_field_levels(builder.parquet_schema(), mask, None)?;
    let row_groups = ZstdRowGroups { source, metadata };
    ParquetRecordBatchReader::try_new_with_row_groups(&levels, &row_groups, n_batch_rows, None)
}

fn names_of(builder: &ParquetRecordBatchReaderBuilder<ParquetSource>) -> Vec<String> {
    builder.schema().fields().iter().map(|field| field.name().clone()).collect()
}

/// Returns the types of columns that are integers without the schema of Arrow in the metadata, such as durations. Without
/// it, their values would be numbers of an unknown unit.
fn meanings(
    path: &Path,
    builder: &ParquetRecordBatchReaderBuilder<ParquetSource>,
    positions: &[usize],
) -> Result<Vec<Option<DataType>>> {
    let metadata = builder.metadata().file_metadata().key_value_metadata();
    // The reader ignores a schema of Arrow that cannot be read, too.
    let Ok(written) = parquet_to_arrow_schema(builder.parquet_schema(), metadata) else {
        return Ok(vec![None; positions.len()]);
    };
    let meaning = |position: &usize| {
        let is_integer = builder.schema().field(*position).data_type().is_integer();
        let Some(field) = written.fields().get(*position).filter(|_| is_integer) else { return Ok(None) };
        match (field.extension_type_name(), field.data_type()) {
            (Some(name), _) => Err(bad_file(
                path,
                format!("column {:?} has the type {name}: write it as text or as a number", field.name()),
            )),
            (None, meaning @ (DataType::Duration(_) | DataType::Date64 | DataType::Timestamp(..))) => {
                Ok(Some(meaning.clone()))
            }
            (None, _) => Ok(None),
        }
    };
    positions.iter().map(meaning).collect()
}

/// Returns the values of an array as those of a type of the same width.
fn with_type(array: &ArrayRef, data_type: DataType) -> Result<ArrayRef, arrow_schema::ArrowError> {
    Ok(make_array(array.to_data().into_builder().data_type(data_type).build()?))
}

/// Returns the number of rows of a batch, whose wanted columns take about [`BATCH_BYTES`]. It follows from the sizes in the
/// metadata: the uncompressed size of each column, or the size of its texts without a dictionary, if the file states it.
fn batch_rows(
    path: &Path,
    builder: &ParquetRecordBatchReaderBuilder<ParquetSource>,
    positions: &[usize],
) -> Result<u64> {
    let schema = builder.parquet_schema();
    let mut n_batch_rows = BATCH_ROWS as u64;
    for row_group in builder.metadata().row_groups() {
        let mut n_bytes = 0_u64;
        for (leaf, chunk) in row_group.columns().iter().enumerate() {
            if positions.binary_search(&schema.get_column_root_idx(leaf)).is_err() {
                continue;
            }
            let positive = |value: i64| u64::try_from(value).unwrap_or(0);
            let of_texts = chunk.unencoded_byte_array_data_bytes().map_or(0, positive);
            let of_values = positive(chunk.num_values()).saturating_mul(VALUE_BYTES);
            let of_column = positive(chunk.uncompressed_size()).max(of_texts).saturating_add(of_values);
            n_bytes = n_bytes.saturating_add(of_column);
        }
        let n_rows = u64::try_from(row_group.num_rows()).unwrap_or(0);
        let row_bytes = n_bytes.checked_div(n_rows).unwrap_or(0);
        if MAX_RECORD_BYTES <= row_bytes {
            let table = path.display().to_string();
            let what = format!("a row group has {row_bytes} bytes per row");
            return Err(Error::TooLarge { table, what, max: MAX_RECORD_BYTES });
        }
        n_batch_rows = n_batch_rows.min(BATCH_BYTES as u64 / row_bytes.max(1));
    }
    Ok(n_batch_rows)
}

/// Returns the sizes of the columns at these positions.
fn sizes_of(
    path: &Path,
    sources: &SourceFiles,
    source: &SourceReader,
    builder: &ParquetRecordBatchReaderBuilder<ParquetSource>,
    positions: &[usize],
) -> Result<TableSizes> {
    if sources.limit() == ReadLimit::NONE {
        return Ok(TableSizes::default());
    }
    if let Some(sizes) = sources.sizes.get(path, positions) {
        return Ok(sizes);
    }
    let schema = builder.parquet_schema();
    let mut sizes = TableSizes::default();
    let mut first_row = 0;
    for row_group in builder.metadata().row_groups() {
        let n_rows = usize::try_from(row_group.num_rows()).unwrap_or(0);
        let wanted: Vec<&ColumnChunkMetaData> = (0..row_group.num_columns())
            .filter(|leaf| positions.binary_search(&schema.get_column_root_idx(*leaf)).is_ok())
            .map(|leaf| row_group.column(leaf))
            .collect();
        let place = |chunk: &ColumnChunkMetaData, message: &str| {
            let column = chunk.column_path();
            bad_file(path, format!("column {column}, row group from row {}: {message}", first_row + 1))
        };
        let of_chunks = wanted
            .iter()
            .map(|chunk| parquet_pages::sizes(source, chunk).map_err(|message| place(chunk, message)))
            .collect::<Result<Vec<ChunkSizes>>>()?;
        let compressed_bytes = of_chunks.iter().map(|chunk| chunk.compressed_bytes).max().unwrap_or(0);
        let page_bytes = of_chunks
            .iter()
            .fold(compressed_bytes, |n_bytes, chunk| n_bytes.saturating_add(chunk.page_bytes));
        if let Some(error) = sources.limit().large_pages(path, first_row as u64 + 1, page_bytes) {
            return Err(error);
        }
        let mut text_bytes = 0_u64;
        for (chunk, of_chunk) in wanted.into_iter().zip(of_chunks) {
            let of_texts = parquet_pages::check_pages(source, chunk, n_rows, of_chunk, pages_of);
            text_bytes = text_bytes.saturating_add(of_texts.map_err(|message| place(chunk, message))?);
        }
        first_row += n_rows;
        sizes.reading_bytes = sizes.reading_bytes.max(page_bytes);
        sizes.text_bytes = sizes.text_bytes.max(text_bytes);
    }
    sources.sizes.insert(path, positions, sizes);
    Ok(sizes)
}

/// Checks that the codec of each wanted column is built in, because the reader reports it without its name.
fn check_codecs(
    path: &Path,
    builder: &ParquetRecordBatchReaderBuilder<ParquetSource>,
    positions: &[usize],
    columns: &[String],
) -> Result<()> {
    let schema = builder.parquet_schema();
    for row_group in builder.metadata().row_groups() {
        for (leaf, chunk) in row_group.columns().iter().enumerate() {
            let root = schema.get_column_root_idx(leaf);
            let Some(column) = positions.iter().position(|position| *position == root) else { continue };
            let feature = match chunk.compression() {
                Compression::UNCOMPRESSED => continue,
                Compression::SNAPPY if cfg!(feature = "snappy") => continue,
                Compression::GZIP(_) if cfg!(feature = "gzip") => continue,
                Compression::LZ4 | Compression::LZ4_RAW if cfg!(feature = "lz4") => continue,
                Compression::BROTLI(_) if cfg!(feature = "brotli") => continue,
                Compression::ZSTD(_) => continue,
                Compression::SNAPPY => "snappy",
                Compression::GZIP(_) => "gzip",
                Compression::LZ4 | Compression::LZ4_RAW => "lz4",
                Compression::BROTLI(_) => "brotli",
                _ => "none: it is not supported",
            };
            let codec = chunk.compression().to_string();
            return Err(Error::TableFile(TableFileError::Codec {
                path: path.to_owned(),
                column: columns[column].clone(),
                codec,
                feature,
            }));
        }
    }
    Ok(())
}

/// Calls a function of the Parquet library. A panic on a damaged file becomes an error.
fn guarded<T>(path: &Path, run: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|_| bad_file(path, "the file is damaged"))
}

fn bad_file(path: &Path, error: impl ToString) -> Error {
    Error::TableFile(TableFileError::Parquet { path: path.to_owned(), message: error.to_string() })
}
