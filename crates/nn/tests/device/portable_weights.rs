//! Tests of weights files of PyG and DGL: names and layouts that are read and written, and rejected files.

// The lint permits unwrap in test functions only, not in their helpers.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use half::{bf16, f16};
use kiln_kernels::testing::{device, values};
use kiln_nn::{
    Aggregate, Error, Gcn, GcnConfig, PortableWeights, Sage, SageConfig, WeightFormat, WeightsError,
    load_safetensors, to_safetensors,
};
use kiln_sample::RngKey;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};

/// A tensor of a weights file.
#[derive(Clone)]
pub(crate) struct Stored {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) type File = BTreeMap<String, Stored>;

pub(crate) fn stored(shape: &[usize], values: &[f32]) -> Stored {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Stored { dtype: Dtype::F32, shape: shape.to_vec(), bytes }
}

/// Returns a tensor with the values `start + 0, start + 1, ...`.
pub(crate) fn counted(shape: &[usize], start: f32) -> Stored {
    let n_values = shape.iter().product::<usize>();
    stored(shape, &(0..n_values).map(|idx| start + idx as f32).collect::<Vec<_>>())
}

pub(crate) fn bytes_of(file: &File) -> Vec<u8> {
    let views = file.iter().map(|(name, tensor)| {
        (name, TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes).unwrap())
    });
    serialize(views, None).unwrap()
}

pub(crate) fn file_of(bytes: &[u8]) -> File {
    let tensors = SafeTensors::deserialize(bytes).unwrap().tensors().into_iter();
    let stored = |view: TensorView<'_>| Stored {
        dtype: view.dtype(),
        shape: view.shape().to_vec(),
        bytes: view.data().to_vec(),
    };
    tensors.map(|(name, view)| (name, stored(view))).collect()
}

pub(crate) fn renamed(file: &File, from: &str, to: &str) -> File {
    file.iter().map(|(name, tensor)| (name.replace(from, to), tensor.clone())).collect()
}

fn sage(seed: u64, n_layers: usize) -> Sage {
    let aggregate = Aggregate::Mean;
    let (d_in, hidden, n_classes, input_dropout, dropout) = (2, 3, 4, 0.0, 0.0);
    let config = SageConfig {
        d_in,
        hidden,
        n_classes,
        n_layers,
        aggregate,
        input_dropout,
        dropout,
        ..SageConfig::new(d_in, n_classes)
    };
    config.init(RngKey::new(seed), &device()).unwrap()
}

fn gcn(seed: u64, n_layers: usize) -> Gcn {
    let (d_in, hidden, n_classes, input_dropout, dropout) = (2, 3, 4, 0.0, 0.0);
    let config = GcnConfig {
        d_in,
        hidden,
        n_classes,
        n_layers,
        input_dropout,
        dropout,
        ..GcnConfig::new(d_in, n_classes)
    };
    config.init(RngKey::new(seed), &device()).unwrap()
}

/// Returns the file of a model, with nonzero biases.
pub(crate) fn file<M: PortableWeights>(model: &M, naming: WeightFormat) -> File {
    let mut file = file_of(&to_safetensors(model, naming));
    for (start, tensor) in file.values_mut().filter(|tensor| tensor.shape.len() == 1).enumerate() {
        *tensor = counted(&tensor.shape, start as f32 + 0.5);
    }
    file
}

/// Returns the error of loading a file, and checks that the model has not changed.
fn fail<M: PortableWeights>(mut model: M, bytes: &[u8]) -> Error {
    let before = to_safetensors(&model, WeightFormat::Pyg);
    let error = load_safetensors(&mut model, bytes).unwrap_err();
    assert!(to_safetensors(&model, WeightFormat::Pyg) == before, "the model should not change: {error}");
    error
}

pub(crate) fn check_message<M: PortableWeights>(model: M, file: &File, message: &str) {
    assert_eq!(fail(model, &bytes_of(file)).to_string(), message);
}

#[test]
fn written_files_have_the_names_and_shapes_of_the_library() {
    let names = |file: File| -> Vec<(String, Vec<usize>)> {
        file.into_iter().map(|(name, tensor)| (name, tensor.shape)).collect()
    };
    let expected = |names: &[(&str, &[usize])]| -> Vec<(String, Vec<usize>)> {
        names.iter().map(|(name, shape)| (name.to_string(), shape.to_vec())).collect()
    };
    assert_eq!(
        names(file(&sage(0, 1), WeightFormat::Pyg)),
        expected(&[
            ("convs.0.lin_l.bias", &[4]),
            ("convs.0.lin_l.weight", &[4, 2]),
            ("convs.0.lin_r.weight", &[4, 2]),
        ])
    );
    assert_eq!(
        names(file(&sage(0, 1), WeightFormat::Dgl)),
        expected(&[
            ("layers.0.fc_neigh.weight", &[4, 2]),
            ("layers.0.fc_self.bias", &[4]),
            ("layers.0.fc_self.weight", &[4, 2]),
        ])
    );
    assert_eq!(
        names(file(&gcn(0, 1), WeightFormat::Pyg)),
        expected(&[("convs.0.bias", &[4]), ("convs.0.lin.weight", &[4, 2]),])
    );
    assert_eq!(
        names(file(&gcn(0, 1), WeightFormat::Dgl)),
        expected(&[("layers.0.bias", &[4]), ("layers.0.weight", &[2, 4]),])
    );
}

