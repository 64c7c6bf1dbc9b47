//! The sizes of the pages of a Parquet column, before the library reads them.
//!
//! The library takes the memory that a page's header states, decompresses some codecs to whatever size they have, and joins texts
//! from a dictionary of any length to a batch. The headers (`PageHeader` of `parquet.thrift`) are read here first.

use std::io::{BufReader, Read};
use std::sync::Arc;

use kiln_store::SourceReader;
use parquet::basic::{Compression, Type};
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

use super::parquet_thrift::{Kind, Walk};
use super::source::ParquetSource;

/// The numbers of bytes at the start of a page in which its header is searched. Statistics may make it long.
const HEADER_BYTES: [u64; 3] = [1 << 10, 1 << 16, 1 << 24];

/// The fields of a page's header by their numbers.
const UNCOMPRESSED_SIZE: i16 = 2;
const COMPRESSED_SIZE: i16 = 3;
const DATA_PAGE: i16 = 5;
const DICTIONARY_PAGE: i16 = 7;
const DATA_PAGE_V2: i16 = 8;
/// The fields of the structures in it.
const N_VALUES: i16 = 1;
const ENCODING: i16 = 2;
const ENCODING_V2: i16 = 4;
const LEVEL_BYTES_V2: [i16; 2] = [5, 6];

const PAGE_HEADER: &[(i16, Kind)] = &[
    (1, Kind::Integer),
    (UNCOMPRESSED_SIZE, Kind::Integer),
    (COMPRESSED_SIZE, Kind::Integer),
    (4, Kind::Integer),
    (DATA_PAGE, Kind::Struct),
    (6, Kind::Struct),
    (DICTIONARY_PAGE, Kind::Struct),
    (DATA_PAGE_V2, Kind::Struct),
];

/// The encodings of texts by their numbers.
const DICTIONARIES: [i64; 2] = [2, 8];
const DELTA_BYTE_ARRAY: i64 = 7;

/// The bytes in memory for each value of a dictionary besides its text: offsets and lengths.
const ENTRY_BYTES: u64 = 16;

/// The number of bytes of a buffer.
const BUFFER_BYTES: usize = 1 << 16;

/// The largest ratio of sizes of the codec gzip (RFC 1951), rounded up.
const GZIP_RATIO: u64 = 1100;

/// The sizes of a column in a row group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ChunkSizes {
    /// The memory for its largest page and its dictionary in bytes.
    pub(super) page_bytes: u64,
    /// A bound of the length of texts per row, of those rows whose texts are longest.
    pub(super) text_bytes: u64,
}

/// A page by its header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PageSizes {
    header_bytes: u64,
    /// The number of bytes in the file, without the header.
    compressed: u64,
    /// The number of bytes of levels before the compressed bytes.
    levels: u64,
    uncompressed: u64,
    is_dictionary: bool,
    n_values: u64,
    encoding: i64,
}

/// Returns the sizes of a column in a row group of `n_rows`. Fails if it needs more than `most_bytes`, with the number of bytes that
/// it needs, or if it is damaged.
pub(super) fn sizes(
    source: &SourceReader,
    chunk: &ColumnChunkMetaData,
    n_rows: usize,
    most_bytes: u64,
) -> Result<ChunkSizes, SizesError> {
    let is_text = matches!(chunk.column_type(), Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY);
    let is_nested = chunk.column_descr().max_rep_level() > 0;
    // `byte_range` of the library panics for these.
    let offsets =
        [Some(chunk.data_page_offset()), chunk.dictionary_page_offset(), Some(chunk.compressed_size())];
    if offsets.into_iter().flatten().any(|offset| offset < 0) {
        return Err(SizesError::Damaged("its place in the file is damaged"));
    }
    let (start, n_bytes) = chunk.byte_range();
    let end = start.saturating_add(n_bytes).min(source.n_bytes());
    let mut offset = start;
    let mut largest = 0;
    let mut of_dictionary = 0;
    let mut dictionary_values = 0;
    let mut sizes = ChunkSizes::default();
    let mut has_indices = false;
    while offset < end {
        let page = page_at(source, offset).ok_or(SizesError::Damaged("the header of a page is damaged"))?;
        let data = offset + page.header_bytes;
        offset = data.saturating_add(page.compressed);
        if end < offset {
            return Err(SizesError::Damaged("a page exceeds its column"));
        }
        // The page, and its values if a batch has no other.
        let copies = if is_text { 2 } else { 1 };
        let needed = page.compressed + copies * page.uncompressed;
        if page.is_dictionary {
            of_dictionary = needed + page.n_values.saturating_mul(ENTRY_BYTES);
            dictionary_values = page.n_values;
            if page.uncompressed < page.n_values {
                return Err(SizesError::Damaged("a dictionary has more values than bytes"));
            }
        } else {
            largest = largest.max(needed);
        }
        let needed = of_dictionary.saturating_add(largest);
        if most_bytes < needed {
            return Err(SizesError::TooLarge(needed));
        }
        if !has_stated_size(source, chunk.compression(), data, page) {
            return Err(SizesError::Damaged("a page is larger than it states"));
        }
        match (is_text && !page.is_dictionary, page.encoding) {
            (false, _) => {}
            (true, encoding) if DICTIONARIES.contains(&encoding) => has_indices = true,
            // A value may be the one before with more text.
            (true, DELTA_BYTE_ARRAY) => sizes.text_bytes = sizes.text_bytes.max(page.uncompressed),
            (true, _) if is_nested => {}
            (true, _) => {
                let per_row = page.uncompressed.checked_div(page.n_values).unwrap_or(0);
                sizes.text_bytes = sizes.text_bytes.max(per_row);
            }
        }
    }
    sizes.page_bytes = of_dictionary.saturating_add(largest);
    if has_indices && dictionary_values > 0 && chunk.column_type() == Type::BYTE_ARRAY {
        let longest = longest_of_dictionary(source, chunk, n_rows)
            .ok_or(SizesError::Damaged("the dictionary of a column is damaged"))?;
        sizes.text_bytes = sizes.text_bytes.max(longest);
    }
    Ok(sizes)
}

