//! How a program runs: its ranks, its batches, its folder.

use std::collections::BTreeMap;
use std::path::PathBuf;

use burn::tensor::Device;
use clap::{Args, ValueEnum};
use kiln_dist::{Ranks, Topology};
use kiln_loader::{ItemSamplerConfig, LoaderConfig, Shard, Uneven};
use kiln_train::{Resumed, Run, RunFolder, RunIdentity, Task, Trainer};

use crate::args::Settings;
use crate::{flags, say};

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
    /// Seeds in a batch of one rank.
    #[arg(long, value_parser = flags::size, default_value = "1024")]
    batch_size: usize,
    /// Leaves out the last step of an epoch, if it has too few seeds for all ranks.
    #[arg(long)]
    drop_last: bool,
    /// What happens to the seeds of an epoch's last step that do not divide by the number of ranks.
    #[arg(long, value_enum, default_value = "join")]
    uneven: UnevenSeeds,
    /// Seed of the order, the samples, the initial weights and dropout.
    #[arg(long, default_value = "0")]
    pub seed: u64,
    /// Threads of each rank that sample and gather ahead; 0 does so between the steps. If not given, 1 where a rank has more than one core, or there is one rank.
    #[arg(long, value_parser = flags::workers)]
    workers: Option<usize>,
    /// Device that computes; several ranks may share one.
    #[arg(long, value_parser = flags::device, default_value = "cpu")]
    pub device: Device,
    /// New or empty folder for the results; `runs/NAME-NNN` if not given.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Folder of a run that was stopped: goes on from its last checkpoint, with the same results as if it had not been. Give the same flags again; --epochs may be another number, and --ranks where --batch-size keeps the batch of all ranks.
    #[arg(long, conflicts_with = "out")]
    resume: Option<PathBuf>,
}

impl RunArgs {
    /// The ranks that were asked for.
    pub fn ranks(&self) -> Ranks {
        let ranks = Ranks::of(self.ranks);
        Ranks { threads_per_rank: self.threads_per_rank.unwrap_or(ranks.threads_per_rank), ..ranks }
    }

    /// How items become a rank's batches.
    pub fn items(&self, topology: Topology) -> ItemSamplerConfig {
        let shard = Shard { rank: topology.rank, world_size: topology.world_size };
        let &Self { batch_size, drop_last, seed, .. } = self;
        ItemSamplerConfig { batch_size, shuffle: true, drop_last, uneven: self.uneven.of(), seed, shard }
    }

    /// How far the loader works ahead.
    pub fn loader(&self) -> LoaderConfig {
        let has_core_to_spare = self.ranks == 1 || 1 < Ranks::of(self.ranks).threads_per_rank;
        let workers = self.workers.unwrap_or(usize::from(has_core_to_spare));
        LoaderConfig { workers, ..Default::default() }
    }

    /// Starts the run in a new folder, or goes on with the one that `--resume` names. A meeting of the ranks.
    ///
    /// # Errors
    /// When the folder cannot be made, holds something already, or is of another run.
    pub fn start<T: Task>(
        &self,
        name: &str,
        settings: &Settings,
        data_hash: &str,
        trainer: &mut Trainer<T>,
    ) -> anyhow::Result<Run> {
        let identity = self.identity(settings, data_hash);
        let run = Run::start(trainer, || self.folder(name, settings), identity)?;
        if let Some(Resumed { epoch, step, n_ranks }) = run.resumed().filter(|_| trainer.is_first()) {
            say(format_args!("going on after {epoch} epochs and {step} steps"));
            if n_ranks != self.ranks {
                let ranks = self.ranks;
                say(format_args!(
                    "note: on {ranks} ranks after {n_ranks}: the same seeds and samples, but sums that round otherwise"
                ));
            }
        }
        Ok(run)
    }

    fn folder(&self, name: &str, settings: &Settings) -> kiln_train::Result<RunFolder> {
        if let Some(path) = &self.resume {
            return RunFolder::open(path);
        }
        let folder = match &self.out {
            Some(path) => RunFolder::create(path)?,
            None => RunFolder::create_numbered("runs", name)?,
        };
        folder.write_config(&settings.flags)?;
        Ok(folder)
    }

    /// The flags that the result depends on. Those that say how it is computed do not count, nor where the
    /// data lies, whose hash does. The number of ranks counts where seeds are dropped or padded by it.
    fn identity(&self, settings: &Settings, data_hash: &str) -> RunIdentity {
        let counts = |(flag, _): &(&String, &String)| !NOT_OF_THE_RESULT.contains(&flag.as_str());
        let flags = settings.flags.iter().filter(counts);
        let flags = flags.map(|(flag, value)| (format!("--{flag}"), value.clone()));
        let mut settings: BTreeMap<_, _> = flags.collect();
        settings.insert("--batch-size x --ranks".into(), (self.batch_size * self.ranks).to_string());
        if self.uneven != UnevenSeeds::Join {
            settings.insert("--ranks".into(), self.ranks.to_string());
        }
        RunIdentity { settings, data_hash: data_hash.to_owned() }
    }
}

/// Flags that change nothing of what a run learns, or that stand for something that counts in their place.
const NOT_OF_THE_RESULT: &[&str] = &[
    "ranks",
    "batch-size",
    "threads-per-rank",
    "workers",
    "data",
    "verify",
    "epochs",
    "checkpoint-every",
    "memory",
    "out",
    "resume",
];
