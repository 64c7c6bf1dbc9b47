//! Initial weights, drawn on the host so that they are identical on every device.

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use kiln_sample::{KeyDomain, RngKey};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// The distribution of the initial weights of a [`Sage`](crate::Sage) model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightInit {
    /// That of DGL's `SAGEConv`: Xavier uniform with the gain of a ReLU (Glorot and Bengio 2010, equation 16), and biases
    /// of 0.
    #[default]
    Dgl,
    /// That of PyG's `SAGEConv`, which is also that of PyTorch's `Linear`: uniform within `1 / sqrt(d_in)`, biases too.
    /// The range is smaller. It suits link prediction: the dot product of two rows is a logit, and rows with large values
    /// saturate it.
    Pyg,
}

/// The gain for a ReLU (He, Zhang, Ren, Sun 2015, section 2.2), as in DGL's `SAGEConv`.
pub(crate) const RELU_GAIN: f64 = std::f64::consts::SQRT_2;

/// The gain of 1, with which the range of [`xavier_uniform`] is that of Glorot and Bengio.
pub(crate) const NO_GAIN: f64 = 1.0;

/// Draws a matrix `[d_in, d_out]`, uniform in `[-a, a)` with `a = gain * sqrt(6 / (d_in + d_out))` (Glorot and
/// Bengio 2010, equation 16).
pub(crate) fn xavier_uniform(
    key: RngKey,
    parameter: u64,
    [d_in, d_out]: [usize; 2],
    gain: f64,
    device: &Device,
) -> Param<Tensor<2>> {
    uniform(key, parameter, [d_in, d_out], xavier_bound([d_in, d_out], gain), device)
}

/// The bound `a` of [`xavier_uniform`].
pub(crate) fn xavier_bound([d_in, d_out]: [usize; 2], gain: f64) -> f64 {
    gain * (6.0 / (d_in + d_out) as f64).sqrt()
}

/// Draws a tensor of numbers that are uniform in `[-bound, bound)`, in row-major order; see [`draw`].
pub(crate) fn uniform<const D: usize>(
    key: RngKey,
    parameter: u64,
    shape: [usize; D],
    bound: f64,
    device: &Device,
) -> Param<Tensor<D>> {
    let values: Vec<f32> = draw(key, parameter, shape.iter().product(), bound).collect();
    Param::from_tensor(Tensor::from_data(TensorData::new(values, shape), device))
}

/// Draws numbers that are uniform in `[-bound, bound)`.
///
/// Each number uses the upper 24 bits of one output of xoshiro256++ seeded (through SplitMix64) with
/// `key.fold_in(KeyDomain::Host, parameter)`.
pub(crate) fn draw(key: RngKey, parameter: u64, n_values: usize, bound: f64) -> impl Iterator<Item = f32> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(key.fold_in(KeyDomain::Host, parameter).to_u64());
    let bound = bound as f32;
    (0..n_values).map(move |_| {
        let unit = (rng.next_u64() >> 40) as f32 * (1.0 / 16_777_216.0);
        (2.0 * unit - 1.0) * bound
    })
}

/// Returns a vector of zeros.
pub(crate) fn zeros(width: usize, device: &Device) -> Param<Tensor<1>> {
    Param::from_tensor(Tensor::zeros([width], device))
}
