//! Decompresses zstd (RFC 8878) within a known memory: the window of a frame is in memory while it is decompressed.

use std::io::{self, BufRead, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};

use kiln_store::SourceReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The first bytes of a frame.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The last three bytes of a frame that is skipped, and the upper half of its first one.
const SKIPPED_MAGIC: [u8; 3] = [0x2a, 0x4d, 0x18];
const SKIPPED_FIRST: u8 = 0x50;

/// The longest header of a frame.
const HEADER_BYTES: u64 = 18;

/// The largest window that is accepted, which `zstd --long` has.
pub(super) const MAX_WINDOW: u64 = 128 << 20;

/// The memory of a decoder besides its window: tables and a block.
const DECODER_BYTES: u64 = 1 << 20;

/// The bytes in memory for each byte of the window: a ring buffer, which is copied when it grows.
const WINDOW_COPIES: u64 = 3;

/// Returns the memory of a decoder of frames with a window of this size.
pub(super) fn decoder_bytes(window_bytes: u64) -> u64 {
    WINDOW_COPIES.saturating_mul(window_bytes).saturating_add(DECODER_BYTES)
}

/// Returns true if bytes are the start of a file that is compressed by zstd.
pub(super) fn is_start(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC) || is_skipped(bytes)
}

fn is_skipped(bytes: &[u8]) -> bool {
    matches!(bytes, [first, rest @ ..] if first & 0xf0 == SKIPPED_FIRST && rest.starts_with(&SKIPPED_MAGIC))
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FrameHeader {
    n_bytes: u64,
    window_bytes: u64,
    has_checksum: bool,
}

impl FrameHeader {
    /// Parses the header at the start of bytes; `None` if there is none.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (descriptor, mut rest) = rest.split_first()?;
        let is_single = descriptor >> 5 & 1 == 1;
        let window = match is_single {
            true => None,
            false => {
                let (window, others) = rest.split_first()?;
                rest = others;
                let base = 1_u64 << (10 + (window >> 3));
                Some(base + base / 8 * u64::from(window & 7))
            }
        };
        rest = rest.get([0, 1, 2, 4][usize::from(descriptor & 3)]..)?;
        let n_size = match (descriptor >> 6, is_single) {
            (0, false) => 0,
            (0, true) => 1,
            (1, _) => 2,
            (2, _) => 4,
            _ => 8,
        };
        let mut size = [0; 8];
        size[..n_size].copy_from_slice(rest.get(..n_size)?);
        rest = &rest[n_size..];
        let size = u64::from_le_bytes(size).saturating_add(if n_size == 2 { 256 } else { 0 });
        Some(Self {
            n_bytes: (bytes.len() - rest.len()) as u64,
            window_bytes: window.unwrap_or(size),
            has_checksum: descriptor >> 2 & 1 == 1,
        })
    }
}

/// Returns the window of the frame at the start of bytes; 0 if there is none.
pub(super) fn window_of(bytes: &[u8]) -> u64 {
    FrameHeader::parse(bytes).map_or(0, |header| header.window_bytes)
}

/// Returns the window of the frame at an offset of a file; 0 if there is none.
pub(super) fn window_at(source: &SourceReader, offset: u64) -> u64 {
    let mut bytes = Vec::new();
    let read = source.from(offset).take(HEADER_BYTES).read_to_end(&mut bytes);
    read.map_or(0, |_| window_of(&bytes))
}

/// Returns the largest window of the frames of a file, by the headers of frames and blocks. What follows a damaged one is ignored,
/// because the decoder ends there, too.
pub(super) fn largest_window(source: &SourceReader) -> u64 {
    let mut offset = 0;
    let mut largest = 0;
    while let Some((window_bytes, n_bytes)) = frame_at(source, offset) {
        largest = largest.max(window_bytes);
        offset += n_bytes;
    }
    largest
}

/// Returns the window and the length of the frame at an offset.
fn frame_at(source: &SourceReader, offset: u64) -> Option<(u64, u64)> {
    let read = |offset: u64, n_bytes: u64| {
        let mut bytes = Vec::new();
        source.from(offset).take(n_bytes).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    };
    let start = read(offset, HEADER_BYTES)?;
    if is_skipped(&start) {
        let length = start.get(4..8)?.try_into().ok()?;
        return Some((0, 8 + u64::from(u32::from_le_bytes(length))));
    }
    let header = FrameHeader::parse(&start)?;
    let mut n_bytes = header.n_bytes;
    loop {
        let block = read(offset + n_bytes, 3)?;
        let [low, middle, high] = block[..] else { return None };
        let block = u32::from_le_bytes([low, middle, high, 0]);
        // A block of one repeated byte has its length, and that byte.
        let length = if block >> 1 & 3 == 1 { 1 } else { block >> 3 };
        n_bytes += 3 + u64::from(length);
        if block & 1 == 1 {
            break;
        }
    }
    Some((header.window_bytes, n_bytes + if header.has_checksum { 4 } else { 0 }))
}

