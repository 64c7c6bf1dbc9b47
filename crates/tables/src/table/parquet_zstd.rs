//! Parquet columns in zstd. The library has no decoder of zstd in Rust: it reads the pages as if they were not compressed, and they
//! are decompressed here.

use std::sync::Arc;

use bytes::Bytes;
use kiln_store::SourceReader;
use parquet::arrow::arrow_reader::RowGroups;
use parquet::basic::Compression;
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use super::parquet_pages::{PageSizes, page_at};
use super::source::ParquetSource;
use super::zstd;

/// The row groups of a file, some of whose columns are in zstd.
pub(super) struct ZstdRowGroups {
    pub(super) source: SourceReader,
    pub(super) metadata: Arc<ParquetMetaData>,
}

impl RowGroups for ZstdRowGroups {
    fn num_rows(&self) -> usize {
        usize::try_from(self.metadata.file_metadata().num_rows()).unwrap_or(0)
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        let metadata = self.metadata.clone();
        Ok(Box::new(ColumnChunks { source: self.source.clone(), metadata, column, row_group: 0 }))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(self.metadata.row_groups().iter())
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The pages of a column in each row group.
struct ColumnChunks {
    source: SourceReader,
    metadata: Arc<ParquetMetaData>,
    column: usize,
    row_group: usize,
}

impl PageIterator for ColumnChunks {}

impl Iterator for ColumnChunks {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        let row_group = self.metadata.row_groups().get(self.row_group)?;
        self.row_group += 1;
        let n_rows = usize::try_from(row_group.num_rows()).unwrap_or(0);
        Some(pages_of(&self.source, row_group.column(self.column), n_rows))
    }
}

/// Returns the pages of a column in a row group of `n_rows`.
pub(super) fn pages_of(
    source: &SourceReader,
    chunk: &ColumnChunkMetaData,
    n_rows: usize,
) -> Result<Box<dyn PageReader>> {
    let file = Arc::new(ParquetSource(source.from(0)));
    if !matches!(chunk.compression(), Compression::ZSTD(_)) {
        return Ok(Box::new(SerializedPageReader::new(file, chunk, n_rows, None)?));
    }
    let raw = chunk.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
    let offset = chunk.byte_range().0;
    let pages = SerializedPageReader::new(file, &raw, n_rows, None)?;
    Ok(Box::new(ZstdPages { pages, source: source.clone(), offset }))
}

/// The pages of a column in zstd.
struct ZstdPages {
    /// The pages as they are in the file.
    pages: SerializedPageReader<ParquetSource>,
    source: SourceReader,
    /// The position of the next page.
    offset: u64,
}

impl ZstdPages {
    /// Returns the sizes of the next page with values.
    fn next_sizes(&mut self) -> Result<PageSizes> {
        loop {
            let page = page_at(&self.source, self.offset);
            let page = page.ok_or_else(|| ParquetError::General("the header of a page is damaged".into()))?;
            self.offset += page.header_bytes + page.compressed;
            // The library returns no pages of indices.
            if !page.is_index() {
                return Ok(page);
            }
        }
    }
}

impl PageReader for ZstdPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(mut page) = self.pages.get_next_page()? else { return Ok(None) };
        let sizes = self.next_sizes()?;
        let n_bytes = usize::try_from(sizes.uncompressed)?;
        match &mut page {
            Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => {
                *buf = decompressed(buf, 0, n_bytes)?;
            }
            // Its levels are not compressed.
            Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, is_compressed, .. } => {
                let n_levels =
                    usize::try_from(*def_levels_byte_len)? + usize::try_from(*rep_levels_byte_len)?;
                if *is_compressed {
                    *buf = decompressed(buf, n_levels, n_bytes)?;
                }
            }
        }
        Ok(Some(page))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        // The page is decompressed in vain, which only a selection of rows would do.
        self.get_next_page().map(drop)
    }
}

impl Iterator for ZstdPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

/// Returns a page of `n_bytes`, whose bytes after the first `n_plain` are compressed.
fn decompressed(page: &Bytes, n_plain: usize, n_bytes: usize) -> Result<Bytes> {
    let damaged =
        || ParquetError::General("a page in zstd is damaged, or has another size than it states".into());
    let (plain, compressed) = page.split_at_checked(n_plain).ok_or_else(damaged)?;
    let n_values = n_bytes.checked_sub(n_plain).ok_or_else(damaged)?;
    if n_values == 0 {
        return Ok(page.slice(..n_plain));
    }
    let values = zstd::decompress(compressed, n_values, zstd::window_of(compressed)).ok_or_else(damaged)?;
    match plain.is_empty() {
        true => Ok(values.into()),
        false => Ok([plain, &values].concat().into()),
    }
}
