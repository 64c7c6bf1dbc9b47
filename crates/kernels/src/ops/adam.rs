use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::ops::backend::BlockOps;

/// One step of Adam (Kingma and Ba 2015, algorithm 1, in the order of the remark at the end of its section 2): the
/// parameters, and the decayed means of the gradients and of their squares, which start as zeros.
///
/// On Flex each of the three arrays is passed over once, in place where nothing else refers to it. In stock tensor
/// operations it is a dozen passes.
///
/// # Panics
/// When the shapes or the element types differ.
pub fn adam<const D: usize>(
    values: Tensor<D>,
    gradient: Tensor<D>,
    moments: [Tensor<D>; 2],
    step: AdamStep,
) -> (Tensor<D>, [Tensor<D>; 2]) {
    let [means, mean_squares] = moments;
    for other in [&gradient, &means, &mean_squares] {
        assert_eq!(
            values.dims(),
            other.dims(),
            "the shapes of a parameter, its gradient and its moments differ"
        );
        assert_eq!(
            values.dtype(),
            other.dtype(),
            "the element types of a parameter and the others differ: cast"
        );
    }
    let gradient = gradient.into_dispatch();
    let means = <Dispatch as BlockOps>::decayed_mean(means.into_dispatch(), gradient.clone(), step.betas[0]);
    let mean_squares =
        <Dispatch as BlockOps>::decayed_mean_square(mean_squares.into_dispatch(), gradient, step.betas[1]);
    let values = <Dispatch as BlockOps>::adam_parameters(
        values.into_dispatch(),
        means.clone(),
        mean_squares.clone(),
        step,
    );
    let moments = [means, mean_squares].map(Tensor::from_dispatch);
    (Tensor::from_dispatch(values), moments)
}

/// The numbers of one step of [`adam`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamStep {
    /// The step's number, from 1.
    pub time: usize,
    /// Step size.
    pub learning_rate: f64,
    /// By how much of their value the two means are kept from step to step.
    pub betas: [f32; 2],
    /// What is added to the root of the mean square, above 0.
    pub epsilon: f32,
    /// By how much of themselves times the learning rate the parameters shrink (Loshchilov and Hutter 2019,
    /// algorithm 2); 0 for none.
    pub weight_decay: f32,
}

impl AdamStep {
    /// What parameters are multiplied by before they move.
    pub(crate) fn kept(&self) -> f32 {
        (1.0 - self.learning_rate * f64::from(self.weight_decay)) as f32
    }

    pub(crate) fn rate(&self) -> f32 {
        self.learning_rate as f32
    }

    /// What the means are multiplied by: both starts at zero are corrected here.
    pub(crate) fn scale(&self) -> f32 {
        self.root_correction() / self.correction(0)
    }

    pub(crate) fn scaled_epsilon(&self) -> f32 {
        self.epsilon * self.root_correction()
    }

    fn root_correction(&self) -> f32 {
        self.correction(1).sqrt()
    }

    fn correction(&self, moment: usize) -> f32 {
        1.0 - self.betas[moment].powi(i32::try_from(self.time).unwrap_or(i32::MAX))
    }
}
