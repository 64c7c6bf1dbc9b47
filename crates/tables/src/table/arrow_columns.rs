//! The wanted columns of a message of an Arrow file: their buffers are read and decompressed one by one, and become a message of
//! these columns alone, which the Arrow library decodes. It would read and decompress those of all columns.

use std::io::Read;

use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::{
    BodyCompressionMethod, Buffer as BufferPlace, CompressionType, DictionaryBatchBuilder, FieldNode,
    RecordBatch, RecordBatchBuilder,
};
use arrow_schema::Fields;
use flatbuffers::{FlatBufferBuilder, WIPOffset};
use kiln_store::SourceReader;

use super::arrow_messages::{Layout, MessagePlace};
use super::zstd;

/// The alignment of buffers in a body.
const ALIGNMENT: usize = 64;

/// The number of bytes before a compressed buffer, which are its length without compression.
const LENGTH_BYTES: u64 = 8;

/// The number of bytes of a compressed buffer by which the memory of its decoder is found.
const HEADER_BYTES: u64 = 18;

/// The buffers of the wanted columns of a message.
#[derive(Debug)]
pub(super) struct WantedColumns {
    n_rows: i64,
    nodes: Vec<FieldNode>,
    buffers: Vec<StoredBuffer>,
    /// The numbers of further buffers of the columns of views.
    counts: Vec<i64>,
    codec: Option<CompressionType>,
}

/// A buffer in the file.
#[derive(Debug, Clone, Copy)]
struct StoredBuffer {
    offset: u64,
    n_stored: u64,
    /// The number of bytes without compression.
    n_bytes: u64,
    is_compressed: bool,
    /// The memory of its decoder.
    decoder_bytes: u64,
}

impl WantedColumns {
    /// Finds the buffers of the fields at the positions `wanted`, ascending, in a batch of all `fields`.
    pub(super) fn find(
        source: &SourceReader,
        place: &MessagePlace,
        batch: RecordBatch<'_>,
        fields: &Fields,
        wanted: &[usize],
    ) -> Result<Self, String> {
        let codec = batch.compression().map(|compression| {
            match compression.method() == BodyCompressionMethod::BUFFER {
                true => Ok(compression.codec()),
                false => Err("the method of its compression is not supported".to_owned()),
            }
        });
        let all_counts: Vec<i64> = batch.variadicBufferCounts().into_iter().flatten().collect();
        let nodes = batch.nodes().ok_or("a message has no columns")?;
        let buffers = batch.buffers().ok_or("a message has no buffers")?;
        let mut found = Self {
            n_rows: batch.length(),
            nodes: Vec::new(),
            buffers: Vec::new(),
            counts: Vec::new(),
            codec: codec.transpose()?,
        };
        let mut end = Layout::default();
        for (position, field) in fields.iter().enumerate() {
            let start = end;
            end.add(field.data_type(), &all_counts)?;
            if wanted.binary_search(&position).is_err() {
                continue;
            }
            if nodes.len() < end.n_nodes || buffers.len() < end.n_buffers {
                return Err("a message has too few buffers".into());
            }
            found.nodes.extend((start.n_nodes..end.n_nodes).map(|at| *nodes.get(at)));
            found.counts.extend(&all_counts[start.n_counts..end.n_counts]);
            for at in start.n_buffers..end.n_buffers {
                found.buffers.push(StoredBuffer::find(source, place, buffers.get(at), found.codec)?);
            }
        }
        Ok(found)
    }

    pub(super) fn n_rows(&self) -> u64 {
        u64::try_from(self.n_rows).unwrap_or(0)
    }

    /// Returns the number of bytes of the buffers without compression.
    pub(super) fn n_bytes(&self) -> u64 {
        self.buffers.iter().fold(0, |sum: u64, buffer| sum.saturating_add(buffer.n_bytes))
    }

    /// Returns the memory for reading the buffer that takes most, before it is a part of the body.
    pub(super) fn decoding_bytes(&self) -> u64 {
        let mut most = 0;
        for buffer in &self.buffers {
            let decompressed = if buffer.is_compressed { buffer.n_bytes } else { 0 };
            let n_bytes = buffer.n_stored.saturating_add(decompressed).saturating_add(buffer.decoder_bytes);
            most = most.max(n_bytes);
        }
        most
    }

    /// Reads the buffers: returns a batch of the wanted columns, or a dictionary with an id, as a flatbuffer, and its body. A
    /// dictionary may be a delta to an earlier one.
    pub(super) fn read(
        &self,
        source: &SourceReader,
        dictionary: Option<(i64, bool)>,
    ) -> Result<(Vec<u8>, Buffer), String> {
        let capacity = usize::try_from(self.n_bytes()).map_err(|error| error.to_string())?;
        let mut body = MutableBuffer::new(capacity.saturating_add(ALIGNMENT * self.buffers.len()));
        let mut places = Vec::with_capacity(self.buffers.len());
        for buffer in &self.buffers {
            let start = body.len();
            body.extend_from_slice(&buffer.read(source, self.codec)?);
            places.push(BufferPlace::new(start as i64, (body.len() - start) as i64));
            body.resize(body.len().next_multiple_of(ALIGNMENT), 0);
        }
        let mut builder = FlatBufferBuilder::new();
        let batch = self.batch(&mut builder, &places);
        match dictionary {
            None => builder.finish(batch, None),
            Some((id, is_delta)) => {
                let mut dictionary = DictionaryBatchBuilder::new(&mut builder);
                dictionary.add_id(id);
                dictionary.add_data(batch);
                dictionary.add_isDelta(is_delta);
                let root = dictionary.finish();
                builder.finish(root, None);
            }
        }
        Ok((builder.finished_data().to_vec(), body.into()))
    }

