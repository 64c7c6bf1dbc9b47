//! Training on a graph in parts, which lie with the ranks or with servers.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail, ensure};
use burn::tensor::Device;
use clap::{Args, ValueEnum};
use kiln_comm::rpc::Token;
use kiln_comm::{Communicator, RankInfo};
use kiln_graph::NodeId;
use kiln_kernels::DeviceSampler;
use kiln_loader::{LoaderConfig, NodeBatcher};
use kiln_nn::LayerWiseModel;
use kiln_partition::{Part, part_dir};
use kiln_remote::{
    ColocatedWorker, ColocatedWorkerConfig, ConnectConfig, DistFeatureStore, DistGraph, DistNeighborSampler,
    FetchStats,
};
use kiln_sample::{Fanout, RngKey};
use kiln_train::{Evaluator, NodeClassification, Trainer};

use crate::placement::GraphMode;
use crate::progress::TrainerLine;
use crate::run::RunArgs;
use crate::{Crew, Ending, Program, TlsArgs, flags, say, secret};

/// Who holds the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// The ranks: each holds a part, which it serves to the others, and trains.
    Worker,
    /// Servers (`kiln-serve`): ranks hold none.
    Server,
}

/// Where the parts of the graph are, and how they are reached.
#[derive(Debug, Args)]
pub struct PartsArgs {
    /// Who holds the parts.
    #[arg(long, value_enum, default_value = "worker")]
    mode: Mode,
    /// With `--mode worker`: folder with `part0`, `part1`, ... (`cargo xtask data partition`). A machine needs those of its own ranks only; where there are more ranks than parts, each part has as many ranks, those that follow each other.
    #[arg(long, value_name = "DIR")]
    parts: Option<PathBuf>,
    /// With `--mode server`: the servers of all parts. They want a token, in KILN_GRAPH_TOKEN or a file that KILN_GRAPH_TOKEN_FILE names, unless there are certificates.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    servers: Vec<String>,
    /// With `--mode worker`: name or address of this machine, by which other ranks reach it; if not given, the address from which it reaches rank 0.
    #[arg(long, value_parser = flags::host)]
    host: Option<String>,
    /// Where the neighbours of the own part's nodes are sampled: on the processor; on the device that computes, from a copy in its memory; or there with the part left to the host, the lists of each hop being copied. The batches are the same. With `--mode server`, servers sample.
    #[arg(long, value_enum, default_value = "cpu")]
    graph_mode: GraphMode,
    /// Asks for the feature rows that are kept beside the own part, too, as if they were not.
    #[arg(long)]
    no_static_cache: bool,
    /// Bytes of other rows to keep as they come, as in 256MiB: those that are asked for again stay (SIEVE).
    #[arg(long, value_parser = kiln_data::convert::parse_bytes, default_value = "0")]
    cache_size: u64,
    /// Batches that each of the --workers has in the making at once, most of which wait for the network.
    #[arg(long, value_parser = flags::threads, default_value = "4")]
    worker_concurrency: usize,
    /// Bytes of batches that may be finished or in the making.
    #[arg(long, value_parser = kiln_data::convert::parse_bytes, default_value = "1GiB")]
    channel_size: u64,
}

/// A graph in parts, and what is known of it before ranks meet.
#[derive(Debug)]
pub struct Parts<'a> {
    args: &'a PartsArgs,
    run: &'a RunArgs,
    source: Source,
    /// What the data set is called.
    pub name: String,
    /// The hash of the whole.
    pub hash: String,
    /// The classes' names.
    pub class_names: Vec<String>,
    /// Number of feature columns.
    pub dim: usize,
    /// Number of classes.
    pub n_classes: usize,
    /// The samplers of parts on devices, with the number of edges, by the device's place and the part's number: ranks that
    /// share both share one.
    on_devices: Mutex<BTreeMap<(usize, usize), (DeviceSampler, u64)>>,
}

#[derive(Debug)]
enum Source {
    /// A folder with parts, and how many there are in all.
    Folder(PathBuf, usize),
    /// Servers. The connection by which they were asked what they have is taken by the first rank of this process.
    Servers(Mutex<Option<Arc<DistGraph>>>),
}

