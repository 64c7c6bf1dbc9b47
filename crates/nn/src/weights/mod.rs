//! Import and export of weights in the formats of PyG and DGL, as safetensors files.

mod convert;
mod names;

use std::collections::HashMap;

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use kiln_kernels::to_vec_f32;
use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};

use crate::{Error, Gcn, Result, Sage};
use convert::{check_shape, set, transposed, values};
use names::{Layout, Slot, find_layers, find_naming};

/// The format of a weights file: the library whose tensor names and layouts it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightFormat {
    /// The format of PyG's `SAGEConv` and `GCNConv`.
    Pyg,
    /// The format of DGL's `SAGEConv` and `GraphConv`.
    Dgl,
}

/// A model whose weights can be exchanged with PyG and DGL: [`Sage`] and [`Gcn`].
///
/// | library | layer | own row | neighbours | bias |
/// |---|---|---|---|---|
/// | PyG | `SAGEConv` | `lin_r.weight` | `lin_l.weight` | `lin_l.bias` |
/// | DGL | `SAGEConv` | `fc_self.weight` | `fc_neigh.weight` | `fc_self.bias`, in earlier versions `bias` |
/// | PyG | `GCNConv` | | `lin.weight` | `bias` |
/// | DGL | `GraphConv` | | `weight` | `bias` |
///
/// Matrices are `[d_out, d_in]`, except in DGL's `GraphConv`, which stores `[d_in, d_out]` like kiln.
///
/// Only the parameters of the convolutions are exchanged, not those of [`Frame`](crate::Frame): a file with tensors of
/// normalisations or of a linear layer after the convolutions is rejected.
///
/// The file does not determine the aggregation and the edge weights, which must be chosen to match:
///
/// - DGL's aggregators `"pool"` and `"lstm"` have additional weights, and its `"gcn"` has no weight for a node's own
///   row. Files of these are rejected.
/// - PyG's `GCNConv` computes the edge weights of `kiln_graph::gcn_norm`. DGL's `GraphConv` adds no self-loops and
///   divides by the square roots of out-degree and in-degree, which is equal only in a symmetric graph with self-loops.
pub trait PortableWeights: Module + private::Layers {}

impl PortableWeights for Sage {}

impl PortableWeights for Gcn {}

/// Loads the weights of a safetensors file from PyG or DGL into a model, and returns the format of the file. The model
/// does not change if there is an error.
///
/// Layers are identified by the suffixes of the tensors' names ([`PortableWeights`]), after any prefix (`convs.0.`,
/// `module.layers.0.`), and ordered by the numbers in the prefix. A layer without a bias gets a bias of zeros, which is
/// equivalent. Elements may be f32, f64 (rounded to f32), f16 or bf16. Non-finite values are accepted.
///
/// ```
/// use burn::tensor::Device;
/// use kiln_nn::{GcnConfig, WeightFormat, load_safetensors, to_safetensors};
/// use kiln_sample::RngKey;
/// let config = GcnConfig::new(8, 3).hidden(16).layers(2);
/// let trained = config.init(RngKey::new(0), &Device::flex())?;
/// let bytes = to_safetensors(&trained, WeightFormat::Pyg);
/// let mut model = config.init(RngKey::new(1), &Device::flex())?;
/// assert_eq!(load_safetensors(&mut model, &bytes)?, WeightFormat::Pyg);
/// assert_eq!(to_safetensors(&model, WeightFormat::Dgl), to_safetensors(&trained, WeightFormat::Dgl));
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Returns an error if the bytes are not a complete safetensors file; if tensors have unknown names, are missing,
/// surplus or ambiguous; if the number of layers differs from the model's or their order is ambiguous; or if a tensor
/// has another shape or element type. Each case is a variant of [`Error`] with the names of the tensors.
pub fn load_safetensors<M: PortableWeights>(model: &mut M, bytes: &[u8]) -> Result<WeightFormat> {
    let broken = |error: safetensors::SafeTensorError| Error::NotSafetensors { reason: error.to_string() };
    let file = SafeTensors::deserialize(bytes).map_err(broken)?;
    let mut names = file.names();
    names.sort_unstable();
    let naming = find_naming(&names, M::slots)?;
    let slots = M::slots(naming);
    let params = model.params();
    let found = find_layers(&names, slots, params.len())?;
    let mut loaded = Vec::with_capacity(found.len());
    for (names, params) in found.iter().zip(&params) {
        let [d_in, d_out] = params.matrices[0].dims();
        let mut layer = Vec::with_capacity(slots.len());
        for (slot, name) in slots.iter().zip(names) {
            let Some(name) = name else {
                layer.push(vec![0.0; d_out]);
                continue;
            };
            let tensor = file.tensor(name).map_err(broken)?;
            let shape = slot.layout.shape([d_in, d_out]);
            check_shape(name, &tensor, &shape)?;
            let values = values(name, &tensor)?;
            layer.push(if slot.layout == Layout::OutIn { transposed(&values, d_in) } else { values });
        }
        loaded.push(layer);
    }
    model.set_layers(loaded);
    Ok(naming)
}

