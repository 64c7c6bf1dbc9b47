//! Tests of weights files of GIN and GINE: names and shapes, and rejected files.

// The lint permits unwrap in test functions only, not in their helpers.
#![allow(clippy::unwrap_used)]

use kiln_kernels::testing::{device, values};
use kiln_nn::{EdgeInput, Epsilon, Gin, GinConfig, Gine, GineConfig, WeightFormat, load_safetensors};
use kiln_sample::RngKey;

use super::portable_attention::check_names;
use super::portable_weights::{bytes_of, check_message, check_round_trip, counted, file, renamed, stored};

fn gine(seed: u64, n_layers: usize, epsilon: Epsilon) -> Gine {
    let config = GineConfig::new(2, 3, EdgeInput::Features(5)).hidden(4).layers(n_layers).epsilon(epsilon);
    config.init(RngKey::new(seed), &device()).unwrap()
}

fn gin(seed: u64) -> Gin {
    let config = GinConfig { epsilon: Epsilon::Learnable(0.0), ..GinConfig::simplified(2, 4, 3) };
    config.init(RngKey::new(seed), &device()).unwrap()
}

const LEARNED: Epsilon = Epsilon::Learnable(0.0);

/// The names and shapes are those of `state_dict` in PyG 2.8 and DGL 2.1.
#[test]
fn written_weights_have_the_names_and_shapes_of_the_library() {
    let shapes: [&[usize]; 7] = [&[1], &[2], &[2, 5], &[4], &[4, 2], &[3], &[3, 4]];
    let names = ["eps", "lin.bias", "lin.weight", "nn.0.bias", "nn.0.weight", "nn.2.bias", "nn.2.weight"];
    let names = names.map(|name| format!("convs.0.{name}"));
    let expected: Vec<_> = names.iter().map(String::as_str).zip(shapes).collect();
    check_names(&gine(0, 1, LEARNED), WeightFormat::Pyg, &expected);
    let dgl = |name: &str| name.replace("convs", "layers").replace("nn.", "apply_func.");
    let names: Vec<String> = names.iter().map(|name| dgl(name)).collect();
    let mut expected: Vec<_> = names.iter().map(String::as_str).zip(shapes).collect();
    expected.sort_unstable();
    check_names(&gine(0, 1, LEARNED), WeightFormat::Dgl, &expected);
    check_names(
        &gin(0),
        WeightFormat::Pyg,
        &[
            ("convs.0.eps", &[1]),
            ("convs.0.nn.0.bias", &[4]),
            ("convs.0.nn.0.weight", &[4, 2]),
            ("convs.1.eps", &[1]),
            ("convs.1.nn.0.bias", &[3]),
            ("convs.1.nn.0.weight", &[3, 4]),
        ],
    );
}

#[test]
fn written_weights_are_read_back() {
    check_round_trip(gine(1, 12, LEARNED), gine(2, 12, LEARNED));
    check_round_trip(gin(1), gin(2));
}

/// PyG's class `MLP` names its layers differently, and a layer without `edge_dim` adds the features as they are.
#[test]
fn reads_the_names_of_pyg_mlps_and_layers_without_a_linear_layer_of_edges() {
    let all = file(&gine(1, 2, LEARNED), WeightFormat::Pyg);
    let of_mlp = renamed(&renamed(&all, "nn.0", "nn.lins.0"), "nn.2", "nn.lins.1");
    let mut model = gine(2, 2, LEARNED);
    load_safetensors(&mut model, &bytes_of(&of_mlp)).unwrap();
    assert!(bytes_of(&file(&model, WeightFormat::Pyg)) == bytes_of(&all));

    let config = GineConfig::new(4, 4, EdgeInput::Features(4)).hidden(4).layers(1).epsilon(LEARNED);
    let mut square = config.init(RngKey::new(3), &device()).unwrap();
    let mut without = file(&square, WeightFormat::Pyg);
    without.retain(|name, _| !name.contains("lin."));
    load_safetensors(&mut square, &bytes_of(&without)).unwrap();
    let linear = square.layers[0].edge_linear.as_ref().unwrap();
    let identity: Vec<f32> = (0..16).map(|i| if i % 5 == 0 { 1.0 } else { 0.0 }).collect();
    assert_eq!((values(linear.weight.val()), values(linear.bias.val())), (identity, vec![0.0; 4]));
}

#[test]
fn a_fixed_epsilon_must_be_that_of_the_file() {
    let mut all = file(&gine(1, 2, LEARNED), WeightFormat::Pyg);
    for (layer, epsilon) in [(0, 0.5), (1, 0.25)] {
        all.insert(format!("convs.{layer}.eps"), stored(&[1], &[epsilon]));
    }
    let message = "layer 1 of the file has an epsilon of 0.25, but that of the model is fixed at 0.5: create the model \
                   with Epsilon::Learnable, or with this epsilon";
    check_message(gine(0, 2, Epsilon::Fixed(0.5)), &all, message);
    all.insert("convs.1.eps".into(), stored(&[1], &[0.5]));
    load_safetensors(&mut gine(0, 2, Epsilon::Fixed(0.5)), &bytes_of(&all)).unwrap();
}

/// A file without epsilon has the model's.
#[test]
fn a_missing_epsilon_is_that_of_the_model() {
    let mut without = file(&gine(1, 1, Epsilon::Fixed(0.5)), WeightFormat::Pyg);
    without.remove("convs.0.eps").unwrap();
    load_safetensors(&mut gine(0, 1, Epsilon::Fixed(0.5)), &bytes_of(&without)).unwrap();
    let mut model = gine(0, 1, Epsilon::Learnable(0.25));
    load_safetensors(&mut model, &bytes_of(&without)).unwrap();
    assert_eq!(values(model.layers[0].epsilon.as_ref().unwrap().val()), [0.25]);
}

#[test]
fn normalisations_in_mlps_are_an_error() {
    let bytes = bytes_of(&file(&gin(1), WeightFormat::Pyg));
    let mut model = GinConfig::paper(2, 4, 3).init(RngKey::new(0), &device()).unwrap();
    let error = load_safetensors(&mut model, &bytes).unwrap_err().to_string();
    assert!(
        error.contains("an MLP with normalisations or more than 4 linear layers cannot be exchanged"),
        "{error}"
    );
}

#[test]
fn rejects_mlps_of_other_lengths() {
    let mut all = file(&gine(1, 1, LEARNED), WeightFormat::Pyg);
    all.insert("convs.0.nn.4.weight".into(), counted(&[3, 3], 0.0));
    let message =
        "the model has no parameter for `convs.0.nn.4.weight`: save only its layers, and check their type";
    check_message(gine(0, 1, LEARNED), &all, message);
}
