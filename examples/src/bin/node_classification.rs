//! Trains GraphSAGE or a GCN to classify nodes, by minibatches of sampled neighbourhoods, on one rank or several.
//!
//! ```text
//! cargo run --release --bin node_classification
//! ```
//!
//! Test accuracy 0.78 after 20 epochs, in 50 s on 2 cores of an Intel Xeon. DGL's tutorial on node
//! classification by several GPUs has the flags `--ranks 2 --epochs 5 --lr 0.01` (and
//! `--hidden 256 --dropout 0.5 --fanouts 10,10,10 --batch-size 1024`, which are the defaults).

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use kiln_examples::args::{self, EdgeWeights};
use kiln_examples::{NodeProgram, Placement, PlacementArgs, Program, flags, keep, run};
use kiln_graph::gcn_norm;
use kiln_kernels::DeviceSampler;
use kiln_sample::{Fanout, FrontierSampler, NeighborSampler, Rule, SamplerConfig};
use kiln_train::Evaluator;

/// Kind of model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Model {
    /// GraphSAGE with means.
    Sage,
    /// Graph convolutions, normalised over the whole graph.
    Gcn,
}

/// Trains a graph neural network on a graph's nodes and keeps the best model.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    data: args::DataArgs,
    /// Kind of model.
    #[arg(long = "model", value_enum, default_value = "sage")]
    kind: Model,
    #[command(flatten)]
    model: args::ModelArgs,
    /// Neighbours per node, one number (or `all`) a layer, input layer first; one alone is for all layers.
    #[arg(long, value_delimiter = ',', value_parser = flags::fanouts, default_value = "10,10,10")]
    fanouts: Vec<Fanout>,
    #[command(flatten)]
    eval: args::EvalArgs,
    #[command(flatten)]
    fit: args::FitArgs,
    #[command(flatten)]
    keep: keep::KeepArgs,
    #[command(flatten)]
    run: run::RunArgs,
    #[command(flatten)]
    placement: PlacementArgs,
}

fn main() -> anyhow::Result<ExitCode> {
    let (args, settings) = args::parse::<Args>("node_classification");
    let data = args.data.open(args.run.seed)?;
    let data_hash = args.data.hash(&data)?;
    let fanouts = args.model.fanouts(&args.fanouts)?;
    let (d_in, n_classes, n_layers) = (data.features.dim(), data.labels.n_classes(), fanouts.len());
    let (graph, ranks) = (data.graph.clone(), args.run.ranks());
    let program = |sampler: Arc<dyn FrontierSampler>, placement: Placement, evaluator: Evaluator| {
        let Args { run, fit, keep, .. } = &args;
        let (settings, data_hash, loss_every) = (&settings, &data_hash, None);
        let (data_name, class_names) = (&data.name, &data.class_names);
        let program = Program { settings, run, fit, keep, data_name, data_hash, class_names, loss_every };
        NodeProgram { program, data: &data, sampler, placement, evaluator }
    };
    match args.kind {
        Model::Sage => {
            let config = args.model.sage(d_in, n_classes, n_layers);
            let evaluator = args.eval.evaluator(&data, &graph, EdgeWeights::Unused, &ranks)?;
            let sampler = NeighborSampler::new(graph.clone(), fanouts.clone());
            let placement = args
                .placement
                .place(&args.run, &data, graph, &sampler, |graph| Ok(DeviceSampler::new(graph, &fanouts)))?;
            program(Arc::new(sampler), placement, evaluator).train(|key, device| config.init(key, device))
        }
        Model::Gcn => {
            let config = args.model.gcn(d_in, n_classes, n_layers);
            let graph = Arc::new(gcn_norm(&graph)?);
            let evaluator = args.eval.evaluator(&data, &graph, EdgeWeights::Used, &ranks)?;
            let sampling = SamplerConfig::new(&fanouts)
                .with_rule(Rule::UniformKeepSelfLoops)
                .with_weights(kiln_sample::EdgeWeights::Unbiased);
            let sampler = NeighborSampler::with_config(graph.clone(), sampling.clone())?;
            let placement = args.placement.place(&args.run, &data, graph, &sampler, |graph| {
                DeviceSampler::with_config(graph, sampling.clone())
            })?;
            program(Arc::new(sampler), placement, evaluator).train(|key, device| config.init(key, device))
        }
    }
}
