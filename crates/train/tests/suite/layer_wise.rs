//! Tests of exact layer-wise inference: outputs equal to those of whole neighbourhoods for any ranges, threads and
//! files, and rejected inputs.

// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use kiln_comm::SingleRank;
use kiln_data::{Dataset, synthetic};
use kiln_feature::{DenseFeatures, FeatureArray, FeatureBuffer, FeatureDType, FeatureStore};
use kiln_graph::{CscBuilder, NodeId, gcn_norm};
use kiln_kernels::DeviceBlock;
use kiln_kernels::ops::{self, Aggregation, Reduction};
use kiln_kernels::testing::{check_close, values};
use kiln_loader::{ItemSampler, ItemSamplerConfig, LoaderConfig, NodeBatcher};
use kiln_nn::{
    Aggregate, BlockModel, ForwardContext, GcnConfig, JumpingKnowledge, LayerSize, Mode, Normalization, Sage,
    SageConfig,
};
use kiln_sample::{
    EdgeWeights, Fanout, FrontierSampler, NeighborSampler, RngKey, SamplerConfig, Scratch, Seeds,
};
use kiln_train::{
    Error, Evaluation, ExactError, InputError, LayerWiseConfig, LayerWiseInference, NodeClassification,
    NodeInput, OptimizerConfig, Spill, TEST, TaskTrainer, TrainerConfig, TrainerError,
};

/// The tolerance for sums of a few dozen numbers of about 1, which are added in two orders.
const TOLERANCE: f32 = 1e-4;

/// Limits for a range, in bytes: with the first, each range is a single node; the second suffices for a few nodes, the
/// third for all nodes of the test's graph.
const BUDGETS: [u64; 3] = [0, 20_000, 1 << 30];

fn sbm() -> Dataset {
    let config = synthetic::SbmConfig {
        n_nodes: 300,
        n_classes: 4,
        degree: 6,
        homophily: 0.7,
        dim: 12,
        noise: 1.0,
        seed: 1,
    };
    synthetic::sbm(config).unwrap()
}

/// Returns a model whose first layer widens and whose last one narrows, to cover both orders of a layer's products.
fn sage(d_in: usize, device: &Device) -> Sage {
    let config = SageConfig {
        d_in,
        hidden: 16,
        n_classes: 4,
        n_layers: 3,
        aggregate: Aggregate::Mean,
        input_dropout: 0.0,
        dropout: 0.5,
        ..SageConfig::new(d_in, 4)
    };
    config.init(RngKey::new(2), device).unwrap()
}

fn in_memory(range_bytes: u64) -> LayerWiseConfig {
    LayerWiseConfig { range_bytes, spill: None }
}

fn rows(data: &Dataset) -> &dyn FeatureStore {
    &**data.node_features().unwrap()
}

fn exact(data: &Dataset, config: LayerWiseConfig) -> LayerWiseInference {
    LayerWiseInference::new(data.csc().unwrap().clone(), config).unwrap()
}

fn floats(dense: &DenseFeatures) -> Vec<f32> {
    match dense.rows() {
        FeatureArray::F32(rows) => rows.to_vec(),
        rows => panic!("expected f32 outputs, got {}", rows.dtype()),
    }
}

