//! How a program runs: its ranks and their batches.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::ensure;
use burn::tensor::Device;
use clap::{Args, ValueEnum};
use kiln_dist::{Ranks, Topology};
use kiln_loader::{ItemSamplerConfig, LoaderConfig, Shard, Uneven};

use crate::{LaunchArgs, flags, launch};

/// What happens to seeds that do not divide by the number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum UnevenSeeds {
    /// All are used, some ranks get one more than others.
    Join,
    /// The last ones are left out.
    Drop,
    /// The first ones of the epoch are used once more.
    Pad,
}

impl UnevenSeeds {
    fn of(self) -> Uneven {
        match self {
            Self::Join => Uneven::Join,
            Self::Drop => Uneven::Drop,
            Self::Pad => Uneven::Pad,
        }
    }
}

/// Where and how the program runs.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Ranks that train together, each a thread with a model and a device of its own.
    #[arg(long, value_parser = flags::threads, default_value = "1")]
    ranks: usize,
    /// Threads that compute in each rank; its share of the cores if not given.
    #[arg(long, value_parser = flags::threads)]
    threads_per_rank: Option<usize>,
    /// Seconds that ranks wait for one that does not come, before all of them give up; if not given, 600, and 120 where ranks are processes.
    #[arg(long, value_parser = flags::size)]
    deadline: Option<usize>,
    /// Seeds in a batch of one rank.
    #[arg(long, value_parser = flags::size, default_value = "1024")]
    batch_size: usize,
    /// Leaves out the last step of an epoch, if it has fewer seeds than a batch for each rank.
    #[arg(long)]
    drop_last: bool,
    /// What happens to the seeds of an epoch's last step that do not divide by the number of ranks.
    #[arg(long, value_enum, default_value = "join")]
    uneven: UnevenSeeds,
    /// Seed of the order, the samples, the initial weights and dropout, and of the split of a set of graphs.
    #[arg(long, default_value = "0")]
    pub seed: u64,
    /// Threads of each rank that sample and gather ahead, besides those that compute; 0 does so between the steps. If not given, 1 where a rank computes on several threads, or there is one rank.
    #[arg(long, value_parser = flags::workers)]
    workers: Option<usize>,
    /// Device that computes: `cpu`, or with the feature of that name `cuda`, `wgpu` (`cuda:1` is the second one) or `cube-cpu`. Several ranks may share one; of ranks that are processes each takes the one of its local rank, where the machine has several and no number is given.
    #[arg(long, value_parser = flags::device, default_value = "cpu")]
    device: NamedDevice,
    #[command(flatten)]
    pub(crate) launch: LaunchArgs,
    /// Threads of this process's rank, once its job knows.
    #[arg(skip)]
    pub(crate) threads: OnceLock<usize>,
}

/// A device and what it was called.
#[derive(Debug, Clone)]
pub struct NamedDevice {
    /// As it was given.
    pub name: String,
    /// The device.
    pub device: Device,
}

impl RunArgs {
    /// The ranks of this process: those that were asked for, or one, where ranks are processes.
    pub fn ranks(&self) -> Ranks {
        let ranks = Ranks::of(self.ranks);
        let threads_per_rank = self.threads_per_rank.unwrap_or(ranks.threads_per_rank);
        let default = if launch().is_some() { 120 } else { 600 };
        let deadline = Duration::from_secs(self.deadline.unwrap_or(default) as u64);
        Ranks { threads_per_rank, deadline, ..ranks }
    }

    /// Ranks that train together.
    pub fn n_ranks(&self) -> usize {
        launch().map_or(self.ranks, |launch| launch.world_size)
    }

    /// The threads that each rank was asked to have, if it was.
    pub(crate) fn threads_per_rank(&self) -> Option<usize> {
        self.threads_per_rank
    }

    /// Whether both threads and processes were asked for.
    pub(crate) fn has_ranks_in_ranks(&self) -> bool {
        launch().is_some() && self.ranks != 1
    }

    /// The device that computes: of several processes of a machine that has several, this one's.
    pub fn device(&self) -> Device {
        self.device_of_process().map_or_else(|| self.device.device.clone(), |(_, device)| device)
    }

    /// This process's own device and its number, where a device without a number was asked for. There is none of that
    /// number where each process sees but its own.
    fn device_of_process(&self) -> Option<(usize, Device)> {
        let index = launch()?.local_rank;
        let device = kiln_kernels::open_device(&format!("{}:{index}", self.device.name)).ok()?;
        Some((index, device))
    }

    /// The number of this process's CUDA device, where ranks are processes.
    #[cfg(feature = "nccl")]
    pub(crate) fn cuda_of_process(&self) -> Option<usize> {
        let (kind, given) = self.device.name.split_once(':').unwrap_or((&self.device.name, "0"));
        let given = given.parse().ok().filter(|_| kind == "cuda" && launch().is_some())?;
        Some(self.device_of_process().map_or(given, |(index, _)| index))
    }

    /// How items become a rank's batches.
    pub fn items(&self, topology: Topology) -> ItemSamplerConfig {
        let shard = Shard { rank: topology.rank, world_size: topology.world_size };
        let &Self { batch_size, drop_last, seed, .. } = self;
        ItemSamplerConfig { batch_size, shuffle: true, drop_last, uneven: self.uneven.of(), seed, shard }
    }

    /// The same for the batches of all ranks together.
    pub fn items_of_all_ranks(&self) -> ItemSamplerConfig {
        let one = self.items(Topology { rank: 0, world_size: 1, local_rank: 0 });
        ItemSamplerConfig { batch_size: self.batch_size * self.n_ranks(), ..one }
    }

    /// Says so where the ranks' batches are larger than what there is to train on and would be left out.
    ///
    /// # Errors
    /// A message that says what to change.
    pub fn check_steps(&self, n_items: usize, n_steps: usize) -> anyhow::Result<()> {
        let per_step = self.batch_size.saturating_mul(self.n_ranks());
        ensure!(
            n_steps > 0 || n_items == 0,
            "{n_items} items to train on give no step of {per_step}: lower --batch-size, or leave out --drop-last or --uneven drop"
        );
        Ok(())
    }

    /// What of this a run's result depends on, by name: the batch of all ranks together, and the number of ranks
    /// where seeds are dropped or padded by it.
    pub fn settings(&self) -> Vec<(String, String)> {
        let mut settings =
            vec![("--batch-size x --ranks".into(), (self.batch_size * self.n_ranks()).to_string())];
        if self.uneven != UnevenSeeds::Join {
            settings.push(("--ranks".into(), self.n_ranks().to_string()));
        }
        settings
    }

    /// How far the loader works ahead.
    pub fn loader(&self) -> LoaderConfig {
        let has_core_to_spare =
            self.n_ranks() == 1 || 1 < *self.threads.get().unwrap_or(&self.ranks().threads_per_rank);
        let workers = self.workers.unwrap_or(usize::from(has_core_to_spare));
        LoaderConfig { workers, ..Default::default() }
    }
}