/// How one rank reaches the graph.
enum Reach {
    Worker(Box<ColocatedWorker>),
    Client(Arc<DistGraph>),
}

impl Reach {
    fn graph(&self) -> &Arc<DistGraph> {
        match self {
            Self::Worker(worker) => worker.graph(),
            Self::Client(graph) => graph,
        }
    }
}

impl PartsArgs {
    /// Looks at the parts, or asks the servers.
    ///
    /// # Errors
    /// When they are not there, or flags contradict each other.
    pub fn open<'a>(&'a self, run: &'a RunArgs) -> anyhow::Result<Parts<'a>> {
        match (self.mode, &self.parts, &self.servers[..]) {
            (Mode::Worker, Some(folder), []) => self.look(run, folder),
            (Mode::Worker, ..) => {
                bail!("--mode worker needs --parts DIR, the folder with this rank's part, and no --servers")
            }
            (Mode::Server, None, [_, ..]) => {
                ensure!(
                    self.host.is_none(),
                    "--host is for --mode worker: with servers, ranks serve nothing"
                );
                ensure!(
                    self.graph_mode == GraphMode::Cpu,
                    "--graph-mode device and zero-copy are for --mode worker: servers sample on their processors"
                );
                self.ask(run)
            }
            (Mode::Server, ..) => {
                bail!("--mode server needs --servers HOST:PORT,..., those of all parts, and no --parts")
            }
        }
    }

    fn look<'a>(&'a self, run: &'a RunArgs, folder: &Path) -> anyhow::Result<Parts<'a>> {
        let n_ranks = run.n_ranks();
        // There is one at least: that of the ranks of this machine.
        let part = (0..n_ranks).map(|part| part_dir(folder, part)).find(|folder| folder.exists());
        let part = part.with_context(|| {
            format!(
                "{} holds no part that is any of {n_ranks} ranks': make some by `cargo xtask data partition`",
                folder.display()
            )
        })?;
        let part = Part::open(part)?;
        let n_parts = part.book.n_parts();
        ensure!(
            n_ranks.is_multiple_of(n_parts),
            "{n_ranks} ranks cannot share {n_parts} parts equally: start {n_parts} or a multiple, or partition anew"
        );
        say(format_args!(
            "{}: {} nodes, {} edges; worker mode, {n_parts} parts",
            part.name,
            part.book.n_nodes(),
            part.n_edges
        ));
        Ok(Parts {
            args: self,
            run,
            dim: part.features.dim(),
            n_classes: part.labels.n_classes(),
            on_devices: Mutex::default(),
            source: Source::Folder(folder.to_owned(), n_parts),
            name: part.name,
            hash: part.hash,
            class_names: part.class_names,
        })
    }

    fn ask<'a>(&'a self, run: &'a RunArgs) -> anyhow::Result<Parts<'a>> {
        let graph = self.connect(run)?;
        let (n_nodes, n_edges, n_servers) = (graph.n_nodes(), graph.n_edges(), self.servers.len());
        say(format_args!(
            "{}: {n_nodes} nodes, {n_edges} edges; server mode, {n_servers} servers",
            graph.name()
        ));
        Ok(Parts {
            args: self,
            run,
            name: graph.name().to_owned(),
            hash: graph.hash().to_owned(),
            class_names: graph.class_names().to_vec(),
            dim: graph.dim(),
            n_classes: graph.labels().n_classes(),
            on_devices: Mutex::default(),
            source: Source::Servers(Mutex::new(Some(Arc::new(graph)))),
        })
    }

    fn connect(&self, run: &RunArgs) -> anyhow::Result<DistGraph> {
        let tls = &run.launch.tls;
        let token = graph_token(tls)?.context(
            "servers want a token: set KILN_GRAPH_TOKEN to theirs, or KILN_GRAPH_TOKEN_FILE to a file with it that only you can read",
        )?;
        let config = ConnectConfig::new(self.servers.clone(), token);
        let in_flight_bytes = self.in_flight_bytes();
        Ok(DistGraph::connect(ConnectConfig { tls: tls.files()?, in_flight_bytes, ..config })?)
    }

