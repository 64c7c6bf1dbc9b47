/// Returns the number of bytes of a text with a binary unit; `None` if it is no such number, or 2^64 or more.
pub(crate) fn bytes_of(text: &str) -> Option<u64> {
    let n_digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(n_digits);
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
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
    Some(format!("{digits}{unit}")).filter(|size| bytes_of(size).is_some())
}
