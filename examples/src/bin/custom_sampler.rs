//! Trains GraphSAGE with samplers of its own: a rule says which of one node's neighbours to pick, and that is
//! all of a sampler. After DGL's tutorial on stochastic training with a customised sampler.
//!
//! ```text
//! cargo run --release --bin custom_sampler -- --ranks 2 --rule low-degree
//! ```

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use kiln_examples::args::{self, EdgeWeights};
use kiln_examples::{NodeProgram, Placement, Program, flags, keep, run};
use kiln_graph::Csc;
use kiln_sample::{Fanout, FrontierSampler, NeighborSampler, Neighbors, NodeKey, SamplingRule, Selection};

/// Each neighbour with the same probability, none twice: Knuth's algorithm S (The Art of Computer
/// Programming, volume 2, section 3.4.2).
fn uniform(neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Selection) {
    let mut rng = key.rng();
    let (mut wanted, degree) = (fanout, neighbors.degree() as u32);
    for position in 0..degree {
        if rng.below(degree - position) < wanted {
            picks.push(position);
            wanted -= 1;
        }
    }
}

/// Neighbours with few neighbours rather than hubs: without replacement, by the inverse of their degrees.
/// (Efraimidis and Spirakis 2006: the largest `u^(1/w)`, here as the first `-ln(u) / w`.)
struct LowDegree {
    graph: Arc<Csc>,
}

impl SamplingRule for LowDegree {
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Selection) {
        let (mut rng, indptr, fanout) = (key.rng(), self.graph.indptr(), fanout as usize);
        // The first arrivals so far, in order.
        let mut first: Vec<(f32, u32)> = Vec::with_capacity(fanout.min(neighbors.degree()) + 1);
        for (position, neighbor) in neighbors.ids.iter().enumerate() {
            let degree = (indptr[neighbor.index() + 1] - indptr[neighbor.index()]).max(1);
            let arrival = -(1.0 - rng.unit_f32()).ln() * degree as f32;
            let place = first.partition_point(|(other, _)| *other <= arrival);
            if place < fanout {
                first.insert(place, (arrival, position as u32));
                first.truncate(fanout);
            }
        }
        first.iter().for_each(|(_, position)| picks.push(*position));
    }
}

/// Which neighbours are picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rule {
    /// Any.
    Uniform,
    /// Those of low degree, rather.
    LowDegree,
}

/// Trains GraphSAGE on a graph's nodes with a sampler of this program.
#[derive(Debug, Parser)]
#[command(mut_arg("epochs", |flag| flag.default_value("10")))]
#[command(mut_arg("lr", |flag| flag.default_value("0.001")))]
#[command(mut_arg("hidden", |flag| flag.default_value("128")))]
struct Args {
    #[command(flatten)]
    data: args::DataArgs,
    #[command(flatten)]
    model: args::ModelArgs,
    /// Rule that picks neighbours.
    #[arg(long, value_enum, default_value = "uniform")]
    rule: Rule,
    /// Neighbours per node, one number a layer, input layer first.
    #[arg(long, value_delimiter = ',', value_parser = flags::fanouts, default_value = "4,4,4")]
    fanouts: Vec<Fanout>,
    #[command(flatten)]
    eval: args::EvalArgs,
    #[command(flatten)]
    fit: args::FitArgs,
    #[command(flatten)]
    keep: keep::KeepArgs,
    #[command(flatten)]
    run: run::RunArgs,
}

fn main() -> anyhow::Result<ExitCode> {
    let (args, settings) = args::parse::<Args>("custom_sampler");
    let data = args.data.open(args.run.seed)?;
    let (graph, fanouts) = (data.graph.clone(), args.model.fanouts(&args.fanouts)?);
    let model = args.model.sage(data.features.dim(), data.labels.n_classes(), fanouts.len());
    let evaluator = args.eval.evaluator(&data, &graph, EdgeWeights::Unused, &args.run.ranks())?;
    let sampler: Arc<dyn FrontierSampler> = match args.rule {
        Rule::Uniform => Arc::new(NeighborSampler::with_rule(graph, fanouts, uniform)),
        Rule::LowDegree => Arc::new(NeighborSampler::with_rule(graph.clone(), fanouts, LowDegree { graph })),
    };
    let Args { run, fit, keep, .. } = &args;
    let (settings, data_hash, loss_every) = (&settings, &args.data.hash(&data)?, Some(10));
    let (data_name, class_names) = (&data.name, &data.class_names);
    let program = Program { settings, run, fit, keep, data_name, data_hash, class_names, loss_every };
    // A rule of one's own runs on the processor, whatever device computes.
    let program = NodeProgram { program, data: &data, sampler, placement: Placement::Host, evaluator };
    program.train(|key, device| model.init(key, device))
}
