//! Import and export of weights in the formats of PyG and DGL, as safetensors files.

mod attention;
mod convert;
mod convolution;
mod format;
mod isomorphism;
mod names;

use std::collections::HashMap;

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use kiln_kernels::to_vec_f32;
use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};

use crate::{Error, Gat, Gcn, Gin, Gine, Result, Rgcn, Sage, WeightsError};
use convert::{check_shape, transposed, values};
pub use format::WeightFormat;
use names::{LayerNames, Slot, find_layers, find_naming};

/// A model whose weights can be exchanged with PyG and DGL: [`Sage`], [`Gcn`], [`Gat`], [`Rgcn`], [`Gin`] and [`Gine`].
///
/// | parameter | PyG | shape | DGL | shape |
/// |---|---|---|---|---|
/// | [`Sage`] | `SAGEConv` | | `SAGEConv` | |
/// | own row | `lin_r.weight` | `[d_out, d_in]` | `fc_self.weight` | `[d_out, d_in]` |
/// | neighbours | `lin_l.weight` | `[d_out, d_in]` | `fc_neigh.weight` | `[d_out, d_in]` |
/// | bias | `lin_l.bias` | `[d_out]` | `fc_self.bias`, in earlier versions `bias` | `[d_out]` |
/// | [`Gcn`] | `GCNConv` | | `GraphConv` | |
/// | neighbours | `lin.weight` | `[d_out, d_in]` | `weight` | `[d_in, d_out]` |
/// | bias | `bias` | `[d_out]` | `bias` | `[d_out]` |
/// | [`Gat`] | `GATConv` | | `GATConv` | |
/// | weight | `lin.weight`, before 2.5 `lin_src.weight` | `[h * d_head, d_in]` | `fc.weight` | `[h * d_head, d_in]` |
/// | sources | `att_src` | `[1, h, d_head]` | `attn_l` | `[1, h, d_head]` |
/// | destinations | `att_dst` | `[1, h, d_head]` | `attn_r` | `[1, h, d_head]` |
/// | bias | `bias` | `[d_out]` | `bias` | `[h * d_head]` |
/// | [`Gat`] with [`GatV2`](crate::AttentionKind::GatV2) | `GATv2Conv` | | `GATv2Conv` | |
/// | sources | `lin_l.weight` | `[h * d_head, d_in]` | `fc_src.weight` | `[h * d_head, d_in]` |
/// | bias of sources | `lin_l.bias` | `[h * d_head]` | `fc_src.bias` | `[h * d_head]` |
/// | destinations | `lin_r.weight` | `[h * d_head, d_in]` | `fc_dst.weight` | `[h * d_head, d_in]` |
/// | bias of destinations | `lin_r.bias` | `[h * d_head]` | `fc_dst.bias` | `[h * d_head]` |
/// | attention | `att` | `[1, h, d_head]` | `attn` | `[1, h, d_head]` |
/// | bias | `bias` | `[d_out]` | none | |
/// | edge features | `lin_edge.weight` | `[h * d_head, d_edge]` | `fc_edge.weight` | `[h * d_head, d_edge]` |
/// | [`Rgcn`] | `RGCNConv` | | `RelGraphConv` | |
/// | own row | `root` | `[d_in, d_out]` | `loop_weight` | `[d_in, d_out]` |
/// | bases | `weight` | `[n_bases, d_in, d_out]` | `linear_r.W` | `[n_bases, d_in, d_out]` |
/// | coefficients | `comp` | `[n_relations, n_bases]` | `linear_r.coeff` | `[n_relations, n_bases]` |
/// | bias | `bias` | `[d_out]` | `h_bias` | `[d_out]` |
/// | [`Gin`], [`Gine`] | `GINConv`, `GINEConv` | | `GINConv`, `GINEConv` | |
/// | epsilon | `eps` | `[1]` | `eps` | `[1]` |
/// | MLP | `nn.0.weight`, `nn.2.weight`, ..., of an `MLP` `nn.lins.0.weight`, ... | `[d_out, d_in]` | `apply_func.0.weight`, ... | `[d_out, d_in]` |
/// | biases | `nn.0.bias`, `nn.2.bias`, ... | `[d_out]` | `apply_func.0.bias`, ... | `[d_out]` |
/// | edges, of [`Gine`] | `lin.weight` | `[d_in, d_edge]` | `lin.weight` | `[d_in, d_edge]` |
/// | bias of edges | `lin.bias` | `[d_in]` | `lin.bias` | `[d_in]` |
///
/// Here `h` is the number of heads, and `d_out` is `h * d_head` for concatenated heads and `d_head` for averaged heads.
///
/// Only the parameters of the convolutions are exchanged, not those of [`Frame`](crate::Frame), nor the normalisations
/// after the layers of a [`Gin`] and its linear layers after the readout: a file with tensors of normalisations or of a
/// linear layer after the convolutions is rejected.
///
/// The file does not determine the aggregation and the edge weights, which must be chosen to match:
///
/// - DGL's aggregators `"pool"` and `"lstm"` have additional weights, and its `"gcn"` has no weight for a node's own
///   row. Files of these are rejected.
/// - PyG's `GCNConv` computes the edge weights of `kiln_graph::gcn_norm`. DGL's `GraphConv` adds no self-loops and
///   divides by the square roots of out-degree and in-degree, which is equal only in a symmetric graph with self-loops.
/// - PyG's `GATConv` and `GATv2Conv` add a self-loop to each node. In DGL and kiln, the graph must have them.
/// - DGL's `GATv2Conv` reads no edge features: a module with a layer `fc_edge`, which is derived from it, must add its rows to the
///   sums of the scores, as PyG's layer does.
/// - PyG's `RGCNConv` must have the default aggregation, `"mean"`. DGL's `RelGraphConv` computes sums, which are
///   equal if the argument `norm` of each edge is 1 divided by the number of edges with the same destination and type.
/// - The MLP of PyG's and DGL's `GINConv` and `GINEConv` must be a `Sequential` of linear layers with ReLU between them, at
///   most 4. DGL's `GINEConv` has no linear layer of edges: a module with a layer `lin`, which is derived from it, must apply
///   `lin` to the features first.
/// - A fixed epsilon must be that of the file.
///
/// Where the parameters differ, they are converted:
///
/// - DGL's `GATConv` has a bias per head even if the heads are averaged. The bias of kiln is their mean, and a written
///   file has it for each head.
/// - DGL's `GATv2Conv` has no bias of the output. In a written file, this bias is added to the bias of sources and
///   subtracted from the bias of destinations, which changes neither the scores nor the outputs of nodes with incoming
///   edges.
/// - `RGCNConv` without `num_bases` and `RelGraphConv` without a regularizer have a matrix per relation and no
///   coefficients. Such a file is loaded into a model of as many bases as relations, with the identity matrix as
///   coefficients.
pub trait PortableWeights: Module + private::Layers {}