    /// What is under way belongs to batches in the making.
    fn in_flight_bytes(&self) -> usize {
        (self.channel_size as usize).min(256 << 20)
    }

    /// Each batch in the making is a thread's.
    fn loader(&self, run: &RunArgs) -> LoaderConfig {
        let workers = run.loader().workers * self.worker_concurrency;
        LoaderConfig { workers: workers.min(1024), queue_bytes: self.channel_size as usize }
    }
}

/// The token of servers and clients that have certificates instead.
const CERTIFICATES: &str = "certificates-in-place-of-a-token";

/// The word between graph servers and their clients, as the environment has it. With certificates it may be left out.
///
/// # Errors
/// When it cannot be read or sent.
pub fn graph_token(tls: &TlsArgs) -> anyhow::Result<Option<Token>> {
    let word = secret("KILN_GRAPH_TOKEN")?.or_else(|| tls.are_given().then(|| CERTIFICATES.to_owned()));
    Ok(word.map(|word| Token::new(&word)).transpose()?)
}

impl Parts<'_> {
    /// Trains the models that `init` makes, one a rank, to be one model; keeps the best epoch's and tests it.
    /// `fanouts[i]` belongs to layer `i`, input layer first.
    ///
    /// # Errors
    /// The first rank's to fail.
    pub fn train<M: LayerWiseModel + Sync>(
        &self,
        program: Program<'_>,
        fanouts: &[Fanout],
        init: impl Fn(RngKey, &Device) -> kiln_nn::Result<M> + Sync,
    ) -> anyhow::Result<ExitCode> {
        let crew = Crew::meet(program.settings, self.run, &self.hash)?;
        // A rank without one says so as a rank, so that the others hear of it.
        let host = match &self.args.host {
            Some(host) => Ok(host.clone()),
            None => {
                crew.local_ip().map(|ip| ip.to_string()).map_err(|error| format!("{error:#}: give --host"))
            }
        };
        let endings = crew.run(|mut comm| {
            let reach = self.reach(&mut *comm, &host)?;
            let rank_info = comm.rank_info();
            let config = self.run.trainer(rank_info.local_rank, program.fit.optimizer()?);
            let trainer = Trainer::new(NodeClassification::new(), &config, comm, &init)?;
            let ending = self.rank(program, &reach, fanouts, rank_info, trainer)?;
            if let Reach::Worker(worker) = reach {
                worker.end(self.run.ranks().deadline)?;
            }
            Ok(ending)
        })?;
        Ok(Ending::status(&endings))
    }

    /// Says how much memory the graph takes at most, which is what grows with it.
    fn say_memory(&self, graph: &DistGraph, cache_bytes: usize, rank: usize) {
        let LoaderConfig { workers, queue_bytes } = self.args.loader(self.run);
        // Each worker numbers nodes by a table of all: those of the loaders to train, to validate and to test.
        let numbers = 3 * workers.max(1) * 8 * graph.n_nodes();
        // Where a device samples, the own part by nodes.
        let by_node = if self.args.graph_mode == GraphMode::Cpu { 0 } else { 8 * graph.n_nodes() };
        let graph_bytes = graph.memory_bytes() + cache_bytes + numbers + by_node;
        let mib = |bytes: usize| bytes.div_ceil(1 << 20);
        if rank == 0 {
            let (graph, batches) = (mib(graph_bytes), mib(queue_bytes));
            let besides = match self.args.graph_mode {
                GraphMode::Cpu => "",
                GraphMode::Device => ", and the own part on the device",
                GraphMode::ZeroCopy => ", and the neighbours of each hop in the making",
            };
            say(format_args!(
                "memory          at most {graph} MiB for the graph, {batches} MiB of batches ahead, a rank; and the step's{besides}"
            ));
        }
    }

    /// A meeting.
    fn reach(&self, comm: &mut dyn Communicator, host: &Result<String, String>) -> anyhow::Result<Reach> {
        let (folder, n_parts) = match &self.source {
            Source::Folder(folder, n_parts) => (folder, *n_parts),
            Source::Servers(first) => {
                let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
                let graph = first.map_or_else(|| self.args.connect(self.run).map(Arc::new), Ok)?;
                return Ok(Reach::Client(graph));
            }
        };
        let part =
            ColocatedWorker::part_of(comm.rank_info(), n_parts).context("ranks cannot share the parts")?;
        let part = Arc::new(Part::open(part_dir(folder, part))?);
        let tls = &self.run.launch.tls;
        let config = ColocatedWorkerConfig {
            token: graph_token(tls)?,
            tls: tls.files()?,
            in_flight_bytes: self.args.in_flight_bytes(),
            ..ColocatedWorkerConfig::new(host.clone().map_err(anyhow::Error::msg)?)
        };
        Ok(Reach::Worker(Box::new(ColocatedWorker::meet(comm.duplicate("parts")?, part, config)?)))
    }

    /// Samples the own part where `--graph-mode` says.
    fn sampler(
        &self,
        graph: &Arc<DistGraph>,
        fanouts: &[Fanout],
        rank_info: RankInfo,
    ) -> anyhow::Result<DistNeighborSampler> {
        let (sampler, mode) = (DistNeighborSampler::new(graph.clone(), fanouts), self.args.graph_mode);
        let Some(part) = graph.part().filter(|_| mode != GraphMode::Cpu) else { return Ok(sampler) };
        let key = (self.run.place_of(rank_info.local_rank), part.index);
        // Held while the part is copied, so that other ranks of the device do not copy it, too.
        let mut on_devices = self.on_devices.lock().unwrap_or_else(PoisonError::into_inner);
        let (own, n_edges) = match on_devices.get(&key) {
            Some(own) => own.clone(),
            None => {
                let device = self.run.device_of(rank_info.local_rank);
                let brought = mode.bring(Arc::new(part.graph_by_node()?), &device)?;
                let Some(own) = brought else { return Ok(sampler) };
                let n_edges = own.n_edges();
                let own = (DeviceSampler::new(own, fanouts), n_edges);
                on_devices.insert(key, own.clone());
                own
            }
        };
        drop(on_devices);
        if rank_info.rank == 0 {
            say(format_args!("sampling        of part {}, {}", part.index, mode.tell(n_edges)));
        }
        Ok(sampler.with_local_sampler(own)?)
    }

    fn rank<M: LayerWiseModel + Sync>(
        &self,
        program: Program<'_>,
        reach: &Reach,
        fanouts: &[Fanout],
        rank_info: RankInfo,
        trainer: Trainer<NodeClassification<M>>,
    ) -> anyhow::Result<Ending> {
        let Self { args, run, .. } = *self;
        let graph = reach.graph();
        let sampler = Arc::new(self.sampler(graph, fanouts, rank_info)?);
        let features = match args.no_static_cache {
            true => DistFeatureStore::without_cache(graph.clone()),
            false => DistFeatureStore::new(graph.clone())?,
        };
        let features = Arc::new(features.with_dynamic_cache(args.cache_size as usize));
        self.say_memory(graph, features.memory_bytes(), rank_info.rank);
        let loader = |nodes: &[NodeId]| -> anyhow::Result<_> {
            let items = trainer.items(nodes, run.batches())?;
            let items = match reach {
                Reach::Worker(worker) => items.shard_by_owner(worker.owner())?,
                Reach::Client(_) => items,
            };
            let batcher = NodeBatcher::new(sampler.clone(), features.clone(), graph.labels().clone());
            Ok(trainer.loader(items, batcher, args.loader(run))?)
        };
        let loaders = [loader(graph.train())?, loader(graph.val())?, loader(graph.test())?];
        // What training asked for: validation is told of nowhere.
        let stats = Cell::new(FetchStats::default());
        graph.take_fetch_stats();
        program.run(
            trainer,
            &loaders,
            |trainer, val, phase| {
                stats.set(graph.take_fetch_stats());
                let counts = Evaluator::Sampled.count(trainer, val, phase)?;
                graph.take_fetch_stats();
                Ok(counts)
            },
            |trainer, test, phase| Evaluator::Sampled.evaluate(trainer, test, phase),
            TrainerLine { rank: rank_info.rank, besides: || stats.get() },
        )
    }
}