/// Serialises a model's weights as a safetensors file in f32, with the tensor names and layouts of a library. Equal
/// weights give identical bytes. The prefix of layer `i` is `convs.{i}.` for PyG and `layers.{i}.` for DGL.
pub fn to_safetensors<M: PortableWeights>(model: &M, naming: WeightFormat) -> Vec<u8> {
    let stem = match naming {
        WeightFormat::Pyg => "convs",
        WeightFormat::Dgl => "layers",
    };
    let mut tensors = Vec::new();
    for (i, params) in model.params().into_iter().enumerate() {
        let [d_in, d_out] = params.matrices[0].dims();
        let matrices = params.matrices.into_iter().map(|matrix| to_vec_f32(matrix.val()));
        let all = matrices.chain([to_vec_f32(params.bias.val())]);
        for (slot, values) in M::slots(naming).iter().zip(all) {
            let values = if slot.layout == Layout::OutIn { transposed(&values, d_out) } else { values };
            let bytes: Vec<u8> = values.into_iter().flat_map(f32::to_le_bytes).collect();
            tensors.push((format!("{stem}.{i}.{}", slot.names[0]), slot.layout.shape([d_in, d_out]), bytes));
        }
    }
    let views = tensors.iter().map(|(name, shape, bytes)| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
        (name, view.expect("the number of bytes should match the shape"))
    });
    // Loaders of PyTorch tensors require this entry. A second metadata entry would make the bytes depend on the random
    // order of the hash table.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    serialize(views, Some(metadata)).expect("the header should be within the size limit of the format")
}

/// The interface of models to this module. It is private, so that [`PortableWeights`] is sealed and can be extended
/// without breaking other crates.
mod private {
    use super::{Params, Slot, WeightFormat};

    pub trait Layers {
        /// The parameters of a layer in a library's files: the matrices, then the bias.
        fn slots(naming: WeightFormat) -> &'static [Slot];

        /// The layers' parameters, input layer first, in the order of the slots.
        fn params(&self) -> Vec<Params<'_>>;

        /// Sets the parameters of all layers: `layers[i][k]` has the values of the parameter of slot `k` in layer `i`,
        /// row-major. The number of values must match the parameter.
        fn set_layers(&mut self, layers: Vec<Vec<Vec<f32>>>);
    }
}

/// One layer's parameters.
#[derive(Debug)]
pub struct Params<'a> {
    /// The weight matrices, each `[d_in, d_out]`.
    matrices: Vec<&'a Param<Tensor<2>>>,
    bias: &'a Param<Tensor<1>>,
}

impl private::Layers for Sage {
    fn slots(naming: WeightFormat) -> &'static [Slot] {
        const PYG: &[Slot] = &[
            Slot { names: &["lin_l.weight"], layout: Layout::OutIn },
            Slot { names: &["lin_r.weight"], layout: Layout::OutIn },
            Slot { names: &["lin_l.bias"], layout: Layout::Bias },
        ];
        const DGL: &[Slot] = &[
            Slot { names: &["fc_neigh.weight"], layout: Layout::OutIn },
            Slot { names: &["fc_self.weight"], layout: Layout::OutIn },
            Slot { names: &["fc_self.bias", "bias"], layout: Layout::Bias },
        ];
        match naming {
            WeightFormat::Pyg => PYG,
            WeightFormat::Dgl => DGL,
        }
    }

    fn params(&self) -> Vec<Params<'_>> {
        let params = self.layers.iter().map(|layer| Params {
            matrices: vec![&layer.weight_neigh, &layer.weight_self],
            bias: &layer.bias,
        });
        params.collect()
    }

    fn set_layers(&mut self, layers: Vec<Vec<Vec<f32>>>) {
        for (layer, values) in self.layers.iter_mut().zip(layers) {
            let mut values = values.into_iter();
            set(&mut layer.weight_neigh, &mut values);
            set(&mut layer.weight_self, &mut values);
            set(&mut layer.bias, &mut values);
        }
    }
}

impl private::Layers for Gcn {
    fn slots(naming: WeightFormat) -> &'static [Slot] {
        const PYG: &[Slot] = &[
            Slot { names: &["lin.weight"], layout: Layout::OutIn },
            Slot { names: &["bias"], layout: Layout::Bias },
        ];
        const DGL: &[Slot] = &[
            Slot { names: &["weight"], layout: Layout::InOut },
            Slot { names: &["bias"], layout: Layout::Bias },
        ];
        match naming {
            WeightFormat::Pyg => PYG,
            WeightFormat::Dgl => DGL,
        }
    }

    fn params(&self) -> Vec<Params<'_>> {
        let params = self.layers.iter();
        params.map(|layer| Params { matrices: vec![&layer.weight], bias: &layer.bias }).collect()
    }

    fn set_layers(&mut self, layers: Vec<Vec<Vec<f32>>>) {
        for (layer, values) in self.layers.iter_mut().zip(layers) {
            let mut values = values.into_iter();
            set(&mut layer.weight, &mut values);
            set(&mut layer.bias, &mut values);
        }
    }
}
