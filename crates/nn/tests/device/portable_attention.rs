//! Tests of weights files of attention models and R-GCN: names and shapes, conversions, and rejected files.

// The lint permits unwrap in test functions only, not in their helpers.
#![allow(clippy::unwrap_used)]

use kiln_kernels::testing::{device, values};
use kiln_nn::{
    AttentionKind, Gat, GatConfig, GatConv, GatLayer, GatV2Conv, PortableWeights, Rgcn, RgcnConfig,
    WeightFormat, load_safetensors, to_safetensors,
};
use kiln_sample::RngKey;

use super::portable_weights::{
    File, bytes_of, check_message, check_round_trip, counted, file, file_of, renamed, stored,
};

/// Creates a model of two heads of two columns, and of three averaged heads in the last layer.
fn gat(seed: u64, n_layers: usize, attention: AttentionKind) -> Gat {
    let config = GatConfig::new(2, 3).hidden(4).layers(n_layers).attention(attention);
    config.heads(2).output_heads(3).init(RngKey::new(seed), &device()).unwrap()
}

fn gat_v1(seed: u64, n_layers: usize) -> Gat {
    gat(seed, n_layers, AttentionKind::Gat)
}

fn gat_v2(seed: u64, n_layers: usize) -> Gat {
    gat(seed, n_layers, AttentionKind::GatV2)
}

fn gat_v2_of_edges(seed: u64, n_layers: usize) -> Gat {
    let config = GatConfig::new(2, 3).hidden(4).layers(n_layers).attention(AttentionKind::GatV2);
    let config = config.heads(2).output_heads(3).edge_features(5);
    config.init(RngKey::new(seed), &device()).unwrap()
}

fn rgcn(seed: u64, n_layers: usize, n_bases: usize) -> Rgcn {
    let config = RgcnConfig::new(2, 3, 4).hidden(4).layers(n_layers).bases(n_bases);
    config.init(RngKey::new(seed), &device()).unwrap()
}

fn conv(model: &Gat, i: usize) -> &GatConv {
    match &model.layers[i] {
        GatLayer::Gat(conv) => conv,
        GatLayer::GatV2(_) => panic!("the layer should be a GatConv"),
    }
}

fn v2_conv(model: &Gat, i: usize) -> &GatV2Conv {
    match &model.layers[i] {
        GatLayer::GatV2(conv) => conv,
        GatLayer::Gat(_) => panic!("the layer should be a GatV2Conv"),
    }
}

pub(crate) fn check_names<M: PortableWeights>(
    model: &M,
    format: WeightFormat,
    expected: &[(&str, &[usize])],
) {
    let file = file(model, format);
    let got: Vec<(&str, &[usize])> =
        file.iter().map(|(name, tensor)| (name.as_str(), tensor.shape.as_slice())).collect();
    assert_eq!(got, expected);
}

