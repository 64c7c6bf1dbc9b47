//! Counter-based random numbers: every draw is a pure function of a key and a counter.
//!
//! The generator is Philox4x32 with [`ROUNDS`] rounds (Salmon, Moraes, Dror, Shaw 2011, "Parallel random
//! numbers: as easy as 1, 2, 3", section 3.3 and table 2), chosen because it needs 32-bit
//! multiplications only, so that a GPU kernel repeats it bit for bit. `docs/rng.md` is its contract.

use kiln_graph::NodeId;

/// Rounds of Philox. Seven is the least number that passes the authors' battery of statistical tests.
pub const ROUNDS: usize = 7;

const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// The counter word that sets draws apart from folds.
const DRAW: u32 = 0;

/// The meaning of a value that is folded into a key. The number is part of the contract: never reuse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum KeyDomain {
    /// The epoch of a training run, from 0.
    Epoch = 1,
    /// The step within the epoch, the same on all ranks.
    Step = 2,
    /// The layer whose block is sampled, or whose weights are drawn, input layer first.
    Layer = 3,
    /// The layer whose output is masked by dropout.
    Dropout = 4,
    /// An evaluation pass: 0 validation, 1 test. Takes the place of the epoch.
    Evaluation = 5,
    /// A host-side stream that is seeded from the key: see `docs/rng.md`.
    Host = 6,
}

/// A 64-bit key that all draws of one thing share. Keys are made by folding, from the seed down:
/// seed, epoch, step, layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RngKey([u32; 2]);

impl RngKey {
    /// The key of a whole run.
    pub fn new(seed: u64) -> Self {
        Self([seed as u32, (seed >> 32) as u32])
    }

    /// The key's two words, for a device that repeats the draws.
    pub fn words(self) -> [u32; 2] {
        self.0
    }

    /// The key as one number, to seed a host-side generator.
    pub fn to_u64(self) -> u64 {
        u64::from(self.0[0]) | u64::from(self.0[1]) << 32
    }

    /// The key for one value of a domain; different values and domains give unrelated keys.
    pub fn fold_in(self, domain: KeyDomain, value: u64) -> Self {
        let out = philox([value as u32, (value >> 32) as u32, 0, domain as u32], self.0);
        Self([out[0], out[1]])
    }

    /// Four draws: words `4 * group` to `4 * group + 3` of the stream of node `node` of type `node_type`.
    #[inline]
    pub fn draw4(self, node_type: u32, node: u32, group: u32) -> [u32; 4] {
        philox([node, node_type, group, DRAW], self.0)
    }

    /// The draws of [`draw4`](Self::draw4) for `N` groups from `first` on: `words[word][group]`.
    ///
    /// The groups are computed side by side, in loops that the compiler makes vectors of, for the
    /// instructions that the caller is compiled for.
    #[inline(always)]
    pub fn draw_groups<const N: usize>(self, node_type: u32, node: u32, first: u32) -> [[u32; N]; 4] {
        let groups = std::array::from_fn(|group| first.wrapping_add(group as u32));
        philox_groups([[node; N], [node_type; N], groups, [DRAW; N]], self.0)
    }

    /// The stream of draws that belongs to one node (of type 0).
    #[inline]
    pub fn node(self, node: NodeId) -> NodeKey {
        NodeKey { key: self, node_type: 0, node: node.0 }
    }
}

/// The key of one node's draws: an [`RngKey`] with the node's type and id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeKey {
    key: RngKey,
    node_type: u32,
    node: u32,
}

impl NodeKey {
    /// The generator of the node's draws, from number 0 on.
    #[inline]
    pub fn rng(self) -> NodeRng {
        NodeRng { key: self, group: 0, words: [0; 4], n_left: 0 }
    }

    /// The node's draws from number `16 * batch` on, in order: the same as those of [`rng`](Self::rng).
    #[inline(always)]
    pub(crate) fn draw16(self, batch: u32) -> [u32; 16] {
        let words = self.key.draw_groups::<4>(self.node_type, self.node, 4 * batch);
        std::array::from_fn(|number| words[number % 4][number / 4])
    }
}