pub(crate) fn check_round_trip<M: PortableWeights>(from: M, mut to: M) {
    for naming in [WeightFormat::Pyg, WeightFormat::Dgl] {
        let bytes = bytes_of(&file(&from, naming));
        assert_eq!(load_safetensors(&mut to, &bytes).unwrap(), naming);
        let written = to_safetensors(&to, naming);
        assert!(bytes_of(&file_of(&written)) == bytes, "{naming:?}");
        assert!(written == to_safetensors(&to.clone(), naming), "the bytes should be identical");
    }
}

/// Uses twelve layers, because `10.` is after `2.` in numeric order and before it in alphabetic order.
#[test]
fn written_weights_are_read_back() {
    check_round_trip(sage(1, 12), sage(2, 12));
    check_round_trip(gcn(1, 12), gcn(2, 12));
}

#[test]
fn matrices_are_transposed_where_the_library_stores_outputs_first() {
    let (mut pyg, mut dgl) = (gcn(0, 1), gcn(0, 1));
    let bias = ("bias".to_owned(), counted(&[4], 0.5));
    let file = File::from([("lin.weight".to_owned(), counted(&[4, 2], 0.0)), bias.clone()]);
    load_safetensors(&mut pyg, &bytes_of(&file)).unwrap();
    assert_eq!(values(pyg.layers[0].weight.val()), [0., 2., 4., 6., 1., 3., 5., 7.]);
    let file = File::from([("weight".to_owned(), counted(&[2, 4], 0.0)), bias]);
    load_safetensors(&mut dgl, &bytes_of(&file)).unwrap();
    assert_eq!(values(dgl.layers[0].weight.val()), [0., 1., 2., 3., 4., 5., 6., 7.]);
    assert_eq!(values(dgl.layers[0].bias.val()), [0.5, 1.5, 2.5, 3.5]);
}

#[test]
fn self_and_neighbour_weights_are_assigned_by_name() {
    for [neigh, own, bias] in [
        ["lin_l.weight", "lin_r.weight", "lin_l.bias"],
        ["fc_neigh.weight", "fc_self.weight", "fc_self.bias"],
    ] {
        let file = File::from([
            (neigh.to_owned(), counted(&[4, 2], 0.0)),
            (own.to_owned(), counted(&[4, 2], 10.0)),
            (bias.to_owned(), counted(&[4], 20.0)),
        ]);
        let mut model = sage(0, 1);
        load_safetensors(&mut model, &bytes_of(&file)).unwrap();
        assert_eq!(values(model.layers[0].weight_neigh.val()), [0., 2., 4., 6., 1., 3., 5., 7.]);
        assert_eq!(values(model.layers[0].weight_self.val()), [10., 12., 14., 16., 11., 13., 15., 17.]);
        assert_eq!(values(model.layers[0].bias.val()), [20., 21., 22., 23.]);
    }
}

#[test]
fn layers_are_found_under_any_prefix() {
    let file = file(&sage(1, 2), WeightFormat::Pyg);
    let mut expected = sage(0, 2);
    load_safetensors(&mut expected, &bytes_of(&file)).unwrap();
    for prefix in ["conv", "layers.", "module.layers.", "model.gnn.module_", ""] {
        // The numbers of the layers need not start at 0 or be consecutive.
        let renamed = renamed(&renamed(&file, "convs.1.", "convs.11."), "convs.0.", "convs.7.");
        let renamed = self::renamed(&renamed, "convs.", prefix);
        let mut model = sage(0, 2);
        load_safetensors(&mut model, &bytes_of(&renamed)).unwrap();
        assert!(
            to_safetensors(&model, WeightFormat::Pyg) == to_safetensors(&expected, WeightFormat::Pyg),
            "{prefix}"
        );
    }
}