fn n_files(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// Returns a model's outputs for all nodes in one forward pass, from blocks of whole neighbourhoods.
fn at_once<M: BlockModel>(data: &Dataset, sampler: &NeighborSampler, model: &M, device: &Device) -> Vec<f32> {
    let ctx = ForwardContext { key: RngKey::new(0), mode: Mode::Eval };
    let seeds = Seeds::nodes((0..300).map(NodeId).collect());
    let whole = sampler.sample_blocks(&seeds, ctx.key, &mut Scratch::default()).unwrap();
    let blocks: Vec<_> = whole.blocks.iter().map(|block| DeviceBlock::upload(block, device)).collect();
    let mut rows = FeatureBuffer::default();
    data.node_features().unwrap().gather(whole.blocks[0].srcs(), &mut rows).unwrap();
    let x = TensorData::new(rows.into_f32(), [whole.blocks[0].n_src(), 12]);
    values(model.forward(&blocks, Tensor::from_data(x, device), &ctx))
}

#[test]
fn layer_wise_outputs_equal_those_of_whole_neighbourhoods() {
    let (data, device) = (sbm(), Device::flex());
    let model = sage(12, &device);
    let expected = at_once(&data, &NeighborSampler::full(data.csc().unwrap().clone(), 3), &model, &device);
    for range_bytes in BUDGETS {
        let outputs = exact(&data, in_memory(range_bytes)).outputs(&model, rows(&data), &device).unwrap();
        assert_eq!((outputs.n_rows(), outputs.dim()), (300, 4));
        check_close(&floats(&outputs), &expected, TOLERANCE);
    }
}

/// The edge weights of the normalised graph reach every layer.
#[test]
fn layer_wise_gcn_outputs_equal_those_of_whole_neighbourhoods() {
    let (data, device) = (sbm(), Device::flex());
    let graph = Arc::new(gcn_norm(data.csc().unwrap()).unwrap());
    let config = GcnConfig {
        d_in: 12,
        hidden: 16,
        n_classes: 4,
        n_layers: 2,
        input_dropout: 0.5,
        dropout: 0.5,
        ..GcnConfig::new(12, 4)
    };
    let model = config.init(RngKey::new(2), &device).unwrap();
    let stored = SamplerConfig::full(2).with_weights(EdgeWeights::Stored);
    let sampler = NeighborSampler::with_config(graph.clone(), stored).unwrap();
    let expected = at_once(&data, &sampler, &model, &device);
    for range_bytes in BUDGETS {
        let exact = LayerWiseInference::new(graph.clone(), in_memory(range_bytes)).unwrap();
        let outputs = exact.carry_weights().unwrap().outputs(&model, rows(&data), &device).unwrap();
        check_close(&floats(&outputs), &expected, TOLERANCE);
    }
}

/// A layer passes on what jumping knowledge needs of the earlier layers, in memory and in spill files.
#[test]
fn layer_wise_outputs_of_models_with_options_equal_those_of_whole_neighbourhoods() {
    let (data, device) = (sbm(), Device::flex());
    let folder = tempfile::tempdir().unwrap();
    for jumping in [JumpingKnowledge::Last, JumpingKnowledge::Cat, JumpingKnowledge::Max] {
        let config = SageConfig::new(12, 4).hidden(16).norm(Normalization::Layer).residual(true);
        let model = config.jumping(jumping).init(RngKey::new(2), &device).unwrap();
        let expected =
            at_once(&data, &NeighborSampler::full(data.csc().unwrap().clone(), 3), &model, &device);
        for range_bytes in BUDGETS {
            let spill = Spill { memory_bytes: range_bytes + 8 * 300, folder: folder.path().into() };
            for spill in [None, Some(spill)] {
                let inference = exact(&data, LayerWiseConfig { range_bytes, spill });
                let outputs = inference.outputs(&model, rows(&data), &device).unwrap();
                assert_eq!((outputs.n_rows(), outputs.dim()), (300, 4));
                check_close(&floats(&outputs), &expected, TOLERANCE);
            }
        }
    }
}

#[test]
fn outputs_do_not_depend_on_spill_files_or_threads_and_no_file_remains() {
    let (data, device) = (sbm(), Device::flex());
    // The model has autodiff, as in training.
    let model = sage(12, &device.clone().autodiff());
    let folder = tempfile::tempdir().unwrap();
    for range_bytes in BUDGETS {
        let expected = exact(&data, in_memory(range_bytes)).outputs(&model, rows(&data), &device);
        let expected = expected.unwrap();
        assert_eq!(expected.rows().owned_bytes(), 300 * 4 * 4);
        // The memory suffices for no layer, for one layer (so every other layer is in a file), or for all layers.
        for (room, spilled) in [(0, true), (300 * 16 * 4, false), (1 << 20, false)] {
            let spill = Spill { memory_bytes: range_bytes + 8 * 300 + room, folder: folder.path().into() };
            let inference = exact(&data, LayerWiseConfig { range_bytes, spill: Some(spill) });
            for n_threads in [1, 2] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
                let outputs = pool.install(|| inference.outputs(&model, rows(&data), &device)).unwrap();
                assert_eq!(floats(&outputs), floats(&expected), "{range_bytes} {room} {n_threads}");
                assert_eq!(outputs.rows().owned_bytes() == 0, spilled);
                assert_eq!(n_files(folder.path()), 0);
            }
        }
    }
}

