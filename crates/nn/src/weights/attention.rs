//! The parameters of GAT and GATv2 in files of PyG and DGL.

use burn::module::Param;
use burn::tensor::Tensor;

use super::convert::{mean_of_rows, set};
use super::names::Slot;
use super::{Parameter, WeightFormat, private};
use crate::{Gat, GatConv, GatLayer, GatV2Conv};

impl private::Layers for Gat {
    const COMPLETE: &'static str = "GATConv for the attention `gat`, GATv2Conv for `gat_v2`";

    fn slots(&self, format: WeightFormat) -> &'static [Slot] {
        // PyG before 2.5 writes one matrix under two names.
        const GAT_PYG: &[Slot] = &[
            Slot::transposed(&["lin.weight", "lin_src.weight", "lin_dst.weight"]),
            Slot::weight(&["att_src"]),
            Slot::weight(&["att_dst"]),
            Slot::bias(&["bias"]),
        ];
        const GAT_DGL: &[Slot] = &[
            Slot::transposed(&["fc.weight"]),
            Slot::weight(&["attn_l"]),
            Slot::weight(&["attn_r"]),
            Slot::bias(&["bias"]),
        ];
        const GAT_V2_PYG: &[Slot] = &[
            Slot::transposed(&["lin_l.weight"]),
            Slot::bias(&["lin_l.bias"]),
            Slot::transposed(&["lin_r.weight"]),
            Slot::bias(&["lin_r.bias"]),
            Slot::weight(&["att"]),
            Slot::bias(&["bias"]),
            Slot::transposed(&["lin_edge.weight"]),
        ];
        const GAT_V2_DGL: &[Slot] = &[
            Slot::transposed(&["fc_src.weight"]),
            Slot::bias(&["fc_src.bias"]),
            Slot::transposed(&["fc_dst.weight"]),
            Slot::bias(&["fc_dst.bias"]),
            Slot::weight(&["attn"]),
            Slot::bias(&[]),
            Slot::transposed(&["fc_edge.weight"]),
        ];
        match (&self.layers[0], format) {
            (GatLayer::Gat(_), WeightFormat::Pyg) => GAT_PYG,
            (GatLayer::Gat(_), WeightFormat::Dgl) => GAT_DGL,
            (GatLayer::GatV2(conv), WeightFormat::Pyg) => &GAT_V2_PYG[..n_gat_v2_slots(conv)],
            (GatLayer::GatV2(conv), WeightFormat::Dgl) => &GAT_V2_DGL[..n_gat_v2_slots(conv)],
        }
    }

    fn params(&self, format: WeightFormat) -> Vec<Vec<Parameter>> {
        let n_slots = self.slots(format).len();
        let params = self.layers.iter().map(|layer| {
            let params = match layer {
                GatLayer::Gat(conv) => gat_params(conv, format),
                GatLayer::GatV2(conv) => gat_v2_params(conv, format),
            };
            assert_eq!(params.len(), n_slots, "the layers of a model should have the same attention");
            params
        });
        params.collect()
    }

    fn set_layers(&mut self, layers: Vec<Vec<Vec<f32>>>) {
        for (layer, values) in self.layers.iter_mut().zip(layers) {
            match layer {
                GatLayer::Gat(conv) => set_gat(conv, values),
                GatLayer::GatV2(conv) => set_gat_v2(conv, values),
            }
        }
    }
}

/// Returns the parameters of a layer. In DGL's layer, averaged heads have a bias each, so the bias is repeated.
fn gat_params(conv: &GatConv, format: WeightFormat) -> Vec<Parameter> {
    vec![
        Parameter::new(&conv.weight),
        attention_vectors(&conv.attention_src),
        attention_vectors(&conv.attention_dst),
        match format {
            WeightFormat::Pyg => Parameter::new(&conv.bias),
            WeightFormat::Dgl => {
                let [_, width] = conv.weight.dims();
                Parameter { shape: vec![width], values: repeated(&conv.bias, width) }
            }
        },
    ]
}

fn set_gat(conv: &mut GatConv, mut values: Vec<Vec<f32>>) {
    let [d_out] = conv.bias.dims();
    values[3] = mean_of_rows(&values[3], d_out);
    let mut values = values.into_iter();
    set(&mut conv.weight, &mut values);
    set(&mut conv.attention_src, &mut values);
    set(&mut conv.attention_dst, &mut values);
    set(&mut conv.bias, &mut values);
}

/// Returns the parameters of a layer. DGL's layer has no bias `b` of the output, so it is added to that of the sources:
/// attention weights sum to 1, so the sum of `l_u + b` over the edges of a node is the sum of `l_u` plus `b`. It is
/// subtracted from the bias of the destinations, so that the scores, functions of `l_u + r_v`, do not change.
fn gat_v2_params(conv: &GatV2Conv, format: WeightFormat) -> Vec<Parameter> {
    let (Some(weight_dst), Some(bias_dst)) = (&conv.weight_dst, &conv.bias_dst) else {
        panic!("the layers of a model should not share the weights of sources and destinations");
    };
    let [_, width] = conv.weight_src.dims();
    let mut src = Parameter::new(&conv.bias_src);
    let mut dst = Parameter::new(bias_dst);
    if format == WeightFormat::Dgl {
        src.values = src.values + repeated(&conv.bias, width);
        dst.values = dst.values - repeated(&conv.bias, width);
    }
    let mut params = vec![
        Parameter::new(&conv.weight_src),
        src,
        Parameter::new(weight_dst),
        dst,
        attention_vectors(&conv.attention),
        Parameter::new(&conv.bias),
    ];
    params.extend(conv.weight_edge.as_ref().map(Parameter::new));
    params
}

/// Returns the number of parameters of a layer in a file: that of edge features is the last.
fn n_gat_v2_slots(conv: &GatV2Conv) -> usize {
    6 + usize::from(conv.weight_edge.is_some())
}

fn set_gat_v2(conv: &mut GatV2Conv, values: Vec<Vec<f32>>) {
    let mut values = values.into_iter();
    set(&mut conv.weight_src, &mut values);
    set(&mut conv.bias_src, &mut values);
    if let (Some(weight), Some(bias)) = (&mut conv.weight_dst, &mut conv.bias_dst) {
        set(weight, &mut values);
        set(bias, &mut values);
    }
    set(&mut conv.attention, &mut values);
    set(&mut conv.bias, &mut values);
    if let Some(weight) = &mut conv.weight_edge {
        set(weight, &mut values);
    }
}

/// Returns attention vectors `[n_heads, d_head]` in the shape of both libraries, `[1, n_heads, d_head]`.
fn attention_vectors(vectors: &Param<Tensor<2>>) -> Parameter {
    let [n_heads, d_head] = vectors.dims();
    Parameter::with_shape(&[1, n_heads, d_head], vectors)
}

/// Returns the bias of the output for all heads: repeated for averaged heads, unchanged for concatenated heads.
fn repeated(bias: &Param<Tensor<1>>, width: usize) -> Tensor<1> {
    let [d_out] = bias.dims();
    bias.val().repeat(&[width / d_out])
}
