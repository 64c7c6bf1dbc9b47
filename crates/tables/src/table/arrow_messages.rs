//! The messages of an Arrow file or stream (Arrow IPC), of which only the wanted columns are read.
//!
//! A file ends with a footer, which has the schema and the places of the messages. A stream has them one after the other, the schema
//! first. A message has metadata (a flatbuffer) and a body of buffers; each column has its buffers in the order of the schema.

use std::io::Read;

use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::{Block, MessageHeader, MetadataVersion, root_as_footer, root_as_message};
use arrow_schema::{DataType, Field, Schema, UnionMode};
use kiln_store::SourceReader;

/// The start and the end of a file.
const MAGIC: &[u8] = b"ARROW1";

/// The start of a file of Feather, version 1.
const FEATHER_1: &[u8] = b"FEA1";

/// The start of a message.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// The length of the start of a message: the continuation and the length of its metadata, which is 0 at the end of a stream.
const MARKER_BYTES: u64 = 8;

/// The length of the footer and the magic bytes, which end a file.
const TAIL_BYTES: u64 = 10;

/// The maximum length of a footer and of the metadata of a message.
const MAX_METADATA: u64 = 16 << 20;

/// The place of a message in a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessagePlace {
    /// The position of its metadata, and their length.
    metadata: u64,
    n_metadata: u64,
    /// The position of its body, and the length.
    pub(super) body: u64,
    pub(super) n_body: u64,
}

/// The messages of a file.
#[derive(Debug)]
pub(super) struct Messages {
    pub(super) schema: Schema,
    pub(super) version: MetadataVersion,
    /// Dictionaries and batches of rows, in their order.
    pub(super) places: Vec<MessagePlace>,
}

impl Messages {
    /// Finds the messages of a file or of a stream.
    pub(super) fn find(source: &SourceReader) -> Result<Self, String> {
        let start = read(source, 0, source.n_bytes().min(8))?;
        if start.starts_with(MAGIC) {
            return Self::read_footer(source);
        }
        if start.starts_with(&CONTINUATION) {
            return Self::read_stream(source);
        }
        if start.starts_with(FEATHER_1) {
            return Err("it is Feather of version 1: write it as version 2".into());
        }
        Err("it is no Arrow file, which begins with ARROW1, and no stream".into())
    }

    fn read_footer(source: &SourceReader) -> Result<Self, String> {
        let end = source.n_bytes();
        let tail = end.checked_sub(TAIL_BYTES).map(|tail| read(source, tail, TAIL_BYTES)).transpose()?;
        let length = tail.as_deref().and_then(|tail| tail.strip_suffix(MAGIC)?.try_into().ok());
        let length = length.and_then(|length| u64::try_from(i32::from_le_bytes(length)).ok());
        let cut = "its end is not that of an Arrow file: it is cut off, or was not closed";
        let start = length.and_then(|length| end.checked_sub(TAIL_BYTES + length)).ok_or(cut)?;
        let footer = read(source, start, end - TAIL_BYTES - start)?;
        let footer = root_as_footer(&footer).map_err(|error| format!("its footer is damaged: {error}"))?;
        let schema = footer.schema().ok_or("its footer has no schema")?;
        let blocks =
            footer.dictionaries().into_iter().flatten().chain(footer.recordBatches().into_iter().flatten());
        let places = blocks.map(|block| place_of(source, block)).collect::<Result<_, _>>()?;
        Ok(Self { schema: schema_of(schema)?, version: footer.version(), places })
    }

    fn read_stream(source: &SourceReader) -> Result<Self, String> {
        let mut schema = None;
        let mut places = Vec::new();
        let mut offset = 0;
        while let Some(place) = message_at(source, offset)? {
            let metadata = place.metadata(source)?;
            let message = root_as_message(&metadata).map_err(|error| damaged(&error))?;
            let n_body = u64::try_from(message.bodyLength()).map_err(|error| damaged(&error))?;
            offset = place.body.saturating_add(n_body);
            if source.n_bytes() < offset {
                return Err("its last message is cut off".into());
            }
            match (message.header_type(), message.header_as_schema()) {
                (_, Some(found)) if schema.is_none() => schema = Some((schema_of(found)?, message.version())),
                _ => places.push(MessagePlace { n_body, ..place }),
            }
        }
        let n_more = source.n_bytes().saturating_sub(offset + MARKER_BYTES);
        if n_more > 0 {
            return Err(format!(
                "{n_more} bytes follow the end of the stream: write each stream to a file of its own"
            ));
        }
        let (schema, version) = schema.ok_or("it has no schema")?;
        Ok(Self { schema, version, places })
    }
}

impl MessagePlace {
    /// Reads the metadata.
    pub(super) fn metadata(&self, source: &SourceReader) -> Result<Vec<u8>, String> {
        read(source, self.metadata, self.n_metadata)
    }
}

/// Returns the place of a message by its block in a footer.
fn place_of(source: &SourceReader, block: &Block) -> Result<MessagePlace, String> {
    let offset = u64::try_from(block.offset()).map_err(|error| damaged(&error))?;
    let n_body = u64::try_from(block.bodyLength()).map_err(|error| damaged(&error))?;
    let n_metadata = u64::try_from(block.metaDataLength()).map_err(|error| damaged(&error))?;
    let place = message_at(source, offset)?.ok_or("a message has no metadata")?;
    let body = offset.saturating_add(n_metadata);
    if source.n_bytes() < body.saturating_add(n_body) {
        return Err("a message exceeds the file".into());
    }
    Ok(MessagePlace { body, n_body, ..place })
}