#[test]
fn reads_the_bias_name_of_earlier_versions_of_dgl() {
    let file = file(&sage(1, 2), WeightFormat::Dgl);
    let (mut new, mut old) = (sage(0, 2), sage(0, 2));
    load_safetensors(&mut new, &bytes_of(&file)).unwrap();
    load_safetensors(&mut old, &bytes_of(&renamed(&file, "fc_self.bias", "bias"))).unwrap();
    assert!(to_safetensors(&old, WeightFormat::Dgl) == to_safetensors(&new, WeightFormat::Dgl));
}

#[test]
fn a_layer_without_a_bias_gets_zeros() {
    let mut file = file(&gcn(1, 2), WeightFormat::Pyg);
    let mut model = gcn(0, 2);
    load_safetensors(&mut model, &bytes_of(&file)).unwrap();
    assert_eq!(values(model.layers[1].bias.val()), [1.5, 2.5, 3.5, 4.5]);
    file.remove("convs.1.bias");
    load_safetensors(&mut model, &bytes_of(&file)).unwrap();
    assert_eq!(values(model.layers[0].bias.val()), [0.5, 1.5, 2.5]);
    assert_eq!(values(model.layers[1].bias.val()), [0.0; 4]);
}

#[test]
fn reads_f16_bf16_and_f64_weights() {
    let numbers = [0.5_f32, -1.25, 3.0, f32::INFINITY, 0.0, -2.0, 7.0, 1.5];
    let load = |dtype: Dtype, bytes: Vec<u8>| {
        let weight = Stored { dtype, shape: vec![2, 4], bytes };
        let mut model = gcn(0, 1);
        load_safetensors(&mut model, &bytes_of(&File::from([("weight".to_owned(), weight)]))).unwrap();
        values(model.layers[0].weight.val())
    };
    let bytes = numbers.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect();
    assert_eq!(load(Dtype::F16, bytes), numbers);
    let bytes = numbers.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect();
    assert_eq!(load(Dtype::BF16, bytes), numbers);
    let bytes = numbers.iter().flat_map(|value| f64::from(*value).to_le_bytes()).collect();
    assert_eq!(load(Dtype::F64, bytes), numbers);
}

#[test]
fn loaded_parameters_keep_their_ids_and_stay_trainable() {
    let (d_in, hidden, n_classes, n_layers, input_dropout, dropout) = (2, 3, 4, 1, 0.0, 0.0);
    let config = GcnConfig {
        d_in,
        hidden,
        n_classes,
        n_layers,
        input_dropout,
        dropout,
        ..GcnConfig::new(d_in, n_classes)
    };
    let mut model = config.init(RngKey::new(0), &device().autodiff()).unwrap();
    let id = model.layers[0].weight.id;
    load_safetensors(&mut model, &to_safetensors(&gcn(1, 1), WeightFormat::Pyg)).unwrap();
    assert_eq!(model.layers[0].weight.id, id);
    let weight = model.layers[0].weight.val();
    assert!(weight.is_require_grad());
    let grads = (weight.clone() * weight).sum().backward();
    assert!(model.layers[0].weight.grad(&grads).is_some());
}

#[test]
fn rejects_tensors_of_unsupported_element_types() {
    let mut file = file(&gcn(1, 2), WeightFormat::Pyg);
    let weight = file.get_mut("convs.1.lin.weight").unwrap();
    weight.dtype = Dtype::I32;
    let message = "convs.1.lin.weight has element type I32, expected F32, F64, F16 or BF16: convert the weights \
                   first";
    check_message(gcn(0, 2), &file, message);
}

#[test]
fn rejects_broken_files() {
    let good = to_safetensors(&sage(0, 2), WeightFormat::Pyg);
    let mut cases: Vec<Vec<u8>> = (0..good.len()).step_by(7).map(|end| good[..end].to_vec()).collect();
    cases.push([&good[..], &[0]].concat());
    cases.push(b"PK\x03\x04 what torch.save writes is an archive".to_vec());
    cases.push(vec![0xff; 64]);
    for bytes in cases {
        let error = fail(sage(1, 2), &bytes);
        assert!(matches!(error, Error::Weights(WeightsError::NotSafetensors { .. })), "{error}");
        assert!(
            error.to_string().starts_with("the weights are not a complete safetensors file: "),
            "{error}"
        );
    }
}

#[test]
fn reports_the_name_of_a_missing_tensor() {
    let mut file = file(&sage(0, 2), WeightFormat::Pyg);
    file.remove("convs.1.lin_r.weight");
    let message = "the file has no tensor convs.1.lin_r.weight: save a model whose layers have it \
                   (root_weight=True in PyG; weight=True and an aggregator other than \"gcn\" in DGL)";
    check_message(sage(1, 2), &file, message);
}

