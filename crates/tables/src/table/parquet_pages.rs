//! The sizes of the pages of a Parquet column, before the library reads them.
//!
//! The library takes the memory that a page's header states, decompresses some codecs to whatever size they have, and joins texts
//! from a dictionary of any length to a batch. The headers (`PageHeader` of `parquet.thrift`) are read here first.

use std::io::{BufReader, Read};

use kiln_store::SourceReader;
use parquet::basic::{Compression, Type};
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::ColumnChunkMetaData;

use super::parquet_thrift::{Kind, Walk};
use super::zstd;

/// The numbers of bytes at the start of a page in which its header is searched. Statistics may make it long.
const HEADER_BYTES: [u64; 3] = [1 << 10, 1 << 16, 1 << 24];

/// The fields of a page's header by their numbers.
const TYPE: i16 = 1;
const UNCOMPRESSED_SIZE: i16 = 2;
const COMPRESSED_SIZE: i16 = 3;
const DATA_PAGE: i16 = 5;
const INDEX_PAGE: i16 = 6;
const DICTIONARY_PAGE: i16 = 7;
const DATA_PAGE_V2: i16 = 8;

/// The field with the structure of each type of page, by the type.
const STRUCTURES: [i16; 4] = [DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2];

/// The fields of the structures.
const N_VALUES: i16 = 1;
const ENCODING: i16 = 2;
const ENCODING_V2: i16 = 4;
const LEVEL_BYTES_V2: [i16; 2] = [5, 6];

/// The library reads a field that it knows as its type, whatever the file says: another one would hide what follows.
const PAGE_HEADER: &[(i16, Kind)] = &[
    (TYPE, Kind::Integer),
    (UNCOMPRESSED_SIZE, Kind::Integer),
    (COMPRESSED_SIZE, Kind::Integer),
    (4, Kind::Integer),
    (DATA_PAGE, Kind::Struct),
    (INDEX_PAGE, Kind::Struct),
    (DICTIONARY_PAGE, Kind::Struct),
    (DATA_PAGE_V2, Kind::Struct),
];
const OF_DATA_PAGE: &[(i16, Kind)] = &[
    (N_VALUES, Kind::Integer),
    (ENCODING, Kind::Integer),
    (3, Kind::Integer),
    (4, Kind::Integer),
    (5, Kind::Struct),
];
const OF_DICTIONARY_PAGE: &[(i16, Kind)] =
    &[(N_VALUES, Kind::Integer), (ENCODING, Kind::Integer), (3, Kind::Bool)];
const OF_DATA_PAGE_V2: &[(i16, Kind)] = &[
    (N_VALUES, Kind::Integer),
    (2, Kind::Integer),
    (3, Kind::Integer),
    (ENCODING_V2, Kind::Integer),
    (5, Kind::Integer),
    (6, Kind::Integer),
    (7, Kind::Bool),
    (8, Kind::Struct),
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

/// Returns the decompressed pages of a column in a row group of a number of rows.
pub(super) type OpenPages =
    fn(&SourceReader, &ColumnChunkMetaData, usize) -> parquet::errors::Result<Box<dyn PageReader>>;

/// The sizes of a column in a row group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ChunkSizes {
    /// The memory for its largest page and its dictionary in bytes, without the compressed page.
    pub(super) page_bytes: u64,
    /// The length of its largest compressed page, with the memory of its decoder, while it is decompressed.
    pub(super) compressed_bytes: u64,
    /// A bound of the length of texts per row, without that of a dictionary.
    text_bytes: u64,
    /// True if a page has positions in a dictionary of texts.
    has_indices: bool,
}

/// A page by its header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PageSizes {
    pub(super) header_bytes: u64,
    /// The number of bytes in the file, without the header.
    pub(super) compressed: u64,
    /// The number of bytes of levels before the compressed bytes.
    levels: u64,
    pub(super) uncompressed: u64,
    /// The number of the field with its structure.
    structure: i16,
    n_values: u64,
    encoding: i64,
}

impl PageSizes {
    /// Returns true for a page without values.
    pub(super) fn is_index(&self) -> bool {
        self.structure == INDEX_PAGE
    }
}