#[test]
fn layer_wise_counts_equal_those_of_a_trainer_with_whole_neighbourhoods() {
    let (data, device) = (sbm(), Device::flex());
    let config = TrainerConfig { device, ..TrainerConfig::new(OptimizerConfig::adam(0.01, 0.0)) };
    let init = |_, device: &Device| Ok(sage(12, device));
    let mut trainer =
        TaskTrainer::new(NodeClassification::new(), &config, Box::new(SingleRank), init).unwrap();
    let sampler = NeighborSampler::new(data.csc().unwrap().clone(), [Fanout::All; 3]);
    let batcher = NodeBatcher::new(sampler.into(), data.node_features().unwrap().clone(), data.labels());
    let items = ItemSamplerConfig { batch_size: 17, ..Default::default() };
    let nodes = &data.split().test;
    let items = ItemSampler::new(&nodes[..], items).unwrap();
    let loader = trainer.loader(items, batcher, LoaderConfig::default()).unwrap();
    let mut sampled = Evaluation::default();
    let visit = |input: &NodeInput, forward: &_| sampled.add(&input.seeds, &input.labels, forward);
    let expected = trainer.evaluate(loader.epoch(TEST), visit).unwrap();

    let inference = exact(&data, LayerWiseConfig::default());
    let outputs = inference.outputs(trainer.model(), rows(&data), trainer.device()).unwrap();
    let exact = Evaluation::of(&outputs, nodes, &data.labels()).unwrap();
    for counts in [exact.counts().unwrap(), sampled.counts().unwrap()] {
        assert_eq!(
            (counts.hits, counts.total, counts.weight),
            (expected.hits, expected.total, expected.weight)
        );
        assert!((counts.loss() - expected.loss()).abs() < f64::from(TOLERANCE), "{counts:?} {expected:?}");
    }
    let counted = Evaluation::count(&outputs, nodes, &data.labels()).unwrap();
    assert_eq!((counted.hits, counted.total), (expected.hits, expected.total));
    assert!((counted.loss() - expected.loss()).abs() < f64::from(TOLERANCE), "{counted:?} {expected:?}");
    assert_eq!(exact.predictions(), sampled.predictions());
    assert_eq!(exact.metrics(), sampled.metrics());
}

/// A model without parameters whose layers return the weighted sum of the neighbours, so its outputs can be computed by
/// hand.
#[derive(Module, Debug)]
struct WeightedSum {
    #[module(skip)]
    widths: Vec<usize>,
}

impl BlockModel for WeightedSum {
    fn n_layers(&self) -> usize {
        self.widths.len() - 1
    }

    fn layer(&self, _: usize, block: &DeviceBlock, x: Tensor<2>, _: &ForwardContext) -> Tensor<2> {
        let weights = block.weights().expect("the blocks should carry weights").clone();
        ops::aggregate(block, x, Aggregation { weights: Some(weights.into()), ..Reduction::Sum.into() })
    }

    fn layer_size(&self, i: usize) -> Option<LayerSize> {
        Some(LayerSize::new([self.widths[i], self.widths[i + 1]]))
    }
}

