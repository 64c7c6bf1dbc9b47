//! How a program runs: its ranks and their batches.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::ensure;
use burn::tensor::Device;
use clap::{Args, ValueEnum};
use kiln_comm::ThreadRanks;
use kiln_kernels::Devices;
use kiln_loader::{ItemSamplerConfig, LoaderConfig, Shard, UnevenShards};
use kiln_train::{BatchConfig, OptimizerConfig, TrainerConfig};

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
    fn of(self) -> UnevenShards {
        match self {
            Self::Join => UnevenShards::Join,
            Self::Drop => UnevenShards::Drop,
            Self::Pad => UnevenShards::Pad,
        }
    }
}

/// Where and how the program runs.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Number of ranks that train together, each a thread with a model of its own; `auto` is one rank per device, or on the CPU the number of cores divided by --threads-per-rank.
    #[arg(long, value_parser = flags::ranks, default_value = "1")]
    ranks: RankCount,
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
    /// Device that computes: `cpu`, or with the feature of that name `cuda`, `wgpu` or `cube-cpu`. `cuda` is all GPUs: the rank with local rank i takes GPU i mod n. `cuda:1` is one of them, `cuda:0,cuda:2` are two.
    #[arg(long, value_parser = flags::devices, default_value = "cpu")]
    device: Devices,
    #[command(flatten)]
    pub(crate) launch: LaunchArgs,
    /// Threads of this process's rank, once its job knows.
    #[arg(skip)]
    pub(crate) threads: OnceLock<usize>,
    /// What sums the gradients of the ranks of this process on their GPUs, made by the first rank that asks for it.
    #[cfg(feature = "nccl")]
    #[arg(skip)]
    pub(crate) nccl: OnceLock<crate::launch::LocalNccl>,
}

/// How many ranks were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankCount {
    /// One per device; on the CPU, as many as the cores have room for.
    Auto,
    /// This many.
    Exactly(usize),
}

impl RunArgs {
    /// The ranks of this process: those that were asked for, or one, where ranks are processes.
    pub fn ranks(&self) -> ThreadRanks {
        let ranks = ThreadRanks::of(self.n_threads());
        let threads_per_rank = self.threads_per_rank.unwrap_or(ranks.threads_per_rank);
        let default = if launch().is_some() { 120 } else { 600 };
        let deadline = Duration::from_secs(self.deadline.unwrap_or(default) as u64);
        ThreadRanks { threads_per_rank, deadline, ..ranks }
    }

    /// Ranks that are threads of this process.
    fn n_threads(&self) -> usize {
        match self.ranks {
            RankCount::Exactly(n_ranks) => n_ranks,
            RankCount::Auto if launch().is_some() => 1,
            RankCount::Auto if self.device.len() == 1 && kiln_kernels::is_cpu(&self.device_of(0)) => {
                (ThreadRanks::of(1).threads_per_rank / self.threads_per_rank.unwrap_or(1)).max(1)
            }
            RankCount::Auto => self.device.len(),
        }
    }

    /// Ranks that train together.
    pub fn n_ranks(&self) -> usize {
        launch().map_or(self.n_threads(), |launch| launch.world_size)
    }

    /// The threads that each rank was asked to have, if it was.
    pub(crate) fn threads_per_rank(&self) -> Option<usize> {
        self.threads_per_rank
    }

    /// Whether both threads and processes were asked for.
    pub(crate) fn has_ranks_in_ranks(&self) -> bool {
        launch().is_some() && self.n_threads() != 1
    }

    /// The device that the rank with this local rank computes on.
    pub fn device_of(&self, local_rank: usize) -> Device {
        self.device.of_rank(local_rank).device.clone()
    }

    /// The place of that device among the machine's.
    pub(crate) fn place_of(&self, local_rank: usize) -> usize {
        self.device.place(local_rank)
    }

    /// The devices that ranks of this process compute on, by their places.
    pub(crate) fn own_devices(&self) -> BTreeMap<usize, Device> {
        let local_ranks = match launch() {
            Some(launch) => launch.local_rank..launch.local_rank + 1,
            None => 0..self.n_threads(),
        };
        local_ranks.map(|local_rank| (self.place_of(local_rank), self.device_of(local_rank))).collect()
    }

    /// The numbers of the CUDA devices of all ranks of this process, by rank; `None` where one has another device.
    pub(crate) fn cuda_indices(&self) -> Option<Vec<usize>> {
        let first = launch().map_or(0, |launch| launch.local_rank);
        let index = |local_rank| self.device.of_rank(local_rank).name.strip_prefix("cuda:")?.parse().ok();
        (first..first + self.n_threads()).map(index).collect()
    }

    /// The seed, the device of the rank with this local rank, and the update rule.
    pub fn trainer(&self, local_rank: usize, optimizer: OptimizerConfig) -> TrainerConfig {
        TrainerConfig { seed: self.seed, device: self.device_of(local_rank), optimizer }
    }

    /// How items become a rank's batches.
    pub fn batches(&self) -> BatchConfig {
        let &Self { batch_size, drop_last, .. } = self;
        BatchConfig { batch_size, shuffle: true, drop_last, uneven: self.uneven.of() }
    }

    /// How items become the batches of all ranks together.
    pub fn items_of_all_ranks(&self) -> ItemSamplerConfig {
        let BatchConfig { batch_size, shuffle, drop_last, uneven } = self.batches();
        let (batch_size, seed, shard) = (batch_size * self.n_ranks(), self.seed, Shard::default());
        ItemSamplerConfig { batch_size, shuffle, drop_last, uneven, seed, shard }
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        run: RunArgs,
    }

    fn run(flags: &str) -> RunArgs {
        let words = ["program"].into_iter().chain(flags.split_whitespace());
        Program::try_parse_from(words).expect("these flags should be understood").run
    }

    #[test]
    fn auto_is_one_rank_per_device_or_the_cores() {
        assert_eq!(run("--ranks 3").n_ranks(), 3);
        assert_eq!(run("--ranks auto --device cpu,cpu,cpu").n_ranks(), 3);
        let n_cores = ThreadRanks::of(1).threads_per_rank;
        assert_eq!(run("--ranks auto").n_ranks(), n_cores);
        let two_each = run("--ranks auto --threads-per-rank 2");
        assert_eq!((two_each.n_ranks(), two_each.ranks().threads_per_rank), ((n_cores / 2).max(1), 2));
        assert!(Program::try_parse_from(["program", "--ranks", "all"]).is_err());
    }

    #[test]
    fn ranks_of_a_process_share_the_devices_in_turn() {
        let three_on_two = run("--ranks 3 --device cpu,cpu");
        assert_eq!([0, 1, 2].map(|local_rank| three_on_two.place_of(local_rank)), [0, 1, 0]);
        assert_eq!(three_on_two.own_devices().into_keys().collect::<Vec<_>>(), [0, 1]);
        // What lies on a device is not copied to those that no rank computes on.
        assert_eq!(run("--ranks 1 --device cpu,cpu").own_devices().len(), 1);
    }
}