/// Returns the sizes of a column in a row group by the headers of its pages, or what is damaged.
pub(super) fn sizes(source: &SourceReader, chunk: &ColumnChunkMetaData) -> Result<ChunkSizes, &'static str> {
    let is_text = matches!(chunk.column_type(), Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY);
    let is_nested = chunk.column_descr().max_rep_level() > 0;
    let is_compressed = chunk.compression() != Compression::UNCOMPRESSED;
    let mut sizes = ChunkSizes::default();
    // Values of a fixed length, of which a dictionary may have one for many rows.
    if chunk.column_type() == Type::FIXED_LEN_BYTE_ARRAY {
        sizes.text_bytes = u64::try_from(chunk.column_descr().type_length()).unwrap_or(0);
    }
    let mut largest = 0;
    let mut of_dictionary = 0;
    for_each_page(source, chunk, |data, page| {
        // The page, and its values if a batch has no other.
        let copies = if is_text { 2 } else { 1 };
        let needed = copies * page.uncompressed;
        if is_compressed {
            let of_decoder = decoder_bytes(source, chunk.compression(), data + page.levels);
            sizes.compressed_bytes = sizes.compressed_bytes.max(page.compressed.saturating_add(of_decoder));
        }
        if page.structure == DICTIONARY_PAGE {
            let entry_bytes = if chunk.column_type() == Type::BYTE_ARRAY { ENTRY_BYTES } else { 0 };
            of_dictionary = of_dictionary.max(needed + page.n_values.saturating_mul(entry_bytes));
            if page.uncompressed < page.n_values && chunk.column_type() == Type::BYTE_ARRAY {
                return Err("a dictionary has more values than bytes");
            }
            return Ok(());
        }
        largest = largest.max(needed);
        match page.encoding {
            _ if chunk.column_type() != Type::BYTE_ARRAY => {}
            encoding if DICTIONARIES.contains(&encoding) => sizes.has_indices = true,
            // A value may be the one before with more text.
            DELTA_BYTE_ARRAY => sizes.text_bytes = sizes.text_bytes.max(page.uncompressed),
            _ if is_nested => {}
            _ => {
                let per_row = page.uncompressed.checked_div(page.n_values).unwrap_or(0);
                sizes.text_bytes = sizes.text_bytes.max(per_row);
            }
        }
        Ok(())
    })?;
    sizes.page_bytes = of_dictionary.saturating_add(largest);
    Ok(sizes)
}

/// Returns the memory for the decoder of a page whose compressed bytes are at an offset.
fn decoder_bytes(source: &SourceReader, codec: Compression, offset: u64) -> u64 {
    match codec {
        Compression::ZSTD(_) => zstd::decoder_bytes(zstd::window_at(source, offset)),
        _ => 0,
    }
}

/// Checks that no page of a column is larger than its header states, and returns a bound of the length of texts per row. The row group
/// has `n_rows`, and the pages fit in memory.
pub(super) fn check_pages(
    source: &SourceReader,
    chunk: &ColumnChunkMetaData,
    n_rows: usize,
    sizes: ChunkSizes,
    open_pages: OpenPages,
) -> Result<u64, &'static str> {
    let is_decompressed_to_its_end =
        matches!(chunk.compression(), Compression::GZIP(_) | Compression::BROTLI(_) | Compression::LZ4);
    if is_decompressed_to_its_end {
        for_each_page(source, chunk, |data, page| {
            match has_stated_size(source, chunk.compression(), data, page) {
                true => Ok(()),
                false => Err("a page is larger than it states"),
            }
        })?;
    }
    let mut text_bytes = sizes.text_bytes;
    if sizes.has_indices {
        let pages = open_pages(source, chunk, n_rows).ok();
        let longest = pages.and_then(longest_of_dictionary);
        text_bytes = text_bytes.max(longest.ok_or("the dictionary of a column is damaged")?);
    }
    // A row of a list has several texts.
    let n_values = u64::try_from(chunk.num_values()).unwrap_or(0);
    Ok(match chunk.column_descr().max_rep_level() {
        0 => text_bytes,
        _ => text_bytes.saturating_mul(n_values.div_ceil(n_rows.max(1) as u64)),
    })
}

/// Calls `visit` with each page of a column, and the position after its header.
fn for_each_page(
    source: &SourceReader,
    chunk: &ColumnChunkMetaData,
    mut visit: impl FnMut(u64, PageSizes) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    // `byte_range` of the library panics for these.
    let offsets =
        [Some(chunk.data_page_offset()), chunk.dictionary_page_offset(), Some(chunk.compressed_size())];
    if offsets.into_iter().flatten().any(|offset| offset < 0) {
        return Err("its place in the file is damaged");
    }
    let (start, n_bytes) = chunk.byte_range();
    let end = start.saturating_add(n_bytes).min(source.n_bytes());
    let mut offset = start;
    while offset < end {
        let page = page_at(source, offset)
            .ok_or("the header of a page is damaged, or encrypted, which is not supported")?;
        let data = offset + page.header_bytes;
        offset = data.saturating_add(page.compressed);
        if end < offset {
            return Err("a page exceeds its column");
        }
        visit(data, page)?;
    }
    Ok(())
}

/// Returns the page at an offset; `None` if it has no header of a page.
pub(super) fn page_at(source: &SourceReader, offset: u64) -> Option<PageSizes> {
    HEADER_BYTES.into_iter().find_map(|n_bytes| {
        let mut bytes = Vec::new();
        source.from(offset).take(n_bytes).read_to_end(&mut bytes).ok()?;
        page_header(&bytes)
    })
}

