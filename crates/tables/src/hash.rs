//! The hash of words and random splits, which is a part of the format of an import (a change gives other features), and the
//! hash by which rows are found by their keys.

use std::hash::{BuildHasher, RandomState};

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

/// The hash by which rows are found by their keys. It has a secret of the process (SipHash, Aumasson and Bernstein 2012), so that
/// no table can have keys that were constructed for one slot. No result depends on it.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyHash(RandomState);

impl KeyHash {
    pub(crate) fn of(&self, key: &[u8]) -> u64 {
        self.0.hash_one(key)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// After these eight bytes the state of FNV-1a is 0, which a zero byte keeps.
    #[test]
    fn keys_that_were_constructed_to_collide_have_different_hashes() {
        let keys = (0..200).map(|n| [&b"\xd5\x6b\xb9\x53\x42\x87\x08\x36"[..], &vec![0; n]].concat());
        let keys: Vec<Vec<u8>> = keys.collect();
        assert!(keys.iter().all(|key| hash_bytes(key) == hash_bytes(&keys[0])));
        let hash = KeyHash::default();
        assert_eq!(keys.iter().map(|key| hash.of(key)).collect::<BTreeSet<_>>().len(), keys.len());
        let other = KeyHash::default();
        assert!(keys.iter().any(|key| hash.of(key) != other.of(key)), "the hash has no secret");
    }
}
