//! Helpers of the tests of several models.

pub(crate) mod glorot;
pub(crate) mod graphs;
pub(crate) mod typed;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use kiln_kernels::testing::values;
use kiln_nn::{ForwardContext, Mode};
use kiln_sample::RngKey;

pub(crate) fn ctx(mode: Mode) -> ForwardContext {
    ForwardContext { key: RngKey::new(77), mode }
}

/// Returns the names and values of a model's parameters, in the order in which they are saved.
pub(crate) fn parameters(model: &impl Module) -> Vec<(String, Vec<f32>)> {
    let mut visitor = Parameters::default();
    model.visit(&mut visitor);
    visitor.all
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