    fn batch<'b>(
        &self,
        builder: &mut FlatBufferBuilder<'b>,
        places: &[BufferPlace],
    ) -> WIPOffset<RecordBatch<'b>> {
        let nodes = builder.create_vector(&self.nodes);
        let buffers = builder.create_vector(places);
        let counts = builder.create_vector(&self.counts);
        let mut batch = RecordBatchBuilder::new(builder);
        batch.add_length(self.n_rows);
        batch.add_nodes(nodes);
        batch.add_buffers(buffers);
        batch.add_variadicBufferCounts(counts);
        batch.finish()
    }
}

impl StoredBuffer {
    fn find(
        source: &SourceReader,
        place: &MessagePlace,
        buffer: &BufferPlace,
        codec: Option<CompressionType>,
    ) -> Result<Self, String> {
        let exceeds = || "a buffer exceeds its message".to_owned();
        let start = u64::try_from(buffer.offset()).map_err(|_| exceeds())?;
        let n_stored = u64::try_from(buffer.length()).map_err(|_| exceeds())?;
        if place.n_body < start.saturating_add(n_stored) {
            return Err(exceeds());
        }
        let offset = place.body + start;
        let plain = Self { offset, n_stored, n_bytes: n_stored, is_compressed: false, decoder_bytes: 0 };
        let Some(codec) = codec.filter(|_| n_stored > 0) else { return Ok(plain) };
        let start = read(source, offset, n_stored.min(LENGTH_BYTES + HEADER_BYTES))?;
        let (length, header) = start.split_first_chunk::<8>().ok_or("a compressed buffer has no length")?;
        let offset = offset + LENGTH_BYTES;
        let n_stored = n_stored - LENGTH_BYTES;
        match i64::from_le_bytes(*length) {
            // The writer keeps what compression would not make shorter.
            -1 => Ok(Self { offset, n_stored, n_bytes: n_stored, ..plain }),
            length => Ok(Self {
                offset,
                n_stored,
                n_bytes: u64::try_from(length).map_err(|_| "the length of a compressed buffer is damaged")?,
                is_compressed: true,
                decoder_bytes: match codec {
                    CompressionType::ZSTD => zstd::decoder_bytes(zstd::window_of(header)),
                    _ => lz4_bytes(header),
                },
            }),
        }
    }

    /// Reads the buffer, and decompresses it.
    fn read(&self, source: &SourceReader, codec: Option<CompressionType>) -> Result<Vec<u8>, String> {
        let stored = read(source, self.offset, self.n_stored)?;
        if !self.is_compressed {
            return Ok(stored);
        }
        let n_bytes = usize::try_from(self.n_bytes).map_err(|error| error.to_string())?;
        let decompressed = match codec {
            Some(CompressionType::ZSTD) => zstd::decompress(&stored, n_bytes, zstd::window_of(&stored)),
            Some(CompressionType::LZ4_FRAME) => decompress_lz4(&stored, n_bytes)?,
            _ => return Err("its compression is not supported: write it by zstd, LZ4 or without".into()),
        };
        decompressed
            .ok_or_else(|| "a compressed buffer is damaged, or has another size than it states".into())
    }
}

/// Returns the memory of the decoder of a frame of LZ4, by the size of its blocks in its header.
fn lz4_bytes(header: &[u8]) -> u64 {
    const HISTORY_BYTES: u64 = 192 << 10;
    let block = header.get(5).map_or(7, |byte| byte >> 4 & 7).clamp(4, 7);
    2 * (1 << (8 + 2 * u64::from(block))) + HISTORY_BYTES
}

#[cfg(feature = "lz4")]
fn decompress_lz4(bytes: &[u8], n_bytes: usize) -> Result<Option<Vec<u8>>, String> {
    let mut decompressed = Vec::with_capacity(n_bytes);
    let decoder = lz4_flex::frame::FrameDecoder::new(bytes);
    let read = decoder.take(n_bytes as u64 + 1).read_to_end(&mut decompressed);
    Ok((read.is_ok() && decompressed.len() == n_bytes).then_some(decompressed))
}

#[cfg(not(feature = "lz4"))]
fn decompress_lz4(_: &[u8], _: usize) -> Result<Option<Vec<u8>>, String> {
    Err("it is compressed by LZ4, which this program was built without: build it with the feature `lz4` of kiln-tables".into())
}

fn read(source: &SourceReader, offset: u64, n_bytes: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(usize::try_from(n_bytes).map_err(|error| error.to_string())?);
    source.from(offset).take(n_bytes).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    match bytes.len() as u64 == n_bytes {
        true => Ok(bytes),
        false => Err("it is cut off".into()),
    }
}
