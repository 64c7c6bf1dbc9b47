//! A counter-based random number generator: every draw is a pure function of a key and a counter.
//!
//! The generator is Philox4x32 with [`ROUNDS`] rounds (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as
//! easy as 1, 2, 3", section 3.3 and table 2). It needs only 32-bit multiplications, so GPU kernels give bit-identical
//! draws. `docs/rng.md` specifies it.

use kiln_graph::{LinkId, NodeId};

/// The number of rounds of Philox. Seven is the smallest number that passes the authors' battery of statistical tests.
pub const ROUNDS: usize = 7;

const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// The last counter word of draws. Folds have their domain in this word, which is never 0, so draws and folds never use
/// the same counter.
const DRAW: u32 = 0;

/// The meaning of a value that is folded into a key. `docs/rng.md` specifies the numbers; they must never be reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum KeyDomain {
    /// The epoch of a training run, from 0.
    Epoch = 1,
    /// The step within the epoch, the same on all ranks.
    Step = 2,
    /// The layer whose block is sampled or whose weights are initialised, input layer first.
    Layer = 3,
    /// The layer whose output is masked by dropout.
    Dropout = 4,
    /// The evaluation phase: 0 for validation, 1 for test. Keys of evaluations are folded with it instead of the epoch.
    Evaluation = 5,
    /// A host-side generator that is seeded from the key; see `docs/rng.md`.
    Host = 6,
    /// The number of a negative of a link, from 0.
    Negative = 7,
    /// The layer whose attention weights are masked by dropout.
    EdgeDropout = 8,
    /// The relation whose edges are sampled, from 1: the edges of relation 0 are drawn with the hop's key.
    Relation = 9,
    /// The type of nodes whose input layer or trainable rows are initialised.
    NodeType = 10,
    /// The time of a destination in temporal sampling.
    Time = 11,
}

/// A 64-bit key of random draws. Keys are derived by folding: seed, epoch, step, layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RngKey([u32; 2]);

impl RngKey {
    /// Creates the key of a run from its seed.
    pub fn new(seed: u64) -> Self {
        Self([seed as u32, (seed >> 32) as u32])
    }

    /// Returns the key's two words, low word first, for device kernels.
    pub fn words(self) -> [u32; 2] {
        self.0
    }

    /// Returns the key with these words, low word first.
    #[inline(always)]
    pub(crate) fn join_words(words: [u32; 2]) -> Self {
        Self(words)
    }

    /// Returns the key as one number, to seed a host-side generator.
    pub fn to_u64(self) -> u64 {
        u64::from(self.0[0]) | u64::from(self.0[1]) << 32
    }

    /// Derives the key for one value of a domain. Different values and domains give independent keys.
    pub fn fold_in(self, domain: KeyDomain, value: u64) -> Self {
        let out = philox([value as u32, (value >> 32) as u32, 0, domain as u32], self.0);
        Self([out[0], out[1]])
    }

    /// Returns four draws: words `4 * group` to `4 * group + 3` of the stream of node `node` of type `node_type`.
    #[inline]
    pub fn draw4(self, node_type: u32, node: u32, group: u32) -> [u32; 4] {
        philox([node, node_type, group, DRAW], self.0)
    }

    /// Returns the draws of [`draw4`](Self::draw4) for `N` groups, starting with group `first`: `words[word][group]`.
    ///
    /// The loops over the groups are auto-vectorised for the instruction set that the caller is compiled for.
    #[inline(always)]
    pub fn draw_groups<const N: usize>(self, node_type: u32, node: u32, first: u32) -> [[u32; N]; 4] {
        let groups = std::array::from_fn(|group| first.wrapping_add(group as u32));
        philox_groups([[node; N], [node_type; N], groups, [DRAW; N]], self.0)
    }

    /// Same as [`draw4`](Self::draw4), for loops over nodes that the compiler vectorises for the instruction set of the
    /// caller.
    #[inline(always)]
    pub(crate) fn draw4_inline(self, node_type: u32, node: u32, group: u32) -> [u32; 4] {
        philox_groups([[node], [node_type], [group], [DRAW]], self.0).map(|[word]| word)
    }

    /// Derives the key of one node's draws (node type 0).
    #[inline]
    pub fn node(self, node: NodeId) -> NodeKey {
        NodeKey { key: self, node_type: 0, node: node.0 }
    }

    /// Derives the key of one link's draws, which are those of the node with the same number.
    #[inline]
    pub fn link(self, link: LinkId) -> NodeKey {
        self.node(NodeId(link.0))
    }
}

/// The key of one node's draws: an [`RngKey`] plus the node's type and id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeKey {
    key: RngKey,
    node_type: u32,
    node: u32,
}

impl NodeKey {
    /// Creates a generator of the node's draws, starting with draw 0.
    #[inline]
    pub fn rng(self) -> NodeRng {
        NodeRng { key: self, group: 0, words: [0; 4], n_left: 0 }
    }

    /// Returns the draws `16 * batch..16 * (batch + 1)` of [`rng`](Self::rng).
    #[inline(always)]
    pub(crate) fn draw16(self, batch: u32) -> [u32; 16] {
        let words = self.key.draw_groups::<4>(self.node_type, self.node, 4 * batch);
        std::array::from_fn(|number| words[number % 4][number / 4])
    }
}

/// The random number generator of one node, a stream of 32-bit draws.
#[derive(Debug, Clone)]
pub struct NodeRng {
    key: NodeKey,
    group: u32,
    words: [u32; 4],
    n_left: u8,
}

impl NodeRng {
    /// Returns the next draw, uniform over all 32-bit numbers.
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

    /// Returns a number below `n` from the next draw: the high word of the draw times `n` (Lemire 2019, without the
    /// rejection step, so it always takes one draw). The bias is below `n / 2^32`.
    #[inline]
    pub fn below(&mut self, n: u32) -> u32 {
        mul_hi(self.next_u32(), n)
    }

    /// Returns a number in `[0, 1)` from the next draw, a multiple of 2^-24.
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

/// Same as [`philox`], but for `N` counters at once, as `[word][counter]`.
#[inline(always)]
fn philox_groups<const N: usize>(counters: [[u32; N]; 4], key: [u32; 2]) -> [[u32; N]; 4] {
    // A vector multiplication takes the lower halves of 64-bit lanes. Words therefore stay in such lanes for all rounds,
    // with any bits in their upper halves.
    let mut c = counters.map(|words| words.map(u64::from));
    let mut k = key;
    for _ in 0..ROUNDS {
        let mut next = [[0; N]; 4];
        for group in 0..N {
            let one = u64::from(MULTIPLIER[1]) * u64::from(c[2][group] as u32);
            let other = u64::from(MULTIPLIER[0]) * u64::from(c[0][group] as u32);
            next[0][group] = (one >> 32) ^ c[1][group] ^ u64::from(k[0]);
            next[1][group] = one;
            next[2][group] = (other >> 32) ^ c[3][group] ^ u64::from(k[1]);
            next[3][group] = other;
        }
        c = next;
        k = [k[0].wrapping_add(WEYL[0]), k[1].wrapping_add(WEYL[1])];
    }
    c.map(|words| words.map(|word| word as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectorised_draws_equal_sequential_draws() {
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

    /// Compares with the known-answer vectors of Random123 1.09 (`kat_vectors`, philox4x32 with 7 rounds).
    #[test]
    fn philox_matches_published_test_vectors() {
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