#[test]
fn edge_weights_and_half_precision_features_reach_the_layers() {
    // The edges and their weights are 0 -> 1 (2), 1 -> 2 (3), 0 -> 2 (5) and 2 -> 0 (7).
    let graph =
        CscBuilder::new(3).weights(&[2.0, 3.0, 5.0, 7.0]).build(&[0, 1, 0, 2], &[1, 2, 2, 0]).unwrap();
    let inference = LayerWiseInference::new(Arc::new(graph), in_memory(0)).unwrap().carry_weights().unwrap();
    let features =
        DenseFeatures::new(FeatureArray::F16([1.0, 10.0, 100.0].map(half::f16::from_f32).to_vec().into()), 1);
    let model = WeightedSum { widths: vec![1, 1, 1] };
    let outputs = inference.outputs(&model, &features.unwrap(), &Device::flex()).unwrap();
    // The outputs of the first layer are 700, 2 and 35.
    assert_eq!(floats(&outputs), [7.0 * 35.0, 2.0 * 700.0, 3.0 * 2.0 + 5.0 * 700.0]);
}

/// A model without parameters whose layers return the sum of the neighbours times the types of their edges.
#[derive(Module, Debug)]
struct SumByType;

impl BlockModel for SumByType {
    fn n_layers(&self) -> usize {
        2
    }

    fn layer(&self, _: usize, block: &DeviceBlock, x: Tensor<2>, _: &ForwardContext) -> Tensor<2> {
        let edge_types = block.edge_types().expect("the blocks should carry edge types").clone().float();
        let weights = block.weights().expect("the blocks should carry weights").clone() * edge_types;
        ops::aggregate(block, x, Aggregation { weights: Some(weights.into()), ..Reduction::Sum.into() })
    }

    fn layer_size(&self, _: usize) -> Option<LayerSize> {
        Some(LayerSize::new([1, 1]))
    }
}

#[test]
fn edge_types_reach_the_layers_together_with_weights() {
    // The edges and their types are 0 -> 1 (2), 1 -> 2 (3), 0 -> 2 (0) and 2 -> 0 (255).
    let builder = CscBuilder::new(3).edge_types(&[2, 3, 0, 255]).weights(&[1.0, 1.0, 1.0, 2.0]);
    let graph = Arc::new(builder.build(&[0, 1, 0, 2], &[1, 2, 2, 0]).unwrap());
    let features = DenseFeatures::from_f32(vec![1.0, 10.0, 100.0], 1).unwrap();
    for range_bytes in BUDGETS {
        let inference = LayerWiseInference::new(graph.clone(), in_memory(range_bytes)).unwrap();
        let inference = inference.carry_edge_types().unwrap().carry_weights().unwrap();
        let outputs = inference.outputs(&SumByType, &features, &Device::flex()).unwrap();
        // The outputs of the first layer are 51,000, 2 and 30.
        assert_eq!(floats(&outputs), [510.0 * 30.0, 2.0 * 51_000.0, 3.0 * 2.0]);
    }
}

