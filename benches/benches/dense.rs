//! Stage `dense`: the matrix products of the layers of a GraphSAGE step of width 256: a layer's forward product, and
//! the gradients of its weights and, except for the first layer, of its input. The rate counts rows. The benches whose
//! names end in `-bf16` compute in bf16, on processors that can; their ceiling is that of f32, which they may exceed.

use std::hint::black_box;
use std::time::{Duration, Instant};

use burn::tensor::{Device, Distribution, Tensor};
use kiln_benches::train::HIDDEN;
use kiln_benches::{Result, Stage, Work, inputs, n_threads};
use kiln_kernels::ops::{self, MatmulPrecision, has_bf16_products, set_matmul_precision};

pub(crate) fn main() -> Result {
    let device = Device::flex();
    let mut stage = Stage::new("dense");
    let precisions = [(MatmulPrecision::F32, ""), (MatmulPrecision::Bf16, "-bf16")];
    let n_precisions = if has_bf16_products() { 2 } else { 1 };
    for input in inputs()? {
        let sampled = input.sampled(1)?;
        let widths = [input.dataset.node_features()?.dim(), HIDDEN];
        for (i, (block, d_in)) in sampled[0].blocks.iter().zip(widths).enumerate() {
            let layer = Layer::new(block.n_dst(), d_in, &device, if i == 0 { X::Given } else { X::Tracked });
            let flop = 2 * (block.n_dst() * d_in * HIDDEN) as u64;
            let work = Work::new(block.n_dst() as u64, "rows", n_threads());
            let n_products = if i == 0 { 1 } else { 2 };
            for (precision, suffix) in &precisions[..n_precisions] {
                set_matmul_precision(*precision);
                let variant = format!("layer{i}-forward{suffix}");
                stage.bench(&variant, &input.name, work.flop(flop), |bencher| {
                    bencher.iter(|| black_box(layer.plain()));
                })?;
                let variant = format!("layer{i}-backward{suffix}");
                stage.bench(&variant, &input.name, work.flop(n_products * flop), |bencher| {
                    bencher.iter_custom(|n| (0..n).map(|_| layer.backward()).sum());
                })?;
            }
        }
    }
    set_matmul_precision(MatmulPrecision::F32);
    stage.finish();
    Ok(())
}

/// The input of a layer.
#[derive(PartialEq)]
enum X {
    /// The features, which have no gradient.
    Given,
    /// The output of the previous layer, which has a gradient.
    Tracked,
}

/// The dense product of one layer: its input and its parameters, on a device that tracks gradients.
struct Layer {
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Tensor<2>,
}

impl Layer {
    fn new(n_rows: usize, d_in: usize, device: &Device, x: X) -> Self {
        let device = &device.clone().autodiff();
        let draw = |shape: [usize; 2]| Tensor::<2>::random(shape, Distribution::Uniform(-1.0, 1.0), device);
        let input = draw([n_rows, d_in]);
        Self {
            x: if x == X::Tracked { input.require_grad() } else { input },
            weight: draw([d_in, HIDDEN]).require_grad(),
            bias: draw([1, HIDDEN]).require_grad(),
        }
    }

    fn forward(&self) -> Tensor<2> {
        ops::linear(self.bias.clone(), self.x.clone(), self.weight.clone())
    }

    /// Computes the product without tracking gradients.
    fn plain(&self) -> Tensor<2> {
        ops::linear(self.bias.clone().inner(), self.x.clone().inner(), self.weight.clone().inner())
    }

    /// Returns the time of the backward pass only. The loss is the sum of all results.
    fn backward(&self) -> Duration {
        let out = self.forward();
        let started = Instant::now();
        let gradients = black_box(out.backward());
        let elapsed = started.elapsed();
        drop(gradients);
        elapsed
    }
}