/// A reader of the frames of a file, one after the other.
pub(super) struct ZstdReader<R> {
    source: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> ZstdReader<R> {
    /// Creates a reader of frames whose windows are at most that large.
    pub(super) fn new(source: R, window_bytes: u64) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(window_bytes);
        Self { source, decoder, is_in_frame: false }
    }

    /// Begins the next frame, and returns false at the end of the file.
    fn begin_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    io::copy(&mut self.source.by_ref().take(length.into()), &mut io::sink())?;
                }
                Err(error) => return Err(damaged(error)),
            }
        }
        Ok(false)
    }

    fn read_frames(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.is_in_frame || self.begin_frame()? {
            self.is_in_frame = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let blocks = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, blocks).map_err(damaged)?;
            }
            let n_bytes = self.decoder.read(buffer)?;
            if n_bytes > 0 {
                return Ok(n_bytes);
            }
            let stated = self.decoder.get_checksum_from_data();
            if stated.is_some() && stated != self.decoder.get_calculated_checksum() {
                return Err(damaged("the checksum differs"));
            }
            self.is_in_frame = false;
        }
        Ok(0)
    }
}

impl<R: BufRead> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        // A damaged file must be an error whatever the decoder makes of it.
        catch_unwind(AssertUnwindSafe(|| self.read_frames(buffer)))
            .unwrap_or_else(|_| Err(damaged("a block")))
    }
}

fn damaged(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("damaged zstd: {what}"))
}

/// Decompresses bytes to exactly `n_bytes`; `None` if they are damaged or have another length. Windows are at most `window_bytes`.
pub(super) fn decompress(bytes: &[u8], n_bytes: usize, window_bytes: u64) -> Option<Vec<u8>> {
    let mut decompressed = vec![0; n_bytes];
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(window_bytes.min(MAX_WINDOW));
    let decoded = catch_unwind(AssertUnwindSafe(|| decoder.decode_all(bytes, &mut decompressed)));
    matches!(decoded, Ok(Ok(n_decoded)) if n_decoded == n_bytes).then_some(decompressed)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::BufReader;

    use kiln_store::SourceFiles;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    #[test]
    fn frames_are_read_one_after_the_other() {
        let texts: Vec<Vec<u8>> = [0_usize, 1, 300, 500_000]
            .map(|length| (0..length).map(|i| (i * i / 7) as u8).collect())
            .to_vec();
        let mut bytes = Vec::new();
        for text in &texts {
            // A frame that is skipped, of 5 bytes.
            bytes.extend([0x57, 0x2a, 0x4d, 0x18, 5, 0, 0, 0, 1, 2, 3, 4, 5]);
            bytes.extend(compress_to_vec(&text[..], CompressionLevel::Fastest));
        }
        assert!(is_start(&bytes) && is_start(&bytes[13..]) && !is_start(b"id,x"));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.zst");
        fs::write(&path, &bytes).expect("a file");
        let source = SourceFiles::default().open(&path).expect("the file");
        let window_bytes = largest_window(&source);
        assert!((1 << 10..=MAX_WINDOW).contains(&window_bytes), "{window_bytes}");
        let mut read = Vec::new();
        ZstdReader::new(BufReader::new(&bytes[..]), window_bytes).read_to_end(&mut read).expect("text");
        assert!(read == texts.concat());
        let error = ZstdReader::new(BufReader::new(&bytes[..]), 1 << 10).read_to_end(&mut read);
        assert!(error.is_err(), "a larger window should be an error");
        for n_bytes in (0..bytes.len()).step_by(bytes.len() / 50) {
            let read_part =
                ZstdReader::new(BufReader::new(&bytes[..n_bytes]), window_bytes).read_to_end(&mut Vec::new());
            assert!(read_part.is_err() || n_bytes == 0 || read_part.is_ok_and(|n| n < read.len()));
        }
    }

    /// The headers that `zstd` 1.5 writes for 1,000 bytes in one go (one segment), for a stream at level 3, and with `--long=27`.
    #[test]
    fn a_header_has_the_window_of_its_frame() {
        let windows = [
            (&[0x28, 0xb5, 0x2f, 0xfd, 0x60, 0xe8, 0x02][..], 1000),
            (&[0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58], 2 << 20),
            (&[0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x88], 128 << 20),
        ];
        for (bytes, expected) in windows {
            let header = FrameHeader::parse(bytes).expect("a header");
            assert_eq!((header.window_bytes, header.n_bytes), (expected, bytes.len() as u64));
        }
        assert_eq!(FrameHeader::parse(&[0x28, 0xb5, 0x2f, 0xfd]), None);
    }

    #[test]
    fn decompressed_bytes_have_the_stated_length() {
        let text = vec![b'a'; 5000];
        let bytes = compress_to_vec(&text[..], CompressionLevel::Fastest);
        assert_eq!(decompress(&bytes, 5000, MAX_WINDOW), Some(text));
        assert_eq!(decompress(&bytes, 4999, MAX_WINDOW), None);
        assert_eq!(decompress(&bytes, 5001, MAX_WINDOW), None);
        assert_eq!(decompress(&bytes[..bytes.len() - 1], 5000, MAX_WINDOW), None);
        assert_eq!(decompress(b"", 0, 0), Some(Vec::new()));
    }
}