/// A random number generator of one node: its stream of 32-bit draws.
#[derive(Debug, Clone)]
pub struct NodeRng {
    key: NodeKey,
    group: u32,
    words: [u32; 4],
    n_left: u8,
}

impl NodeRng {
    /// The next draw, uniform over all 32-bit numbers.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        if self.n_left == 0 {
            self.words = self.key.key.draw4(self.key.node_type, self.key.node, self.group);
            self.group = self.group.wrapping_add(1);
            self.n_left = 4;
        }
        let word = self.words[4 - self.n_left as usize];
        self.n_left -= 1;
        word
    }

    /// The next draw as a number below `n`: the high word of draw times `n` (Lemire 2019, without the
    /// rejection step, so that one draw is always enough). Its bias is below `n / 2^32`.
    #[inline]
    pub fn below(&mut self, n: u32) -> u32 {
        mul_hi(self.next_u32(), n)
    }

    /// The next draw as a number in `[0, 1)`, a multiple of 2^-24.
    #[inline]
    pub fn unit_f32(&mut self) -> f32 {
        (self.next_u32() >> 8) as f32 * (1.0 / 16_777_216.0)
    }
}

#[inline(always)]
pub(crate) fn mul_hi(a: u32, b: u32) -> u32 {
    ((u64::from(a) * u64::from(b)) >> 32) as u32
}

#[inline]
fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    philox_groups(counter.map(|word| [word]), key).map(|[word]| word)
}

/// [`philox`] for `N` counters, given and returned word by word.
#[inline(always)]
fn philox_groups<const N: usize>(counters: [[u32; N]; 4], key: [u32; 2]) -> [[u32; N]; 4] {
    let mut c = counters;
    let mut k = key;
    for _ in 0..ROUNDS {
        let mut next = [[0; N]; 4];
        for group in 0..N {
            let one = u64::from(MULTIPLIER[1]) * u64::from(c[2][group]);
            let other = u64::from(MULTIPLIER[0]) * u64::from(c[0][group]);
            next[0][group] = (one >> 32) as u32 ^ c[1][group] ^ k[0];
            next[1][group] = one as u32;
            next[2][group] = (other >> 32) as u32 ^ c[3][group] ^ k[1];
            next[3][group] = other as u32;
        }
        c = next;
        k = [k[0].wrapping_add(WEYL[0]), k[1].wrapping_add(WEYL[1])];
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_side_by_side_are_the_groups_one_by_one() {
        for key in [RngKey::new(0), RngKey::new(0x0123_4567_89ab_cdef)] {
            for (node_type, node, first) in [(0, 0, 0), (0, 42, 7), (3, u32::MAX, u32::MAX - 1)] {
                let words = key.draw_groups::<5>(node_type, node, first);
                for group in 0..5 {
                    let one = key.draw4(node_type, node, first.wrapping_add(group as u32));
                    assert_eq!(words.map(|word| word[group]), one, "node {node}, group {group}");
                }
            }
            let mut draws = key.node(NodeId(42)).rng();
            for batch in 0..3 {
                let expected: [u32; 16] = std::array::from_fn(|_| draws.next_u32());
                assert_eq!(key.node(NodeId(42)).draw16(batch), expected, "batch {batch}");
            }
        }
    }

    /// Known answers of Random123 1.09 (`kat_vectors`, philox4x32 with 7 rounds).
    #[test]
    fn philox_gives_the_published_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x5f6f_b709, 0x0d89_3f64, 0x4f12_1f81, 0x4f73_0a48]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x5207_ddc2, 0x4516_5e59, 0x4d8e_e751, 0x8c52_f662]
        );
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        assert_eq!(
            philox(pi, [0xa409_3822, 0x299f_31d0]),
            [0x4dfc_caba, 0x190a_87f0, 0xc473_62ba, 0xb6b5_242a]
        );
    }
}
