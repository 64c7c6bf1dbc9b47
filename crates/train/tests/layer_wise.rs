//! Layer-by-layer evaluation over a whole graph gives what whole-neighbourhood blocks give.

use burn::tensor::{Device, Tensor, TensorData};
use kiln_feature::RowBuf;
use kiln_graph::NodeId;
use kiln_kernels::DeviceBlock;
use kiln_kernels::testing::{check_close, values};
use kiln_nn::{Aggregate, BlockModel, Ctx, LayerWise, Mode, SageConfig};
use kiln_sample::{BlockSampler, FullNeighbors, RngKey, Sampled, Scratch, Seeds};

/// Sums of a few dozen numbers of about 1 in two orders.
const TOLERANCE: f32 = 1e-4;

fn ctx() -> Ctx {
    Ctx { key: RngKey::new(0), mode: Mode::Eval }
}

fn sampled(data: &kiln_data::Dataset, n_layers: usize, seeds: &[NodeId]) -> Sampled {
    let sampler = FullNeighbors::new(data.graph.clone(), n_layers);
    let seeds = Seeds::nodes(seeds.to_vec());
    sampler.sample_blocks(&seeds, ctx().key, &mut Scratch::default()).expect("the seeds are nodes")
}

fn rows(data: &kiln_data::Dataset, nodes: &[NodeId], device: &Device) -> Tensor<2> {
    let mut rows = RowBuf::default();
    data.features.gather(nodes, &mut rows).expect("the nodes have rows");
    Tensor::from_data(TensorData::new(rows.into_f32(), [nodes.len(), data.features.dim()]), device)
}

/// Every node's outputs, one layer at a time, each layer in parts of `part` nodes.
fn by_layers<M: LayerWise>(model: &M, data: &kiln_data::Dataset, part: usize) -> Vec<f32> {
    let device = Device::flex();
    let nodes: Vec<NodeId> = (0..data.graph.n_nodes() as u32).map(NodeId).collect();
    let mut x = rows(data, &nodes, &device);
    for layer in 0..model.n_layers() {
        let outputs = nodes.chunks(part).map(|part| {
            let block = &sampled(data, 1, part).blocks[0];
            let srcs: Vec<i32> = block.srcs().iter().map(|node| node.0 as i32).collect();
            let n_srcs = srcs.len();
            let inputs = x.clone().select(0, Tensor::from_data(TensorData::new(srcs, [n_srcs]), &device));
            model.layer(layer, &DeviceBlock::upload(block, &device), inputs, &ctx())
        });
        x = Tensor::cat(outputs.collect(), 0);
    }
    values(x)
}

#[test]
fn layers_over_the_whole_graph_equal_whole_neighbourhoods() {
    let config = kiln_data::synthetic::SbmConfig {
        n_nodes: 200,
        n_classes: 4,
        degree: 6,
        homophily: 0.7,
        dim: 5,
        noise: 1.0,
        seed: 1,
    };
    let data = kiln_data::synthetic::sbm(config).expect("the configuration is valid");
    let device = Device::flex();
    let model = SageConfig {
        d_in: 5,
        hidden: 9,
        n_classes: 4,
        n_layers: 3,
        aggregate: Aggregate::Mean,
        input_dropout: 0.0,
        dropout: 0.5,
    };
    let model = model.init(RngKey::new(2), &device).expect("the configuration is valid");
    let nodes: Vec<NodeId> = (0..200).map(NodeId).collect();
    let whole = sampled(&data, 3, &nodes);
    let blocks: Vec<_> = whole.blocks.iter().map(|block| DeviceBlock::upload(block, &device)).collect();
    let expected = values(model.forward(&blocks, rows(&data, whole.blocks[0].srcs(), &device), &ctx()));
    for part in [7, 200] {
        check_close(&by_layers(&model, &data, part), &expected, TOLERANCE);
    }
}