/// The names and shapes are those of `state_dict` in PyG 2.8 and DGL 2.1.
#[test]
fn written_attention_and_relation_weights_have_the_names_and_shapes_of_the_library() {
    check_names(
        &gat_v1(0, 1),
        WeightFormat::Pyg,
        &[
            ("convs.0.att_dst", &[1, 3, 3]),
            ("convs.0.att_src", &[1, 3, 3]),
            ("convs.0.bias", &[3]),
            ("convs.0.lin.weight", &[9, 2]),
        ],
    );
    check_names(
        &gat_v1(0, 1),
        WeightFormat::Dgl,
        &[
            ("layers.0.attn_l", &[1, 3, 3]),
            ("layers.0.attn_r", &[1, 3, 3]),
            ("layers.0.bias", &[9]),
            ("layers.0.fc.weight", &[9, 2]),
        ],
    );
    check_names(
        &gat_v2(0, 1),
        WeightFormat::Pyg,
        &[
            ("convs.0.att", &[1, 3, 3]),
            ("convs.0.bias", &[3]),
            ("convs.0.lin_l.bias", &[9]),
            ("convs.0.lin_l.weight", &[9, 2]),
            ("convs.0.lin_r.bias", &[9]),
            ("convs.0.lin_r.weight", &[9, 2]),
        ],
    );
    check_names(
        &gat_v2(0, 1),
        WeightFormat::Dgl,
        &[
            ("layers.0.attn", &[1, 3, 3]),
            ("layers.0.fc_dst.bias", &[9]),
            ("layers.0.fc_dst.weight", &[9, 2]),
            ("layers.0.fc_src.bias", &[9]),
            ("layers.0.fc_src.weight", &[9, 2]),
        ],
    );
    check_names(
        &gat_v2_of_edges(0, 1),
        WeightFormat::Pyg,
        &[
            ("convs.0.att", &[1, 3, 3]),
            ("convs.0.bias", &[3]),
            ("convs.0.lin_edge.weight", &[9, 5]),
            ("convs.0.lin_l.bias", &[9]),
            ("convs.0.lin_l.weight", &[9, 2]),
            ("convs.0.lin_r.bias", &[9]),
            ("convs.0.lin_r.weight", &[9, 2]),
        ],
    );
    check_names(
        &rgcn(0, 1, 5),
        WeightFormat::Pyg,
        &[
            ("convs.0.bias", &[3]),
            ("convs.0.comp", &[4, 5]),
            ("convs.0.root", &[2, 3]),
            ("convs.0.weight", &[5, 2, 3]),
        ],
    );
    check_names(
        &rgcn(0, 1, 5),
        WeightFormat::Dgl,
        &[
            ("layers.0.h_bias", &[3]),
            ("layers.0.linear_r.W", &[5, 2, 3]),
            ("layers.0.linear_r.coeff", &[4, 5]),
            ("layers.0.loop_weight", &[2, 3]),
        ],
    );
}

#[test]
fn written_attention_and_relation_weights_are_read_back() {
    check_round_trip(gat_v2(1, 2), gat_v2(2, 2));
    check_round_trip(rgcn(1, 12, 3), rgcn(2, 12, 3));
    // In the format of DGL, the heads of the last layer have different biases in the file and one bias in the model.
    for format in [WeightFormat::Pyg, WeightFormat::Dgl] {
        let mut model = gat_v1(1, 2);
        let all = file(&model, format);
        load_safetensors(&mut model, &bytes_of(&all)).unwrap();
        let written = to_safetensors(&model, format);
        let mut read = gat_v1(2, 2);
        assert_eq!(load_safetensors(&mut read, &written).unwrap(), format);
        assert!(to_safetensors(&read, WeightFormat::Pyg) == to_safetensors(&model, WeightFormat::Pyg));
        assert!(to_safetensors(&read, format) == written);
    }
}

#[test]
fn attention_weights_are_assigned_by_name() {
    let mut model = gat_v1(0, 1);
    let file = File::from([
        ("fc.weight".to_owned(), counted(&[9, 2], 0.0)),
        ("attn_l".to_owned(), counted(&[1, 3, 3], 20.0)),
        ("attn_r".to_owned(), counted(&[1, 3, 3], 40.0)),
    ]);
    load_safetensors(&mut model, &bytes_of(&file)).unwrap();
    let conv = conv(&model, 0);
    let counted = |start: f32| (0..9).map(|idx| start + idx as f32).collect::<Vec<_>>();
    let columns = |start: f32| (0..9).map(move |idx| start + 2.0 * idx as f32);
    assert_eq!(values(conv.weight.val()), columns(0.0).chain(columns(1.0)).collect::<Vec<_>>());
    assert_eq!(values(conv.attention_src.val()), counted(20.0));
    assert_eq!(values(conv.attention_dst.val()), counted(40.0));
    assert_eq!(values(conv.bias.val()), [0.0; 3]);
}

