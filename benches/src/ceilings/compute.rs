use std::hint::black_box;

use pulp::{Arch, Simd, WithSimd};

use super::timing::best_rate;

/// Chains that do not wait for each other. A processor starts two operations a cycle and has each ready after four
/// or five, so that 8 to 10 are in flight; more than 14 do not fit the registers of AVX2.
const N_CHAINS: usize = 12;

/// Operations of a chain in a pass: some 20 ms.
const N_ROUNDS: usize = 1 << 22;

/// Floating-point operations a second, as wide as the processor has them.
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

/// How many numbers a vector has.
struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES
    }
}

/// The chains `x = x * a + a`, which end near `a / (1 - a)`: no number grows or becomes too small to be normal. They
/// begin apart and are added up at the end, so that none can be left out.
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