#[test]
fn reports_the_names_of_surplus_tensors() {
    let mut all = file(&sage(0, 2), WeightFormat::Pyg);
    all.insert("convs.1.lin.weight".into(), counted(&[3, 3], 0.0));
    all.insert("head.scale".into(), counted(&[3], 0.0));
    let message = "the model has no parameter for `convs.1.lin.weight`, `head.scale`: save only its layers, and \
                   check their type";
    check_message(sage(1, 2), &all, message);
    // The bias of a norm next to DGL's layers has the name of a layer's bias.
    let mut all = file(&sage(0, 2), WeightFormat::Dgl);
    all.insert("norm.bias".into(), counted(&[3], 0.0));
    let message = "the model has no parameter for `norm.bias`: save only its layers, and check their type";
    check_message(sage(1, 2), &all, message);
}

#[test]
fn rejects_two_tensors_for_one_parameter() {
    let mut file = file(&sage(0, 2), WeightFormat::Dgl);
    file.insert("layers.1.bias".into(), counted(&[4], 0.0));
    let message = "layers.1.bias and layers.1.fc_self.bias are the same parameter of one layer: keep one of \
                   them";
    check_message(sage(1, 2), &file, message);
}

#[test]
fn rejects_files_with_a_different_number_of_layers() {
    let message = "the file has 3 layers (`convs.0.`, `convs.1.`, `convs.2.`), expected 2: create a model of 3 \
                   layers";
    check_message(sage(1, 2), &file(&sage(0, 3), WeightFormat::Pyg), message);
    let message = "the file has 1 layers (`layers.0.`), expected 2: create a model of 1 layers";
    check_message(gcn(1, 2), &file(&gcn(0, 1), WeightFormat::Dgl), message);
}

#[test]
fn rejects_layers_of_ambiguous_order() {
    let file = renamed(&file(&gcn(0, 2), WeightFormat::Pyg), "convs.0.", "input.");
    let file = renamed(&file, "convs.1.", "output.");
    let message =
        "the order of the layers input. and output. is ambiguous: number them after a common prefix";
    check_message(gcn(1, 2), &file, message);
}

#[test]
fn rejects_tensors_of_the_wrong_shape() {
    let mut all = file(&sage(0, 2), WeightFormat::Pyg);
    all.insert("convs.0.lin_r.weight".into(), counted(&[3, 5], 0.0));
    let message =
        "convs.0.lin_r.weight has shape [3, 5], expected [3, 2]: create a model with the widths of the file";
    check_message(sage(1, 2), &all, message);
    let mut all = file(&sage(0, 2), WeightFormat::Pyg);
    all.insert("convs.1.lin_l.bias".into(), counted(&[1, 4], 0.0));
    let message =
        "convs.1.lin_l.bias has shape [1, 4], expected [4]: create a model with the widths of the file";
    check_message(sage(1, 2), &all, message);
    // The transpose of the expected matrix is rejected, too.
    let mut all = file(&gcn(0, 2), WeightFormat::Dgl);
    all.insert("layers.0.weight".into(), counted(&[3, 2], 0.0));
    let message =
        "layers.0.weight has shape [3, 2], expected [2, 3]: create a model with the widths of the file";
    check_message(gcn(1, 2), &all, message);
}

#[test]
fn rejects_names_of_neither_library() {
    let message = "no tensor name ends in `lin_l.weight`, `lin_r.weight`, `fc_neigh.weight`, \
                   `fc_self.weight`; the file has `convs.0.bias`, `convs.0.lin.weight`, `convs.1.bias`, \
                   `convs.1.lin.weight`: save the layers of a PyG or DGL model of the same type";
    check_message(sage(1, 2), &file(&gcn(0, 2), WeightFormat::Pyg), message);
    let many: File = (0..9).map(|idx| (format!("t{idx}"), counted(&[1], 0.0))).collect();
    let message = "no tensor name ends in `lin.weight`, `weight`; the file has `t0`, `t1`, `t2`, `t3`, `t4`, \
                   `t5` and 3 more: save the layers of a PyG or DGL model of the same type";
    check_message(gcn(1, 2), &many, message);
    let message = "no tensor name ends in `lin.weight`, `weight`; the file has no tensors: save the layers of a \
                   PyG or DGL model of the same type";
    check_message(gcn(1, 2), &File::new(), message);
}

#[test]
fn rejects_names_of_both_libraries() {
    let mut both = file(&sage(0, 1), WeightFormat::Pyg);
    both.extend(renamed(&file(&sage(0, 2), WeightFormat::Dgl), "layers.0.", "layers.7."));
    let message = "convs.0.lin_l.weight is a PyG name and layers.1.fc_neigh.weight a DGL name: save the layers \
                   of one model only";
    check_message(sage(1, 2), &both, message);
}
