//! The order of Debian version numbers (Debian Policy 4.7, section 5.6.12).

use std::cmp::Ordering;

/// Compares two versions: epoch, then upstream version, then revision.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    let (a_epoch, a_rest) = split_epoch(a);
    let (b_epoch, b_rest) = split_epoch(b);
    let (a_upstream, a_revision) = a_rest.rsplit_once('-').unwrap_or((a_rest, ""));
    let (b_upstream, b_revision) = b_rest.rsplit_once('-').unwrap_or((b_rest, ""));
    a_epoch
        .cmp(&b_epoch)
        .then_with(|| compare_part(a_upstream, b_upstream))
        .then_with(|| compare_part(a_revision, b_revision))
}

/// Returns the epoch and the rest of a version. A missing or invalid epoch is 0.
fn split_epoch(version: &str) -> (u64, &str) {
    match version.split_once(':') {
        Some((epoch, rest)) => (epoch.parse().unwrap_or(0), rest),
        None => (0, version),
    }
}

/// Compares two upstream versions or revisions part by part. The parts are alternately texts without digits and
/// numbers, and the first difference decides.
fn compare_part(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    while !a.is_empty() || !b.is_empty() {
        let (a_text, a_rest) = split_while(a, |byte| !byte.is_ascii_digit());
        let (b_text, b_rest) = split_while(b, |byte| !byte.is_ascii_digit());
        let (a_digits, a_next) = split_while(a_rest, |byte| byte.is_ascii_digit());
        let (b_digits, b_next) = split_while(b_rest, |byte| byte.is_ascii_digit());
        let ordering = compare_text(a_text, b_text).then_with(|| compare_digits(a_digits, b_digits));
        if ordering != Ordering::Equal {
            return ordering;
        }
        (a, b) = (a_next, b_next);
    }
    Ordering::Equal
}

fn split_while(bytes: &[u8], holds: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.iter().position(|&byte| !holds(byte)).unwrap_or(bytes.len()))
}

/// Compares texts without digits: `~` sorts before the end, the end before letters, and letters before other
/// characters.
fn compare_text(a: &[u8], b: &[u8]) -> Ordering {
    let rank = |byte: Option<&u8>| match byte {
        Some(b'~') => -1,
        None => 0,
        Some(letter) if letter.is_ascii_alphabetic() => i32::from(*letter),
        Some(other) => i32::from(*other) + 256,
    };
    let n_bytes = a.len().max(b.len());
    let unequal = (0..n_bytes).map(|i| rank(a.get(i)).cmp(&rank(b.get(i)))).find(|o| o.is_ne());
    unequal.unwrap_or(Ordering::Equal)
}

/// Compares numbers of any length, ignoring leading zeros.
fn compare_digits(a: &[u8], b: &[u8]) -> Ordering {
    let (_, a) = split_while(a, |byte| byte == b'0');
    let (_, b) = split_while(b, |byte| byte == b'0');
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}
