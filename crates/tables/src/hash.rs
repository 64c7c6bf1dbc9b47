//! The hash of keys, words and random splits. It is a part of the format of an import: a change gives other features.

/// Returns a 64-bit hash of bytes: FNV-1a (Fowler, Noll, Vo), whose result is mixed by the finaliser of SplitMix64 (Steele
/// et al. 2014), because the upper bits of FNV-1a hardly depend on the last bytes.
///
/// ```
/// assert_eq!(kiln_tables::hash_bytes(b""), 0xf52a_15e9_a9b5_e89b);
/// ```
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    mix(hash)
}

/// Returns a number whose every bit depends on every bit of `value`: the finaliser of SplitMix64.
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Returns a position below `n` from a hash: the upper half of their product.
pub(crate) fn below(hash: u64, n: usize) -> usize {
    ((u128::from(hash) * n as u128) >> 64) as usize
}
