//! A heterogeneous dataset of one type of nodes, half of which have no edges: models read the own features of nodes.

use kiln::graph::NodeTypes;
use kiln::nn::BlockModel;
use kiln::prelude::*;

use super::quiet_for;

use crate::relation::relation;

const N_NODES: u32 = 600;
const N_CLASSES: u32 = 3;
const WIDTH: u32 = 6;

/// Nodes with the class in their features, under noise. Nodes below 300 have edges from nodes of any class.
fn data() -> Dataset {
    let hash = |value: u32| {
        let mixed = (value ^ 0x9e37_79b9).wrapping_mul(0x85eb_ca6b);
        (mixed ^ (mixed >> 13)).wrapping_mul(0xc2b2_ae35) >> 8
    };
    let (mut srcs, mut dsts) = (Vec::new(), Vec::new());
    for dst in 0..N_NODES / 2 {
        for edge in 0..4 {
            srcs.push(hash(4 * dst + edge) % (N_NODES / 2));
            dsts.push(dst);
        }
    }
    let class = |node: u32| hash(node.wrapping_add(70_000)) % N_CLASSES;
    let value = |position: u32| {
        let (node, column) = (position / WIDTH, position % WIDTH);
        let noise = (hash(position.wrapping_add(900_000)) % 1000) as f32 / 1000.0 - 0.5;
        f32::from(u8::from(column == class(node))) + 1.6 * noise
    };
    let part = |parts: std::ops::Range<u32>| {
        (0..N_NODES).filter(|node| parts.contains(&(node % 10))).collect::<Vec<u32>>()
    };
    let relation = relation("cites", ["paper", "paper"], &srcs, &dsts);
    Dataset::builder_with_types(NodeTypes::new([("paper", N_NODES as usize)]).unwrap())
        .name("papers")
        .relation(relation)
        .nodes("paper")
        .features((0..N_NODES * WIDTH).map(value).collect::<Vec<f32>>(), WIDTH as usize)
        .nodes("paper")
        .labels((0..N_NODES).map(|node| class(node) as i32).collect::<Vec<i32>>(), N_CLASSES as usize)
        .split(part(0..6).clone(), part(6..8).clone(), part(8..10).clone())
        .build()
        .unwrap()
}

#[test]
fn hgt_reads_the_features_of_nodes_without_edges() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let loader = NeighborLoader::new(&data, [4, 4]).batch_size(32).workers(1);
    for hidden in [32, WIDTH as usize] {
        let model = HgtConfig::new(WIDTH as usize, N_CLASSES as usize).metagraph(&data.graph.metagraph());
        let model = HeteroModelConfig::new(data.dims(), model.hidden(hidden).heads(2));
        let out = folder.path().join(hidden.to_string());
        let mut trainer = Trainer::new(model, AdamConfig::new(1e-2)).seed(7);
        let best = trainer.fit(&loader, quiet_for(20, &out)).unwrap();
        let accuracy = best.evaluate(&loader, Phase::Test).unwrap().accuracy();
        assert!(0.7 < accuracy, "hidden width {hidden}: {accuracy}");
    }
}

#[test]
fn loaders_of_one_type_refuse_models_of_heterogeneous_graphs() {
    fn refused<C: ModelConfig<Model: BlockModel + Sync>>(data: &Dataset, config: C) {
        let loader = NeighborLoader::new(data, [2, 2]);
        let trained = Trainer::new(config, AdamConfig::new(1e-2)).fit(&loader, FitConfig::epochs(1).quiet());
        let error = trained.map(drop).unwrap_err();
        assert!(matches!(error, Error::HeterogeneousModel), "{error}");
    }
    let width = WIDTH as usize;
    let plain = Dataset::builder(4)
        .edges(&[0, 1, 2, 3], &[1, 2, 3, 0])
        .features(vec![0.0; 4 * width], width)
        .labels(vec![0, 1, 0, 1], 2)
        .split(vec![0, 1], vec![2], vec![3])
        .build()
        .unwrap();
    refused(&plain, HgtConfig::new(width, 2).layers(2));
    refused(&plain, HeteroModelConfig::new([Some(width)], SageConfig::new(width, 2).layers(2)));
    refused(&plain, HeteroModelConfig::new([Some(width), None], SageConfig::new(width, 2).layers(2)));
}
