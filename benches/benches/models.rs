//! Stage `models`: training steps (forward, backward, update) of models with attention and relations, and of GraphSAGE of
//! the same width on the same blocks, which one worker samples and gathers in advance. Hidden rows have 256 columns, in
//! attention layers 4 heads of 64. Edges of data without edge types get one of ten types by their ids. The rates count
//! seeds.

use std::sync::Arc;
use std::time::Instant;

use burn::tensor::Device;
use kiln_benches::{Endless, Input, Result, Stage, Work, inputs, n_threads, train};
use kiln_comm::SingleRank;
use kiln_graph::Csc;
use kiln_loader::NodeBatcher;
use kiln_nn::{AttentionKind, BlockModel, GatConfig, ModelConfig, RgcnConfig, SageConfig};
use kiln_sample::{NeighborSampler, SamplerConfig};
use kiln_train::{HostNodeBatcher, NodeClassification, OptimizerConfig, TaskTrainer, TrainerConfig};

/// The number of edge types of data without types.
const N_TYPES: u64 = 10;

pub(crate) fn main() -> Result {
    let mut stage = Stage::new("models");
    for input in inputs()? {
        let graph = with_edge_types(input.dataset.csc()?)?;
        let n_relations =
            usize::from(graph.edge_types().and_then(|types| types.iter().max()).map_or(0, |t| *t)) + 1;
        let graph = Arc::new(graph);
        let d_in = input.dataset.node_features()?.dim();
        let n_classes = input.dataset.labels().n_classes();
        let n_layers = input.fanouts.len();
        let gat = GatConfig::new(d_in, n_classes).layers(n_layers).dropout(0.0).output_heads(4);
        let rgcn = RgcnConfig::new(d_in, n_classes, n_relations).layers(n_layers).dropout(0.0);
        let sage = SageConfig::new(d_in, n_classes).layers(n_layers).dropout(0.0);
        bench(&mut stage, &input, &graph, "sage", &sage)?;
        bench(&mut stage, &input, &graph, "gat", &gat)?;
        bench(&mut stage, &input, &graph, "gatv2", &gat.clone().attention(AttentionKind::GatV2))?;
        bench(&mut stage, &input, &graph, "rgcn", &rgcn)?;
    }
    stage.finish();
    Ok(())
}

/// Returns the graph with its edge types, or with types by edge id if it has none.
fn with_edge_types(graph: &Csc) -> Result<Csc> {
    if graph.edge_types().is_some() {
        return Ok(graph.clone());
    }
    let types = (0..graph.n_edges()).map(|edge| (((edge * 2_654_435_761) >> 16) % N_TYPES) as u8);
    Ok(graph.clone().with_edge_types(types.collect::<Vec<_>>().into())?)
}

fn bench<C>(stage: &mut Stage, input: &Input, graph: &Arc<Csc>, name: &str, model: &C) -> Result
where
    C: ModelConfig,
    C::Model: BlockModel,
{
    let data = &input.dataset;
    let mut sampling = SamplerConfig::new(input.fanouts.clone());
    if model.requirements().n_relations.is_some() {
        sampling = sampling.with_edge_types();
    }
    let sampler = NeighborSampler::with_config(Arc::clone(graph), sampling)?;
    let batcher = NodeBatcher::new(sampler.into(), data.node_features()?.clone(), data.labels());
    let loader = train::loader(input, HostNodeBatcher::new(batcher, &Device::flex()))?;
    let mut batches = Endless::new(loader);
    let config = TrainerConfig::new(OptimizerConfig::adam(0.003, 0.0));
    let mut trainer = TaskTrainer::new(
        NodeClassification::new(),
        &config,
        Box::new(SingleRank),
        |key, device: &Device| model.init(key, device),
    )?;
    let work = Work::new(kiln_benches::BATCH_SIZE as u64, "seeds", n_threads());
    stage.bench(&format!("{name}-256-{}", input.fanouts_name()), &input.name, work, |bencher| {
        bencher.iter_custom(|n_steps| {
            let mut step = || {
                trainer.step(&mut batches, |_| ()).expect("a step should have a finite loss");
            };
            // An unmeasured first step consumes a prefetched batch.
            step();
            let started = Instant::now();
            (0..n_steps).for_each(|_| step());
            started.elapsed()
        });
    })
}
