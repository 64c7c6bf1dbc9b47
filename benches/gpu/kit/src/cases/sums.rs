//! Cases of sums, means and maxima over segments, with a hub and empty segments, and of their gradients.

use burn::tensor::{Device, Tensor, TensorData};
use kiln_benches::Result;
use kiln_kernels::ops::{self, Aggregation, MessageWeights, OwnRow, Reduction};
use kiln_kernels::testing::{ramp, values};
use kiln_kernels::{DeviceBlock, DeviceSegments};

use super::{Case, with_hub};
use crate::outcome::Outcome;

/// The bound of sums of up to 20,000 numbers of about 1, which a device adds in chunks.
const SUM_BOUND: f32 = 2e-4;

/// The bound of means and normalised values, which are about 1.
const MEAN_BOUND: f32 = 1e-5;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dim in [3, 128] {
        cases.push(aggregated(format!("sum-{dim}"), dim, Reduction::Sum, OwnRow::Excluded));
        cases.push(aggregated(format!("mean-{dim}"), dim, Reduction::Mean, OwnRow::Excluded));
        cases.push(aggregated(format!("max-{dim}"), dim, Reduction::Max, OwnRow::Excluded));
    }
    cases.push(aggregated("mean-with-own-row".to_owned(), 64, Reduction::Mean, OwnRow::Concatenated));
    cases.push(Case::new("weighted-sum", |device| {
        let block = DeviceBlock::upload(&with_hub(), device);
        let weights = block.weights().cloned().ok_or("the block has no weights")?;
        let weighted = Aggregation { weights: Some(weights.into()), ..Reduction::Sum.into() };
        Ok(Outcome::floats(&values(ops::aggregate(&block, ramp([301, 32], device), weighted)), SUM_BOUND))
    }));
    cases.push(Case::new("attention-sum", |device| {
        let block = DeviceBlock::upload(&with_hub(), device);
        let weights = MessageWeights::PerHead(ramp([block.n_edges(), 4], device));
        let weighted = Aggregation { weights: Some(weights), ..Reduction::Sum.into() };
        Ok(Outcome::floats(&values(ops::aggregate(&block, ramp([301, 32], device), weighted)), SUM_BOUND))
    }));
    cases.push(gradient("sum-gradient", Reduction::Sum, SUM_BOUND));
    cases.push(gradient("max-gradient", Reduction::Max, SUM_BOUND));
    cases.push(Case::new("softmax", |device| {
        let segments = DeviceSegments::upload(&[0, 3, 3, 700, 701, 900], device);
        Ok(Outcome::floats(&values(ops::segment_softmax(&segments, ramp([900, 5], device))), MEAN_BOUND))
    }));
    cases
}

/// Maxima must be identical.
fn aggregated(name: String, dim: usize, reduce: Reduction, own: OwnRow) -> Case {
    Case::new(name, move |device| {
        let block = DeviceBlock::upload(&with_hub(), device);
        let aggregation = Aggregation { reduce, weights: None, own };
        let result = values(ops::aggregate(&block, rows(dim, device), aggregation));
        Ok(match reduce {
            Reduction::Sum => Outcome::floats(&result, SUM_BOUND),
            Reduction::Mean => Outcome::floats(&result, MEAN_BOUND),
            Reduction::Max => Outcome::copies(&result),
        })
    })
}

/// Returns rows with equal values in many places.
fn rows(dim: usize, device: &Device) -> Tensor<2> {
    let values: Vec<f32> = (0..301 * dim).map(|place| (place * 37 % 251) as f32 / 125.0 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, [301, dim]), device)
}

fn gradient(name: &str, reduce: Reduction, bound: f32) -> Case {
    Case::new(name, move |device| -> Result<Outcome> {
        let block = DeviceBlock::upload(&with_hub(), device);
        let x = ramp([301, 16], &device.clone().autodiff()).require_grad();
        let result = ops::aggregate(&block, x.clone(), reduce);
        let factors = ramp(result.dims(), &result.device());
        let grads = (result * factors).sum().backward();
        let gradient = x.grad(&grads).ok_or("the sum has no gradient")?;
        Ok(Outcome::floats(&values(gradient), bound))
    })
}
