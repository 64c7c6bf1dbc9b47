//! What the tests of several models share.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use kiln_kernels::testing::values;
use kiln_nn::{Ctx, Mode};
use kiln_sample::RngKey;

pub(crate) fn ctx(mode: Mode) -> Ctx {
    Ctx { key: RngKey::new(77), mode }
}

/// The names and values of a model's parameters, in the order in which they are saved.
pub(crate) fn parameters(model: &impl Module) -> Vec<(String, Vec<f32>)> {
    let mut visitor = Parameters::default();
    model.visit(&mut visitor);
    visitor.all
}

/// Checks the initial parameters of a model of the widths 5, 7 and 3: zero biases, and weights that fill the
/// range of Glorot and Bengio 2010, equation 16, times the gain.
pub(crate) fn check_initial_range(parameters: &[(String, Vec<f32>)], gain: f32) {
    for (name, all) in parameters {
        let [d_in, d_out]: [f32; 2] = if name.contains(".0.") { [5.0, 7.0] } else { [7.0, 3.0] };
        let bound = gain * (6.0 / (d_in + d_out)).sqrt();
        let largest = all.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        if name.ends_with("bias") {
            assert_eq!(largest, 0.0);
        } else {
            assert!(largest <= bound && 0.8 * bound < largest, "{name}: {largest} of {bound}");
        }
    }
}

#[derive(Default)]
struct Parameters {
    path: Vec<String>,
    all: Vec<(String, Vec<f32>)>,
}

impl ModuleVisitor for Parameters {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.all.push((self.path.join("."), values(param.val())));
    }
}