/// Reads a page's header. It has the structure of its type and no other, and each field once and in the order of the numbers, as
/// Thrift writes them: of two values, the library would take another one.
fn page_header(bytes: &[u8]) -> Option<PageSizes> {
    let mut walk = Walk { bytes };
    let mut page = PageSizes::default();
    let mut page_type = None;
    let mut last = 0;
    let mut previous = 0;
    while let Some((id, kind)) = walk.known_field(&mut last, PAGE_HEADER)? {
        if id <= previous {
            return None;
        }
        previous = id;
        match id {
            TYPE => page_type = Some(walk.zigzag()?),
            UNCOMPRESSED_SIZE => page.uncompressed = size(walk.zigzag()?)?,
            COMPRESSED_SIZE => page.compressed = size(walk.zigzag()?)?,
            _ if STRUCTURES.contains(&id) => {
                if page.structure != 0 {
                    return None;
                }
                page.structure = id;
                read_structure(&mut walk, &mut page)?;
            }
            _ => walk.skip(kind, false)?,
        }
    }
    let expected = STRUCTURES.get(usize::try_from(page_type?).ok()?)?;
    page.header_bytes = (bytes.len() - walk.bytes.len()) as u64;
    (page.structure == *expected).then_some(page)
}

/// Reads the structure of a page.
fn read_structure(walk: &mut Walk<'_>, page: &mut PageSizes) -> Option<()> {
    let (known, encoding) = match page.structure {
        DATA_PAGE => (OF_DATA_PAGE, ENCODING),
        DICTIONARY_PAGE => (OF_DICTIONARY_PAGE, ENCODING),
        DATA_PAGE_V2 => (OF_DATA_PAGE_V2, ENCODING_V2),
        _ => (&[][..], ENCODING),
    };
    let mut last = 0;
    let mut previous = 0;
    while let Some((id, kind)) = walk.known_field(&mut last, known)? {
        if id <= previous {
            return None;
        }
        previous = id;
        match (id, kind) {
            (N_VALUES, Kind::Integer) => page.n_values = size(walk.zigzag()?)?,
            (id, Kind::Integer) if id == encoding => page.encoding = walk.zigzag()?,
            (id, Kind::Integer) if page.structure == DATA_PAGE_V2 && LEVEL_BYTES_V2.contains(&id) => {
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
fn longest_of_dictionary(mut pages: Box<dyn PageReader>) -> Option<u64> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a page of a type, of 100 bytes in 50, with these fields after the sizes.
    fn header(page_type: u8, fields: &[&[u8]]) -> Vec<u8> {
        [&[0x15, 2 * page_type, 0x15, 0xc8, 1, 0x15, 100][..], &fields.concat(), &[0]].concat()
    }

    /// A data page of 3 values in the encoding 8, and a dictionary of 4 values.
    const DATA: &[u8] = &[0x2c, 0x15, 6, 0x15, 16, 0x15, 6, 0x15, 6, 0];
    const DICTIONARY: &[u8] = &[0x4c, 0x15, 8, 0x15, 0, 0];

    #[test]
    fn a_header_has_the_sizes_of_its_page() {
        let data = page_header(&header(0, &[DATA])).expect("a data page");
        assert_eq!((data.uncompressed, data.compressed, data.n_values, data.encoding), (100, 50, 3, 8));
        let dictionary = page_header(&header(2, &[DICTIONARY])).expect("a dictionary");
        assert_eq!((dictionary.structure, dictionary.n_values), (DICTIONARY_PAGE, 4));
        // 3 values, 0 nulls, 3 rows, the encoding 0, levels of 7 and 2 bytes, not compressed.
        let v2: &[u8] = &[0x5c, 0x15, 6, 0x15, 0, 0x15, 6, 0x15, 0, 0x15, 14, 0x15, 4, 0x12, 0];
        let page = page_header(&header(3, &[v2])).expect("a data page of version 2");
        assert_eq!((page.levels, page.n_values, page.header_bytes), (9, 3, header(3, &[v2]).len() as u64));
    }

    /// The library would read other values.
    #[test]
    fn a_header_that_can_be_read_in_two_ways_is_damaged() {
        let after_data: &[u8] = &[0x2c, 0x15, 0, 0x15, 0, 0];
        for (what, bytes) in [
            ("two structures", header(0, &[DATA, after_data])),
            ("the structure of another type", header(0, &[DICTIONARY])),
            ("a type that does not exist", header(9, &[DATA])),
            ("an encoding that is a byte", header(0, &[&[0x2c, 0x15, 6, 0x13, 16, 0x15, 6, 0x15, 6, 0]])),
            ("two lengths of levels", header(3, &[&[0x5c, 0x15, 6, 0x55, 14, 0x05, 10, 0, 0]])),
            ("two sizes", [&[0x15, 0, 0x15, 100, 0x05, 4, 0][..], &[0x2c, 0x15, 6, 0x15, 16, 0, 0]].concat()),
            ("no structure", header(0, &[])),
            ("a negative size", [&[0x15, 0, 0x15, 1, 0x15, 1][..], DATA, &[0]].concat()),
        ] {
            assert_eq!(page_header(&bytes), None, "{what}");
        }
        let whole = header(0, &[DATA]);
        assert!((0..whole.len()).all(|end| page_header(&whole[..end]).is_none()));
    }
}