/// The reason why the sizes of a column are none.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SizesError {
    Damaged(&'static str),
    /// The number of bytes in memory that the column needs.
    TooLarge(u64),
}

/// Returns the page at an offset; `None` if it has no header of a page.
fn page_at(source: &SourceReader, offset: u64) -> Option<PageSizes> {
    HEADER_BYTES.into_iter().find_map(|n_bytes| {
        let mut bytes = Vec::new();
        source.from(offset).take(n_bytes).read_to_end(&mut bytes).ok()?;
        page_header(&bytes)
    })
}

/// Reads a page's header.
fn page_header(bytes: &[u8]) -> Option<PageSizes> {
    let mut walk = Walk { bytes };
    let mut page = PageSizes::default();
    let mut last = 0;
    let mut previous = 0;
    while let Some((id, kind)) = walk.known_field(&mut last, PAGE_HEADER)? {
        // The library would take the last of two values, or the first one.
        if id <= previous {
            return None;
        }
        previous = id;
        match id {
            UNCOMPRESSED_SIZE => page.uncompressed = size(walk.zigzag()?)?,
            COMPRESSED_SIZE => page.compressed = size(walk.zigzag()?)?,
            DATA_PAGE | DICTIONARY_PAGE | DATA_PAGE_V2 => {
                page.is_dictionary = id == DICTIONARY_PAGE;
                let encoding = if id == DATA_PAGE_V2 { ENCODING_V2 } else { ENCODING };
                read_page(&mut walk, &mut page, encoding)?;
            }
            _ => walk.skip(kind, false)?,
        }
    }
    page.header_bytes = (bytes.len() - walk.bytes.len()) as u64;
    Some(page)
}

/// Reads the structure of a page's kind, whose encoding has this number.
fn read_page(walk: &mut Walk<'_>, page: &mut PageSizes, encoding: i16) -> Option<()> {
    let mut last = 0;
    while let Some((id, kind)) = walk.field(&mut last)? {
        match (id, kind) {
            (N_VALUES, Kind::Integer) => page.n_values = size(walk.zigzag()?)?,
            (id, Kind::Integer) if id == encoding => page.encoding = walk.zigzag()?,
            (id, Kind::Integer) if encoding == ENCODING_V2 && LEVEL_BYTES_V2.contains(&id) => {
                page.levels += size(walk.zigzag()?)?;
            }
            _ => walk.skip(kind, false)?,
        }
    }
    Some(())
}

/// Returns a number of 32 bits that is not negative.
fn size(value: i64) -> Option<u64> {
    i32::try_from(value).ok().and_then(|value| u64::try_from(value).ok())
}

/// Returns true if a page is not larger than its header states, for codecs that the library decompresses to their end.
fn has_stated_size(source: &SourceReader, codec: Compression, data: u64, page: PageSizes) -> bool {
    let n_bytes = page.compressed.saturating_sub(page.levels);
    let compressed = || BufReader::with_capacity(BUFFER_BYTES, source.from(data + page.levels).take(n_bytes));
    let mut decoder: Box<dyn Read> = match codec {
        Compression::GZIP(_) if n_bytes.saturating_mul(GZIP_RATIO) <= page.uncompressed => return true,
        Compression::GZIP(_) => Box::new(flate2::bufread::MultiGzDecoder::new(compressed())),
        #[cfg(feature = "brotli")]
        Compression::BROTLI(_) => Box::new(brotli::Decompressor::new(compressed(), BUFFER_BYTES)),
        // Frames are one of the formats that the library tries for this codec, and the only one that it does not bound.
        #[cfg(feature = "lz4")]
        Compression::LZ4 => Box::new(lz4_flex::frame::FrameDecoder::new(compressed())),
        _ => return true,
    };
    let most = page.uncompressed.saturating_sub(page.levels);
    let mut n_decompressed = 0;
    let mut buffer = vec![0; BUFFER_BYTES];
    while n_decompressed <= most {
        match decoder.read(&mut buffer) {
            // The library reports what is damaged.
            Ok(0) | Err(_) => return true,
            Ok(n_bytes) => n_decompressed += n_bytes as u64,
        }
    }
    false
}

/// Returns the length of the longest text of a dictionary; `None` if it is damaged. The pages were checked.
fn longest_of_dictionary(source: &SourceReader, chunk: &ColumnChunkMetaData, n_rows: usize) -> Option<u64> {
    let file = Arc::new(ParquetSource(source.from(0)));
    let mut pages = SerializedPageReader::new(file, chunk, n_rows, None).ok()?;
    let Ok(Some(Page::DictionaryPage { buf, num_values, .. })) = pages.get_next_page() else { return None };
    let mut bytes = &buf[..];
    let mut longest = 0;
    for _ in 0..num_values {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length);
        bytes = rest.get(length as usize..)?;
        longest = longest.max(length.into());
    }
    Some(longest)
}