#[test]
fn rejects_features_models_limits_and_labels_that_do_not_fit() {
    let (data, device) = (sbm(), Device::flex());
    let model = sage(12, &device);
    let refused = |inference: &LayerWiseInference, features: &dyn FeatureStore| {
        inference.outputs(&model, features, &device).unwrap_err()
    };
    let inference = exact(&data, LayerWiseConfig::default());
    let narrow = DenseFeatures::from_f32(vec![0.0; 300 * 11], 11).unwrap();
    let error = refused(&inference, &narrow);
    assert!(matches!(error, Error::Input(InputError::LayerWidth { layer: 0, expected: 12, got: 11 })));
    let few = DenseFeatures::from_f32(vec![0.0; 299 * 12], 12).unwrap();
    let error = refused(&inference, &few);
    assert!(matches!(error, Error::Input(InputError::TooFewRows { n_rows: 299, n_nodes: 300 })), "{error}");
    let empty = CscBuilder::new(0).build(&[], &[]).unwrap();
    let nothing = LayerWiseInference::new(Arc::new(empty), in_memory(1)).unwrap();
    assert!(matches!(refused(&nothing, rows(&data)), Error::Input(InputError::NoNodes)));

    let broken = WeightedSum { widths: vec![12] };
    let error = inference.outputs(&broken, rows(&data), &device).unwrap_err();
    assert!(matches!(error, Error::Trainer(TrainerError::BadSetting { what: "the number of layers", .. })));
    assert!(matches!(inference.carry_weights(), Err(Error::Sample(kiln_sample::Error::NoWeights))));
    let inference = exact(&data, LayerWiseConfig::default());
    let error = inference.carry_edge_types().unwrap_err();
    assert!(matches!(error, Error::Sample(kiln_sample::Error::NoEdgeTypes)), "{error}");

    let spill = Spill { memory_bytes: 8 * 300 - 1, folder: "no-such-folder".into() };
    let mut config = LayerWiseConfig { range_bytes: 1, spill: Some(spill) };
    let error = LayerWiseInference::new(data.graph.clone(), config.clone()).unwrap_err();
    assert!(
        matches!(error, Error::Exact(ExactError::MemoryTooSmall { memory_bytes: 2399, needed_bytes: 2400 })),
        "{error}"
    );
    config.spill.as_mut().unwrap().memory_bytes += 1;
    let error = refused(&exact(&data, config), rows(&data)).to_string();
    assert!(error.starts_with("no-such-folder/kiln-activations-"), "{error}");

    let outputs = DenseFeatures::from_f32(vec![0.0; 300 * 3], 3).unwrap();
    let error = Evaluation::of(&outputs, &data.split().test, &data.labels()).unwrap_err();
    assert!(matches!(error, Error::Input(InputError::ClassOutOfRange { label: 3, n_outputs: 3, .. })));
    let outputs = DenseFeatures::from_f32(vec![f32::NAN; 300 * 4], 4).unwrap();
    let lost = Evaluation::of(&outputs, &data.split().test, &data.labels()).unwrap();
    let counts = lost.counts().unwrap();
    assert_eq!((counts.n_not_finite, counts.total), (data.split().test.len() as u64, 0));
    assert_eq!(lost.roc_auc(), None);
}

/// The second layer's input width differs from the first layer's output width.
#[test]
fn rejects_layers_with_mismatched_widths() {
    #[derive(Module, Debug)]
    struct Gap;

    impl BlockModel for Gap {
        fn n_layers(&self) -> usize {
            2
        }

        fn layer(&self, _: usize, _: &DeviceBlock, _: Tensor<2>, _: &ForwardContext) -> Tensor<2> {
            unreachable!("nothing should run")
        }

        fn layer_size(&self, i: usize) -> Option<LayerSize> {
            Some(LayerSize::new([[12, 8], [9, 4]][i]))
        }
    }

    let data = sbm();
    let inference = exact(&data, LayerWiseConfig::default());
    let error = inference.outputs(&Gap, rows(&data), &Device::flex()).unwrap_err();
    assert!(matches!(error, Error::Input(InputError::LayerWidth { layer: 1, expected: 9, got: 8 })));
}

/// A feature store that fails to read node 200, as a broken disk would.
#[derive(Debug)]
struct Failing(Arc<dyn FeatureStore>);

impl FeatureStore for Failing {
    fn dim(&self) -> usize {
        self.0.dim()
    }

    fn n_rows(&self) -> usize {
        self.0.n_rows()
    }

    fn dtype(&self) -> FeatureDType {
        self.0.dtype()
    }

    fn gather(&self, ids: &[NodeId], out: &mut FeatureBuffer) -> kiln_feature::Result<()> {
        match ids.contains(&NodeId(200)) {
            true => Err(kiln_feature::TargetsError::Unlabelled { item: "node", id: 200 }.into()),
            false => self.0.gather(ids, out),
        }
    }
}

#[test]
fn no_spill_file_remains_after_an_error() {
    let (data, device) = (sbm(), Device::flex());
    let folder = tempfile::tempdir().unwrap();
    let spill = Spill { memory_bytes: 8 * 300, folder: folder.path().into() };
    let inference = exact(&data, LayerWiseConfig { range_bytes: 0, spill: Some(spill) });
    let features = Failing(data.node_features().unwrap().clone());
    let error = inference.outputs(&sage(12, &device), &features, &device).unwrap_err();
    assert!(matches!(error, Error::Feature(_)), "{error}");
    assert_eq!(n_files(folder.path()), 0);
}
