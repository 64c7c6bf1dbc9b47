use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use kiln_kernels::{is_cpu, ops, to_vec_f32};

/// The number added to the norm before the division, as in PyTorch's `clip_grad_norm_`.
const EPSILON: f64 = 1e-6;

/// Scales the gradients to a norm of at most `max_norm` (Pascanu, Mikolov and Bengio 2013, algorithm 1), as PyTorch's
/// `clip_grad_norm_`. The norm is that of all gradients together. Gradients of a smaller norm keep their bits.
///
/// Squares are added in the order of the parameters, so equal gradients have the same norm on every rank. On the CPU
/// they are added in f64, because a parallel sum would depend on the threads. On other devices the norm stays on the
/// device, and the host does not wait for it.
pub(crate) fn clip_by_norm<M: Module>(
    model: &M,
    gradients: GradientsParams,
    max_norm: f64,
    device: &Device,
) -> GradientsParams {
    if !is_cpu(device) {
        return clip_on_device(model, gradients, max_norm);
    }
    let mut squares = HostSquares { gradients: &gradients, sum: 0.0 };
    model.visit(&mut squares);
    let norm = squares.sum.sqrt();
    // A NaN is passed on, so that the next loss reports it.
    if norm <= max_norm {
        return gradients;
    }
    scaled(model, gradients, Factor::Number(max_norm / (norm + EPSILON)))
}

/// Scales the gradients like [`clip_by_norm`], without reading a value from the device.
fn clip_on_device<M: Module>(model: &M, gradients: GradientsParams, max_norm: f64) -> GradientsParams {
    let mut squares = DeviceSquares { gradients: &gradients, sum: None };
    model.visit(&mut squares);
    let Some(sum) = squares.sum else { return gradients };
    let factor = sum.sqrt().add_scalar(EPSILON).recip().mul_scalar(max_norm).clamp_max(1.0);
    scaled(model, gradients, Factor::Value(&factor))
}

/// A factor of all gradients.
pub(crate) enum Factor<'a> {
    /// A number of the host.
    Number(f64),
    /// A number on the device, `[1]`.
    Value(&'a Tensor<1>),
}

/// Multiplies the gradients of the model's parameters by a factor.
pub(crate) fn scaled<M: Module>(
    model: &M,
    gradients: GradientsParams,
    factor: Factor<'_>,
) -> GradientsParams {
    let mut scale = Scale { from: gradients, to: GradientsParams::new(), factor };
    model.visit(&mut scale);
    scale.to
}

struct HostSquares<'a> {
    gradients: &'a GradientsParams,
    sum: f64,
}

impl ModuleVisitor for HostSquares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            self.sum += to_vec_f32(gradient).iter().map(|&value| f64::from(value).powi(2)).sum::<f64>();
        }
    }
}

struct DeviceSquares<'a> {
    gradients: &'a GradientsParams,
    /// The sum of the squares so far, `[1]`.
    sum: Option<Tensor<1>>,
}

impl ModuleVisitor for DeviceSquares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.get::<D>(param.id) else { return };
        let shape = gradient.dims();
        let width = shape[D - 1];
        let n_values = shape.iter().product::<usize>();
        if n_values == 0 {
            return;
        }
        // Column sums have a fixed order on every device; a sum over all values may use atomic additions.
        let squares = gradient.clone().mul(gradient).reshape([n_values / width, width]);
        let of_columns = ops::column_sums(squares).reshape([width, 1]);
        let own: Tensor<1> = ops::column_sums(of_columns).reshape([1]);
        self.sum = Some(match self.sum.take() {
            Some(sum) => sum.add(own),
            None => own,
        });
    }
}

struct Scale<'a> {
    from: GradientsParams,
    to: GradientsParams,
    factor: Factor<'a>,
}

impl ModuleVisitor for Scale<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.from.remove::<D>(param.id) else { return };
        let gradient = match self.factor {
            Factor::Number(factor) => gradient.mul_scalar(factor),
            Factor::Value(factor) => gradient.mul(factor.clone().reshape([1; D])),
        };
        self.to.register(param.id, gradient);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Module, Debug)]
    struct Model {
        matrix: Param<Tensor<2>>,
        vector: Param<Tensor<1>>,
    }

    /// Returns a model and gradients of norm 13: 3 and 4 in the matrix, 12 in the vector.
    fn model() -> (Model, GradientsParams) {
        let device = Device::flex();
        let model = Model {
            matrix: Param::from_tensor(Tensor::zeros([2, 2], &device)),
            vector: Param::from_tensor(Tensor::zeros([2], &device)),
        };
        let mut gradients = GradientsParams::new();
        let matrix = Tensor::<2>::from_floats([[3.0, 0.0], [0.0, -4.0]], &device);
        gradients.register(model.matrix.id, matrix);
        gradients.register(model.vector.id, Tensor::<1>::from_floats([12.0, 0.0], &device));
        (model, gradients)
    }

    /// Clips the gradients on the host and on the device, and returns those of the matrix and the vector.
    fn clipped(has_vector: bool, max_norm: f64) -> [[Option<Vec<f32>>; 2]; 2] {
        [false, true].map(|on_device| {
            let (model, mut gradients) = model();
            if !has_vector {
                gradients.remove::<1>(model.vector.id);
            }
            let clipped = match on_device {
                true => clip_on_device(&model, gradients, max_norm),
                false => clip_by_norm(&model, gradients, max_norm, &Device::flex()),
            };
            let matrix = clipped.get::<2>(model.matrix.id).map(to_vec_f32);
            [matrix, clipped.get::<1>(model.vector.id).map(to_vec_f32)]
        })
    }

    const MATRIX: [f32; 4] = [3.0, 0.0, 0.0, -4.0];
    const VECTOR: [f32; 2] = [12.0, 0.0];

    #[test]
    fn gradients_are_scaled_to_the_norm_of_all_parameters_together() {
        for [matrix, vector] in clipped(true, 6.5) {
            let values = [matrix.unwrap_or_default(), vector.unwrap_or_default()].concat();
            let expected = [&MATRIX[..], &VECTOR].concat();
            let close = values.iter().zip(&expected).all(|(a, b)| (a - b / 2.0).abs() < 1e-5);
            assert!(close && values.len() == 6, "{values:?}");
        }
    }

    #[test]
    fn smaller_gradients_keep_their_bits() {
        for max_norm in [13.5, 1e9] {
            let same = [Some(MATRIX.to_vec()), Some(VECTOR.to_vec())];
            assert_eq!(clipped(true, max_norm), [same.clone(), same]);
        }
    }

    #[test]
    fn a_missing_gradient_stays_missing() {
        for [matrix, vector] in clipped(false, 1.0) {
            assert!(matrix.is_some_and(|matrix| (matrix[0] - 0.6).abs() < 1e-5));
            assert_eq!(vector, None);
        }
        let (model, _) = model();
        assert!(clip_on_device(&model, GradientsParams::new(), 1.0).is_empty());
    }
}
