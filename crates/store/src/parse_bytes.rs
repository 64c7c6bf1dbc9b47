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
    let n_digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(n_digits);
    let factor: Option<u64> = match unit.trim() {
        "" | "B" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        "TiB" => Some(1 << 40),
        _ => None,
    };
    let number: Option<u64> = digits.parse().ok();
    let n_bytes = number.zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    n_bytes.ok_or_else(|| Error::BadSize { got: text.to_owned() })
}

/// Returns the size that a number with another unit probably is, such as `2GiB` for `2gb`.
pub(crate) fn similar_size(text: &str) -> Option<String> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let unit = match unit.trim().to_lowercase().as_str() {
        "k" | "kb" | "kib" => "KiB",
        "m" | "mb" | "mib" => "MiB",
        "g" | "gb" | "gib" => "GiB",
        "t" | "tb" | "tib" => "TiB",
        _ => return None,
    };
    Some(format!("{digits}{unit}")).filter(|size| parse_bytes(size).is_ok())
}