impl PortableWeights for Sage {}

impl PortableWeights for Gcn {}

impl PortableWeights for Gat {}

impl PortableWeights for Rgcn {}

impl PortableWeights for Gin {}

impl PortableWeights for Gine {}

/// Loads the weights of a safetensors file from PyG or DGL into a model, and returns the format of the file. The model
/// does not change if there is an error.
///
/// Layers are identified by the suffixes of the tensors' names ([`PortableWeights`]), after any prefix (`convs.0.`,
/// `module.layers.0.`), and ordered by the numbers in the prefix. A layer without a bias gets a bias of zeros, which is
/// equivalent. Two tensors for one parameter are accepted if they are equal. Elements may be f32, f64 (rounded to f32),
/// f16 or bf16. Non-finite values are accepted.
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
///
/// # Panics
/// Panics if layers of a [`Gat`] were replaced by layers of the other attention or with shared weights.
pub fn load_safetensors<M: PortableWeights>(model: &mut M, bytes: &[u8]) -> Result<WeightFormat> {
    let broken = |error: safetensors::SafeTensorError| {
        Error::Weights(WeightsError::NotSafetensors { reason: error.to_string() })
    };
    let file = SafeTensors::deserialize(bytes).map_err(broken)?;
    let mut names = file.names();
    names.sort_unstable();
    model.check_portable()?;
    let format = find_naming(&names, |format| model.slots(format))?;
    let slots = model.slots(format);
    let params = model.params(format);
    let found = find_layers(&names, slots, params.len(), |one: &str, other: &str| {
        file.tensor(one).ok() == file.tensor(other).ok()
    })?;
    let mut loaded = Vec::with_capacity(found.len());
    for (LayerNames { prefix, tensors }, params) in found.iter().zip(&params) {
        let mut layer = Vec::with_capacity(slots.len());
        for ((slot, name), Parameter { shape, values: own }) in slots.iter().zip(tensors).zip(params) {
            let Some(name) = name else {
                let name = || format!("{prefix}{}", slot.names[0]);
                layer.push(slot.default_values(shape, || to_vec_f32(own.clone())).ok_or_else(|| {
                    Error::Weights(WeightsError::MissingTensor { name: name(), complete: M::COMPLETE })
                })?);
                continue;
            };
            let tensor = file.tensor(name).map_err(broken)?;
            check_shape(name, &tensor, &slot.shape(shape))?;
            let values = values(name, &tensor)?;
            layer.push(if slot.transposed { transposed(&values, shape[0]) } else { values });
        }
        loaded.push(layer);
    }
    model.check(&loaded)?;
    model.set_layers(loaded);
    Ok(format)
}

