//! The counter-based random number generator of [`kiln_sample::RngKey`], with identical results.

use cubecl::prelude::*;
use kiln_sample::ROUNDS;

/// The four words of a group of draws.
#[derive(CubeType)]
pub(super) struct Words {
    pub(super) a: u32,
    pub(super) b: u32,
    pub(super) c: u32,
    pub(super) d: u32,
}

/// Returns the four draws of one group of a node, as [`kiln_sample::RngKey::draw4`] does for the key with these two words.
#[cube]
pub(super) fn draw4(key_low: u32, key_high: u32, node_type: u32, node: u32, group: u32) -> Words {
    let mut a = node;
    let mut b = node_type;
    let mut c = group;
    let mut d = 0u32;
    let mut low = key_low;
    let mut high = key_high;
    #[unroll]
    for _ in 0..ROUNDS {
        let one_high = c.mul_hi(0xCD9E_8D57u32);
        let one_low = c * 0xCD9E_8D57u32;
        let other_high = a.mul_hi(0xD251_1F53u32);
        let other_low = a * 0xD251_1F53u32;
        a = one_high ^ b ^ low;
        b = one_low;
        c = other_high ^ d ^ high;
        d = other_low;
        low += 0x9E37_79B9u32;
        high += 0xBB67_AE85u32;
    }
    Words { a, b, c, d }
}

/// Returns the word with this index, from 0 to 3.
#[cube]
pub(super) fn word(words: &Words, number: u32) -> u32 {
    let low = select(number & 1 == 0, words.a, words.b);
    let high = select(number & 1 == 0, words.c, words.d);
    select(number < 2, low, high)
}