/// Returns the message at an offset, without the length of its body; `None` at the marker of the end of a stream.
fn message_at(source: &SourceReader, offset: u64) -> Result<Option<MessagePlace>, String> {
    if source.n_bytes() <= offset {
        return Err("it ends without the marker of the end: it is cut off, or was not closed".into());
    }
    let start = read(source, offset, MARKER_BYTES)?;
    let length = start.strip_prefix(&CONTINUATION);
    let length = length.and_then(|length| length.try_into().ok()).map(i32::from_le_bytes);
    let length = length.ok_or("a message does not begin as those of Arrow since version 0.15")?;
    let n_metadata = u64::try_from(length).map_err(|error| damaged(&error))?;
    let metadata = offset + MARKER_BYTES;
    let body = metadata.saturating_add(n_metadata);
    Ok((n_metadata > 0).then_some(MessagePlace { metadata, n_metadata, body, n_body: 0 }))
}

fn schema_of(schema: arrow_ipc::Schema<'_>) -> Result<Schema, String> {
    if schema.endianness() != arrow_ipc::Endianness::Little {
        return Err("its numbers are big-endian, which is not supported".into());
    }
    try_fb_to_schema(schema).map_err(|error| error.to_string())
}

/// Reads bytes of metadata.
fn read(source: &SourceReader, offset: u64, n_bytes: u64) -> Result<Vec<u8>, String> {
    if MAX_METADATA < n_bytes {
        return Err(format!("it has {n_bytes} bytes of metadata, expected at most {MAX_METADATA}"));
    }
    let mut bytes = Vec::new();
    source.from(offset).take(n_bytes).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    match bytes.len() as u64 == n_bytes {
        true => Ok(bytes),
        false => Err("it is cut off".into()),
    }
}

fn damaged(error: &dyn std::fmt::Display) -> String {
    format!("a message is damaged: {error}")
}

/// Returns the kind of a message.
pub(super) fn kind_of(header: MessageHeader) -> &'static str {
    header.variant_name().unwrap_or("an unknown message")
}

/// The numbers of nodes, of buffers and of counts of buffers in a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) n_nodes: usize,
    pub(super) n_buffers: usize,
    /// The number of columns of views, each of which has a count of further buffers.
    pub(super) n_counts: usize,
}

impl Layout {
    /// Adds a column. `counts` are the numbers of further buffers of all columns of views in the message.
    pub(super) fn add(&mut self, data_type: &DataType, counts: &[i64]) -> Result<(), String> {
        self.n_nodes += 1;
        let children: Vec<&Field> = match data_type {
            DataType::Null => return Ok(()),
            DataType::Utf8 | DataType::Binary | DataType::LargeUtf8 | DataType::LargeBinary => {
                self.n_buffers += 3;
                return Ok(());
            }
            DataType::Utf8View | DataType::BinaryView => {
                let count = counts.get(self.n_counts).and_then(|count| usize::try_from(*count).ok());
                self.n_buffers = self
                    .n_buffers
                    .saturating_add(count.ok_or("a count of buffers is damaged")?)
                    .saturating_add(2);
                self.n_counts += 1;
                return Ok(());
            }
            DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
                self.n_buffers += 2;
                vec![item]
            }
            DataType::ListView(item) | DataType::LargeListView(item) => {
                self.n_buffers += 3;
                vec![item]
            }
            DataType::FixedSizeList(item, _) => {
                self.n_buffers += 1;
                vec![item]
            }
            DataType::Struct(fields) => {
                self.n_buffers += 1;
                fields.iter().map(|field| &**field).collect()
            }
            DataType::Union(fields, mode) => {
                self.n_buffers += if *mode == UnionMode::Dense { 2 } else { 1 };
                fields.iter().map(|(_, field)| &**field).collect()
            }
            DataType::RunEndEncoded(ends, values) => vec![ends, values],
            _ => {
                self.n_buffers += 2;
                return Ok(());
            }
        };
        children.into_iter().try_for_each(|child| self.add(child.data_type(), counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the format's description (Columnar.rst, "Buffer listing for each layout").
    #[test]
    fn a_column_has_the_buffers_of_its_layout() {
        let item = |data_type| std::sync::Arc::new(Field::new("item", data_type, true));
        let fields = vec![Field::new("a", DataType::Utf8, true), Field::new("b", DataType::Boolean, true)];
        for (data_type, n_nodes, n_buffers) in [
            (DataType::Null, 1, 0),
            (DataType::Int8, 1, 2),
            (DataType::LargeUtf8, 1, 3),
            (DataType::Utf8View, 1, 5),
            (DataType::List(item(DataType::Float32)), 2, 4),
            (DataType::FixedSizeList(item(DataType::Utf8), 2), 2, 4),
            (DataType::LargeListView(item(DataType::Int64)), 2, 5),
            (DataType::Struct(fields.into()), 3, 6),
            (DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)), 1, 2),
        ] {
            let mut layout = Layout::default();
            layout.add(&data_type, &[3]).expect("a known layout");
            assert_eq!((layout.n_nodes, layout.n_buffers), (n_nodes, n_buffers), "{data_type}");
        }
        assert!(Layout::default().add(&DataType::BinaryView, &[]).is_err());
        assert!(Layout::default().add(&DataType::BinaryView, &[-1]).is_err());
    }
}
