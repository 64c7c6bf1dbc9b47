use std::hint::black_box;

use pulp::{Arch, Simd, WithSimd};

use super::timing::{best_rate, per_pass};

/// The number of independent chains of operations. A processor starts two operations per cycle with a latency of four
/// or five cycles, so 8 to 10 operations are in flight. The values of more than 14 chains do not fit into the registers
/// of AVX2.
const N_CHAINS: usize = 12;

/// The number of fused multiply-adds of a chain in a pass.
const N_ROUNDS: usize = per_pass(1 << 22);

/// Measures floating-point operations per second with the widest vectors of the processor. A fused multiply-add counts
/// as two operations.
pub(super) fn fma(n_threads: usize) -> f64 {
    let arch = Arch::new();
    let lanes = arch.dispatch(Lanes);
    let flop = n_threads * N_ROUNDS * N_CHAINS * lanes * 2;
    best_rate(n_threads, flop, |_| {
        move || {
            black_box(arch.dispatch(Chains(black_box(0.5))));
        }
    })
}

/// An operation that returns the number of f32 lanes of a vector.
struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES
    }
}

/// The chains `x = x * a + a`, which converge to `a / (1 - a)`, so that no value overflows or becomes subnormal. They
/// have different start values and are summed at the end, so that the compiler cannot remove a chain.
struct Chains(f32);

impl WithSimd for Chains {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        let factor = simd.splat_f32s(self.0);
        let mut chains = [factor; N_CHAINS];
        for (i, chain) in chains.iter_mut().enumerate() {
            *chain = simd.splat_f32s(i as f32);
        }
        for _ in 0..N_ROUNDS {
            for chain in &mut chains {
                *chain = simd.mul_add_f32s(*chain, factor, factor);
            }
        }
        chains.into_iter().map(|chain| simd.reduce_sum_f32s(chain)).sum()
    }
}
