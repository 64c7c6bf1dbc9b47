//! Trains GraphSAGE with custom sampling rules, after DGL's tutorial on training with a customised sampler.
//!
//! ```text
//! cargo run --release --bin custom_sampler -- --ranks 2 --rule low-degree
//! cargo run --release --features cuda --bin custom_sampler -- --device cuda --ranks auto --on-device
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use kiln::graph::Csc;
use kiln::prelude::*;
use kiln::sample::{Neighbors, NodeKey, SamplingRule, Selection};

kiln::use_allocator!();

/// Samples uniformly without replacement (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S), on the host or, with
/// `--on-device`, in a kernel.
#[derive(Default)]
pub(crate) struct Uniform {
    #[cfg(feature = "cube")]
    on_devices: on_devices::UniformInCube,
}

impl SamplingRule for Uniform {
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Selection) {
        let mut rng = key.rng();
        let mut wanted = fanout;
        let degree = neighbors.degree() as u32;
        for position in 0..degree {
            if rng.below(degree - position) < wanted {
                picks.push(position);
                wanted -= 1;
            }
        }
    }

    #[cfg(feature = "cube")]
    fn device_rule(&self) -> Option<&(dyn std::any::Any + Send + Sync)> {
        Some(&self.on_devices.0)
    }
}

#[cfg(feature = "cube")]
#[path = "custom_sampler/on_devices.rs"]
mod on_devices;

/// A rule that samples without replacement, with probabilities proportional to the inverse degrees `w` of the
/// neighbours. It draws a uniform `u` for each neighbour and picks those with the largest `u^(1/w)` (Efraimidis and
/// Spirakis 2006), or equivalently the smallest `-ln(u) / w`. It has no version in CubeCL, so it samples on the host in each
/// mode.
pub(crate) struct LowDegree(pub(crate) Arc<Csc>);

impl SamplingRule for LowDegree {
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Selection) {
        let mut rng = key.rng();
        let indptr = self.0.indptr();
        let arrival = |(position, neighbor): (usize, &NodeId)| {
            let degree = (indptr[neighbor.index() + 1] - indptr[neighbor.index()]).max(1);
            (-(1.0 - rng.unit_f32()).ln() * degree as f32, position as u32)
        };
        let mut arrivals: Vec<(f32, u32)> = neighbors.ids.iter().enumerate().map(arrival).collect();
        arrivals.sort_by(|a, b| a.0.total_cmp(&b.0));
        arrivals.iter().take(fanout as usize).for_each(|(_, position)| picks.push(*position));
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum RuleName {
    Uniform,
    LowDegree,
}

/// Trains GraphSAGE on a graph's nodes with a custom sampling rule.
#[derive(Parser)]
struct Args {
    /// Dataset: `debian-packages` (built in), or the path of a folder.
    #[arg(long, default_value = "debian-packages")]
    data: PathBuf,
    /// Sampling rule.
    #[arg(long, value_enum, default_value = "uniform")]
    rule: RuleName,
    /// Number of ranks, as threads of this process, which use the devices in turn; `auto` is one rank per device.
    #[arg(long, default_value = "1")]
    ranks: RankCount,
    /// Compute devices: `cpu`; or `cuda`, `wgpu` or `cube-cpu`, if the feature of that name is built in.
    #[arg(long, default_value = "cpu")]
    device: Devices,
    /// Sample and gather features on the compute devices.
    #[arg(long)]
    on_device: bool,
    /// Number of epochs.
    #[arg(long, default_value = "10")]
    epochs: usize,
}

fn main() -> Result<()> {
    kiln::print_log();
    let args = Args::parse();
    let data = Dataset::open(&args.data)?.standardize()?;
    let loader = NeighborLoader::new(&data, [4, 4, 4]).batch_size(1024);
    let loader = match args.rule {
        RuleName::Uniform => loader.rule(Uniform::default()),
        RuleName::LowDegree => loader.rule(LowDegree(data.csc()?.clone())),
    };
    let loader = if args.on_device { loader.graph_mode(GraphMode::Device) } else { loader };
    launch(args.ranks.config(&args.device), |rank| {
        let model = SageConfig::for_data(&data).hidden(128);
        let adam = AdamConfig::new(0.001);
        let mut trainer = Trainer::new(model, adam).devices(args.device.clone()).rank(&rank);
        let best = trainer.fit(&loader, FitConfig::epochs(args.epochs))?;
        if let Some(summary) = best.write_report(&loader)? {
            println!("{summary}");
        }
        Ok(())
    })
    .map(drop)
}
