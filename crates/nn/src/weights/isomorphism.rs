//! The parameters of GIN and GINE in files of PyG and DGL.

use burn::module::Param;
use burn::tensor::Tensor;

use super::convert::set;
use super::names::{DefaultValues, Slot};
use super::{Parameter, WeightFormat, private};
use crate::{Epsilon, Error, Gin, Gine, Linear, Mlp, Result, WeightsError};

/// The largest number of dense layers of an MLP whose weights can be exchanged.
const MAX_LINEARS: usize = 4;

/// The slots of a layer: epsilon, then those of the dense layers. PyG's names are those of a `Sequential` with ReLU between
/// dense layers, then those of its `MLP`.
const PYG: [Slot; 1 + 2 * MAX_LINEARS] = [
    Slot::optional(&["eps"], DefaultValues::Own),
    Slot::transposed(&["nn.0.weight", "nn.lins.0.weight"]),
    Slot::bias(&["nn.0.bias", "nn.lins.0.bias"]),
    Slot::transposed(&["nn.2.weight", "nn.lins.1.weight"]),
    Slot::bias(&["nn.2.bias", "nn.lins.1.bias"]),
    Slot::transposed(&["nn.4.weight", "nn.lins.2.weight"]),
    Slot::bias(&["nn.4.bias", "nn.lins.2.bias"]),
    Slot::transposed(&["nn.6.weight", "nn.lins.3.weight"]),
    Slot::bias(&["nn.6.bias", "nn.lins.3.bias"]),
];
const DGL: [Slot; 1 + 2 * MAX_LINEARS] = [
    Slot::optional(&["eps"], DefaultValues::Own),
    Slot::transposed(&["apply_func.0.weight", "apply_func.linears.0.weight"]),
    Slot::bias(&["apply_func.0.bias", "apply_func.linears.0.bias"]),
    Slot::transposed(&["apply_func.2.weight", "apply_func.linears.1.weight"]),
    Slot::bias(&["apply_func.2.bias", "apply_func.linears.1.bias"]),
    Slot::transposed(&["apply_func.4.weight", "apply_func.linears.2.weight"]),
    Slot::bias(&["apply_func.4.bias", "apply_func.linears.2.bias"]),
    Slot::transposed(&["apply_func.6.weight", "apply_func.linears.3.weight"]),
    Slot::bias(&["apply_func.6.bias", "apply_func.linears.3.bias"]),
];

/// The slots of the linear layer of edges, in front of those of a GIN. Without it, features of edges are added as they are.
const EDGE_LINEAR: [Slot; 2] = [
    Slot { transposed: true, ..Slot::optional(&["lin.weight"], DefaultValues::Identity) },
    Slot::bias(&["lin.bias"]),
];

static GIN_PYG: [Slot; 1 + 2 * MAX_LINEARS] = PYG;
static GIN_DGL: [Slot; 1 + 2 * MAX_LINEARS] = DGL;
static GINE_PYG: [Slot; 3 + 2 * MAX_LINEARS] = with_edges(PYG);
static GINE_DGL: [Slot; 3 + 2 * MAX_LINEARS] = with_edges(DGL);

const fn with_edges(slots: [Slot; 1 + 2 * MAX_LINEARS]) -> [Slot; 3 + 2 * MAX_LINEARS] {
    let [weight, bias] = EDGE_LINEAR;
    let [a, b, c, d, e, f, g, h, i] = slots;
    [weight, bias, a, b, c, d, e, f, g, h, i]
}

/// Checks that the names of the slots suffice for an MLP.
fn check_mlp(mlp: &Mlp) -> Result<()> {
    match mlp.norms.is_empty() && mlp.linears.len() <= MAX_LINEARS {
        true => Ok(()),
        false => Err(Error::Weights(WeightsError::NotPortable {
            what: "an MLP with normalisations or more than 4 linear layers",
        })),
    }
}

/// Returns the number of dense layers of an MLP.
///
/// # Panics
/// Panics if [`check_mlp`] returns an error.
fn n_linears(mlp: &Mlp) -> usize {
    if let Err(error) = check_mlp(mlp) {
        panic!("{error}");
    }
    mlp.linears.len()
}

/// Returns epsilon and the parameters of the dense layers.
fn params(mlp: &Mlp, epsilon: Option<&Param<Tensor<1>>>, configured: Epsilon) -> Vec<Parameter> {
    let (Epsilon::Fixed(fixed) | Epsilon::Learnable(fixed)) = configured;
    let fixed = || Tensor::from_data([fixed], &mlp.linears[0].weight.val().device());
    let epsilon = epsilon.map_or_else(|| Parameter { shape: vec![1], values: fixed() }, Parameter::new);
    let linears = mlp.linears.iter().flat_map(of_linear);
    std::iter::once(epsilon).chain(linears).collect()
}