#[test]
fn the_bias_of_averaged_heads_is_the_mean_of_the_heads_in_dgl() {
    let mut model = gat_v1(0, 2);
    let mut all = file(&model, WeightFormat::Dgl);
    all.insert("layers.0.bias".into(), counted(&[4], 1.0));
    all.insert("layers.1.bias".into(), stored(&[9], &[1.0, 2.0, 3.0, 4.0, 5.0, 9.0, 7.0, 2.0, 0.0]));
    load_safetensors(&mut model, &bytes_of(&all)).unwrap();
    assert_eq!(values(conv(&model, 0).bias.val()), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(values(conv(&model, 1).bias.val()), [4.0, 3.0, 4.0]);
    let written = file_of(&to_safetensors(&model, WeightFormat::Dgl));
    let repeated = stored(&[9], &[4.0, 3.0, 4.0, 4.0, 3.0, 4.0, 4.0, 3.0, 4.0]);
    assert_eq!(written["layers.1.bias"].bytes, repeated.bytes);
    assert_eq!(written["layers.0.bias"].bytes, counted(&[4], 1.0).bytes);
}

/// The outputs are compared in `parity_attention`.
#[test]
fn the_output_bias_of_gatv2_is_moved_to_other_biases_for_dgl() {
    let mut model = gat_v2(0, 1);
    let mut all = file(&model, WeightFormat::Pyg);
    all.insert("convs.0.bias".into(), stored(&[3], &[1.0, 2.0, 3.0]));
    all.insert("convs.0.lin_l.bias".into(), counted(&[9], 10.0));
    all.insert("convs.0.lin_r.bias".into(), counted(&[9], 20.0));
    load_safetensors(&mut model, &bytes_of(&all)).unwrap();
    let written = to_safetensors(&model, WeightFormat::Dgl);
    load_safetensors(&mut model, &written).unwrap();
    let conv = v2_conv(&model, 0);
    assert_eq!(values(conv.bias_src.val()), [11., 13., 15., 14., 16., 18., 17., 19., 21.]);
    assert_eq!(values(conv.bias_dst.as_ref().unwrap().val()), [19., 19., 19., 22., 22., 22., 25., 25., 25.]);
    assert_eq!(values(conv.bias.val()), [0.0; 3]);
}

#[test]
fn reads_the_two_names_of_one_matrix_in_earlier_versions_of_pyg() {
    let new = file(&gat_v1(1, 2), WeightFormat::Pyg);
    let mut expected = gat_v1(0, 2);
    load_safetensors(&mut expected, &bytes_of(&new)).unwrap();
    let [src, dst] = ["lin_src.weight", "lin_dst.weight"].map(|name| renamed(&new, "lin.weight", name));
    let mut both = src.clone();
    both.extend(dst.clone());
    for file in [&src, &dst, &both] {
        let mut model = gat_v1(0, 2);
        load_safetensors(&mut model, &bytes_of(file)).unwrap();
        assert!(to_safetensors(&model, WeightFormat::Pyg) == to_safetensors(&expected, WeightFormat::Pyg));
    }
    both.insert("convs.1.lin_dst.weight".into(), counted(&[9, 4], 0.0));
    let message = "convs.1.lin_dst.weight and convs.1.lin_src.weight are the same parameter of one layer: keep \
                   one of them";
    check_message(gat_v1(0, 2), &both, message);
}

#[test]
fn relations_without_bases_have_the_identity_as_coefficients() {
    for (format, name) in [(WeightFormat::Pyg, "comp"), (WeightFormat::Dgl, "linear_r.coeff")] {
        let without = |n_bases| {
            let mut file = file(&rgcn(1, 1, n_bases), format);
            file.retain(|tensor, _| !tensor.ends_with(name));
            file
        };
        let mut model = rgcn(0, 1, 4);
        assert_eq!(load_safetensors(&mut model, &bytes_of(&without(4))).unwrap(), format);
        let identity = (0..16).map(|idx| if idx % 5 == 0 { 1.0 } else { 0.0 }).collect::<Vec<_>>();
        assert_eq!(values(model.layers[0].coefficients.val()), identity);
        let prefix = if format == WeightFormat::Pyg { "convs" } else { "layers" };
        let message = format!(
            "the file has no tensor {prefix}.0.{name}: save a model whose layers have it (root_weight=True and \
             num_bases in PyG; self_loop=True and regularizer=\"basis\" in DGL)"
        );
        check_message(rgcn(0, 1, 3), &without(3), &message);
    }
}

#[test]
fn reports_the_names_of_missing_attention_and_relation_tensors() {
    let mut all = file(&gat_v2(1, 2), WeightFormat::Pyg);
    all.remove("convs.1.att");
    let message = "the file has no tensor convs.1.att: save a model whose layers have it (GATConv for the attention \
                   `gat`, GATv2Conv for `gat_v2`)";
    check_message(gat_v2(0, 2), &all, message);
    let mut all = file(&rgcn(1, 2, 3), WeightFormat::Dgl);
    all.remove("layers.0.loop_weight");
    let message = "the file has no tensor layers.0.loop_weight: save a model whose layers have it (root_weight=True \
                   and num_bases in PyG; self_loop=True and regularizer=\"basis\" in DGL)";
    check_message(rgcn(0, 2, 3), &all, message);
}

#[test]
fn rejects_attention_and_relation_tensors_of_the_wrong_shape() {
    let advice = "create a model with the widths of the file";
    // Other heads of the same width together.
    let mut all = file(&gat_v1(1, 2), WeightFormat::Pyg);
    all.insert("convs.0.att_src".into(), counted(&[1, 4, 1], 0.0));
    let message = format!("convs.0.att_src has shape [1, 4, 1], expected [1, 2, 2]: {advice}");
    check_message(gat_v1(0, 2), &all, &message);
    // The bias of averaged heads in the format of the other library.
    let mut all = file(&gat_v1(1, 2), WeightFormat::Dgl);
    all.insert("layers.1.bias".into(), counted(&[3], 0.0));
    let message = format!("layers.1.bias has shape [3], expected [9]: {advice}");
    check_message(gat_v1(0, 2), &all, &message);
    let all = file(&rgcn(1, 2, 2), WeightFormat::Pyg);
    let message = format!("convs.0.weight has shape [2, 2, 4], expected [3, 2, 4]: {advice}");
    check_message(rgcn(0, 2, 3), &all, &message);
}

#[test]
fn rejects_the_other_attention_and_layers_with_more_options() {
    let message = "no tensor name ends in `lin.weight`, `lin_src.weight`, `lin_dst.weight`, `att_src`, `att_dst`, \
                   `fc.weight` and 2 more; the file has `layers.0.attn`, `layers.0.fc_dst.bias`, \
                   `layers.0.fc_dst.weight`, `layers.0.fc_src.bias`, `layers.0.fc_src.weight`: save the layers of a \
                   PyG or DGL model of the same type";
    check_message(gat_v1(0, 1), &file(&gat_v2(1, 1), WeightFormat::Dgl), message);
    let mut all = file(&gat_v1(1, 1), WeightFormat::Pyg);
    all.insert("convs.0.lin_edge.weight".into(), counted(&[9, 2], 0.0));
    let message = "the model has no parameter for `convs.0.lin_edge.weight`: save only its layers, and check their \
                   type";
    check_message(gat_v1(0, 1), &all, message);
}

/// A model reads edge features or not, and so do the layers of its file.
#[test]
fn matrices_of_edge_features_are_read_back_and_required() {
    check_round_trip(gat_v2_of_edges(1, 2), gat_v2_of_edges(2, 2));
    for format in [WeightFormat::Pyg, WeightFormat::Dgl] {
        let of_edges = file(&gat_v2_of_edges(1, 2), format);
        let surplus = of_edges.keys().find(|name| name.ends_with("_edge.weight")).unwrap();
        let message =
            format!("the model has no parameter for `{surplus}`: save only its layers, and check their type");
        let mut one = of_edges.clone();
        one.retain(|name, _| !name.ends_with("_edge.weight") || name == surplus);
        check_message(gat_v2(0, 2), &one, &message);
        let message = format!(
            "the file has no tensor {}: save a model whose layers have it (GATConv for the attention `gat`, GATv2Conv for \
             `gat_v2`)",
            surplus.replace(".0.", ".1.")
        );
        check_message(gat_v2_of_edges(0, 2), &one, &message);
    }
    let written = file(&rgcn(0, 1, 4), WeightFormat::Pyg);
    let config = RgcnConfig::new(2, 3, 4).layers(1).edge_features([Some(2), None, None, None]);
    let mut model = config.init(RngKey::new(0), &device()).unwrap();
    let error = load_safetensors(&mut model, &bytes_of(&written));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("matrices of edge features by relation"), "{error}");
}
