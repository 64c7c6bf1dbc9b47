//! The draws of [`RngKey::draw4`](kiln_sample::RngKey::draw4) for many groups at once, written so that
//! the compiler makes vectors of them. A test holds the two equal.

/// Groups of four draws that are made at once.
pub(super) const GROUPS: usize = 16;

const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 7;

/// The words `[word][group]` of a node's groups from `first` on, for a key given as its two words.
#[inline(always)]
pub(super) fn draws(key: [u32; 2], node: u32, first: u32) -> [[u32; GROUPS]; 4] {
    let mut c = [[node; GROUPS], [0; GROUPS], [0; GROUPS], [0; GROUPS]];
    for (group, word) in c[2].iter_mut().enumerate() {
        *word = first.wrapping_add(group as u32);
    }
    for round in 0..ROUNDS {
        let k = [
            key[0].wrapping_add(WEYL[0].wrapping_mul(round)),
            key[1].wrapping_add(WEYL[1].wrapping_mul(round)),
        ];
        let mut next = [[0; GROUPS]; 4];
        for group in 0..GROUPS {
            let one = u64::from(MULTIPLIER[1]) * u64::from(c[2][group]);
            let other = u64::from(MULTIPLIER[0]) * u64::from(c[0][group]);
            next[0][group] = (one >> 32) as u32 ^ c[1][group] ^ k[0];
            next[1][group] = one as u32;
            next[2][group] = (other >> 32) as u32 ^ c[3][group] ^ k[1];
            next[3][group] = other as u32;
        }
        c = next;
    }
    c
}
