//! Cases of running sums, picks, relabelling and transposed blocks.

use std::sync::Arc;

use burn::tensor::Device;
use kiln_benches::Result;
use kiln_graph::{Block, Csc, CscBuilder, NodeId};
use kiln_kernels::testing::{read_block, read_by_source, running_sums};
use kiln_kernels::{DeviceBlock, DeviceGraph, DeviceSampler};
use kiln_sample::{EdgeWeights, Fanout, RngKey, Rule, SamplerConfig, Scratch, Seeds};

use super::{Case, with_hub};
use crate::outcome::Outcome;

/// The bound of the weights of sampled edges: a quotient of two numbers, which a device may round differently.
const WEIGHT_BOUND: f32 = 1e-6;

/// The number of nodes of [`graph`].
const N_NODES: u32 = 3000;

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = [33, 2049, 16_385, 600_000].map(running_sum).into();
    for rule in Rule::BUILT_IN {
        let name = rule.name().unwrap_or_default().to_owned();
        cases.push(picks(format!("picks-{name}"), rule.clone(), [15, 10, 5].map(Fanout::UpTo).into()));
        cases.push(weights(format!("picks-{name}-weights"), rule));
    }
    let wide = vec![Fanout::UpTo(40), Fanout::All, Fanout::UpTo(3)];
    cases.push(picks("picks-all-of-a-hop".to_owned(), Rule::Uniform, wide));
    cases.push(picks("picks-none-of-a-hop".to_owned(), Rule::Uniform, [7, 0].map(Fanout::UpTo).into()));
    cases.push(Case::new("edges-by-source", |device| {
        let [indptr, dsts, edges] = read_by_source(&DeviceBlock::upload(&with_hub(), device));
        Ok(Outcome::bits(&[indptr, dsts, edges].concat()))
    }));
    cases.push(Case::new("edges-by-source-of-picks", |device| {
        let sampled = sample(device, Rule::Uniform, vec![Fanout::UpTo(40)], EdgeWeights::None)?;
        let first = sampled.first().ok_or("there are no blocks")?;
        Ok(Outcome::bits(&read_by_source(first).concat()))
    }));
    cases
}

/// The sizes are those around the tiles of one plane, of one cube and of several cubes; the last sums saturate.
fn running_sum(n: u32) -> Case {
    Case::new(format!("scan-{n}"), move |device| {
        let values: Vec<u32> = (0..n).map(|position| position % (u32::MAX / 1000)).collect();
        let sums = running_sums(&values, device).unwrap_or_else(|| {
            let mut sums = vec![0_u32];
            for value in &values {
                sums.push(sums[sums.len() - 1].saturating_add(*value));
            }
            sums
        });
        Ok(Outcome::bits(&sums))
    })
}

/// Returns a graph with two hubs of 4,000 in-edges, a node with 4,000 out-edges, and nodes without in-edges.
fn graph() -> Result<Arc<Csc>> {
    let mut state = 1_u32;
    let mut draw = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    let mut edges: Vec<(u32, u32)> = (0..40_000).map(|_| (draw(N_NODES), draw(N_NODES - 100))).collect();
    for _ in 0..4000 {
        edges.push((draw(N_NODES), 17));
        edges.push((draw(N_NODES), 2000));
        edges.push((17, draw(N_NODES)));
    }
    let (srcs, dsts): (Vec<u32>, Vec<u32>) = edges.into_iter().unzip();
    let weights: Vec<f32> = (0..srcs.len()).map(|edge| 0.5 + (edge % 11) as f32 * 0.25).collect();
    Ok(Arc::new(CscBuilder::new(N_NODES as usize).weights(&weights).build(&srcs, &dsts)?))
}

/// Samples for 900 seeds and for three that occur twice.
fn sample(
    device: &Device,
    rule: Rule,
    fanouts: Vec<Fanout>,
    weights: EdgeWeights,
) -> Result<Vec<DeviceBlock>> {
    let config = SamplerConfig::new(fanouts).with_rule(rule).with_weights(weights);
    let sampler = DeviceSampler::with_config(DeviceGraph::new(graph()?, device)?, config)?;
    let ids = (0..900).map(|seed| seed * 7 % N_NODES).chain([17, 17, 2000]);
    let seeds = Seeds::nodes(ids.map(NodeId).collect());
    Ok(sampler.sample_blocks(&seeds, RngKey::new(3), &mut Scratch::default())?.blocks)
}

fn picks(name: String, rule: Rule, fanouts: Vec<Fanout>) -> Case {
    Case::new(name, move |device| {
        let blocks = sample(device, rule.clone(), fanouts.clone(), EdgeWeights::None)?;
        let words: Vec<u32> = blocks.iter().map(read_block).flat_map(|block| structure(&block)).collect();
        Ok(Outcome::bits(&words))
    })
}

/// Returns all arrays of a block's structure.
fn structure(block: &Block) -> Vec<u32> {
    let mut words: Vec<u32> = block.srcs().iter().map(|node| node.0).collect();
    words.extend(block.indptr());
    words.extend(block.indices().iter().map(|local| local.0));
    words.extend(block.edge_ids().iter().map(|edge| edge.0 as u32));
    words
}

fn weights(name: String, rule: Rule) -> Case {
    Case::new(name, move |device| {
        let fanouts = [15, 10, 5].map(Fanout::UpTo).into();
        let blocks = sample(device, rule.clone(), fanouts, EdgeWeights::Unbiased)?;
        let mut weights = Vec::new();
        for block in blocks.iter().map(read_block) {
            weights.extend_from_slice(block.weights().ok_or("the block has no weights")?);
        }
        Ok(Outcome::floats(&weights, WEIGHT_BOUND))
    })
}