/// Serialises a model's weights as a safetensors file in f32, with the tensor names and layouts of a library. Equal
/// weights give identical bytes. The prefix of layer `i` is `convs.{i}.` for PyG and `layers.{i}.` for DGL.
///
/// # Panics
/// Panics like [`load_safetensors`], and if that function returns [`WeightsError::NotPortable`] for the model.
pub fn to_safetensors<M: PortableWeights>(model: &M, format: WeightFormat) -> Vec<u8> {
    let stem = match format {
        WeightFormat::Pyg => "convs",
        WeightFormat::Dgl => "layers",
    };
    let mut tensors = Vec::new();
    for (i, params) in model.params(format).into_iter().enumerate() {
        for (slot, Parameter { shape, values }) in model.slots(format).iter().zip(params) {
            let Some(name) = slot.names.first() else { continue };
            let values = to_vec_f32(values);
            let values = if slot.transposed { transposed(&values, shape[1]) } else { values };
            let bytes: Vec<u8> = values.into_iter().flat_map(f32::to_le_bytes).collect();
            tensors.push((format!("{stem}.{i}.{name}"), slot.shape(&shape), bytes));
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
    use super::{Parameter, Slot, WeightFormat};
    use crate::Result;

    pub trait Layers {
        /// The layers or options of the libraries that have all tensors, for the error of a missing one.
        const COMPLETE: &'static str;

        /// Checks that the libraries' layers have the parameters of the model's layers.
        fn check_portable(&self) -> Result<()> {
            Ok(())
        }

        /// Returns the parameters of a layer in a library's files.
        fn slots(&self, format: WeightFormat) -> &'static [Slot];

        /// Returns the layers' parameters for a library's files, input layer first, in the order of the slots.
        fn params(&self, format: WeightFormat) -> Vec<Vec<Parameter>>;

        /// Checks values that are settings of the model and not parameters, in the order of
        /// [`set_layers`](Self::set_layers).
        fn check(&self, layers: &[Vec<Vec<f32>>]) -> Result<()> {
            let _ = layers;
            Ok(())
        }

        /// Sets the parameters of all layers: `layers[i][k]` has the values of the parameter of slot `k` in layer `i`,
        /// row-major. The number of values must be that of [`params`](Self::params).
        fn set_layers(&mut self, layers: Vec<Vec<Vec<f32>>>);
    }
}

/// A parameter of a layer, in the shape that both libraries give it apart from transpositions ([`Slot::transposed`]).
#[derive(Debug)]
pub struct Parameter {
    shape: Vec<usize>,
    /// The values, row-major.
    values: Tensor<1>,
}

impl Parameter {
    fn new<const D: usize>(param: &Param<Tensor<D>>) -> Self {
        Self::with_shape(&param.dims(), param)
    }

    fn with_shape<const D: usize>(shape: &[usize], param: &Param<Tensor<D>>) -> Self {
        Self { shape: shape.to_vec(), values: param.val().reshape([-1]) }
    }
}