fn of_linear(linear: &Linear) -> [Parameter; 2] {
    [Parameter::new(&linear.weight), Parameter::new(&linear.bias)]
}

fn set_linear(linear: &mut Linear, values: &mut impl Iterator<Item = Vec<f32>>) {
    set(&mut linear.weight, values);
    set(&mut linear.bias, values);
}

fn set_layer(
    mlp: &mut Mlp,
    epsilon: Option<&mut Param<Tensor<1>>>,
    values: &mut impl Iterator<Item = Vec<f32>>,
) {
    match epsilon {
        Some(epsilon) => set(epsilon, values),
        // A fixed epsilon was checked to be that of the file.
        None => drop(values.next()),
    }
    mlp.linears.iter_mut().for_each(|linear| set_linear(linear, values));
}

/// Checks that a fixed epsilon is that of the file. `values` are those of the layer's slot.
fn check_epsilon(layer: usize, configured: Epsilon, values: &[f32]) -> Result<()> {
    match configured {
        Epsilon::Fixed(expected) if values != [expected] => {
            Err(Error::Weights(WeightsError::OtherEpsilon { layer, expected, got: values[0] }))
        }
        _ => Ok(()),
    }
}

impl private::Layers for Gine {
    const COMPLETE: &'static str = "a `Sequential` of linear layers and ReLU as `nn` and edge_dim in PyG";

    fn check_portable(&self) -> Result<()> {
        self.layers.iter().try_for_each(|layer| check_mlp(&layer.mlp))
    }

    fn slots(&self, format: WeightFormat) -> &'static [Slot] {
        let n_slots = 3 + 2 * n_linears(&self.layers[0].mlp);
        match format {
            WeightFormat::Pyg => &GINE_PYG[..n_slots],
            WeightFormat::Dgl => &GINE_DGL[..n_slots],
        }
    }

    fn params(&self, _: WeightFormat) -> Vec<Vec<Parameter>> {
        let of_layers = self.layers.iter().map(|layer| {
            let of_edges = layer.edge_linear.as_ref().map(of_linear);
            let of_edges = of_edges.expect("the layers of a model should have a linear layer of edges");
            let others = params(&layer.mlp, layer.epsilon.as_ref(), layer.configured_epsilon());
            of_edges.into_iter().chain(others).collect()
        });
        of_layers.collect()
    }

    fn check(&self, layers: &[Vec<Vec<f32>>]) -> Result<()> {
        let mut layers = self.layers.iter().zip(layers).enumerate();
        layers.try_for_each(|(i, (layer, values))| check_epsilon(i, layer.configured_epsilon(), &values[2]))
    }

    fn set_layers(&mut self, layers: Vec<Vec<Vec<f32>>>) {
        for (layer, values) in self.layers.iter_mut().zip(layers) {
            let mut values = values.into_iter();
            if let Some(linear) = &mut layer.edge_linear {
                set_linear(linear, &mut values);
            }
            set_layer(&mut layer.mlp, layer.epsilon.as_mut(), &mut values);
        }
    }
}

impl private::Layers for Gin {
    const COMPLETE: &'static str =
        "a `Sequential` of linear layers and ReLU as `nn` in PyG and `apply_func` in DGL";

    fn check_portable(&self) -> Result<()> {
        self.layers.iter().try_for_each(|layer| check_mlp(&layer.conv.mlp))
    }

    fn slots(&self, format: WeightFormat) -> &'static [Slot] {
        let n_slots = 1 + 2 * n_linears(&self.layers[0].conv.mlp);
        match format {
            WeightFormat::Pyg => &GIN_PYG[..n_slots],
            WeightFormat::Dgl => &GIN_DGL[..n_slots],
        }
    }

    fn params(&self, _: WeightFormat) -> Vec<Vec<Parameter>> {
        let of_layers = self.layers.iter().map(|layer| {
            params(&layer.conv.mlp, layer.conv.epsilon.as_ref(), layer.conv.configured_epsilon())
        });
        of_layers.collect()
    }

    fn check(&self, layers: &[Vec<Vec<f32>>]) -> Result<()> {
        let mut layers = self.layers.iter().zip(layers).enumerate();
        layers.try_for_each(|(i, (layer, values))| {
            check_epsilon(i, layer.conv.configured_epsilon(), &values[0])
        })
    }

    fn set_layers(&mut self, layers: Vec<Vec<Vec<f32>>>) {
        for (layer, values) in self.layers.iter_mut().zip(layers) {
            let conv = &mut layer.conv;
            set_layer(&mut conv.mlp, conv.epsilon.as_mut(), &mut values.into_iter());
        }
    }
}
