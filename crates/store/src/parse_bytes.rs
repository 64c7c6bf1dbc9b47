use crate::byte_size::bytes_of;
use crate::{Error, Result};

/// Parses a number of bytes from a command line: plain (`1000000`) or with a binary unit (`512MiB`).
///
/// ```
/// assert_eq!(kiln_store::parse_bytes("3KiB")?, 3072);
/// # Ok::<(), kiln_store::Error>(())
/// ```
///
/// # Errors
/// Returns [`Error::BadSize`] if the text is not such a number or if it is 2^64 or more.
pub fn parse_bytes(text: &str) -> Result<u64> {
    bytes_of(text).ok_or_else(|| Error::BadSize { got: text.to_owned() })
}
